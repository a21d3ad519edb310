"""CM: zero-shot editing with a consistency model, applied to inverse problems.

``multistep`` is also the loop of CoSIGN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from pnpcm.arguments import check_count, check_number
from pnpcm.core import Config, Operator
from pnpcm.errors import ArgumentError
from pnpcm.schedules import SIGMA_MIN, karras
from pnpcm.solvers.base import CONSISTENCY, Run, SolverBase, pinv, unless_linear

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


@dataclass(frozen=True)
class CMIterativeConfig(Config):
    """Parameters of :class:`CMIterative`.

    ``n_steps``: evaluations, on the ``n_steps + 1`` points of the ρ = 7 grid from ``sigma_max`` to
    0.002 (39 is the official loop, whose 40 points are 39 intervals); ``sigmas``: other levels,
    one per evaluation. ``reg``: loading of the pseudo-inverse. ``final_denoise``: one more
    evaluation, at ``noise_std``, which has no other use.
    """

    n_steps: int = 40
    reg: float = 0.0
    final_denoise: bool = False
    noise_std: float = 0.1
    clamp: bool = True
    sigma_max: float = 80.0
    sigmas: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps)
        check_number("reg", self.reg, 0)
        check_number("noise_std", self.noise_std, 0)
        check_number("sigma_max", self.sigma_max, SIGMA_MIN, open_low=True)
        if self.sigmas is None:
            return
        object.__setattr__(self, "sigmas", tuple(float(s) for s in self.sigmas))
        if not self.sigmas or not all(SIGMA_MIN <= s < math.inf for s in self.sigmas):
            raise ArgumentError(
                f"sigmas must be one or more levels ≥ {SIGMA_MIN}, got {self.sigmas}"
            )

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        steps = self.n_steps if self.sigmas is None else len(self.sigmas)
        return steps + int(self.final_denoise)

    @classmethod
    def example(cls) -> CMIterativeConfig:
        """A short run for the laws."""
        return cls(n_steps=4, reg=0.01)


class CMIterative(SolverBase[CMIterativeConfig]):
    r"""Multistep consistency sampling that replaces the measured part of every estimate.

    .. math::
        x &= \sigma_1 n \\
        x_0 &= \text{clamp}\, f_\theta(x, \sigma_k) \\
        x_0 &\leftarrow x_0 + A^+ (y - A x_0) \\
        x &= x_0 + \sqrt{\sigma_{k+1}^2 - \sigma_{min}^2}\; n, \quad \sigma_{N+1} = \sigma_{min}

    The noise of y is copied into the result: the method has no noise model, and its last step adds
    no noise. ``final_denoise`` and ``reg`` are additions of pnpcm and off by default. For a blur
    the plain pseudo-inverse amplifies noise, since only singular values at rounding level are cut;
    use ``reg``.

    Costs ``n_steps`` prior calls and as many pseudo-inverses. Source: Song et al., Consistency
    Models (ICML 2023), Algorithm 4. Unlike their code it takes any linear operator, by its
    pseudo-inverse; theirs (inpainting, average pooling, colour) are special cases.
    """

    name = "cm-iterative"
    config_type = CMIterativeConfig
    kinds = CONSISTENCY

    def refusal(self, operator: Operator) -> str | None:
        return unless_linear(operator, "the pseudo-inverse")

    def _solve(self, run: Run) -> Tensor:
        config = self.config

        def estimate(x: Tensor, sigma: float) -> Tensor:
            x0 = run.prior(x, sigma)
            return run.clamp(x0) if config.clamp else x0

        def replace(x0: Tensor, ahead: float) -> Tensor:
            return x0 + pinv(run.operator, run.residual(x0), config.reg)

        x = multistep(run, self._levels(run), estimate, replace)
        return estimate(x, config.noise_std) if config.final_denoise else x

    def _levels(self, run: Run) -> tuple[float, ...]:
        """Levels of the evaluations; the first is at most the prior's largest level."""
        config = self.config
        if config.sigmas is not None:
            return config.sigmas
        highest = min(config.sigma_max, run.prior.prior.sigma_max / run.prior.scale)
        return karras(config.n_steps + 1, SIGMA_MIN, highest)[:-1]
