"""Record of a result, ``NAME.result.json``: how it was computed; its presence marks it finished.

The files of a result and its record are written to a hidden folder and appear together, the record
last. A repeated run compares its request with the record and keeps finished results; files of an
older result that the new one does not replace are removed. Processes that write to the same folder
share the work: a result that another process computes is passed over and awaited at the end.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from pnpcm.cluster import computed
from pnpcm.errors import ArgumentError, PnPCMError, in_words
from pnpcm.io.files import write_json
from pnpcm.io.reading import check_regular, read_json
from pnpcm.io.staging import claim, publish, remove_leftovers
from pnpcm.names import printable


@dataclass(frozen=True)
class Request:
    """An input with its hash, and every choice as a plain value."""

    input: Path
    sha256: str
    choices: Mapping[str, Any]

    @classmethod
    def of(cls, path: Path, choices: Mapping[str, Any]) -> Request:
        """The request of one input file; choices that are files include a hash of their content."""
        check_input(path)
        plain = {k: _plain(v) for k, v in choices.items() if v is not None}
        try:
            sha256 = digest(path)
        except FileNotFoundError as error:
            raise ArgumentError(f"input {path} does not exist; check the path") from error
        return cls(path, sha256, json.loads(json.dumps(plain)))

    def to_dict(self) -> dict[str, Any]:
        return {"input": str(self.input), "sha256": self.sha256, "request": dict(self.choices)}


def check_input(path: Path) -> None:
    """Refuse an input whose name cannot be written to a record."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{path} has a name that is not UTF-8; rename it") from error


RECORD = ".result.json"
BUSY = "busy"
"""Status of an input whose result another process is computing."""


def record_path(folder: Path, name: str) -> Path:
    """The path of the record of the result ``name``."""
    return folder / f"{name}{RECORD}"


def read_record(folder: Path, name: str) -> dict[str, Any] | None:
    """The record of an earlier run; None if there is no readable one."""
    try:
        content = read_json(record_path(folder, name), "a record")
    except ArgumentError:
        return None
    files = content.get("files", [])
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
    own = {f for f in old.get("files", []) if f.startswith(name) and Path(f).name == f}
    publish([*files, record], folder, stale=sorted(own - set(names)), own=own)
    return whole


HASHED = 2**30
"""Bytes of a file that are hashed; of a longer one as many, in blocks evenly spaced over it."""
BLOCK = 2**20


