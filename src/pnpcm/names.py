"""Table, a dictionary by name; names of operators, losses and tasks; words for messages."""

from __future__ import annotations

import re
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


_UNPRINTED = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, changes of the direction of writing, and bytes that are not UTF-8."""


def printable(text: str) -> str:
    """``text`` in one line, with \\x.. for control characters and for bytes that are not UTF-8."""
    return _UNPRINTED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(found[0])[1:-1]


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
