"""StripStep: a data step on strips of rows, where only near rows depend on each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm.core import Config, DataStep, Operator
from pnpcm.errors import ArgumentError, OperatorError, ShapeError


@dataclass(frozen=True)
class StripStep(Config):
    """``inner`` on strips of about ``rows`` rows, one after the other: memory of a strip only.

    For operators that act on cells of ``operator.row_cell`` rows, as JPEG does. Strips are whole
    cells, so the problem falls apart exactly and each strip has its own step lengths and stops.
    Where cells look at their neighbours (``operator.row_margin`` rows: interpolated chroma), each
    strip is solved together with that many rows above and below, which are then dropped; what
    reaches across two margins is neglected.
    """

    inner: DataStep
    rows: int = 512

    def __post_init__(self) -> None:
        if not callable(self.inner) or not isinstance(self.inner, Config):
            raise ArgumentError(
                f"inner is {self.inner!r}, expected a data step such as GradientStep(…)"
            )
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise ArgumentError(f"rows must be a whole number, at least 1, got {self.rows!r}")

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        cell, margin = _cells(operator)
        if y.shape[-2] != v.shape[-2]:
            raise ShapeError(
                f"y has {y.shape[-2]} rows and the image {v.shape[-2]}; StripStep needs them to "
                "correspond, so use its inner step"
            )
        z = torch.empty_like(v)
        for keep, seen in _strips(v.shape[-2], max(self.rows // cell, 1) * cell, margin):
            start = None if z_prev is None else z_prev[..., seen, :]
            strip = self.inner(v[..., seen, :], y[..., seen, :], operator, rho, z_prev=start)
            above = keep.start - seen.start
            z[..., keep, :] = strip[..., above : above + keep.stop - keep.start, :]
        return z


def _cells(operator: Operator) -> tuple[int, int]:
    """Rows of a cell and of the margin it needs, as the operator tells them."""
    cell = getattr(operator, "row_cell", None)
    if cell is None:
        raise OperatorError(
            f"{type(operator).__name__} has no row_cell: its rows depend on each other and cannot "
            "be solved in strips; use the inner step of StripStep itself"
        )
    return int(cell), int(getattr(operator, "row_margin", 0))


def _strips(height: int, rows: int, margin: int) -> Iterator[tuple[slice, slice]]:
    """The rows that a strip keeps and those it sees."""
    for start in range(0, height, rows):
        stop = min(start + rows, height)
        yield slice(start, stop), slice(max(start - margin, 0), min(stop + margin, height))