def digest(path: Path) -> str:
    """SHA-256 of a file; of one longer than ``HASHED`` that of its blocks, followed by its length.

    BART scans are named with or without suffix: ``.cfl`` files together with the ``.hdr`` file.
    """
    found, lengths = hashlib.sha256(), ""
    pair = [path.with_suffix(s) for s in (".cfl", ".hdr")]
    if path.suffix not in (".cfl", ".hdr"):
        pair = [path.with_name(path.name + s) for s in (".cfl", ".hdr")]
    for file in pair if all(p.is_file() for p in pair) else [path]:
        check_regular(file)
        size, most = file.stat().st_size, HASHED // BLOCK
        with file.open("rb") as stream:
            for i in range(min(-(-size // BLOCK), most)):
                if size > HASHED:
                    stream.seek(i * (size - BLOCK) // (most - 1))
                found.update(stream.read(BLOCK))
        if size > HASHED:
            lengths += f" of {HASHED} of {size} bytes"
    return found.hexdigest() + lengths


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
LONGEST = 300
"""Characters of a message of another library that are shown."""


def unwatched(what: str, done: float, total: int) -> None:
    """A ``Watch`` that does nothing."""


class Work(Protocol):
    """The reconstruction of one input."""

    @property
    def watch(self) -> Watch: ...

    def choices(self, path: Path) -> Mapping[str, Any]:
        """The request of the user; a result of another request is computed again."""
        ...

    def files(self, target: Path) -> list[str]:
        """Names of all files of a result, without its record, in the folder of ``target``."""
        ...

    def check(self, path: Path) -> None:
        """Raise an error for a file that its headers show to be wrong, before all of it is read."""
        ...

    def unwatched(self) -> Work:
        """The same work in another process: its progress is not told."""
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


@dataclass(frozen=True)
class Item:
    """One input of a run; relative paths start from ``folder``, also on another machine.

    ``wait``: whether to await another process that is computing the same result.
    """

    path: Path
    target: Path
    work: Work
    folder: Path
    wait: bool = False


def process(
    inputs: Sequence[Path], targets: Sequence[Path], work: Work, client: Any = None
) -> Iterator[Outcome]:
    """Yield the outcome of each input, after ``work`` on those without a finished result.

    ``targets``: output path of each result; its stem is the name of the record. The request is
    stored with each result; a result of another request, or of an input that has changed, is
    computed again. ``client``: of dask.distributed, whose workers read and write the files, in the
    same folders as this process; outcomes are yielded in the order in which they finish. A failure
    of any kind concerns its input only. Inputs whose results would replace each other, an input,
    or the result of another input are refused before anything is written. An input whose result
    another process is computing comes last: its outcome is "kept", or "done" if that process ended
    without a result.
    """
    check_outputs(inputs, targets, work)
    folders = {target.parent for target in targets}  # some are made by the run
    for folder in folders:
        remove_leftovers(folder)
    if client is not None:
        _check_threads(client)
        work = work.unwatched()
    pairs = zip(inputs, targets, strict=True)
    items = (Item(path, target, work, Path.cwd()) for path, target in pairs)
    busy = []
    for item, found in _outcomes(items, client):
        if found.status == BUSY:
            busy.append(replace(item, wait=True))
        else:
            yield found
    yield from (found for _, found in _outcomes(iter(busy), client))
    for folder in folders:  # temporary files of killed workers
        remove_leftovers(folder)


def _outcomes(items: Iterator[Item], client: Any) -> Iterator[tuple[Item, Outcome]]:
    """Items with their outcomes, those of lost workers included."""
    for item, found, lost in computed(client, outcome, items):
        if found is None:
            found = Outcome(item.path, "failed", message=f"{printable(str(item.path))}: {lost}")
        elif not all(path.exists() for path in found.outputs):
            found = Outcome(item.path, "failed", message=(
                f"{item.path}: its worker has written {found.outputs[0]}, which is not here; "
                "workers need the same folders, on a file system that all machines share"
            ))  # fmt: skip
        yield item, found


def outcome(item: Item) -> Outcome:
    """The outcome of one input, in the process that computes it; ``BUSY`` if another one does."""
    path, target = item.path, item.target
    try:
        if not item.folder.is_dir():
            raise ArgumentError(f"{platform.node()} has no folder {item.folder} to read it from")
        with chdir(item.folder), made_folder(target.parent):
            if item.wait:
                item.work.watch(f"{path.name}, awaiting another process", 0, 0)
            with claim(target.parent, target.stem, wait=item.wait) as mine:
                return _claimed(item) if mine else Outcome(path, BUSY)
    except Exception as error:  # one bad input must not end a run of thousands
        return Outcome(path, "failed", message=sentence(path, error))


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """The folder ``path``; after an error those that were made for it are removed, if empty."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # another process has written into it
            for folder in made:
                folder.rmdir()
        raise


def _claimed(item: Item) -> Outcome:
    """The finished result of an input that no other process has, or that of ``work`` on it."""
    path, target = item.path, item.target
    item.work.check(path)
    request = Request.of(path, item.work.choices(path))
    status, report = "kept", ""
    record = finished(target.parent, target.stem, request)
    if record is None:
        status = "done"
        record, report = item.work(path, target, request)
    written = tuple(target.parent / name for name in record["files"])
    return Outcome(path, status, written, report, record)


def sentence(path: Path, error: Exception) -> str:
    """A failure in one line that names the input."""
    text = " ".join(in_words(error).split())
    if isinstance(error, MemoryError):
        text = "there is not enough memory for it"
    elif not isinstance(error, PnPCMError | OSError):
        text = f"{type(error).__name__}: {text[:LONGEST]}"
    return printable(text if str(path) in text else f"{path}: {text}")


def _check_threads(client: Any) -> None:
    """Refuse workers with several threads: relative paths start from the folder of a process."""
    for worker, threads in client.nthreads().items():
        if threads != 1:
            raise ArgumentError(
                f"scheduler has the worker {worker} with {threads} threads, expected 1; start it "
                "with --nthreads 1"
            )


# outputs of several inputs -----------------------------------------------------------------------
def check_outputs(inputs: Sequence[Path], targets: Sequence[Path], work: Work) -> None:
    """Refuse results that would replace each other, an input, or the result of another input.

    Refused are also results in the place of a file that no record lists, and in a folder that
    cannot be made, because a file has its name.
    """
    sources = {os.path.realpath(path) for path in inputs}
    owners: dict[Path, tuple[Path, Path]] = {}
    for path, target in zip(inputs, targets, strict=True):
        names = (*work.files(target), record_path(target.parent, target.stem).name)
        for file in (target.parent / name for name in names):
            if os.path.realpath(file) in sources:
                raise ArgumentError(f"output {file} is an input; give another folder (--out)")
            if file in owners:
                raise ArgumentError(
                    f"{owners[file][0]} and {path} would both write {file}; reconstruct them into "
                    "different folders (--out)"
                )
            owners[file] = path, target
        blocked = next(folder for folder in target.absolute().parents if folder.exists())
        if not blocked.is_dir():
            raise ArgumentError(
                f"output {target} cannot be written, since {blocked} is a file; give another "
                "folder (--out)"
            )
    known: set[Path] = set()
    for folder in {target.parent for target in targets}:
        for found in sorted(folder.glob(f"*{RECORD}")):
            name = found.name.removesuffix(RECORD)
            record = read_record(folder, name)
            if record is None:  # damaged
                continue
            for file in (found, *(folder / str(file) for file in record.get("files") or ())):
                known.add(file)
                if file not in owners:
                    continue
                path, target = owners[file]
                if name == target.stem and _same_input(path, record):
                    continue
                raise ArgumentError(
                    f"{file} is a result of {record.get('input', 'another call')}, which that of "
                    f"{path} would replace; give another folder (--out), or delete it"
                )
    for file, (_, target) in owners.items():
        if file not in known and os.path.lexists(file) and not _is_ours(file, target):
            raise ArgumentError(
                f"output {file} exists, and no record says that it is a result of pnpcm; rename "
                "it, or give another folder (--out)"
            )


def _is_ours(file: Path, target: Path) -> bool:
    """Whether the record of ``target`` lists ``file``, or is damaged.

    A result that is being written, or whose process was killed meanwhile, has its record in a
    hidden folder, which is looked at first: the record moves from there.
    """
    record = record_path(target.parent, target.stem)
    for path in (*target.parent.glob(f".pnpcm-*/{glob.escape(record.name)}"), record):
        content = read_record(path.parent, target.stem) or {"files": [file.name]}
        if path.exists() and file.name in (path.name, *content.get("files", ())):
            return True
    return False


def _same_input(path: Path, record: Mapping[str, Any]) -> bool:
    """Whether ``path`` is the input of a record, by its path or by its content."""
    if os.path.realpath(str(record.get("input"))) == os.path.realpath(path):
        return True
    try:
        return digest(path) == record.get("sha256")
    except OSError:  # reported when it is read; then nothing is written
        return True
