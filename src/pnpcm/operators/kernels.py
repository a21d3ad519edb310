"""Blur kernels: Gaussian and straight motion. They sum to 1; the centre is at size // 2."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError


def gaussian_kernel(size: int, sigma: float) -> Tensor:
    """Gaussian of ``size`` × ``size`` taps and ``sigma`` pixels: the outer product of its taps."""
    if int(size) != size or size < 1:
        raise ArgumentError(f"size must be a whole number of taps, at least 1, got {size}")
    if not 0 < sigma < math.inf:
        raise ArgumentError(f"sigma must be positive, in pixels, got {sigma}")
    taps = gaussian_taps(int(size), sigma)
    return taps[:, None] * taps[None, :]


def gaussian_taps(size: int, sigma: float) -> Tensor:
    """exp(−i²/2σ²) for i centred on ``size // 2``, divided by the sum."""
    i = torch.arange(size, dtype=torch.float64) - size // 2
    taps = torch.exp(-(i**2) / (2 * sigma**2))
    return taps / taps.sum()


def motion_kernel(length: float, angle: float) -> Tensor:
    """Anti-aliased line: weight max(0, 1 − d) at distance d from a segment, sum 1.

    ``length`` in pixels (1: no blur; odd lengths along an axis are that many equal taps),
    ``angle`` in degrees, counter-clockwise from the horizontal.
    """
    if not (math.isfinite(length) and length >= 1):
        raise ArgumentError(f"length is {length}, expected ≥ 1 pixel; 1 means no blur")
    if not math.isfinite(angle):
        raise ArgumentError(f"angle is {angle}, expected degrees, for example 30")
    half = math.ceil((length - 1) / 2)
    offsets = torch.arange(-half, half + 1, dtype=torch.float64)
    row, column = offsets[:, None], offsets[None, :]
    across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    along = (across * column - up * row).clamp(-(length - 1) / 2, (length - 1) / 2)
    distance = torch.hypot(column - along * across, row + along * up)
    weights = (1 - distance).clamp_min(0)
    return weights / weights.sum()
