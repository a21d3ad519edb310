"""Table: a dictionary by name whose missing rows raise an error with the nearest name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pnpcm.errors import UnknownNameError

T = TypeVar("T")


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
