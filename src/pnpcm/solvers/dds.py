"""DDS: a diffusion sampler whose data step is a few iterations of conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.arguments import check_count, check_number
from pnpcm.core import Operator
from pnpcm.linalg import cg, norm, normal_map
from pnpcm.schedules import even_indices
from pnpcm.solvers.ancestral import LevelConfig, steps
from pnpcm.solvers.base import DENOISERS, Run, SolverBase, unless_linear


@dataclass(frozen=True)
class DDSConfig(LevelConfig):
    """Parameters of a DDS run, for images in [-1, 1].

    ``eta``: share of new noise, as a standard deviation (not DDIM's eta). ``gamma``: weight of
    the data in the proximal branch; ``noiseless=True`` uses the other branch, plain least squares
    with early stopping. ``noise_std`` > 0 stops CG when the residual is not larger than the noise,
    or after ``cg_iterations``; 0 runs all iterations. ``sigmas``: levels instead of the published
    grid of ``n_steps``.
    """

    n_steps: int = 100
    eta: float = 0.85
    gamma: float = 1.0
    cg_iterations: int = 10
    noiseless: bool = False
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eta", self.eta, 0, 1)
        check_number("gamma", self.gamma, 0, open_low=True)
        check_count("cg_iterations", self.cg_iterations)
        check_number("noise_std", self.noise_std, 0)

    @classmethod
    def example(cls) -> DDSConfig:
        """A short run for the laws."""
        return cls(n_steps=5)


class DDS(SolverBase[DDSConfig]):
    r"""Denoising, a data fit by conjugate gradients, and a step to the next level.

    .. math::
        d &= D(x, \sigma), \qquad \epsilon = (x - d)/\sigma \\
        \hat x &= \text{CG}_M\big[(I + \gamma A^H A)\,\hat x = d + \gamma A^H y\big]
                  \text{ from } d, \text{ or } \text{CG}_M\big[A^H A\,\hat x = A^H y\big]
                  \text{ from } d \\
        x &\leftarrow \hat x + \sigma'\big(\eta\,n + \sqrt{1-\eta^2}\,\epsilon\big),
             \quad n \sim N(0, I)

    Costs ``n_steps`` denoiser calls. The step to the last level and the one after it add no noise
    (σ' = 0), so the last call denoises x̂ and its data step ends the run. Any linear operator.
    Source: Chung et al., Decomposed Diffusion Sampler for Accelerating Large-Scale Inverse
    Problems (ICLR 2024). Deviations from the official code: CG with conjugated inner products and
    one step length per image, Aᴴy combined as a complex image, levels within the prior's range,
    and the noise-dependent end of CG.
    """

    name = "dds"
    config_type = DDSConfig
    kinds = DENOISERS

    def refusal(self, operator: Operator) -> str | None:
        reason = unless_linear(operator, "the adjoint")
        return reason if hasattr(operator, "A_adjoint") else reason or "it has no A_adjoint"

    def _solve(self, run: Run) -> Tensor:
        eta, fit = self.config.eta, self._fit(run)
        levels = steps(run, self.config.sigmas, even_indices(self.config.n_steps))
        x = run.origin
        x = x + levels[0][0] * run.noise(x)
        for k, (sigma, sigma_next) in enumerate(levels, start=1):
            d = run.prior(x, sigma)
            e = (x - d) / sigma
            x = fit(d)
            if k < len(levels) - 1:
                x = x + sigma_next * (eta * run.noise(x) + math.sqrt(1 - eta**2) * e)
            run.record(k, sigma, x)
        return x

    def _fit(self, run: Run) -> Callable[[Tensor], Tensor]:
        """From d to x̂; both branches are (AᴴA + ρ) x̂ = Aᴴy + ρ d, with ρ = 1/γ or 0."""
        config = self.config
        operator: Any = run.operator
        rho = 0.0 if config.noiseless else 1 / config.gamma
        normal = normal_map(operator)
        b = operator.A_adjoint(run.y)
        radius = config.noise_std * n_measured(run.y).to(b).sqrt()

        def within_noise(x: Tensor) -> Tensor:
            return norm(run.residual(x)) <= radius

        return lambda d: cg(
            lambda p: normal(p) + rho * p,
            b + rho * d,
            x_init=d,
            max_iter=config.cg_iterations,
            stop=within_noise if config.noise_std > 0 else None,
        )


def n_measured(y: Tensor) -> Tensor:
    """Number of measured real values in each image's ``y`` ``(B,)``; unmeasured values are 0."""
    counts = torch.count_nonzero(y.flatten(1), dim=1)
    return counts * 2 if y.is_complex() else counts
