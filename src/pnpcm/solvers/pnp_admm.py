"""PnP-ADMM: ADMM whose proximal operator of the prior is a denoiser."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from pnpcm.arguments import check_count, check_number
from pnpcm.core import Config, DataStep, Operator
from pnpcm.errors import ArgumentError
from pnpcm.solvers.base import DENOISERS, Run, SolverBase
from pnpcm.solvers.config import PnPCMConfig
from pnpcm.solvers.data_steps import CGStep, ProxStep
from pnpcm.solvers.pnp_cm import PnPCM

NOISE_FLOOR = 0.002
"""Smallest noise in the penalty, so that ρ > 0 without noise; 0.001 for images in [0, 1]."""


@dataclass(frozen=True)
class PnPADMMConfig(Config):
    """Parameters of a PnP-ADMM run, for images in [-1, 1].

    The level decreases geometrically from ``sigma_start`` to ``sigma_end``; ρ_k = weight
    (noise_std/σ_k)², the MAP weight if ``weight`` is 1, with ``noise_std`` at least 0.002.
    Nonlinear operators need a ``data_step`` such as ``GradientStep()``.
    """

    n_steps: int = 16
    sigma_start: float = 1.0
    sigma_end: float = 0.1
    weight: float = 1.0
    noise_std: float = 0.1
    clamp: bool = True
    data_step: DataStep = field(default_factory=ProxStep)

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps)
        for name in ("sigma_start", "sigma_end", "weight"):
            check_number(name, getattr(self, name), 0, open_low=True)
        check_number("noise_std", self.noise_std, 0)
        check_data_step(self.data_step)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        return self.n_steps

    @classmethod
    def example(cls) -> PnPADMMConfig:
        """A short run for the laws."""
        return cls(n_steps=3)

    def as_pnp_cm(self) -> PnPCMConfig:
        """The same run as a PnP-CM configuration without noise, momentum and δ."""
        return PnPCMConfig.geometric(
            (self.sigma_start, self.sigma_end),
            n=self.n_steps,
            noise_std=max(self.noise_std, NOISE_FLOOR),
            weight=self.weight,
            noise_scale=0.0,
            clamp=self.clamp,
            data_step=self.data_step,
        )


class PnPADMM(SolverBase[PnPADMMConfig]):
    r"""ADMM with a denoiser: PnP-CM's loop without injected noise and momentum.

    .. math::
        z_k &= \operatorname{argmin}_z \tfrac12\|A(z) - y\|^2
               + \tfrac{\rho_k}{2}\|z - (x_{k-1} - u_{k-1})\|^2 \\
        x_k &= D(z_k + u_{k-1},\ \sigma_k) \\
        u_k &= u_{k-1} + z_k - x_k

    Costs ``n_steps`` denoiser calls, no randomness. If D(·, σ) is a proximal operator and σ is
    constant, ρ = (noise_std/σ)² converges to the MAP estimate. Source: Venkatakrishnan et al.,
    Plug-and-Play Priors (GlobalSIP 2013); decreasing levels after Chan et al. (TCI 2017), with a
    diffusion model's denoiser, which covers all levels.
    """

    name = "pnp-admm"
    config_type = PnPADMMConfig
    kinds = DENOISERS
    usual_range = PnPCM.usual_range  # its loop handles other ranges

    def refusal(self, operator: Operator) -> str | None:
        return unfit(operator, self.config.data_step)

    def _solve(self, run: Run) -> Tensor:
        return PnPCM(self.prior, self.config.as_pnp_cm())._solve(run)


def check_data_step(data_step: object) -> None:
    """Refuse what cannot be called as a data step."""
    if not callable(data_step):
        raise ArgumentError(
            f"data_step is {data_step!r}, expected ProxStep(), CGStep(…) or GradientStep(…)"
        )


def unfit(operator: Operator, data_step: DataStep) -> str | None:
    """The refusal of an ``operator`` that lacks methods needed by ``data_step``, or None."""
    needs = {ProxStep: ("prox_l2", "A_adjoint"), CGStep: ("A_adjoint",)}.get(type(data_step), ())
    if not needs or any(hasattr(operator, name) for name in needs):
        return None
    return f"it has no {' or '.join(needs)}; give data_step=GradientStep(…)"
