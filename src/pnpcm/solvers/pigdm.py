"""PiGDM: DDIM guided by the pseudo-inverse of the operator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from pnpcm.arguments import check_choice, check_number
from pnpcm.core import Operator, is_linear
from pnpcm.schedules import even_indices
from pnpcm.solvers.ancestral import LevelConfig, ddim, denoise_with_graph, steps
from pnpcm.solvers.base import DENOISERS, Run, SolverBase, pinv, unless_linear

VARIANTS = ("official", "ddim", "mcg", "posterior")
INVERSES = ("own", "forward")


@dataclass(frozen=True)
class PiGDMConfig(LevelConfig):
    """Parameters of a PiGDM run; the defaults are those of the official code.

    ``weight`` w, ``variant``, ``noise_aware``: see :class:`PiGDM`; ``noise_std`` (of y) and
    ``data_std`` (of the prior) are used by ``noise_aware``. ``inverse``: h⁺ of a nonlinear
    operator, its own ``approx_inverse`` or ``"forward"``, h applied again, as in the official code
    for nonlinear deblurring. ``sigmas`` replace the ``n_steps`` levels of DDPM.
    """

    n_steps: int = 100
    weight: float = 1.0
    variant: str = "official"
    noise_aware: bool = False
    noise_std: float = 0.0
    data_std: float = 1.0
    inverse: str = "own"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("weight", self.weight, 0)
        check_number("noise_std", self.noise_std, 0)
        check_number("data_std", self.data_std, 0, open_low=True)
        for name, known in (("variant", VARIANTS), ("inverse", INVERSES)):
            check_choice(name, getattr(self, name), known)

    @property
    def loaded(self) -> bool:
        """Whether the guidance includes the noise of y and the variance of the estimate."""
        return self.noise_aware or self.variant == "posterior"

    @classmethod
    def example(cls) -> PiGDMConfig:
        """A short run for the laws."""
        return cls(n_steps=5)


class PiGDM(SolverBase[PiGDMConfig]):
    r"""Pseudo-inverse guidance of a deterministic DDIM sampler.

    .. math::
        d &= D(x, s), \qquad v = h^+(y) - h^+(h(d)) \\
        x' &= d + \tfrac{s'}{s}(x - d) + c\, \big(\partial d/\partial x\big)^\top v

    from x = h⁺(y) + s₁ z down to s′ = 0. A linear operator has v = A⁺(y − Ad), others their own
    ``approx_inverse`` and the exact forward model ``acquire`` for h, which is not differentiated.

    ``variant``: ``"official"``, c = w, a constant, which over-enforces y on fine grids;
    ``"ddim"``, c = (1 − s′/s) w, DDIM from the corrected estimate; ``"mcg"``, c = √(1 + s′²) w;
    ``"posterior"``, c as in ``"ddim"`` and v multiplied by s²/r²: exact for Gaussian images.
    ``noise_aware``, always so in ``"posterior"``, is the paper's form for noisy linear problems,

    .. math:: v = r^2 A^\top (r^2 A A^\top + \sigma_n^2)^{-1} (y - A d), \qquad
              r^2 = s^2 S^2 / (s^2 + S^2)

    with S = ``data_std`` and σ_n = ``noise_std``; the first image uses the same loading.

    Costs ``n_steps`` prior calls and as many vector-Jacobian products. A given ``x_init`` replaces
    h⁺(y) in the start. Source: Song et al., Pseudoinverse-guided diffusion models for inverse
    problems (ICLR 2023); the default is the official code (RED-diff), which has no noise model.
    Unlike in that code, known pixels are not copied into d in inpainting.

    >>> result = PiGDM(prior, PiGDMConfig(weight=0.5))(y, operator, generator=g)
    """

    name = "pigdm"
    config_type = PiGDMConfig
    kinds = DENOISERS

    def refusal(self, operator: Operator) -> str | None:
        if self.config.loaded:
            return unless_linear(operator, "the pseudo-inverse for noise-aware guidance")
        if is_linear(operator) or hasattr(operator, "approx_inverse"):
            return None
        return "it needs approx_inverse(y), and this operator has none; use PnPCM, DPS or DPnP"

    def _solve(self, run: Run) -> Tensor:
        levels = steps(run, self.config.sigmas, even_indices(self.config.n_steps))
        first = levels[0][0]
        x = self._inverse(run, run.y, first) if run.x_init is None else run.x_init
        x = x + first * run.noise(x)
        for k, (sigma, sigma_next) in enumerate(levels, start=1):
            leaf, graph = denoise_with_graph(run, x, sigma)
            d = graph.detach()
            if is_linear(run.operator):
                v = self._inverse(run, run.residual(d), sigma)
            else:
                v = self._inverse(run, run.y, sigma) - self._inverse(run, _h(run, d), sigma)
            (g,) = torch.autograd.grad(graph, leaf, v)
            x = ddim(x, d, sigma, sigma_next) + self._coefficient(sigma, sigma_next) * g
            run.record(k, sigma, x)
        return x

    def _coefficient(self, sigma: float, sigma_next: float) -> float:
        """The coefficient c; for ``"posterior"`` it includes the factor s²/r² of v."""
        w, variant = self.config.weight, self.config.variant
        if variant == "official":
            return w
        if variant == "mcg":
            return w * math.sqrt(1 + sigma_next**2)
        c = w * (1 - sigma_next / sigma)
        return c if variant == "ddim" else c * (1 + (sigma / self.config.data_std) ** 2)

    def _inverse(self, run: Run, y: Tensor, sigma: float) -> Tensor:
        """h⁺(y); for a linear operator Aᵀ(AAᵀ + σ_n²/r²)⁻¹ y, with σ_n = 0 unless ``loaded``."""
        config, operator = self.config, cast(Any, run.operator)  # see refusal
        if is_linear(operator):
            load = config.noise_std**2 * (sigma**-2 + config.data_std**-2)
            return pinv(operator, y, load if config.loaded else 0.0)
        x: Tensor = operator.approx_inverse(y)
        if config.inverse == "forward":
            x = operator.approx_inverse(_h(run, x))
        return x


def _h(run: Run, x: Tensor) -> Tensor:
    """The measurement of ``x`` without noise, by ``acquire`` if the operator has it."""
    y: Tensor = getattr(run.operator, "acquire", run.operator.A)(x)
    return y
