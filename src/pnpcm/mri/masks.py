"""Sampling masks of Cartesian MRI: the phase-encode lines, or points, that are measured.

All have the interface ``mask(size, acceleration, acs, generator=…)``: ``size`` is n for lines
``(n,)`` and (H, W) for points ``(H, W)``; ``acs`` central lines (points: a square of
``acs``×``acs``) are always measured. ⌊n/acceleration⌋ lines are measured in total, including the
central ones, except in ``equidistant``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pnpcm.arguments import check_number
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.arrays import read_array
from pnpcm.io.reading import Budget, reading
from pnpcm.names import Table

Size = tuple[int, int]


def acs_start(n: int, acs: int, *, reference: bool = False) -> int:
    """First line of the calibration block centred on n//2; ``reference``: one line further left."""
    return (n - acs) // 2 - (1 if reference else 0)


def gaussian1d(
    n: int,
    acceleration: float,
    acs: int,
    *,
    generator: torch.Generator | None = None,
    reference: bool = False,
) -> Tensor:
    """Lines drawn without replacement with density exp(−((i − (n−1)/2)/(n/4))²/2).

    ``reference=True`` draws them as the authors' code does (NumPy's legacy generator, seed 0,
    calibration block one line left of centre) and reproduces its masks exactly.
    """
    start = acs_start(n, acs, reference=reference)
    if not reference:
        return _lines(_bell(n), acceleration, acs, generator)
    mask = _block(n, acs, _budget(n, acceleration, acs), start)
    density = _bell(n).numpy()
    density[start : start + acs] = 0
    lines = int(n / acceleration) - acs
    if lines:
        legacy = np.random.RandomState(0)
        mask[legacy.choice(n, lines, replace=False, p=density / density.sum())] = True
    return mask


