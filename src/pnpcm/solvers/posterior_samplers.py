"""Draws from p(x0 | x0 + eta·noise = xn) with a denoiser, for split Gibbs sampling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import atan, hypot

from torch import Tensor

from pnpcm.solvers.base import Run
from pnpcm.solvers.level_grids import EulerStep


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
