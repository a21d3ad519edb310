"""DDRM: diffusion in the singular basis of the operator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from pnpcm.arguments import check_number
from pnpcm.core import Operator
from pnpcm.schedules import even_indices
from pnpcm.solvers.ancestral import LevelConfig, steps
from pnpcm.solvers.base import DENOISERS, Run, SolverBase


@dataclass(frozen=True)
class DDRMConfig(LevelConfig):
    """Parameters of a DDRM run; the defaults are the published ones.

    ``noise_std``: noise of y. ``eta``: share of new noise where the prior determines a component;
    ``eta_b``: weight of y where it is less noisy than the level. ``sigmas`` replace the ``n_steps``
    levels of DDPM.
    """

    n_steps: int = 20
    eta: float = 0.85
    eta_b: float = 1.0
    noise_std: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eta", self.eta, 0, 1)
        check_number("eta_b", self.eta_b, 0, 1)
        check_number("noise_std", self.noise_std, 0)

    @classmethod
    def example(cls) -> DDRMConfig:
        """A short run for the laws."""
        return cls(n_steps=4)


class DDRM(SolverBase[DDRMConfig]):
    r"""Denoising diffusion restoration: each singular component follows y or the prior.

    With A = U S Vᵀ, ȳ = S⁻¹Uᵀy, whose noise is τ_i = noise_std/s_i, d = D(x, s), a bar for Vᵀ
    and new noise z, component i becomes

    .. math::
        \bar x'_i = \begin{cases}
        \bar d_i + s'\big(\sqrt{1-\eta^2}\,(\bar x_i - \bar d_i)/s + \eta\,\bar z_i\big)
            & s_i = 0 \\
        \bar d_i + s'\big(\sqrt{1-\eta^2}\,(\bar y_i - \bar d_i)/\tau_i + \eta\,\bar z_i\big)
            & s' < \tau_i \\
        (1-\eta_b)\,\bar d_i + \eta_b\,\bar y_i + \sqrt{s'^2 - \eta_b^2\tau_i^2}\;\bar z_i
            & s' \ge \tau_i
        \end{cases}

    from x̄ = ȳ + √(s₁² − τ²) z̄ where s₁ ≥ τ_i and x̄ = s₁ z̄ elsewhere, down to s′ = 0. Noise is
    drawn as an image, so that z̄ has its law in any basis; what V does not reach has s_i = 0.

    Costs ``n_steps`` prior calls. A given ``x_init`` is the image to which the first noise is
    added where y is not used. Source: Kawar et al., Denoising diffusion restoration models
    (NeurIPS 2022). Where the official code differs we follow the paper: zeros inside S
    belong to the first case, and a noiseless run (``noise_std=0``) ends with the third one, so
    that A x = y. The start is the code's, which treats s₁ < τ_i as unmeasured.

    >>> result = DDRM(prior, DDRMConfig(noise_std=0.1))(y, operator, generator=g)
    """

    name = "ddrm"
    config_type = DDRMConfig
    kinds = DENOISERS

    def refusal(self, operator: Operator) -> str | None:
        if getattr(operator, "decomposed", hasattr(operator, "U_adjoint")):  # deepinv: the latter
            return None
        return (
            "it needs the decomposition A = U S Vᵀ, which is not known for this operator; "
            "use PnPCM, DiffPIR or PiGDM"
        )

    def _solve(self, run: Run) -> Tensor:
        config, operator = self.config, cast(Any, run.operator)
        levels = steps(run, config.sigmas, even_indices(config.n_steps))
        start = run.origin
        values = singular_values(operator, start)
        y_bar = operator.U_adjoint(run.y) * torch.where(values > 0, 1 / values, 0)
        tau = torch.where(values > 0, config.noise_std / values, torch.inf)

        def replace(x: Tensor, c: Tensor, where: Tensor) -> Tensor:
            """``x`` with coefficients ``c`` at ``where``; ``c`` must be finite only there."""
            moved: Tensor = operator.V(torch.where(where, c - operator.V_adjoint(x), 0))
            return x + moved

        sigma, z = levels[0][0], run.noise(start)
        led = y_bar + (sigma**2 - tau**2).clamp_min(0).sqrt() * operator.V_adjoint(z)
        x = replace(start + sigma * z, led, sigma >= tau)
        eta, eta_b, kept = config.eta, config.eta_b, math.sqrt(1 - config.eta**2)
        for k, (sigma, sigma_next) in enumerate(levels, start=1):
            d, z = run.prior(x, sigma), run.noise(x)
            d_bar, z_bar = operator.V_adjoint(d), operator.V_adjoint(z)
            free = d + sigma_next * (kept * (x - d) / sigma + eta * z)
            near = d_bar + sigma_next * (kept * (y_bar - d_bar) / tau + eta * z_bar)
            spread = (sigma_next**2 - (eta_b * tau) ** 2).clamp_min(0).sqrt()
            led = (1 - eta_b) * d_bar + eta_b * y_bar + spread * z_bar
            x = replace(free, torch.where(sigma_next >= tau, led, near), values > 0)
            run.record(k, sigma, x)
        return x


def singular_values(operator: Any, x: Tensor) -> Tensor:
    """The diagonal of S in the dtype of ``x``, with rounding set to zero; deepinv's ``mask``."""
    given = operator.singular_values if hasattr(operator, "singular_values") else operator.mask
    values = torch.as_tensor(given).to(x)
    floor = values.max() * max((1, *values.shape[-2:])) * torch.finfo(x.dtype).eps
    return torch.where(values > floor, values, 0)
