"""Record of a result, ``NAME.result.json``: how it was computed; its presence marks it finished.

The files of a result and its record are written to a hidden folder and appear together, the record
last. A repeated run compares its request with the record and keeps finished results; files of an
older result that the new one does not replace are removed. Processes that write to the same folder
share the work: a result that another process computes is passed over and awaited at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from pnpcm.errors import PnPCMError, in_words
from pnpcm.io.files import write_json
from pnpcm.io.staging import claim, publish, remove_leftovers


@dataclass(frozen=True)
class Request:
    """An input with its hash, and every choice as a plain value."""

    input: Path
    sha256: str
    choices: Mapping[str, Any]

    @classmethod
    def of(cls, path: Path, choices: Mapping[str, Any]) -> Request:
        """The request of one input file; choices that are files include a hash of their content."""
        plain = {k: _plain(v) for k, v in choices.items() if v is not None}
        return cls(path, digest(path), json.loads(json.dumps(plain)))

    def to_dict(self) -> dict[str, Any]:
        return {"input": str(self.input), "sha256": self.sha256, "request": dict(self.choices)}


RECORD = ".result.json"


def record_path(folder: Path, name: str) -> Path:
    """The path of the record of the result ``name``."""
    return folder / f"{name}{RECORD}"


def read_record(folder: Path, name: str) -> dict[str, Any] | None:
    """The record of an earlier run; None if there is no readable one."""
    try:
        content = json.loads(record_path(folder, name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    files = content.get("files", []) if isinstance(content, dict) else None
    plain = isinstance(files, list) and all(isinstance(file, str) for file in files)
    return content if plain else None


def finished(folder: Path, name: str, request: Request) -> dict[str, Any] | None:
    """The record of a finished result of the same request, if all its files exist."""
    content = read_record(folder, name)
    if content is None or not content.get("files"):
        return None
    same = all(content.get(key) == value for key, value in request.to_dict().items())
    there = all((folder / file).exists() for file in content["files"])
    return content if same and there else None


def publish_result(
    folder: Path, name: str, content: Mapping[str, Any], files: Sequence[Path]
) -> dict[str, Any]:
    """Move ``files`` of a staging folder into ``folder`` with their record, and return it.

    All of them appear, or none. Files that an older record lists and that are not replaced are
    removed, if they are in this folder and begin with the name of the result.
    """
    old = read_record(folder, name) or {}
    names = [path.name for path in files]
    whole = dict(content) | {"files": names}
    record = record_path(files[0].parent, name)
    write_json(record, whole)
    own = (f for f in old.get("files", []) if f.startswith(name) and Path(f).name == f)
    publish([*files, record], folder, stale=sorted(set(own) - set(names)))
    return whole


def digest(path: Path) -> str:
    """SHA-256 of a file; for ``.cfl`` files together with the ``.hdr`` file (BART
    scans are named with or without suffix)."""
    found = hashlib.sha256()
    pair = [path.with_suffix(s) for s in (".cfl", ".hdr")]
    if path.suffix not in (".cfl", ".hdr"):
        pair = [path.with_name(path.name + s) for s in (".cfl", ".hdr")]
    for file in pair if all(p.is_file() for p in pair) else [path]:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return f"{value} {digest(value)[:16]}" if value.is_file() else str(value)
    if isinstance(value, Tensor):
        total = float(value.abs().double().sum())
        return f"array {'×'.join(map(str, value.shape))}, sum {total:.6g}"
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


# many inputs -------------------------------------------------------------------------------------
Watch = Callable[[str, float, int], None]
"""Told (what is done now, parts of it done, their number; 0: unknown) during a reconstruction."""


class Work(Protocol):
    """The reconstruction of one input."""

    @property
    def watch(self) -> Watch: ...

    def choices(self, path: Path) -> Mapping[str, Any]:
        """The request of the user; a result of another request is computed again."""
        ...

    def __call__(self, path: Path, target: Path, request: Request) -> tuple[dict[str, Any], str]:
        """Write the result to ``target``; returns its record and a report as text."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The outcome of an input: ``done``, ``kept`` from an earlier run, ``failed``, ``skipped``."""

    input: Path
    status: str
    outputs: tuple[Path, ...] = ()
    message: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)


def process(inputs: Sequence[Path], targets: Sequence[Path], work: Work) -> Iterator[Outcome]:
    """Yield the outcome of each input, after ``work`` on those without a finished result.

    ``targets``: output path of each result; its stem is the name of the record. The request is
    stored with each result; a result of another request, or of an input that has changed, is
    computed again. An input whose result another process is computing comes last: its outcome is
    "kept", or "done" if that process ended without a result.
    """
    for folder in {target.parent for target in targets}:
        if folder.is_dir():
            remove_leftovers(folder)
    busy = []
    for path, target in zip(inputs, targets, strict=True):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with claim(target.parent, target.stem) as mine:
                if mine:
                    yield _outcome(path, target, work)
                else:
                    busy.append((path, target))
        except (PnPCMError, OSError) as error:
            yield _failure(path, error)
    for path, target in busy:
        try:
            work.watch(f"{path.name}, awaiting another process", 0, 0)
            with claim(target.parent, target.stem, wait=True):
                yield _outcome(path, target, work)
        except (PnPCMError, OSError) as error:
            yield _failure(path, error)


def _outcome(path: Path, target: Path, work: Work) -> Outcome:
    """The finished result of an input, or that of ``work`` on it."""
    request = Request.of(path, work.choices(path))
    status, report = "kept", ""
    record = finished(target.parent, target.stem, request)
    if record is None:
        status = "done"
        record, report = work(path, target, request)
    written = tuple(target.parent / name for name in record["files"])
    return Outcome(path, status, written, report, record)


def _failure(path: Path, error: Exception) -> Outcome:
    text = in_words(error)
    return Outcome(path, "failed", message=text if str(path) in text else f"{path}: {text}")
