"""Split Gibbs sampling, the loop of DPnP and PnP-DM: likelihood and prior draws in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import atan, hypot

import torch
from torch import Tensor

from pnpcm.core import is_linear
from pnpcm.errors import ArgumentError
from pnpcm.linalg import expand
from pnpcm.rng import per_image
from pnpcm.solvers.base import Run, sample_conditional
from pnpcm.solvers.data_steps import data_objective
from pnpcm.solvers.level_grids import EulerStep

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


# draws from p(x0 | x0 + eta·noise = xn) with a denoiser ------------------------------------------
def denoise(run: Run, x: Tensor, sigma: float, clamp: bool) -> Tensor:
    """D(x, σ), clamped to the range of images if ``clamp``."""
    x0 = run.prior(x, sigma)
    return run.clamp(x0) if clamp else x0


def posterior_flow(
    run: Run, xn: Tensor, eta: float, kappas: Sequence[float], *, clamp: bool
) -> Tensor:
    r"""Probability flow of the posterior around ``xn``, from κ = ``kappas[0]`` down to 0.

    .. math::
        m &= x_n + \tfrac{\eta^2}{\eta^2+\kappa^2} Y, \quad
        s = \eta\kappa/\sqrt{\eta^2+\kappa^2}, \quad e = (m - D(m, s))/s \\
        Y' &= \sqrt{\eta^2+\kappa'^2}\,\big[Y/\sqrt{\eta^2+\kappa^2}
              + e\,(\arctan(\kappa'/\eta) - \arctan(\kappa/\eta))\big]

    Only the start Y ~ N(0, 1 + κ²) is random. One evaluation per κ.
    """
    Y = hypot(1.0, kappas[0]) * run.noise(xn)
    for kappa, after in pairwise((*kappas, 0.0)):
        m = xn + eta**2 / (eta**2 + kappa**2) * Y
        s = eta * kappa / hypot(eta, kappa)
        e = (m - denoise(run, m, s, clamp)) / s
        turn = atan(after / eta) - atan(kappa / eta)
        Y = hypot(eta, after) * (Y / hypot(eta, kappa) + turn * e)
    return xn + Y


def reverse_diffusion(
    run: Run,
    x: Tensor,
    steps: Sequence[EulerStep],
    *,
    stochastic: bool,
    clamp: bool,
    denoise_last: bool = True,
) -> Tensor:
    r"""Reverse SDE (``stochastic``) or probability flow by Euler steps, from x at the first level.

    The last step has no noise. With ``denoise_last`` it returns D; Euler's step of the SDE from s
    to 0 returns 2D − x, the remaining noise with opposite sign. One evaluation per step.
    """
    c = 2 if stochastic else 1
    for i, step in enumerate(steps, start=1):
        x0 = denoise(run, x, step.sigma, clamp)
        last = i == len(steps)
        if last and denoise_last:
            return x0
        moved = step.keep * x + c * step.ds / step.sigma * (x - x0)
        if stochastic and not last:
            moved = moved + step.noise * run.noise(x)
        x = step.gain * moved
    return x


# Langevin draws of the likelihood, for nonlinear operators ---------------------------------------
def coupled_langevin(
    run: Run, x: Tensor, noise_std: float, eta: float, *, n_steps: int, scale: float
) -> Tensor:
    r"""DPnP's draw: the quadratic coupling is integrated exactly, with one step size per image.

    .. math::
        h &= \text{scale} \min(\sigma_n^2, \eta^2) / (50 + \|y - A(z)\|), \quad
        E = 1 - e^{-h/\eta^2} \\
        z &\leftarrow z + E (x - z) - \eta^2 E\, A'(z)^T (A(z) - y)/\sigma_n^2
              + \eta \sqrt{1 - e^{-2h/\eta^2}}\, n
    """
    misfit, z = data_objective(x, run.y, run.operator, 0.0), x
    for _ in range(n_steps):
        half_square, gradient = misfit(z)
        h = scale * min(noise_std**2, eta**2) / (50 + torch.sqrt(2 * half_square))
        E = expand(-torch.expm1(-h / eta**2), z)
        spread = expand(eta * torch.sqrt(-torch.expm1(-2 * h / eta**2)), z)
        z = z + E * (x - z) - (eta / noise_std) ** 2 * E * gradient + spread * run.noise(z)
    return z


def plain_langevin(
    run: Run, x: Tensor, noise_std: float, eta: float, *, n_steps: int, rate: float
) -> Tensor:
    r"""PnP-DM's draw: unadjusted Langevin steps of constant size γ.

    .. math::
        z \leftarrow z - \gamma \nabla \|y - A(z)\|^2/2\sigma^2 - \gamma (z - x)/\eta^2
        + \sqrt{2\gamma}\, n
    """
    # the gradient of the whole exponent is that of the data objective over noise_std²
    objective, z = data_objective(x, run.y, run.operator, (noise_std / eta) ** 2), x
    for _ in range(n_steps):
        _, gradient = objective(z)
        z = z - rate / noise_std**2 * gradient + (2 * rate) ** 0.5 * run.noise(z)
    return z
