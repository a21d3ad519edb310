"""Sampling masks of Cartesian MRI: which phase-encode lines are measured."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError


def acs_start(n: int, acs: int, *, reference: bool = False) -> int:
    """First line of the calibration block, centred on n//2; the authors' is one to the left."""
    return (n - acs) // 2 - (1 if reference else 0)


def gaussian1d(
    n: int,
    acceleration: float,
    acs: int,
    *,
    generator: torch.Generator | None = None,
    reference: bool = False,
) -> Tensor:
    """Boolean mask ``(n,)`` of ⌊n/acceleration⌋ lines, the ``acs`` central ones among them.

    The others are drawn without replacement with density exp(−((i − (n−1)/2)/(n/4))²/2).
    ``reference=True`` draws them as the authors' code does (NumPy's legacy generator, seed 0,
    calibration block one line left of centre), so that their masks can be had exactly.
    """
    lines = int(n / acceleration)
    if acceleration < 1:
        raise ArgumentError(f"acceleration must be ≥ 1, got {acceleration}")
    if not 0 <= acs <= lines:
        raise ArgumentError(
            f"acs must lie in [0, {lines}], the lines that n = {n} and acceleration "
            f"{acceleration} leave, got {acs}"
        )
    start = acs_start(n, acs, reference=reference)
    density = np.exp(-0.5 * ((np.arange(n) - (n - 1) / 2) / (n / 4)) ** 2)
    density[start : start + acs] = 0
    mask = torch.zeros(n, dtype=torch.bool)
    mask[start : start + acs] = True
    if lines == acs:
        return mask
    if reference:
        legacy = np.random.RandomState(0)
        chosen = legacy.choice(n, lines - acs, replace=False, p=density / density.sum())
    elif generator is None:
        raise ArgumentError("generator is None; give torch.Generator().manual_seed(…)")
    else:
        chosen = torch.multinomial(
            torch.from_numpy(density), lines - acs, generator=generator
        ).numpy()
    mask[torch.from_numpy(np.asarray(chosen))] = True
    return mask
