"""Tables where names meet parts: a dictionary whose missing rows explain themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pnpcm.errors import UnknownNameError

T = TypeVar("T")


class Table(dict[str, T]):
    """``dict`` that says what it holds when asked for a row it does not have.

    >>> Table("fruit", {"apple": 1})["appel"]
    Traceback (most recent call last):
    pnpcm.errors.UnknownNameError: unknown fruit 'appel'; did you mean 'apple'?
    """

    def __init__(self, kind: str, rows: Mapping[str, T]) -> None:
        super().__init__(rows)
        self.kind = kind

    def __missing__(self, name: str) -> T:
        raise UnknownNameError(self.kind, name, self)
