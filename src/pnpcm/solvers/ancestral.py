"""Parts of samplers along decreasing noise levels: levels, DDPM and DDIM steps, gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pnpcm.arguments import check_count
from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.schedules import ddpm_levels
from pnpcm.solvers.base import Run


# the levels --------------------------------------------------------------------------------------
def checked_levels(n_steps: int, sigmas: Sequence[float] | None) -> tuple[float, ...] | None:
    """``sigmas`` as a tuple; ``n_steps`` must be a count and the levels must decrease."""
    check_count("n_steps", n_steps, 1, 1000)
    if sigmas is None:
        return None
    try:
        levels = tuple(float(s) for s in sigmas)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"sigmas is {sigmas!r}, expected None or a tuple of levels") from error
    falling = all(a > b for a, b in pairwise(levels))
    if not (levels and falling and levels[-1] > 0 and math.isfinite(levels[0])):
        raise ArgumentError(f"sigmas must be positive, finite and decreasing, got {sigmas!r}")
    return levels


@dataclass(frozen=True)
class LevelConfig(Config):
    """Base of samplers along levels: the published ``n_steps`` levels, or ``sigmas`` instead."""

    n_steps: int = 1000
    sigmas: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigmas", checked_levels(self.n_steps, self.sigmas))

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        return self.n_steps if self.sigmas is None else len(self.sigmas)


def steps(
    run: Run, sigmas: tuple[float, ...] | None, indices: Sequence[int]
) -> list[tuple[float, float]]:
    """Pairs (s, s′) down to s′ = 0, along ``sigmas`` or else the levels of DDPM ``indices``."""
    if sigmas is None:  # sigma_max is in units of the prior's value range
        sigmas = ddpm_levels(indices, sigma_max=run.prior.prior.sigma_max / run.prior.scale)
    return list(pairwise((*sigmas, 0.0)))


# one step ----------------------------------------------------------------------------------------
def ancestral(x: Tensor, d: Tensor, sigma: float, sigma_next: float, z: Tensor | None) -> Tensor:
    """DDPM's step with estimate ``d`` and the small variance; ``z=None``: without noise.

    x′ = d + (s′²/s²)(x − d) + s′√(s² − s′²)/s z
    """
    mean = d + (sigma_next / sigma) ** 2 * (x - d)
    if z is None:
        return mean
    return mean + sigma_next * math.sqrt(1 - (sigma_next / sigma) ** 2) * z


def ddim(x: Tensor, d: Tensor, sigma: float, sigma_next: float) -> Tensor:
    """DDIM's step with estimate ``d``: x′ = d + s′ (x − d)/s"""
    return d + sigma_next / sigma * (x - d)


# derivatives of the prior ------------------------------------------------------------------------
def denoise_with_graph(run: Run, x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """A leaf tensor equal to ``x``, and D(leaf, s) with its graph."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        d = run.prior(leaf, sigma)
    if not d.requires_grad:
        raise ArgumentError(
            "prior is not differentiable in x, and this method needs its derivative; "
            "write it with torch operations and without no_grad"
        )
    return leaf, d
