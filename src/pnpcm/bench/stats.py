"""cells: means, spreads, costs, failures and paired differences of stored rows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pnpcm.bench.scores import METRICS
from pnpcm.bench.store import Saved
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.metrics.kid import Kid

RESAMPLES = 2000
LEVEL = 0.95
SEED = 20_250_922
FEW_IMAGES = 10
"""Below this number of images, intervals are called rough."""
BLOCK = 4_000_000
"""Most indices of resamples that are in memory at once."""
IDENTITY = ("data", "number", "task", "sigma_y", "seed", "prior", "method", "steps")
"""Columns that name a row; of several rows with the same values the newest counts."""
Floats = NDArray[np.float64]
Images = dict[tuple[Any, ...], Mapping[str, float]]


@dataclass(frozen=True)
class Group:
    """What a table is about: methods are compared within a group only.

    ``table``: table of the paper that the rows belong to, in pages with several of them.
    """

    data: str
    prior: str
    task: str
    sigma_y: float
    table: str = ""

    @classmethod
    def of(cls, row: Saved) -> Group:
        """The group of a row."""
        table = row.get("table", "")
        return cls(row["data"], row["prior"], row["task"], row["sigma_y"], table)

    @property
    def name(self) -> str:
        """The group in words."""
        table = f"{self.table}, " if self.table else ""
        return f"{table}{self.data}, {self.task}, sigma_y {self.sigma_y:g}, prior {self.prior}"


@dataclass(frozen=True)
class Statistic:
    """Mean, sample standard deviation (n − 1; None for one value), smallest value and count."""

    mean: float
    std: float | None
    least: float
    count: int


def mean(statistic: Statistic | None) -> float | None:
    """The mean, if there are values."""
    return None if statistic is None else statistic.mean


def least(statistic: Statistic | None) -> float | None:
    """The smallest value, if there are values."""
    return None if statistic is None else statistic.least


@dataclass(frozen=True)
class Difference:
    """Score of a method minus that of the reference, over the images that both have.

    ``low``, ``high``: 95 % bootstrap percentile interval of ``mean``; None for one image.
    ``win_rate``: share of the images where the method is better, ties counted half.
    ``better``: True or False if zero is outside the interval, else None.
    """

    mean: float
    low: float | None
    high: float | None
    win_rate: float
    images: int
    better: bool | None


@dataclass(frozen=True)
class Cell:
    """The rows of one method with one number of steps in a group.

    ``rows``: number of rows, failed ones included. ``failures``: reason → number of rows.
    ``trials``: trials of the search that the method's numbers come from; None: not stated.
    ``parameters``: origins of the parameters. ``seconds``: of the solve stage.
    ``differences``: to the reference; empty for the reference itself. ``complete``: metrics for
    which the cell has the scores of all images that some cell of the group has. ``kid``: distance
    of the set of its images from that of the true ones; None: too few pictures are kept.
    """

    group: Group
    method: str
    steps: int | None
    rows: int
    scores: Mapping[str, Statistic] = field(default_factory=dict)
    differences: Mapping[str, Difference] = field(default_factory=dict)
    nfe: Statistic | None = None
    vjps: Statistic | None = None
    seconds: Statistic | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    trials: int | None = None
    parameters: tuple[str, ...] = ()
    complete: frozenset[str] = frozenset()
    is_reference: bool = False
    kid: Kid | None = None

    @property
    def failed(self) -> int:
        """Number of rows without an image."""
        return sum(self.failures.values())

    @property
    def label(self) -> str:
        """Method and number of steps in words."""
        return self.method if self.steps is None else f"{self.method}, {self.steps} steps"


def newest(rows: Iterable[Saved], spec: Mapping[str, Any] | None = None) -> list[Saved]:
    """Rows whose names are in ``spec``, each reconstruction once: the one that finished last.

    A store keeps rows that were computed with earlier weights, presets or options; they have other
    keys but the same names. Parts that ``spec`` does not contain are not compared.
    """
    spec = spec or {}
    parts = (("data", "data"), ("task", "tasks"), ("method", "methods"), ("prior", "priors"))
    known = {column: set(map(str, spec[part])) for column, part in parts if spec.get(part)}
    found: dict[tuple[Any, ...], Saved] = {}
    for row in rows:
        if any(row[column] not in names for column, names in known.items()):
            continue
        key = tuple(row.get(column) for column in IDENTITY)
        if key not in found or (row.get("finished") or "") >= (found[key].get("finished") or ""):
            found[key] = row
    return list(found.values())


def cells(
    rows: Iterable[Saved],
    *,
    metrics: Sequence[str],
    reference: str | Mapping[str, str] | None = None,
) -> dict[Group, list[Cell]]:
    """Cells of the rows by group, in the order of the rows.

    ``reference``: method that the others are compared with, or one for every table. A method with n
    steps is compared with the reference of n steps, or with its only cell if the reference has one
    cell in the group.
    """
    for metric in metrics:
        _ = METRICS[metric]  # raises, with the nearest name
    found: dict[Group, dict[tuple[str, int | None], list[Saved]]] = {}
    for row in rows:
        each = found.setdefault(Group.of(row), {})
        each.setdefault((row["method"], row["steps"]), []).append(row)
    methods = {method for each in found.values() for method, _ in each}
    if isinstance(reference, str) and reference not in methods:
        raise UnknownNameError("reference method", reference, methods)
    return {
        group: _group(
            group,
            each,
            metrics,
            reference.get(group.table) if isinstance(reference, Mapping) else reference,
        )
        for group, each in found.items()
    }


def _group(
    group: Group,
    rows: Mapping[tuple[str, int | None], list[Saved]],
    metrics: Sequence[str],
    reference: str | None,
) -> list[Cell]:
    by_image = {key: images(own) for key, own in rows.items()}
    references = {steps: each for (method, steps), each in by_image.items() if method == reference}
    only = next(iter(references.values())) if len(references) == 1 else None
    scored = {key: {m: _scored(each, m) for m in metrics} for key, each in by_image.items()}
    union = {m: set().union(*(each[m] for each in scored.values())) for m in metrics}
    found = []
    for (method, steps), own in rows.items():
        key = (method, steps)
        base = None if method == reference else references.get(steps, only)
        cell = replace(
            _cell(group, method, steps, own, metrics),
            differences={} if base is None else _differences(by_image[key], base, metrics),
            complete=frozenset(m for m in metrics if scored[key][m] == union[m]),
            is_reference=method == reference,
        )
        found.append(cell)
    return found


def _cell(
    group: Group,
    method: str,
    steps: int | None,
    rows: Sequence[Saved],
    metrics: Sequence[str],
) -> Cell:
    reasons = [failure(row) for row in rows]
    good = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
    scores = {m: _statistic([row["scores"].get(m) for row in good]) for m in metrics}
    trials = [row["trials"] for row in rows if row.get("trials") is not None]
    return Cell(
        group=group,
        method=method,
        steps=steps,
        rows=len(rows),
        scores={name: value for name, value in scores.items() if value is not None},
        nfe=_statistic([row.get("nfe") for row in good]),
        vjps=_statistic([row.get("vjps") for row in good]),
        seconds=_statistic([(row.get("seconds") or {}).get("solve") for row in good]),
        failures=dict(Counter(reason for reason in reasons if reason is not None)),
        trials=max(trials, default=None),
        parameters=tuple(dict.fromkeys(p for row in good if (p := row.get("parameters_from")))),
    )


def failure(row: Saved) -> str | None:
    """Why a row has no scores; None if it has. Scores that are not finite are failures."""
    if row.get("failed") is not None:
        return str(row["failed"]) or "no reason stated"
    scores = row.get("scores") or {}
    if not scores:
        return "the row has no scores"
    bad = [f"{name} is {value}" for name, value in scores.items() if not math.isfinite(value)]
    return f"scores are not finite: {', '.join(bad)}" if bad else None


def _statistic(values: Iterable[float | None]) -> Statistic | None:
    array = np.array([value for value in values if value is not None], dtype=float)
    if not array.size:
        return None
    std = float(array.std(ddof=1)) if array.size > 1 else None
    return Statistic(float(array.mean()), std, float(array.min()), array.size)


# paired differences ------------------------------------------------------------------------------
def images(rows: Iterable[Saved]) -> Images:
    """Scores by number, file and seed of the image. Another file with the number is no pair."""
    good = (row for row in rows if failure(row) is None)
    return {(row["number"], row.get("image"), row["seed"]): row["scores"] for row in good}


def _scored(images: Images, metric: str) -> set[tuple[Any, ...]]:
    return {key for key, scores in images.items() if metric in scores}


def _differences(own: Images, base: Images, metrics: Sequence[str]) -> dict[str, Difference]:
    found = {}
    for metric in metrics:
        seeds: dict[Any, list[float]] = defaultdict(list)
        for key, scores in own.items():
            if metric in scores and metric in base.get(key, {}):
                seeds[key[:2]].append(scores[metric] - base[key][metric])
        if seeds:
            each = [seeds[image] for image in sorted(seeds, key=str)]
            means = np.array([sum(values) / len(values) for values in each])
            found[metric] = difference(means, METRICS[metric].larger_is_better)
    return found


def difference(differences: Floats, larger_is_better: bool) -> Difference:
    """Summary of the differences d_i of n images, one number each (several seeds: their mean).

    .. math::
        d = \\tfrac1n \\sum_i d_i, \\qquad
        w = \\tfrac1n \\#\\{i : d_i \\text{ better than } 0\\}
          + \\tfrac1{2n} \\#\\{i : d_i = 0\\}
    """
    gain = differences if larger_is_better else -differences
    win_rate = float(((gain > 0) + 0.5 * (gain == 0)).mean())
    mean, images = float(differences.mean()), differences.size
    if images == 1:
        return Difference(mean, None, None, win_rate, images, None)
    low, high = interval(differences, np.random.default_rng(SEED))
    better = None if low <= 0 <= high else (low > 0) == larger_is_better
    return Difference(mean, low, high, win_rate, images, better)


def interval(
    values: Floats, generator: np.random.Generator, *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``values`` (n,) at the level 95 %.

    Each resample draws n of the values with replacement; the ends are the 2.5 and 97.5 percentiles
    of the means of the resamples.
    """
    if values.ndim != 1 or values.size < 2:
        raise ArgumentError(f"values have shape {values.shape}, expected (n,) with n of at least 2")
    block = max(1, BLOCK // values.size)
    means = np.concatenate(
        [
            values[generator.integers(values.size, size=(count, values.size))].mean(1)
            for start in range(0, resamples, block)
            if (count := min(block, resamples - start))
        ]
    )
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def marks(found: Sequence[Cell], metric: str) -> dict[tuple[str, int | None], int]:
    """Cells of a group with the best (1) and second best (2) mean of a metric, as displayed.

    Means over different images are not comparable: only cells with the scores of all images that
    some cell of the group has are ranked. Cells that are equal after rounding share a rank.
    """
    row = METRICS[metric]
    ranked = [cell for cell in found if metric in cell.scores and metric in cell.complete]
    if len(ranked) < 2:
        return {}
    values = [round(cell.scores[metric].mean, row.digits) for cell in ranked]
    best = sorted(set(values), reverse=row.larger_is_better)[:2]
    return {
        (cell.method, cell.steps): best.index(value) + 1
        for cell, value in zip(ranked, values, strict=True)
        if value in best
    }
