"""DPIR: half-quadratic splitting with a denoiser at decreasing levels."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from pnpcm.arguments import check_count, check_number
from pnpcm.core import Config, DataStep, Operator, is_linear
from pnpcm.solvers.base import DENOISERS, Run, SolverBase, prox, start, z_start
from pnpcm.solvers.config import PnPCMConfig
from pnpcm.solvers.data_steps import ProxStep
from pnpcm.solvers.pnp_admm import NOISE_FLOOR, check_data_step, unfit


@dataclass(frozen=True)
class DPIRConfig(Config):
    """Parameters of a DPIR run, for images in [-1, 1].

    The level decreases geometrically from ``sigma_start`` to ``sigma_end`` (None: to ``noise_std``,
    at least 0.002, at most ``sigma_start``). ``lam``: weight of the denoiser, ρ_k = lam
    (noise_std/σ_k)². Nonlinear operators need a ``data_step`` such as ``GradientStep()``.
    """

    n_steps: int = 8
    sigma_start: float = 2 * 49 / 255
    sigma_end: float | None = None
    lam: float = 0.23
    noise_std: float = 0.1
    clamp: bool = False
    data_step: DataStep = field(default_factory=ProxStep)

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps)
        check_number("sigma_start", self.sigma_start, 0, open_low=True)
        if self.sigma_end is not None:
            check_number("sigma_end", self.sigma_end, 0, self.sigma_start, open_low=True)
        check_number("lam", self.lam, 0, open_low=True)
        check_number("noise_std", self.noise_std, 0)
        check_data_step(self.data_step)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        return self.n_steps

    @classmethod
    def example(cls) -> DPIRConfig:
        """A short run for the laws."""
        return cls(n_steps=3)

    def schedule(self) -> PnPCMConfig:
        """σ_k and ρ_k as a PnP-CM configuration."""
        noise_std = max(self.noise_std, NOISE_FLOOR)
        end = min(noise_std, self.sigma_start) if self.sigma_end is None else self.sigma_end
        return PnPCMConfig.geometric(
            (self.sigma_start, end),
            n=self.n_steps,
            noise_std=noise_std,
            weight=self.lam,
        )


class DPIR(SolverBase[DPIRConfig]):
    r"""Half-quadratic splitting: data fit and denoiser in turn, at decreasing levels.

    .. math::
        z_k &= \operatorname{argmin}_z \tfrac12\|A(z) - y\|^2 + \tfrac{\rho_k}{2}\|z - x_{k-1}\|^2,
               \quad \rho_k = \lambda\,\sigma_y^2/\sigma_k^2 \\
        x_k &= D(z_k, \sigma_k)

    Costs ``n_steps`` denoiser calls, no randomness. It starts at the operator's own ``x_start``;
    else, if A is linear, at Aᵀ(AAᵀ + σ_y²)⁻¹y; else at the start of its data step (``z_start``,
    for JPEG the decoded image); else grey. Source: Zhang et al., Plug-and-Play Image Restoration
    with Deep Denoiser Prior (TPAMI 2021). Their code differs: it starts at y or its bicubic
    enlargement, rotates and flips the image from step to step, and ends at σ ≥ factor/255 in
    super-resolution (``sigma_end`` can be set to it).
    """

    name = "dpir"
    config_type = DPIRConfig
    kinds = DENOISERS

    def refusal(self, operator: Operator) -> str | None:
        return unfit(operator, self.config.data_step)

    def _solve(self, run: Run) -> Tensor:
        config, y, operator = self.config, run.y, run.operator
        schedule = config.schedule()
        z = z_start(run)
        x = x_start(run, config.noise_std, z)
        for k, (sigma, rho) in enumerate(zip(schedule.sigmas, schedule.rhos, strict=True), 1):
            z = config.data_step(x, y, operator, rho, z_prev=z)
            x = run.prior(z, sigma)
            x = run.clamp(x) if config.clamp else x
            run.record(k, sigma, x, rho=rho, z=z)
        return x


def x_start(run: Run, noise_std: float, z: Tensor | None = None) -> Tensor:
    """``x_init``, else the operator's own start, else Aᵀ(AAᵀ + noise_std²)⁻¹y, else z or grey."""
    x = start(run)
    if x is None and is_linear(run.operator):
        x = prox(run.operator, run.middle, run.y, max(noise_std, NOISE_FLOOR) ** 2)
    x = z if x is None else x
    return run.middle if x is None else x
