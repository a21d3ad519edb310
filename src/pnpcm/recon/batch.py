"""Processing of many input files: finished results are kept, failures are reported and skipped.

Used for photographs and scans; the function that processes one input is an argument.
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
"""(input, target, request) → the record that was written, and a report as text."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one input: ``done``, ``kept`` from an earlier run, or ``failed``."""

    input: Path
    status: str
    output: Path | None = None
    message: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)


def process(
    inputs: Sequence[Path], targets: Sequence[Path], choices: Mapping[str, Any], work: Work
) -> Iterator[Outcome]:
    """Yield the outcome of each input, after ``work`` on those without a finished result.

    ``targets``: output path of each result; its stem is the name of the record. ``choices``: the
    request of the user, stored with each result; a result of another request, or of an input that
    has changed, is computed again.
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
