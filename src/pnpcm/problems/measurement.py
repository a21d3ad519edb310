"""Measurement files: y, task and noise level in one ``.npz`` file."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from pnpcm.core import Config
from pnpcm.errors import ArgumentError, PnPCMError
from pnpcm.io.files import write_atomically
from pnpcm.operators import measure
from pnpcm.problems import Task

SUFFIX = ".npz"
DAMAGE: tuple[type[Exception], ...] = (OSError, ValueError, KeyError, TypeError, EOFError)
DAMAGE += (SyntaxError, RuntimeError, TokenError, BadZipFile, zlib.error)
"""Exceptions of NumPy and zipfile for damaged files."""


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


def read_measurement(path: Path) -> Measurement:
    """Read a measurement file of ``pnpcm simulate``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            content: dict[str, Any] = json.loads(str(file["pnpcm"]))
            arrays = {
                name.removeprefix("task."): torch.from_numpy(file[name])
                for name in file.files
                if name.startswith("task.")
            }
            y = torch.from_numpy(file["y"])
        task = Config.from_dict(content["task"] | arrays)
        sigma_y = float(content["sigma_y"])
    except PnPCMError:
        raise
    except DAMAGE as error:
        raise ArgumentError(
            f"{path} is not a measurement file written by `pnpcm simulate` ({error})"
        ) from error
    if not isinstance(task, Task):
        raise ArgumentError(f"{path} holds a {type(task).__name__}, expected a task")
    return Measurement(y, task, sigma_y)


def preview(measurement: Measurement) -> Tensor | None:
    """``y`` as an image ``(C, H, W)``; None if it is not an image."""
    y = measurement.y
    return y[0] if y.ndim == 4 and not y.is_complex() and y.shape[1] in (1, 3) else None
