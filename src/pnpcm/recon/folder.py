"""Many files: restored one by one, finished ones kept, a bad one named and passed over."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, PnPCMError
from pnpcm.io.files import remove_leftovers
from pnpcm.io.photos import Photo, read_photo
from pnpcm.problems import Task
from pnpcm.problems.measurement import SUFFIX, read_measurement
from pnpcm.recon.photo import TILE, plan, restore
from pnpcm.recon.record import Restoration

TaskFor = Callable[[Path, Photo], tuple[Task, tuple[str, ...]]]
"""The task of one picture, and what must be said about it."""


@dataclass(frozen=True)
class Order:
    """How to restore: the arguments of :func:`restore` that hold for all files."""

    prior: str = "natural"
    sigma_y: float | None = None
    steps: int | None = None
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 1
    seed: int = 0
    tile: int = TILE
    halo: int | None = None
    format: str | None = None
    device: str = "cpu"
    reference: Path | None = None

    def choices(self) -> dict[str, Any]:
        """The arguments that :func:`plan` and :func:`restore` share."""
        names = ("steps", "preset", "settings", "samples", "tile", "halo", "device")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Outcome:
    """What became of one input: ``done``, ``kept`` from an earlier run, or ``failed``."""

    input: Path
    status: str
    output: Path | None = None
    message: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)
    restoration: Restoration | None = None


def restore_files(
    inputs: Sequence[Path],
    out: Path,
    task_for: TaskFor | None,
    order: Order,
    *,
    description: Mapping[str, Any],
    prior: Prior,
) -> Iterator[Outcome]:
    """Restore each input into ``out``; a second run does only what is missing.

    ``description``: what the user asked for, stored with each result; a result of another request,
    or of an input that has changed since, is made anew.
    """
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    for path, target in zip(inputs, _targets(inputs, out, order.format), strict=True):
        try:
            yield _one(path, target, task_for, order, description, prior)
        except (PnPCMError, OSError) as error:
            yield Outcome(path, "failed", message=_sentence(path, error))


def resolve(path: Path, task_for: TaskFor | None, order: Order, prior: Prior) -> dict[str, Any]:
    """What :func:`restore_files` would do with one file, without doing it."""
    y, task, sigma_y, _, notes = _read(path, task_for, order)
    planned = plan(y, task, prior, sigma_y=sigma_y, **order.choices())
    return {
        "input": str(path),
        "task": task.name,
        "options": _plain(task),
        "operator": repr(planned.problem.operator),
        "prior": planned.name,
        "sigma_y": planned.sigma_y,
        "sigma_y_from": planned.sigma_source,
        "parameters_from": planned.chosen.source,
        "solver": planned.chosen.config.to_dict(),
        "notes": [*planned.notes, *notes],
    }


def _one(
    path: Path,
    target: Path,
    task_for: TaskFor | None,
    order: Order,
    description: Mapping[str, Any],
    prior: Prior,
) -> Outcome:
    request = {"input": str(path), "sha256": _digest(path), "request": dict(description)}
    kept = _finished(target, request)
    if kept is not None:
        return Outcome(path, "kept", target, record=kept)
    start = time.perf_counter()
    y, task, sigma_y, photo, notes = _read(path, task_for, order)
    read = time.perf_counter() - start
    reference = None if order.reference is None else read_photo(order.reference).x
    done = restore(
        y,
        task,
        prior,
        sigma_y=sigma_y,
        seed=order.seed,
        reference=reference,
        **order.choices(),
    )
    start = time.perf_counter()
    record = {"input": request["input"], "task": task.name, "options": _plain(task)}
    record |= {"sha256": request["sha256"], "request": request["request"]}
    record["notes"] = [*done.notes, *notes]
    done.seconds["read"] = read
    written = done.save(target, like=photo, format=order.format, record=record)
    done.seconds["write"] = time.perf_counter() - start
    content = json.loads(written[-1].read_text(encoding="utf-8"))
    return Outcome(path, "done", target, record=content, restoration=done)


def _read(
    path: Path, task_for: TaskFor | None, order: Order
) -> tuple[Tensor, Task, float | None, Photo | None, tuple[str, ...]]:
    if path.suffix.lower() == SUFFIX:
        measured = read_measurement(path)
        sigma_y = measured.sigma_y if order.sigma_y is None else order.sigma_y
        return measured.y, measured.task, sigma_y, None, ()
    if task_for is None:
        raise ArgumentError(f"{path} is a picture, which needs a task; give --task")
    photo = read_photo(path)
    task, notes = task_for(path, photo)
    return photo.x, task, order.sigma_y, photo, notes


def _targets(inputs: Sequence[Path], out: Path, format: str | None) -> list[Path]:
    """One output name per input; inputs of equal stem keep their suffix (or folder) in the name.

    TIFF and WebP stay what they are; all else becomes PNG, so that JPEG does not lose again.
    """
    stems = Counter(p.stem for p in inputs)
    names = [p.stem if stems[p.stem] == 1 else p.name.replace(".", "_") for p in inputs]
    again = Counter(names)
    names = [
        n if again[n] == 1 else f"{p.resolve().parent.name}_{n}"
        for n, p in zip(names, inputs, strict=True)
    ]
    if len(set(names)) < len(names):
        raise ArgumentError("several inputs would have the same output name; restore them apart")
    targets = [out / f"{n}{_suffix(p, format)}" for n, p in zip(names, inputs, strict=True)]
    for source, target in zip(inputs, targets, strict=True):
        if source.resolve() == target.resolve():
            raise ArgumentError(f"output {target} is the input itself; give another --out")
    return targets


def _suffix(source: Path, format: str | None) -> str:
    if format is not None:
        return {"jpeg": ".jpg", "tiff": ".tif"}.get(format, f".{format}")
    own = source.suffix.lower()
    return own if own in (".tif", ".tiff", ".webp") else ".png"


def _finished(target: Path, request: Mapping[str, Any]) -> dict[str, Any] | None:
    record = target.with_name(f"{target.stem}.result.json")
    try:
        content: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = all(content.get(key) == json.loads(json.dumps(v)) for key, v in request.items())
    there = all((target.parent / name).exists() for name in content.get("files", []))
    return content if same and there and target.exists() else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(task: Task) -> dict[str, Any]:
    """The options of a task; arrays by their shape."""
    found: dict[str, Any] = {}
    for name, value in task.to_dict().items():
        if isinstance(value, Tensor):
            found[name] = f"array {'×'.join(map(str, value.shape))}"
        elif value is not None and name != "type" and isinstance(value, str | int | float | list):
            found[name] = value
    return found


def _sentence(path: Path, error: Exception) -> str:
    text = str(error)
    return text if str(path) in text else f"{path}: {text}"
