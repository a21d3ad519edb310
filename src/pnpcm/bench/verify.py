"""verify: the means of a finished benchmark against expected ones with tolerances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pnpcm.bench.scores import METRICS
from pnpcm.core import Config
from pnpcm.errors import ArgumentError, PnPCMError
from pnpcm.io.files import write_text
from pnpcm.io.yaml_files import build, dump, read_mapping

TOLERANCES = {"psnr": 0.05}
TOLERANCE = 0.005
"""Of all other metrics, by default."""
CELL = ("data", "task", "sigma_y", "prior", "method", "steps")
"""Columns of a cell. Its mean is over images and seeds."""


@dataclass(frozen=True)
class Cell(Config):
    """Means of one method on one task. ``rows``: number of reconstructions with scores.

    ``tolerances``: by metric, instead of those of the file.
    """

    data: str
    task: str
    sigma_y: float
    prior: str
    method: str
    rows: int
    mean: dict[str, float]
    steps: int | None = None
    tolerances: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.mean, dict) or not isinstance(self.tolerances, dict):
            raise ArgumentError(f"mean and tolerances of {self.name} must map metrics to numbers")
        _check_numbers(self.mean, f"mean of {self.name}")
        _check_numbers(self.tolerances, f"tolerances of {self.name}")

    @property
    def place(self) -> tuple[Any, ...]:
        """The values of the columns ``CELL``."""
        return tuple(getattr(self, name) for name in CELL)

    @property
    def name(self) -> str:
        """The cell in words, as in the names of rows."""
        steps = "" if self.steps is None else f"@n{self.steps}"
        return f"{self.data}/{self.task}/s{self.sigma_y:g}/{self.prior}/{self.method}{steps}"


@dataclass(frozen=True)
class Expected(Config):
    """Expected means of a spec. ``tolerances``: largest difference by metric."""

    spec: str
    cells: tuple[Cell, ...]
    tolerances: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.tolerances, dict):
            raise ArgumentError(f"tolerances is {self.tolerances!r}, expected metrics and numbers")
        _check_numbers(self.tolerances, "tolerances")

    def tolerance(self, cell: Cell, metric: str) -> float:
        """The largest difference that is accepted."""
        default = TOLERANCES.get(metric, TOLERANCE)
        return float(cell.tolerances.get(metric, self.tolerances.get(metric, default)))


@dataclass(frozen=True)
class Comparison:
    """One mean beside the expected one; ``message`` says it in one line.

    ``share``: difference relative to the tolerance; None if there is nothing to compare.
    """

    ok: bool
    message: str
    share: float | None = None


def cells_of(rows: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """The means of rows of a store, in the order of the first row of each cell."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in CELL), []).append(row)
    found = []
    for place, members in groups.items():
        scores = [row["scores"] for row in members if row["failed"] is None]
        metrics = dict.fromkeys(name for one in scores for name in one)
        mean = {}
        for name in metrics:
            values = [one[name] for one in scores if name in one]
            mean[name] = sum(values) / len(values)
        found.append(Cell(**dict(zip(CELL, place, strict=True)), rows=len(scores), mean=mean))
    return found


def expected_of(spec: str, rows: Iterable[Mapping[str, Any]]) -> Expected:
    """The means of rows as expected ones, rounded, sorted, with the default tolerances."""
    cells = sorted(cells_of(rows), key=lambda cell: cell.name)
    rounded = tuple(
        Cell(**vars(cell) | {"mean": {m: round(v, _digits(m)) for m, v in cell.mean.items()}})
        for cell in cells
    )
    metrics = sorted({metric for cell in cells for metric in cell.mean})
    return Expected(spec, rounded, {m: TOLERANCES.get(m, TOLERANCE) for m in metrics})


def verify(rows: Iterable[Mapping[str, Any]], expected: Expected) -> list[Comparison]:
    """One comparison per expected mean; a missing cell, row or metric is not ok."""
    found = {cell.place: cell for cell in cells_of(rows)}
    compared = []
    for cell in expected.cells:
        ours = found.pop(cell.place, None)
        if ours is None:
            compared.append(Comparison(False, f"{cell.name} is missing in this run"))
            continue
        if ours.rows != cell.rows:
            text = f"{cell.name} has {ours.rows} rows with scores, expected {cell.rows}"
            compared.append(Comparison(False, text))
        compared += [_compared(cell, ours, m, expected.tolerance(cell, m)) for m in cell.mean]
    for cell in found.values():
        compared.append(Comparison(True, f"{cell.name} has no expected values"))
    return compared


def _compared(cell: Cell, ours: Cell, metric: str, tolerance: float) -> Comparison:
    if metric not in ours.mean:
        return Comparison(False, f"{cell.name} has no {metric}, expected {cell.mean[metric]:g}")
    mine, wanted, digits = ours.mean[metric], float(cell.mean[metric]), _digits(metric)
    off = mine - wanted
    text = (
        f"{cell.name} {metric} {mine:.{digits}f}, expected {wanted:.{digits}f}: difference "
        f"{off:+.{digits}f}, tolerance {tolerance:g}"
    )
    # NaN is outside too; the last digit of the file is rounded
    ok = mine == wanted or abs(off) <= tolerance + 0.5 * 10**-digits
    return Comparison(ok, text, abs(off) / tolerance if tolerance else abs(off))


def read_expected(path: str | Path) -> Expected:
    """The expected means in a YAML or JSON file."""
    values = read_mapping(path, "verify", "benchmarks/specs/*.expected.yaml")
    cells = values.get("cells")
    if not isinstance(cells, list) or not cells or not all(isinstance(c, dict) for c in cells):
        raise ArgumentError(
            f"verify is {path}, whose field cells must be a list of cells; write one with --expect"
        )
    found: Expected = build(Expected, {"spec": ""} | values)
    return found


def is_expected(path: Path) -> bool:
    """Whether a file contains expected means."""
    try:
        read_expected(path)
    except PnPCMError:
        return False
    return True


def write_expected(path: Path, expected: Expected, command: str) -> None:
    """Write expected means as YAML. ``command``: that renews the file, in its first line."""
    cells = []
    for cell in expected.cells:
        plain = {name: getattr(cell, name) for name in CELL} | {"rows": cell.rows}
        cells.append({n: v for n, v in plain.items() if v is not None} | {"mean": cell.mean})
    content = {"spec": expected.spec, "tolerances": expected.tolerances, "cells": cells}
    write_text(path, f"# Renew with: {command}\n{dump(content)}")


def _digits(metric: str) -> int:
    return METRICS[metric].digits + 1 if metric in METRICS else 4


def _check_numbers(values: Mapping[str, Any], where: str) -> None:
    for name, value in values.items():
        _ = METRICS[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentError(f"{name} in the {where} is {value!r}, expected a number")
