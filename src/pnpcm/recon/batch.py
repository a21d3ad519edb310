"""Many inputs, one after the other: finished results are kept, a failure is named and passed over.

Photographs and scans share this: what is done with one input is a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pnpcm.errors import PnPCMError
from pnpcm.io.files import remove_leftovers
from pnpcm.recon.record import Request, finished

Work = Callable[[Path, Path, Request], tuple[dict[str, Any], str]]
"""(input, target, request) → the record that was written, and a report for a person."""


@dataclass(frozen=True)
class Outcome:
    """What became of one input: ``done``, ``kept`` from an earlier run, or ``failed``."""

    input: Path
    status: str
    output: Path | None = None
    message: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)


def process(
    inputs: Sequence[Path], targets: Sequence[Path], choices: Mapping[str, Any], work: Work
) -> Iterator[Outcome]:
    """Do ``work`` on each input whose result is not there yet.

    ``targets``: where each result goes; its stem names the record beside it. ``choices``: what the
    user asked for, stored with each result: the result of another request, or of an input that
    has changed since, is made anew.
    """
    for folder in {target.parent for target in targets}:
        if folder.is_dir():
            remove_leftovers(folder)
    for path, target in zip(inputs, targets, strict=True):
        try:
            request = Request.of(path, choices)
            kept = finished(target.parent, target.stem, request)
            if kept is not None:
                yield Outcome(path, "kept", target.parent / kept["files"][0], record=kept)
                continue
            record, report = work(path, target, request)
            yield Outcome(path, "done", target.parent / record["files"][0], report, record)
        except (PnPCMError, OSError) as error:
            text = str(error)
            yield Outcome(path, "failed", message=text if str(path) in text else f"{path}: {text}")
