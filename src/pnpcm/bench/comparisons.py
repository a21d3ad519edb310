"""comparisons: what the paper concludes from a table, in its numbers and in ours.

A comparison is a difference between two lines of a table, e.g. PnP-CM minus DPS. Ours is paired
over the images and has the sign of the published one, the opposite sign, or is undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pnpcm.bench.paper import Published
from pnpcm.bench.scores import METRICS
from pnpcm.bench.sections import TextTable
from pnpcm.bench.stats import FEW_IMAGES, Difference, difference
from pnpcm.bench.tables import heading
from pnpcm.errors import ArgumentError
from pnpcm.names import Table

SAME, OPPOSITE, UNDECIDED = "as in the paper", "opposite", "undecided"


@dataclass(frozen=True)
class Beside:
    """A published cell and ours: scores by image (number, file, seed), empty if not computed."""

    published: Published
    images: Mapping[tuple[object, ...], Mapping[str, float]]
    nfe: int | None = None

    @property
    def metrics(self) -> tuple[str, str]:
        """Names of PSNR and of the second metric."""
        return "psnr", "ssim" if self.published.is_scan else "lpips-vgg"

    @property
    def count(self) -> int:
        return len(self.images)

    def mean(self, metric: str) -> float | None:
        """The mean of a score; None if an image has none."""
        found = [scores[metric] for scores in self.images.values() if metric in scores]
        return float(np.mean(found)) if found and len(found) == self.count else None


@dataclass(frozen=True)
class Comparison:
    """First minus second line in one column: published, and ours with its interval."""

    words: str
    task: str
    metric: str
    published: float
    ours: Difference | None

    @property
    def outcome(self) -> str | None:
        """One of ``SAME``, ``OPPOSITE`` and ``UNDECIDED``; None if one of the lines is missing."""
        if self.ours is None:
            return None
        if self.ours.better is None or self.published == 0:
            return UNDECIDED
        return SAME if self.ours.mean * self.published > 0 else OPPOSITE


# which lines -------------------------------------------------------------------------------------
Line = tuple[str, int | None, float | None]
"""Method, evaluations and noise level; None: whatever the cell has."""
Pair = tuple[str, Line, Line]


def _main(cells: Sequence[Beside]) -> Iterator[Pair]:
    for method in dict.fromkeys(c.published.method for c in cells):
        if method != "PnP-CM":
            yield f"PnP-CM − {method}", ("PnP-CM", None, None), (method, None, None)


def _ablation(_: Sequence[Beside]) -> Iterator[Pair]:
    full: Line = ("injection, momentum", None, None)
    yield "effect of injection", full, ("no injection, momentum", None, None)
    yield "effect of momentum", full, ("injection, no momentum", None, None)


def _momentum(cells: Sequence[Beside]) -> Iterator[Pair]:
    for nfe in sorted({c.published.nfe or 0 for c in cells}):
        yield f"effect of momentum, N = {nfe}", ("momentum", nfe, None), ("no momentum", nfe, None)


def _nfe_noise(cells: Sequence[Beside]) -> Iterator[Pair]:
    for level in sorted({c.published.sigma_y or 0.0 for c in cells}):
        for few, many in ((2, 4), (4, 8)):
            words = f"N = {many} − N = {few}, σ_y = {level:g}"
            yield words, ("PnP-CM", many, level), ("PnP-CM", few, level)


PAIRS: Table[Callable[[Sequence[Beside]], Iterator[Pair]]] = Table(
    "table",
    {"main": _main, "ablation": _ablation, "momentum": _momentum, "nfe-noise": _nfe_noise},
)


# differences -------------------------------------------------------------------------------------
def comparisons(table: str, cells: Sequence[Beside]) -> list[Comparison]:
    """Every pair of lines of a table in every task and metric."""
    found = []
    for words, first, second in PAIRS[table](cells):
        for task in dict.fromkeys(c.published.task for c in cells):
            one, other = (_cell(cells, line, task) for line in (first, second))
            if one is None or other is None:
                continue
            a, b = one.published, other.published
            published = (a.psnr - b.psnr, a.second - b.second)
            for metric, value in zip(one.metrics, published, strict=True):
                found.append(Comparison(words, task, metric, value, _paired(one, other, metric)))
    return found


def _cell(cells: Sequence[Beside], line: Line, task: str) -> Beside | None:
    method, nfe, sigma_y = line
    some = [
        c
        for c in cells
        if (c.published.method, c.published.task) == (method, task)
        and nfe in (None, c.published.nfe)
        and sigma_y in (None, c.published.sigma_y)
    ]
    if len(some) > 1:
        raise ArgumentError(f"line {line} of task {task!r} fits {len(some)} cells, expected one")
    return some[0] if some else None


def _paired(one: Beside, other: Beside, metric: str) -> Difference | None:
    values = [
        scores[metric] - other.images[key][metric]
        for key, scores in one.images.items()
        if metric in scores and metric in other.images.get(key, {})
    ]
    return difference(np.array(values), METRICS[metric].larger_is_better) if values else None


# table -------------------------------------------------------------------------------------------
def comparison_table(table: str, cells: Sequence[Beside]) -> TextTable | None:
    """Differences, ours and published, and how often their signs are the same."""
    found = comparisons(table, cells)
    if not any(c.ours for c in found):
        return None
    tasks = list(dict.fromkeys(c.task for c in found))
    metrics = list(dict.fromkeys(c.metric for c in found))
    cell = {(c.words, c.task, c.metric): c for c in found}
    rows = []
    for words in dict.fromkeys(c.words for c in found):
        row = [words]
        for task in tasks:
            some = [cell[words, task, m] for m in metrics if (words, task, m) in cell]
            row.append(" / ".join(_ours(c) for c in some) or "–")
            row.append(" / ".join(_number(c.published, c.metric) for c in some) or "–")
        rows.append(tuple(row))
    head = ("difference", *(h for task in tasks for h in (task, "paper")))
    return TextTable(head, tuple(rows), words=_summary(found, metrics))


def _ours(c: Comparison) -> str:
    if c.ours is None:
        return "–"
    text = _number(c.ours.mean, c.metric)
    return f"({text})" if c.ours.better is None else text


def _number(value: float, metric: str) -> str:
    digits = METRICS[metric].digits
    text = f"{round(value, digits) or 0.0:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text.lstrip("+−")


def _summary(found: Sequence[Comparison], metrics: Sequence[str]) -> str:
    parts = []
    for metric in metrics:
        counts = Counter(c.outcome for c in found if c.metric == metric and c.outcome is not None)
        words = (f"{counts[kind]} {kind}" for kind in (SAME, OPPOSITE, UNDECIDED))
        parts.append(f"{heading(metric)} {', '.join(words)}")
    images = min(c.ours.images for c in found if c.ours is not None)
    rough = f", rough with {images} image{'s' * (images != 1)}" if images < FEW_IMAGES else ""
    return (
        f"Signs of the differences: {'; '.join(parts)}. In brackets: undecided, the 95 % bootstrap "
        f"interval over the images contains 0{rough}."
    )
