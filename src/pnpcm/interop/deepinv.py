"""To and from deepinv, which is never imported: its objects are met by their methods.

A deepinv ``LinearPhysics`` needs nothing: ``PnPCM(prior, config)(y, physics, value_range=(0, 1))``
takes it as it is (a nonlinear one needs ``data_step=GradientStep(…)`` and ``x_init``). What is
here dresses denoisers as priors, priors as denoisers, and solvers as reconstructors.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from pnpcm.core import Generators, Operator, Prior, Solver, ValueRange
from pnpcm.counted import CountedPrior
from pnpcm.errors import ArgumentError

Denoiser = Callable[[Tensor, float | Tensor], Tensor]


class DenoiserPrior:
    """A denoiser ``(x, sigma)`` with the ranges that a prior needs."""

    nfe_per_call = 1
    kind = "edm"

    def __init__(
        self, denoiser: Denoiser, value_range: ValueRange, sigma_min: float, sigma_max: float
    ) -> None:
        self.denoiser = denoiser
        self.value_range = value_range
        self.sigma_min, self.sigma_max = sigma_min, sigma_max

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return self.denoiser(x, sigma)


def from_denoiser(
    denoiser: Denoiser,
    *,
    value_range: ValueRange = (0.0, 1.0),
    sigma_min: float = 1e-3,
    sigma_max: float = 50.0,
) -> DenoiserPrior:
    """A prior from any ``denoiser(x, sigma)``, such as deepinv's, which work on [0, 1] images.

    ``sigma_min`` and ``sigma_max``: the levels it was trained for, in units of ``value_range``;
    solvers clamp into them.
    """
    if not callable(denoiser):
        raise ArgumentError(f"denoiser must be callable, got {type(denoiser).__name__}")
    if not 0 <= sigma_min < sigma_max:
        raise ArgumentError(f"expected 0 ≤ sigma_min < sigma_max, got {sigma_min}, {sigma_max}")
    return DenoiserPrior(denoiser, value_range, sigma_min, sigma_max)


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
