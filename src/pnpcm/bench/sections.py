"""Section: words, tables and a figure that stand in a report and in a Markdown file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextTable:
    """A table of texts; ``words``: what stands above it."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: str = ""

    def markdown(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return f"{self.words}\n\n{text}" if self.words else text


@dataclass(frozen=True)
class Section:
    """A part of a report.

    ``words``: paragraphs before the tables, ``after``: behind them. ``figure``: makes a figure of
    matplotlib, which Markdown does not contain.
    """

    title: str
    words: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()
    after: tuple[str, ...] = ()
    figure: Callable[[], Any] | None = None

    def markdown(self) -> str:
        parts = (*self.words, *(table.markdown() for table in self.tables), *self.after)
        return "\n\n".join([f"## {self.title}", *(part.strip("\n") for part in parts)]) + "\n"


def markdown(sections: Sequence[Section]) -> str:
    """Sections one after the other."""
    return "\n".join(section.markdown() for section in sections)
