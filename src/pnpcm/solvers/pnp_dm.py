"""PnP-DM: split Gibbs sampling whose prior step is a reverse diffusion."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from pnpcm.arguments import check_choice, check_count, check_number
from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.solvers.base import DENOISERS, Run, SolverBase
from pnpcm.solvers.level_grids import GRIDS, EulerStep, euler_steps
from pnpcm.solvers.split_gibbs import (
    likelihood_draw,
    plain_langevin,
    reverse_diffusion,
    split_gibbs,
)


@dataclass(frozen=True)
class PnPDMConfig(Config):
    """Parameters of a PnP-DM run; the defaults are the published ones for linear operators.

    Coupling (the paper's ρ) η_i = max(eta_start · decay^i, eta_min) in ``n_iterations`` iterations
    (phase problems: ``eta_min`` 0.1). ``grid`` of ``n_levels`` for the prior step: ``"edm"``
    (0.0105 … 80), ``"edm-full"`` (0.002 … 80), ``"ve"`` (0.02 … 100), ``"iddpm"`` (cosine levels),
    ``"vp"`` (even in VP time, on VP-scaled images; only it uses ``slope``, 14.9 for LSUN).
    ``mode``: reverse SDE (``"sde"``) or probability flow (``"ode"``). ``denoise_last=False``:
    Euler's own last step, as published. ``average_last``: number of last states whose mean is
    returned, 0: the last state. ``langevin_…``: likelihood steps of nonlinear operators.
    """

    n_iterations: int = 100
    eta_start: float = 10.0
    decay: float = 0.9
    eta_min: float = 0.3
    n_levels: int = 100
    grid: str = "edm"
    slope: float = 19.9
    mode: str = "sde"
    noise_std: float = 0.1
    langevin_steps: int = 100
    langevin_rate: float = 1e-4
    denoise_last: bool = True
    average_last: int = 0
    clamp: bool = False

    def __post_init__(self) -> None:
        check_count("n_iterations", self.n_iterations)
        check_number("eta_start", self.eta_start, 0.0, open_low=True)
        check_number("decay", self.decay, 0.0, 1.0, open_low=True)
        check_number("eta_min", self.eta_min, 0.0, self.eta_start, open_low=True)
        check_count("n_levels", self.n_levels, 2)
        check_choice("grid", self.grid, GRIDS)
        check_number("slope", self.slope, 0.0, open_low=True)
        check_choice("mode", self.mode, ("sde", "ode"))
        check_number("noise_std", self.noise_std, 0.0, open_low=True)
        check_count("langevin_steps", self.langevin_steps)
        check_number("langevin_rate", self.langevin_rate, 0.0, open_low=True)
        check_count("average_last", self.average_last, 0, self.n_iterations)
        lowest = euler_steps(self.grid, self.n_levels, self.slope)[-1].sigma
        if self.eta_min <= lowest:
            raise ArgumentError(
                f"eta_min must be above {lowest:g}, the lowest level of grid {self.grid!r}, "
                f"got {self.eta_min}"
            )

    @property
    def etas(self) -> tuple[float, ...]:
        """The coupling of each iteration."""
        falling = (self.eta_start * self.decay**i for i in range(self.n_iterations))
        return tuple(max(eta, self.eta_min) for eta in falling)

    def steps(self, eta: float) -> tuple[EulerStep, ...]:
        """The prior step at coupling η: the grid from its first level below η on."""
        whole = euler_steps(self.grid, self.n_levels, self.slope)
        return tuple(step for step in whole if step.sigma < eta)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        return sum(len(self.steps(eta)) for eta in self.etas)

    @classmethod
    def example(cls) -> PnPDMConfig:
        """A short run for the laws."""
        return cls(n_iterations=3, eta_start=2.0, decay=0.3, n_levels=8, langevin_steps=3)

    def scaled(self, share: float) -> PnPDMConfig:
        """A similar run at a ``share`` of its cost: fewer iterations, the same prior draws.

        The coupling decreases faster, so that it reaches ``eta_min`` after the same part of the
        run. The number of levels stays: with half of them Euler's steps leave twice the noise in x.
        """
        check_number("share", share, 0.0, 1.0, open_low=True)
        n_iterations = max(round(self.n_iterations * share), 1)
        return replace(
            self,
            n_iterations=n_iterations,
            decay=self.decay ** (self.n_iterations / n_iterations),
            average_last=min(self.average_last, n_iterations),
        )


class PnPDM(SolverBase[PnPDMConfig]):
    r"""Plug-and-play diffusion: exact or Langevin likelihood draws, reverse diffusions as prior.

    .. math::
        z_i &\sim e^{-\|y - A(z)\|^2/2\sigma^2 - \|z - x_i\|^2/2\eta_i^2} \\
        x_{i+1} &\sim p(x_0 \mid x_0 + \eta_i n = z_i):\quad
        x \leftarrow x + 2 (s' - s)\,\frac{x - D(x, s)}{s} + \sqrt{2 s (s - s')}\, n

    from x = z_i at the first level s below η_i, without noise in the last step; the probability
    flow has 1 instead of 2 and no noise. x_0 is ``x_init`` or grey. At fixed η the distribution of
    x is the posterior for noise of covariance σ² + η²AAᵀ.

    Costs the number of levels below η_i, summed over the iterations. Published settings give, for
    ``eta_min`` 0.3 / 0.1: vp 1861 / 1491, vp with slope 14.9 2121 / 1693, edm 3032 / 2482, edm-full
    3573 / 3023, iddpm 3305 / 2562, ve 3898 / 3106; none gives the 2034 of the PnP-CM paper
    (edm with ``n_levels=67`` is close: 2028). Source: Wu et al., Principled probabilistic
    imaging using diffusion models as plug-and-play priors (NeurIPS 2024). Unlike the official code:
    the last step of each diffusion returns D (``denoise_last``), where Euler's step 2D − x keeps
    the remaining noise with opposite sign.

    >>> result = PnPDM(prior, PnPDMConfig(noise_std=0.1))(y, operator, generator=g)
    """

    name = "pnp-dm"
    config_type = PnPDMConfig
    kinds = DENOISERS

    def _solve(self, run: Run) -> Tensor:
        config, noise_std = self.config, self.config.noise_std

        def langevin(x: Tensor, eta: float) -> Tensor:
            n_steps, rate = config.langevin_steps, config.langevin_rate
            return plain_langevin(run, x, noise_std, eta, n_steps=n_steps, rate=rate)

        def prior(z: Tensor, eta: float) -> Tensor:
            stochastic, last = config.mode == "sde", config.denoise_last
            options = {"stochastic": stochastic, "denoise_last": last, "clamp": config.clamp}
            return reverse_diffusion(run, z, config.steps(eta), **options)

        x = run.origin
        likelihood = likelihood_draw(run, noise_std, langevin)
        return split_gibbs(run, x, config.etas, likelihood, prior, average_last=config.average_last)