def uniform1d(
    n: int, acceleration: float, acs: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Lines drawn without replacement, all alike."""
    return _lines(torch.ones(n, dtype=torch.float64), acceleration, acs, generator)


def equidistant(
    n: int, acceleration: float, acs: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Every ``acceleration``-th line from 0, and the central block in addition."""
    step = int(acceleration)
    if step != acceleration or step < 1:
        raise ArgumentError(f"acceleration must be a whole number ≥ 1, got {acceleration}")
    mask = _block(n, acs, n, acs_start(n, acs))
    mask[::step] = True
    return mask


def gaussian2d(
    size: Size, acceleration: float, acs: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Points with the density of ``gaussian1d`` along both axes."""
    height, width = size
    return _points(_bell(height)[:, None] * _bell(width), acceleration, acs, generator)


def uniform2d(
    size: Size, acceleration: float, acs: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Points drawn without replacement, all alike."""
    return _points(torch.ones(size, dtype=torch.float64), acceleration, acs, generator)


def poisson(
    size: Size, acceleration: float, acs: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Variable-density Poisson disc: no two points closer than a distance that grows outwards.

    Distance r(ρ) = s (1 + 3ρ) at radius ρ (1 = edge of k-space); s by bisection until the number
    of points is ⌊HW/acceleration⌋ within 2 %.
    """
    height, width = size
    wanted = _budget(height * width, acceleration, acs * acs)
    block = _square(size, acs)
    priority = torch.rand(size, generator=_given(generator), dtype=torch.float64)
    p, q = (torch.linspace(-1, 1, n, dtype=torch.float64) for n in size)
    growth = 1 + 3 * torch.sqrt(p[:, None] ** 2 + q**2)
    low, high = 0.0, 2 * math.sqrt(acceleration)
    best = block
    for _ in range(14):
        scale = (low + high) / 2
        mask = block | _thinned(priority, scale * growth)
        count = int(mask.sum())
        if abs(count - wanted) < abs(int(best.sum()) - wanted):
            best = mask
        if abs(count - wanted) <= 0.02 * wanted:
            break
        low, high = (scale, high) if count > wanted else (low, scale)
    return best


def _thinned(priority: Tensor, distance: Tensor) -> Tensor:
    """Points selected in order of decreasing priority, unless one within its distance is selected.

    Computed for all points in parallel, with the same result: a point whose undecided neighbours
    all have a lower priority is selected, a point with a selected neighbour is dropped, until all
    are decided.
    """
    reach = int(distance.max())
    near = [
        (i, j)
        for i in range(-reach, reach + 1)
        for j in range(-reach, reach + 1)
        if 0 < math.hypot(i, j) <= reach
    ]
    taken = torch.zeros_like(priority, dtype=torch.bool)
    waiting = ~taken
    while bool(waiting.any()):
        rank = torch.where(taken, 2.0, torch.where(waiting, priority, -1.0))
        padded = torch.nn.functional.pad(rank, (reach,) * 4, value=-1.0)
        rival = torch.full_like(rank, -1.0)
        height, width = rank.shape
        for i, j in near:
            shifted = padded[reach + i : reach + i + height, reach + j : reach + j + width]
            within = distance >= math.hypot(i, j)
            torch.maximum(rival, torch.where(within, shifted, -1.0), out=rival)
        taken = taken | (waiting & (rival < rank))
        waiting = waiting & ~taken & (rival < 2.0)
    return taken


MASKS: Table[Callable[..., Tensor]] = Table(
    "mask",
    {
        "gaussian1d": gaussian1d,
        "uniform1d": uniform1d,
        "equidistant": equidistant,
        "gaussian2d": gaussian2d,
        "uniform2d": uniform2d,
        "poisson": poisson,
    },
)
POINTS = ("gaussian2d", "uniform2d", "poisson")
"""Masks of points; all others are of whole lines."""


PAPER_SHARE = 0.3
"""Share of calibration lines in the paper: 24 of 80 measured (R = 4), 12 of 40 (R = 8)."""

FEW_LINES = 12
"""Below this number the kernels of ESPIRiT shrink and coil maps lose quality."""

FEWEST_LINES = 6


def calibration_lines(size: int | Size, acceleration: float) -> int:
    """Default number of calibration lines; for masks of points, the side of the central square.

    The paper's share of the n/R measured lines (for R < 4 as for 4: 24 of 320), at least 12 for
    good coil maps, but at most half of the measured lines: the others contain the fine detail. On
    measured brains at R = 8, 12 of 16 lines in the centre are 2 dB worse than 8 of 16, while
    for 22 lines 8 to 16 are level.
    """
    points = not isinstance(size, int)
    n = size if isinstance(size, int) else size[1]
    budget = int(n / acceleration) if isinstance(size, int) else int(size[0] * n / acceleration)
    half = math.isqrt(budget // 2) if points else budget // 2
    wanted = max(round(PAPER_SHARE * n / max(acceleration, 4)), FEW_LINES)
    most = math.isqrt(budget) if points else budget
    return min(wanted, max(half, FEWEST_LINES), most, n)


def fastmri_lines(n: int, center_fraction: float) -> int:
    """Number of calibration lines as in fastMRI: round(n · center_fraction)."""
    if not 0 <= center_fraction <= 1:
        raise ArgumentError(f"center_fraction must lie in [0, 1], got {center_fraction}")
    return round(n * center_fraction)


def load_mask(path: Path, size: Size) -> Tensor:
    """A mask from a ``.npy`` file: ``(W,)`` or ``(H, W)``, 1 = measured."""
    with reading(path, "a mask"):
        mask = torch.from_numpy(read_array(path, Budget(8), format="a .npy file of numbers"))
    if tuple(mask.shape) not in ((size[1],), size):
        raise ShapeError(
            f"mask {path} has shape {tuple(mask.shape)}, the k-space needs ({size[1]},) or {size}"
        )
    return mask != 0


# parts -------------------------------------------------------------------------------------------
def _bell(n: int) -> Tensor:
    return torch.exp(-0.5 * ((torch.arange(n, dtype=torch.float64) - (n - 1) / 2) / (n / 4)) ** 2)


def _budget(n: int, acceleration: float, always: int) -> int:
    """Number of measured samples among n."""
    if acceleration < 1:
        raise ArgumentError(f"acceleration must be ≥ 1, got {acceleration}")
    lines = int(n / acceleration)
    if not 0 <= always <= lines:
        raise ArgumentError(
            f"acs must take 0 to {lines} samples, the number of measured ones for n = {n} and "
            f"acceleration {acceleration:g}, got {always}; give fewer"
        )
    return lines


def _block(n: int, acs: int, lines: int, start: int) -> Tensor:
    if not 0 <= acs <= lines:
        raise ArgumentError(f"acs must lie in [0, {lines}], got {acs}")
    mask = torch.zeros(n, dtype=torch.bool)
    mask[start : start + acs] = True
    return mask


def _square(size: Size, acs: int) -> Tensor:
    rows, columns = (_block(n, acs, n, acs_start(n, acs)) for n in size)
    return rows[:, None] & columns


def _lines(
    density: Tensor, acceleration: float, acs: int, generator: torch.Generator | None
) -> Tensor:
    n = len(density)
    lines = _budget(n, acceleration, acs)
    return _drawn(_block(n, acs, lines, acs_start(n, acs)), density, lines - acs, generator)


def _points(
    density: Tensor, acceleration: float, acs: int, generator: torch.Generator | None
) -> Tensor:
    size = (density.shape[0], density.shape[1])
    points = _budget(density.numel(), acceleration, acs * acs)
    block = _square(size, acs)
    return _drawn(block.flatten(), density.flatten(), points - acs * acs, generator).reshape(size)


def _drawn(mask: Tensor, density: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """``mask`` with ``count`` additional entries, drawn with probability ∝ ``density``."""
    if count > 0:
        weights = torch.where(mask, 0.0, density)
        mask[torch.multinomial(weights, count, generator=_given(generator))] = True
    return mask


def _given(generator: torch.Generator | None) -> torch.Generator:
    if generator is None:
        raise ArgumentError("generator is None; give torch.Generator().manual_seed(…)")
    return generator


@dataclass(frozen=True)
class MaskChoice:
    """Parameters of retrospective undersampling, for scans of any size.

    ``name``: row of ``MASKS`` or a ``.npy`` file. ``acs``: number of calibration lines;
    ``center_fraction``: their share, as in fastMRI; both None: see :func:`calibration_lines`.
    """

    name: str
    acceleration: float = 4.0
    acs: int | None = None
    center_fraction: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("acceleration", self.acceleration, 1)

    def draw(self, size: tuple[int, int]) -> Tensor:
        """The mask for k-space of ``size``: ``(W,)`` or ``(H, W)``."""
        if self.name.endswith(".npy"):
            return load_mask(Path(self.name), size)
        acs = self.acs
        if acs is not None and self.center_fraction is not None:
            raise ArgumentError(
                "two options both set the calibration lines; give acs or give center_fraction"
            )
        if self.center_fraction is not None:
            acs = fastmri_lines(size[1], self.center_fraction)
        draw = MASKS[self.name]
        where = size if self.name in POINTS else size[1]
        acs = calibration_lines(where, self.acceleration) if acs is None else acs
        generator = torch.Generator().manual_seed(self.seed)
        return draw(where, self.acceleration, acs, generator=generator)
