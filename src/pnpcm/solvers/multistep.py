"""Multistep consistency sampling, the loop of CM (iterative) and CoSIGN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from pnpcm.schedules import SIGMA_MIN
from pnpcm.solvers.base import Run

Estimate = Callable[[Tensor, float], Tensor]
"""f(x, σ): from a noisy image at level σ to a clean one."""

Correct = Callable[[Tensor, float], Tensor]
"""(x0, σ′): the clean estimate corrected towards y; σ′ is the next level."""


def multistep(
    run: Run,
    sigmas: Sequence[float],
    estimate: Estimate,
    correct: Correct,
    *,
    carried: float = 0.0,
    sigma_min: float = SIGMA_MIN,
) -> Tensor:
    r"""Estimate, correction and new noise; one estimate per level, ``sigma_min`` is the last.

    .. math::
        x &= x_{init} + \sigma_1 n \\
        x_0 &= \text{correct}\big(\text{estimate}(x, \sigma_k),\ \sigma_{k+1}\big) \\
        x &= x_0 + \sqrt{\max(\sigma_{k+1}^2 - c^2,\ \sigma_{min}^2) - \sigma_{min}^2}\; n

    σ_min² is the noise that a consistency function leaves, so no noise is added after the last
    level. ``carried``: noise c that x_0 already has from the correction. Song et al. (2023),
    Algorithm 1.
    """
    x = run.origin
    x = x + sigmas[0] * run.noise(x)
    following = (*sigmas[1:], sigma_min)
    for k, (sigma, ahead) in enumerate(zip(sigmas, following, strict=True), start=1):
        x0 = correct(estimate(x, sigma), ahead)
        run.record(k, sigma, x0)
        spread = math.sqrt(max(ahead**2 - carried**2, sigma_min**2) - sigma_min**2)
        x = x0 + spread * run.noise(x0) if spread > 0 else x0
    return x
