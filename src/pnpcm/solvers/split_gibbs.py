"""Split Gibbs sampling: likelihood and prior draws in turn, at a decreasing coupling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.rng import per_image
from pnpcm.solvers.base import Run
from pnpcm.solvers.problem import is_linear, sample_conditional

Draw = Callable[[Tensor, float], Tensor]
"""(image, coupling) → a draw around the image."""


def split_gibbs(
    run: Run,
    x: Tensor,
    couplings: Sequence[float],
    likelihood: Draw,
    prior: Draw,
    *,
    prior_first: bool = False,
    average_last: int = 0,
) -> Tensor:
    r"""The last prior draw, after one round per coupling η_k, started at x_0 = ``x``.

    .. math::
        z_k \sim e^{-\|A(z) - y\|^2/2\sigma^2 - \|z - x_{k-1}\|^2/2\eta_k^2}, \quad
        x_k \sim p(x_0 \mid x_0 + \eta_k n = z_k)

    ``prior_first``: z_1 = x_0, and the likelihood draw z_{k+1} has the coupling η_k.
    ``average_last``: number of last prior draws whose mean is returned; 0: the last draw.
    """
    highest = run.prior.prior.sigma_max / run.prior.scale
    if max(couplings) > highest:
        raise ArgumentError(
            f"coupling {max(couplings):g} is above {highest:g}, the largest level of the prior; "
            "start lower"
        )
    z, total = x, torch.zeros_like(x)
    for k, eta in enumerate(couplings, start=1):
        if not prior_first:
            z = likelihood(x, eta)
        x = prior(z, eta)
        run.record(k, eta, x, z=z)
        if k > len(couplings) - average_last:
            total += x
        if prior_first and k < len(couplings):
            z = likelihood(x, eta)
    return total / average_last if average_last else x


def likelihood_draw(run: Run, noise_std: float, otherwise: Draw) -> Draw:
    """The exact draw for a linear operator, ``otherwise`` for a nonlinear one."""
    if not is_linear(run.operator):
        return otherwise

    def exact(x: Tensor, eta: float) -> Tensor:
        generators = per_image(run.generators, len(x))
        return sample_conditional(run.operator, x, run.y, noise_std, eta, generators)

    return exact
