"""Samples of a prior: Heun's method for denoisers, multistep sampling for consistency models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from pnpcm.core import Generators, Prior
from pnpcm.errors import ArgumentError
from pnpcm.rng import per_image, randn
from pnpcm.schedules import karras

PURE_NOISE = 5.0
"""Lowest sigma_max from which images can be drawn, for values in [-1, 1] (standard deviation 0.5).

There the image is 1 % of the variance; shipped priors, EDM and DDPM networks reach 80 and more."""


@torch.no_grad()
def heun_sample(
    prior: Prior, shape: Sequence[int], *, generator: Generators, n_steps: int = 40
) -> Tensor:
    """Samples ``(B, C, H, W)`` of a denoiser: Heun's method on dx/dσ = (x − D)/σ.

    ``n_steps`` levels of the Karras grid, then 0: 2 n_steps − 1 evaluations, no churn. Karras et
    al. (2022), algorithm 1.
    """
    _check_reach(prior)
    sigmas = (*karras(n_steps, prior.sigma_min, prior.sigma_max), 0.0)
    x = sigmas[0] * _noise(shape, per_image(generator, shape[0]), prior)
    for t, t2 in pairwise(sigmas):
        slope = (x - prior(x, t)) / t
        end = x + (t2 - t) * slope
        if t2 > 0:
            end = x + (t2 - t) * (slope + (end - prior(end, t2)) / t2) / 2
        x = end
    return x


@torch.no_grad()
def consistency_sample(
    prior: Prior,
    shape: Sequence[int],
    *,
    generator: Generators,
    sigmas: Sequence[float] | None = None,
    n_steps: int = 1,
) -> Tensor:
    """Samples of a consistency model: denoise, add noise of the next level, denoise again.

    x₀ = clamp f(x, σ_i), x = x₀ + √(σ_{i+1}² − σ_min²) n. ``sigmas``: decreasing levels, the first
    σ_max; None: ``n_steps`` of them, at equal distances in the Karras parameter.
    Song et al. (2023), algorithm 1.
    """
    _check_reach(prior)
    if sigmas is None:
        sigmas = karras(n_steps + 1, prior.sigma_min, prior.sigma_max)[:-1]
    if not sigmas or any(a <= b for a, b in pairwise(sigmas)):
        raise ArgumentError(f"sigmas must decrease, got {tuple(sigmas)}")
    each = per_image(generator, shape[0])
    x = sigmas[0] * _noise(shape, each, prior)
    for i, sigma in enumerate(sigmas):
        if i > 0:
            x = x + math.sqrt(max(sigma**2 - prior.sigma_min**2, 0.0)) * _noise(shape, each, prior)
        x = prior(x, sigma).clamp(*prior.value_range)
    return x


def reaches_noise(prior: Prior) -> bool:
    """Whether the levels of the prior reach pure noise, from which images can be drawn."""
    low, high = prior.value_range
    return prior.sigma_max >= PURE_NOISE * (high - low) / 2


def _check_reach(prior: Prior) -> None:
    low, high = prior.value_range
    if not reaches_noise(prior):
        raise ArgumentError(
            f"prior {type(prior).__name__} was trained for sigma {prior.sigma_min:.3g} … "
            f"{prior.sigma_max:.3g} (images in [{low:g}, {high:g}]), not up to pure noise, and "
            "cannot be sampled; such denoisers serve for restoration, e.g. with the methods dpir "
            "and pnp-admm"
        )


def _noise(shape: Sequence[int], each: Sequence[torch.Generator], prior: Prior) -> Tensor:
    """Standard normal images on the device of the prior's weights."""
    weights = prior.parameters() if isinstance(prior, torch.nn.Module) else iter(())
    like = torch.empty(0, device=next((p.device for p in weights), torch.device("cpu")))
    return torch.stack([randn(shape[1:], g, like) for g in each])
