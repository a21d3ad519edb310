"""Input files of a run, in folders and subfolders, and the names of its outputs."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pnpcm.errors import ArgumentError
from pnpcm.io.photos import ONLY_IMAGES, SUFFIXES, UNREADABLE, unreadable
from pnpcm.names import printable
from pnpcm.recon.record import RECORD, Outcome, read_record, record_path

FORMATS = {
    "png": (".png",),
    "jpeg": (".jpg", ".jpeg"),
    "tiff": (".tif", ".tiff"),
    "webp": (".webp",),
}
"""Formats of outputs and their suffixes."""


@dataclass(frozen=True)
class Input:
    """An input file; ``below``: its subfolder in the folder that was given."""

    path: Path
    below: Path = Path()


def find_inputs(
    given: Sequence[Path],
    suffixes: Sequence[str],
    *,
    recursive: bool | None = None,
    mask: Path | None = None,
    what: str = "images",
    results: bool = True,
) -> tuple[list[Input], list[Outcome]]:
    """The files given and those in folders that end in ``suffixes``, sorted; and others.

    The others have a sentence each: pictures of formats that are not read are skipped, folders
    without such files have failed; it is an error if nothing else was given. Hidden files, ``mask``
    (a file or a folder) and outputs of earlier runs (see :func:`_outputs`) are left out.
    ``recursive``: also take files of subfolders; None: the command has no such option. ``what``:
    the files in words, for messages. ``results``: whether results can be inputs of another run.
    """
    mask = mask and _real(mask)
    found: dict[Path, Input] = {}
    skipped: dict[Path, Outcome] = {}
    empty: list[str] = []
    for path in given:
        if not path.is_dir():  # files that do not exist fail later
            found.setdefault(path, Input(path))
            continue
        files = _files(path, bool(recursive))
        files = [p for p in files if mask is None or not _real(p).is_relative_to(mask)]
        other = {p: UNREADABLE[s] for p in files if (s := p.suffix.lower()) in UNREADABLE}
        wanted = [p for p in files if p.suffix.lower() in suffixes]
        own = _outputs(wanted, results)
        wanted = [p for p in wanted if p not in own]
        if not wanted:
            own = _outputs(files, results)
            others = [p for p in files if p not in own]
            empty.append(_nothing_in(path, suffixes, others, recursive, what))
            skipped[path] = Outcome(path, "failed", message=printable(empty[-1]))
            continue
        for file in wanted:
            found.setdefault(file, Input(file, file.parent.relative_to(path)))
        for file, kind in other.items():
            sentence = printable(unreadable(file, kind))
            skipped[file] = Outcome(file, "skipped", message=sentence)
    if empty and not found:
        raise ArgumentError(empty[0])
    return list(found.values()), list(skipped.values())


def _files(folder: Path, recursive: bool) -> list[Path]:
    """The files of a folder, with ``recursive`` of its subfolders as well, without hidden ones.

    Pipes, sockets and devices are left out: reading them might never end.
    """
    found = []
    for root, folders, names in os.walk(folder):
        found += [Path(root) / name for name in names if not name.startswith(".")]
        folders[:] = [name for name in folders if recursive and not name.startswith(".")]
    return sorted(p for p in found if p.is_file() or not p.exists())  # links to nothing fail later


def _real(path: Path) -> Path:
    """The path without symbolic links; ``Path.resolve`` raises for a link to itself."""
    return Path(os.path.realpath(path))


def _outputs(files: Sequence[Path], results: bool) -> set[Path]:
    """The files that earlier runs have written beside a result or from another one of the files.

    Beside a result: samples, standard deviations, comparisons, previews of measurement files. A
    result whose input is not among the files is an input of its own, e.g. of the next task, if
    ``results``.
    """
    names, found = {p.name for p in files}, set()
    for folder in {p.parent for p in files}:
        for path in folder.glob(f"*{RECORD}"):
            record = read_record(folder, path.name.removesuffix(RECORD)) or {}
            first, *rest = record.get("files") or [""]
            found |= {folder / name for name in rest}
            if not results or Path(str(record.get("input"))).name in names - {first}:
                found.add(folder / first)
    measured = {p.with_suffix("") for p in files if p.suffix == ".npz"}
    return found | {p for p in files if p.suffix == ".png" and p.with_suffix("") in measured}


def _nothing_in(
    folder: Path,
    suffixes: Sequence[str],
    others: Sequence[Path],
    recursive: bool | None,
    what: str,
) -> str:
    """The sentence for a folder that has only ``others``, files that are not ``what``."""
    sentence = f"input {folder} is a folder without {what} ({', '.join(suffixes)})"
    images = [p for p in others if p.suffix.lower() in ONLY_IMAGES]
    if images and not set(SUFFIXES) & set(suffixes):
        command = shlex.join(("pnpcm", "restore", str(folder), "--task", "denoise"))
        return f"{sentence}; it holds images ({images[0].name}), restore them with {command}"
    for path in others:
        if (suffix := path.suffix.lower()) in UNREADABLE:
            return f"{sentence}; {unreadable(path, UNREADABLE[suffix])}"
    if not recursive and any(p.is_dir() and p.name[0] != "." for p in folder.iterdir()):
        move = "give these" if recursive is None else "--recursive takes the images in them"
        return f"{sentence}, but with subfolders; {move}"
    return f"{sentence}; check the path, or give files of these formats"


# outputs -----------------------------------------------------------------------------------------
def photo_targets(
    inputs: Sequence[Input], tasks: Sequence[str], out: Path, format: str | None = None
) -> list[Path]:
    """The output of each input: ``out`` if it is an image file, else ``NAME.TASK.png`` below it.

    Inputs of equal name keep their suffix (or folder) in the name. TIFF and WebP keep their
    format; all others become PNG, so that JPEG is not compressed again.
    """
    if format is not None and format not in FORMATS:
        raise ArgumentError(f"format is {format!r}, expected {_or(list(FORMATS))}")
    suffix = out.suffix.lower()
    if not out.is_dir() and suffix in (*SUFFIXES, *UNREADABLE):
        known = [s for each in FORMATS.values() for s in each]
        if suffix not in known:
            raise ArgumentError(f"out is {out}, expected a folder or a file in {_or(known)}")
        if len(inputs) > 1:
            raise ArgumentError(f"out is {out}, one file for {len(inputs)} inputs; give a folder")
        if format is not None and suffix not in FORMATS[format]:
            raise ArgumentError(f"format is {format!r}, but --out ends in {suffix}; leave one out")
        targets = [out]
    else:
        if out.is_file():
            raise ArgumentError(f"out is {out}, a file that exists; give a folder or an image file")
        names = distinct(inputs)
        targets = [
            out / i.below / f"{name}.{task}{_suffix(i.path, format)}"
            for i, name, task in zip(inputs, names, tasks, strict=True)
        ]
    sources = {_real(i.path) for i in inputs}
    for target in targets:
        if _real(target) in sources:
            raise ArgumentError(f"output {target} is an input; give another --out")
    if targets == [out]:
        _check_replaceable(out, inputs[0].path, tasks[0])
    return targets


def distinct(inputs: Sequence[Input]) -> list[str]:
    """A name for each input, different from those of others in the same subfolder."""
    names = [i.path.stem for i in inputs]
    whole = [i.path.name.replace(".", "_") for i in inputs]
    parents = [_real(i.path.parent).name for i in inputs]
    for longer in (whole, [f"{a}_{b}" for a, b in zip(parents, whole, strict=True)]):
        keys = [(i.below, name) for i, name in zip(inputs, names, strict=True)]
        count = Counter(keys)
        names = [k[1] if count[k] == 1 else name for k, name in zip(keys, longer, strict=True)]
    if len({(i.below, name) for i, name in zip(inputs, names, strict=True)}) < len(inputs):
        raise ArgumentError(
            "several inputs would have the same output name; restore them into different folders"
        )
    return names


def _suffix(source: Path, format: str | None) -> str:
    if format is not None:
        return FORMATS[format][0]
    suffix = source.suffix.lower()
    return suffix if suffix in (".tif", ".tiff", ".webp") else ".png"


def _check_replaceable(target: Path, source: Path, task: str) -> None:
    """Refuse to replace a file other than an earlier result of this input and task."""
    record = read_record(target.parent, target.stem) or {}
    first = next(iter(record.get("files") or [""]))
    if first and first != target.name and (target.parent / first).exists():
        raise ArgumentError(
            f"out is {target}, but its record {record_path(target.parent, target.stem)} belongs to "
            f"{first}; give another name"
        )
    earlier = Path(str(record.get("input"))).name == source.name and record.get("task") == task
    if target.exists() and not (first and earlier):
        raise ArgumentError(
            f"out is {target}, which exists and is not an earlier result of {source.name} with the "
            f"task {task}; delete it or give another name"
        )


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
