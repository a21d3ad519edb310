"""Conversion to and from deepinv by duck typing: deepinv is never imported.

A deepinv ``LinearPhysics`` needs no conversion: ``PnPCM(prior, config)(y, physics,
value_range=(0, 1))`` takes it (a nonlinear one needs ``data_step=GradientStep(…)`` and ``x_init``).
This module converts denoisers to priors, priors to denoisers, and solvers to reconstructors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pnpcm.core import Generators, Operator, Prior, Solver, ValueRange
from pnpcm.counted import CountedPrior
from pnpcm.errors import ArgumentError
from pnpcm.priors.denoiser import GREY_LEVELS, LEAST_SIGMA, TRAINED_TO, DenoiserPrior

Denoiser = Callable[[Tensor, float], Tensor]
NO_LIMIT = 50.0
"""Default highest level of a denoiser, in units of its range."""


class _DenoiserNetwork(nn.Module):
    """``network(x, sigma)`` of a denoiser that takes its level as one number."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        numbers = sigma.tolist()
        if len(set(numbers)) == 1:
            return self.denoiser(x, numbers[0])
        return torch.cat([self.denoiser(x[i : i + 1], s) for i, s in enumerate(numbers)])


def from_denoiser(
    denoiser: Denoiser,
    *,
    value_range: ValueRange = (0.0, 1.0),
    sigma_min: float | None = None,
    sigma_max: float | None = None,
) -> DenoiserPrior:
    """A prior from any ``denoiser(x, sigma)``, such as deepinv's, which take [0, 1] images.

    ``sigma_min`` and ``sigma_max``: the levels it was trained for, in units of ``value_range``;
    solvers clamp to them, with a note in their result, the prior itself with a warning. None: 0
    (as 0.001) and, since a denoiser does not store it, no upper limit (50); a module with the
    weights of DRUNet, such as deepinv's, has 50/255. The denoiser gets the level as a Python
    number, and images of a batch with different levels one at a time, as every denoiser of deepinv
    accepts.
    """
    if not callable(denoiser):
        raise ArgumentError(f"denoiser must be callable, got {type(denoiser).__name__}")
    low = LEAST_SIGMA if sigma_min is None else sigma_min
    high = _trained_to(denoiser, value_range) if sigma_max is None else sigma_max
    if not 0 <= low < high:
        raise ArgumentError(f"expected 0 ≤ sigma_min < sigma_max, got {low}, {high}")
    return DenoiserPrior(
        _DenoiserNetwork(denoiser), sigma_min=low, sigma_max=high, value_range=value_range
    )


def _trained_to(denoiser: Denoiser, value_range: ValueRange) -> float:
    weights = denoiser.state_dict() if isinstance(denoiser, nn.Module) else {}
    if not {"m_head.weight", "m_body.0.res.0.weight", "m_tail.weight"} <= weights.keys():
        return NO_LIMIT
    return TRAINED_TO["drunet"] / GREY_LEVELS * (value_range[1] - value_range[0])


class _PriorDenoiser(nn.Module):
    """``denoiser(x, sigma)`` on images in ``value_range``."""

    def __init__(self, prior: Prior, value_range: ValueRange) -> None:
        super().__init__()
        self.prior, self.value_range = prior, value_range

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return CountedPrior(self.prior, self.value_range)(x, sigma)


def as_denoiser(prior: Prior, *, value_range: ValueRange = (0.0, 1.0)) -> nn.Module:
    """A prior as a module ``(x, sigma) → x`` on [0, 1] images, as deepinv's algorithms call it."""
    return _PriorDenoiser(prior, value_range)


class _Reconstructor(nn.Module):
    """``model(y, physics)``."""

    def __init__(self, solver: Solver, generator: Generators, value_range: ValueRange) -> None:
        super().__init__()
        self.solver, self.generator, self.value_range = solver, generator, value_range

    def forward(self, y: Tensor, physics: Operator) -> Tensor:
        return self.solver(y, physics, generator=self.generator, value_range=self.value_range).x


def as_reconstructor(
    solver: Solver, *, generator: Generators, value_range: ValueRange = (0.0, 1.0)
) -> nn.Module:
    """A solver as a module ``(y, physics) → x``, for deepinv's tests, metrics and data loaders."""
    return _Reconstructor(solver, generator, value_range)
