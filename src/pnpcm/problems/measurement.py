"""Measurement files: y, task and noise level in one ``.npz`` file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.io.arrays import opened_npz
from pnpcm.io.files import write_atomically
from pnpcm.io.pictures import NEED
from pnpcm.io.reading import Budget
from pnpcm.operators import measure
from pnpcm.operators.blur import WIDEST_KERNEL
from pnpcm.problems import Task

SUFFIX = ".npz"


@dataclass(frozen=True, eq=False)
class Measurement:
    """A measurement ``y`` ``(1, …)`` of a task with noise ``sigma_y`` ([0, 1] scale)."""

    y: Tensor
    task: Task
    sigma_y: float


def simulate(x: Tensor, task: Task, sigma_y: float, *, seed: int = 0) -> Measurement:
    """The measurement of clean images ``(B, C, H, W)``; ``seed``: of masks, codes and noise."""
    generator = torch.Generator().manual_seed(seed)
    x, task = task.fit(x)
    shape = (x.shape[1], x.shape[2], x.shape[3])
    task = task.prepared(shape, generator)
    y = measure(task.operator(shape), x, sigma_y, generator=generator)
    return Measurement(y, task, sigma_y)


def write_measurement(path: Path, measurement: Measurement) -> None:
    """Write a measurement file atomically. It contains data only, no pickled objects."""
    plain = measurement.task.to_dict()
    arrays = {name: value for name, value in plain.items() if isinstance(value, Tensor)}
    words = {name: value for name, value in plain.items() if name not in arrays}
    content = {"task": words, "sigma_y": measurement.sigma_y}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(
                file,
                allow_pickle=False,
                y=measurement.y.numpy(),
                pnpcm=np.array(json.dumps(content)),
                **{f"task.{name}": value.numpy() for name, value in arrays.items()},
            )

    write_atomically(path, write)


def read_measurement(
    path: Path,
    *,
    max_pixels: int | None = None,
    need: int = NEED,
    accept: Callable[[Measurement], None] = lambda measured: None,
) -> Measurement:
    """Read a measurement file of ``pnpcm simulate``.

    Files of more than ``max_pixels`` numbers are refused; default: as many as the memory allows if
    each pixel of the image needs ``need`` bytes. ``accept`` raises an error for a measurement that
    is not wanted; it is called before the operator of the task is built.
    """
    format, budget = "a measurement file of `pnpcm simulate`", Budget(need, max_pixels)
    with opened_npz(path, format, budget) as file:
        if not {"pnpcm", "y"} <= {*file.names}:
            found = ", ".join(file.names[:8]) or "nothing"
            is_scan = "kspace" in file
            move = "k-space is read by pnpcm mri" if is_scan else "give such a file or an image"
            raise ArgumentError(f"{path} is not {format}, it holds {found}; {move}")
        content: dict[str, Any] = json.loads(str(file["pnpcm"]))
        shapes = {n: file.shape(n) for n in file.names if n.startswith("task.")}
        _check_sizes(path, shapes, file.shape("y"))
        arrays = {
            name.removeprefix("task."): torch.from_numpy(file[name])
            for name in file.names
            if name.startswith("task.")
        }
        y = torch.from_numpy(file["y"])
        task, sigma_y = Config.from_dict(content["task"] | arrays), float(content["sigma_y"])
        if not isinstance(task, Task):
            raise ArgumentError(f"{path} holds a {type(task).__name__}, expected a task")
        if y.ndim != 4 or not (y.is_floating_point() or y.is_complex()) or y.numel() == 0:
            raise ValueError(f"y is {y.dtype} of shape {tuple(y.shape)}, expected (1, C, H, W)")
        Budget(need * task.growth, max_pixels).check(path, y.shape)
        measured = Measurement(y, task, sigma_y)
        accept(measured)
        problem = task.problem(y)  # values that do not fit each other
        problem.operator.x_shape(problem.y)
    return measured


def is_measurement(path: Path) -> bool:
    """Whether a file is one of :func:`write_measurement`, judged by the names of its arrays."""
    try:
        with opened_npz(path, "a measurement file", Budget(NEED)) as file:
            return {"pnpcm", "y"} <= {*file.names}
    except ArgumentError:
        return False


def _check_sizes(
    path: Path, shapes: Mapping[str, tuple[int, ...]], y_shape: tuple[int, ...]
) -> None:
    """Refuse arrays of a task that are larger than y and than the widest kernel."""
    if sum(map(math.prod, shapes.values())) > max(math.prod(y_shape), WIDEST_KERNEL**2):
        name = max(shapes, key=lambda each: math.prod(shapes[each]))
        raise ArgumentError(
            f"{name[:40]} of {path} has shape {shapes[name]}, expected arrays of at most "
            f"{WIDEST_KERNEL}×{WIDEST_KERNEL} numbers in all, or as many as y, which has shape "
            f"{y_shape}; write the file again with pnpcm simulate"
        )


def preview(measurement: Measurement) -> Tensor | None:
    """``y`` as an image ``(C, H, W)``; None if it is not an image."""
    y = measurement.y
    return y[0] if y.ndim == 4 and not y.is_complex() and y.shape[1] in (1, 3) else None
