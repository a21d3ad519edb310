"""DPnP: split Gibbs sampling with diffusion samplers, after a guided warm start."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from pnpcm.arguments import check_choice, check_count, check_number
from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.schedules import spread_indices
from pnpcm.solvers.ancestral import steps
from pnpcm.solvers.base import DENOISERS, Run, SolverBase
from pnpcm.solvers.dps import guided_step
from pnpcm.solvers.level_grids import (
    EulerStep,
    dpnp_grid,
    log_falling,
    thinned,
)
from pnpcm.solvers.split_gibbs import (
    coupled_langevin,
    likelihood_draw,
    posterior_flow,
    reverse_diffusion,
    split_gibbs,
)

PUBLISHED_ETAS = (0.4,) * 4 + log_falling(0.4, 0.16, 12)


@dataclass(frozen=True)
class DPnPConfig(Config):
    """Parameters of a DPnP run; the defaults are the published ones, except ``noise_std``.

    ``etas``: coupling of each outer iteration. ``sampler``: prior draw by the probability flow of
    the posterior (``"ode"``) or by the reverse SDE (``"sde"``). ``kappas``: its grid, the
    ``"official"`` one from DDPM levels or ``n_kappas`` logarithmically spaced values (``"log"``);
    ``density``: share of the grid that is used. ``warm_start``: number of guided steps before
    (0: none), ``warm_zeta``: their step size, ζ of DPS. ``langevin_…``: likelihood draws of
    nonlinear operators.
    """

    etas: tuple[float, ...] = PUBLISHED_ETAS
    noise_std: float = 0.1
    sampler: str = "ode"
    kappas: str = "official"
    n_kappas: int = 150
    density: float = 1.0
    warm_start: int = 500
    warm_zeta: float = 0.8
    langevin_steps: int = 1000
    langevin_scale: float = 0.6
    clamp: bool = True

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "etas", tuple(float(eta) for eta in self.etas))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"etas is {self.etas!r}, expected a tuple of numbers") from error
        if not self.etas:
            raise ArgumentError("etas is empty; give one coupling per outer iteration")
        for eta in self.etas:
            check_number("etas", eta, 0.0, open_low=True)
        for name in ("noise_std", "langevin_scale"):
            check_number(name, getattr(self, name), 0.0, open_low=True)
        check_choice("sampler", self.sampler, ("ode", "sde"))
        check_choice("kappas", self.kappas, ("official", "log"))
        check_number("density", self.density, 0.0, 1.0, open_low=True)
        check_count("warm_start", self.warm_start, 0, 1000)
        check_number("warm_zeta", self.warm_zeta, 0.0)
        for name in ("n_kappas", "langevin_steps"):
            check_count(name, getattr(self, name))
        _ = self.nfe  # the official grid refuses couplings below its lowest level

    def grid(self, eta: float) -> tuple[float, ...]:
        """Grid of a prior draw at coupling η: κ (ode), or levels from η on (sde)."""
        return thinned(dpnp_grid(eta, self.sampler, self.kappas, self.n_kappas), self.density)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        return self.warm_start + sum(len(self.grid(eta)) for eta in self.etas)

    @classmethod
    def example(cls) -> DPnPConfig:
        """A short run for the laws."""
        return cls(etas=(0.4, 0.2), density=0.03, warm_start=3, langevin_steps=3)

    def scaled(self, share: float) -> DPnPConfig:
        """This run at a ``share`` of its cost: fewer guided steps, coarser grids."""
        check_number("share", share, 0.0, 1.0, open_low=True)
        warm_start = math.ceil(self.warm_start * share)
        return replace(self, warm_start=warm_start, density=self.density * share)


class DPnP(SolverBase[DPnPConfig]):
    r"""Diffusion plug-and-play: draws from likelihood and prior in turn, at decreasing coupling.

    .. math::
        x_{k+1/2} &\sim e^{-\|y - A(x)\|^2/2\sigma_n^2 - \|x - x_k\|^2/2\eta_k^2} \\
        x_{k+1} &\sim p(x_0 \mid x_0 + \eta_k n = x_{k+1/2})

    The first draw is exact for a linear operator, ``coupled_langevin`` otherwise; the second is
    ``posterior_flow`` (ode) or, with the prior draw before the likelihood draw,
    ``reverse_diffusion`` (sde). x_0 is computed by DPS steps on respaced DDPM levels; without them
    it is ``x_init`` or grey. The last prior draw is returned.

    Costs 2423 prior calls plus 500 of the warm start, which are differentiated: 2923, the
    published number. Source: Xu & Chi, Provably robust score-based diffusion posterior sampling
    for plug-and-play image reconstruction (NeurIPS 2024). Unlike the official code: the true
    noise level in the likelihood (there 0.15 for noise of 0.2), DPS instead of LGD-MC, exact
    likelihood draws, the exact levels as network input, one norm per image; the SDE uses η and all
    DDPM levels below it, and its last step returns the denoised image.

    >>> result = DPnP(prior, DPnPConfig(noise_std=0.1))(y, operator, generator=g)
    """

    name = "dpnp"
    config_type = DPnPConfig
    kinds = DENOISERS

    def _solve(self, run: Run) -> Tensor:
        config = self.config

        def langevin(x: Tensor, eta: float) -> Tensor:
            n_steps, scale = config.langevin_steps, config.langevin_scale
            return coupled_langevin(run, x, config.noise_std, eta, n_steps=n_steps, scale=scale)

        def prior(z: Tensor, eta: float) -> Tensor:
            if config.sampler == "ode":
                return posterior_flow(run, z, eta, config.grid(eta), clamp=config.clamp)
            row = EulerStep.row(config.grid(eta), exact_noise=True)
            return reverse_diffusion(run, z, row, stochastic=True, clamp=config.clamp)

        x = self._warm_start(run)
        likelihood = likelihood_draw(run, config.noise_std, langevin)
        order = config.sampler == "sde"
        return split_gibbs(run, x, config.etas, likelihood, prior, prior_first=order)

    def _warm_start(self, run: Run) -> Tensor:
        n, zeta, clamp = self.config.warm_start, self.config.warm_zeta, self.config.clamp
        x = run.origin
        if n == 0:
            return x
        levels = steps(run, None, spread_indices(n))
        x = x + levels[0][0] * run.noise(x)
        for sigma, sigma_next in levels:
            x = guided_step(run, x, sigma, sigma_next, zeta=zeta, clamp=clamp)
        return x
