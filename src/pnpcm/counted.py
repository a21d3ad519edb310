"""CountedPrior: a prior in the problem's value range, with clamped levels and counted calls."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Prior, ValueRange
from pnpcm.errors import ArgumentError

ROUNDING = 1e-5
"""Relative tolerance at the ends of the range of levels."""


def check_prior(prior: object) -> None:
    """Raise an error unless the object has the members of a prior."""
    members = ("value_range", "sigma_min", "sigma_max", "nfe_per_call")
    missing = [name for name in members if not hasattr(prior, name)]
    if missing or not callable(prior):
        raise ArgumentError(
            f"prior of type {type(prior).__name__} lacks {', '.join(missing) or '__call__'}; "
            "wrap a bare denoiser with pnpcm.interop.from_denoiser"
        )


def checked_range(value_range: ValueRange) -> ValueRange:
    """``value_range`` as (low, high); an error if it is not."""
    try:
        low, high = value_range
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        raise ArgumentError(f"value_range must be (low, high), got {value_range}")
    return low, high


class CountedPrior:
    """A prior for a problem with values in ``value_range``; counts its evaluations.

    ``x`` and ``sigma`` are in the problem's range and mapped to that of the prior; the level is
    clamped to the prior's training levels, and ``note`` reports levels outside of them. ``nfe`` and
    ``vjps``: evaluations and vector-Jacobian products of the network, per image. ``options`` are
    passed to the prior, e.g. the hint of a controlled one.
    """

    def __init__(self, prior: Prior, value_range: ValueRange = (-1.0, 1.0)) -> None:
        check_prior(prior)
        low, high = checked_range(value_range)
        self.prior = prior
        self.low, self.high = low, high
        self.scale = (prior.value_range[1] - prior.value_range[0]) / (high - low)
        self.nfe = 0
        self.vjps = 0
        self._lowest, self._highest = math.inf, -math.inf  # clamped levels, in the prior's units

    def __call__(self, x: Tensor, sigma: float | Tensor, **options: Any) -> Tensor:
        prior, identity = self.prior, self.scale == 1 and self.low == self.prior.value_range[0]
        level = self._clamped(sigma * self.scale)
        self.nfe += prior.nfe_per_call
        if identity:
            out = prior(x, level, **options)
        else:
            offset = prior.value_range[0]
            mapped = (x - self.low) * self.scale + offset
            out = (prior(mapped, level, **options) - offset) / self.scale + self.low
        if out.shape != x.shape:
            raise ArgumentError(
                f"prior returned shape {tuple(out.shape)} for an image of shape {tuple(x.shape)}"
            )
        if torch.is_grad_enabled() and out.requires_grad:
            out.register_hook(self._count_vjp)  # type: ignore[no-untyped-call]
        return out

    def _clamped(self, level: float | Tensor) -> float | Tensor:
        low, high = self.prior.sigma_min, self.prior.sigma_max
        if isinstance(level, Tensor):
            self._compare(float(level.min()))
            self._compare(float(level.max()))
            return level.clamp(low, high)
        self._compare(level)
        return min(max(level, low), high)

    def _compare(self, level: float) -> None:
        """Remember the level if it is outside the range of the prior."""
        low, high = self.prior.sigma_min, self.prior.sigma_max
        if level < (1 - ROUNDING) * low or level > (1 + ROUNDING) * high:
            self._lowest, self._highest = min(self._lowest, level), max(self._highest, level)

    @property
    def note(self) -> str | None:
        """A sentence about the levels that were clamped; None if there were none."""
        if self._lowest > self._highest:
            return None
        ends = (self._lowest, self._highest, self.prior.sigma_min, self.prior.sigma_max)
        first, last, low, high = (f"{value / self.scale:.3g}" for value in ends)
        one = first == last
        levels = f"noise level {first} lies" if one else f"noise levels {first} … {last} lie"
        return (
            f"{levels} outside the range that the prior was trained for, {low} … {high} (images "
            f"in [{self.low:g}, {self.high:g}]); clamped to that range"
        )

    def _count_vjp(self, grad: Tensor) -> None:
        self.vjps += self.prior.nfe_per_call
