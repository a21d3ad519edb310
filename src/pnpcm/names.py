"""Table, a dictionary by name; names of operators, losses and tasks; numbers with a noun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pnpcm.errors import UnknownNameError

OPERATOR_NAMES = (
    "inpainting",
    "superresolution",
    "gaussian-blur",
    "blur",
    "mri",
    "jpeg",
    "nonlinear-blur",
    "phase-retrieval",
    "crop",
    "compose",
    "function",
)

METHOD_NAMES = ("edm", "distill", "consistency", "ect", "cosign")
"""Rows of ``LOSSES``, the training methods of priors."""

TASK_NAMES = (
    "denoise",
    "inpaint",
    "superres",
    "deblur",
    "jpeg",
    "nonlinear-deblur",
    "phase-retrieval",
)
"""Rows of ``TASKS``, the tasks of ``pnpcm restore`` and ``simulate``."""


T = TypeVar("T")


def count_of(number: int, noun: str) -> str:
    """A number with its noun: 1 slice, 2 slices."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Table(dict[str, T]):
    """``dict`` whose error for a missing row names the nearest or all rows.

    >>> Table("fruit", {"apple": 1})["appel"]
    Traceback (most recent call last):
    pnpcm.errors.UnknownNameError: unknown fruit 'appel'; did you mean 'apple'?
    """

    def __init__(self, kind: str, rows: Mapping[str, T]) -> None:
        super().__init__(rows)
        self.kind = kind

    def __missing__(self, name: str) -> T:
        raise UnknownNameError(self.kind, name, self)
