"""CM4IR: few-step restoration with back-projection and noise along the estimate."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass

from torch import Tensor

from pnpcm.arguments import check_number
from pnpcm.core import Config, Operator
from pnpcm.errors import ArgumentError
from pnpcm.schedules import ddpm_decay
from pnpcm.solvers.base import CONSISTENCY, Run, SolverBase, pinv, start, unless_linear


@dataclass(frozen=True)
class CM4IRConfig(Config):
    """Parameters of :class:`CM4IR`; ``from_paper`` takes those of the publication.

    ``sigmas``: one level per evaluation; ``deltas``: the network's noise input is (1 + δ_k) σ_k,
    and that of its scalings too if ``delta_in_scalings`` (empty: all 0); ``zeta``: loading of the
    pseudo-inverse in units of ``noise_std``²; ``eta``: share of new noise.
    """

    sigmas: tuple[float, ...]
    deltas: tuple[float, ...] = ()
    zeta: float = 0.0
    eta: float = 0.1
    noise_std: float = 0.1
    clamp: bool = True
    delta_in_scalings: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigmas", tuple(float(s) for s in self.sigmas))
        deltas = self.deltas if len(self.deltas) > 0 else (0.0,) * len(self.sigmas)
        object.__setattr__(self, "deltas", tuple(float(d) for d in deltas))
        if not self.sigmas or not all(0 < s < math.inf for s in self.sigmas):
            raise ArgumentError(f"sigmas must be one or more positive levels, got {self.sigmas}")
        if len(self.deltas) != len(self.sigmas):
            raise ArgumentError(
                f"deltas has {len(self.deltas)} entries for {len(self.sigmas)} sigmas; "
                "give one per evaluation, or none"
            )
        if not all(-1 < d < math.inf for d in self.deltas):
            raise ArgumentError(f"deltas must be above -1, got {self.deltas}")
        check_number("zeta", self.zeta, 0)
        check_number("eta", self.eta, 0, 1)
        check_number("noise_std", self.noise_std, 0)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        return len(self.sigmas)

    @classmethod
    def example(cls) -> CM4IRConfig:
        """A short run for the laws."""
        return cls.from_paper(150, 0.2, 1.0, n=3)

    @classmethod
    def from_paper(
        cls,
        i_N: int,
        decay: float,
        zeta: float = 0.0,
        deltas: tuple[float, ...] = (),
        *,
        n: int = 4,
        eta: float = 0.1,
        noise_std: float = 0.1,
        delta_in_scalings: bool = False,
        index_offset: int = 2,
    ) -> CM4IRConfig:
        """From start index i_N, decay γ (levels of PnP-CM), ζ and δ; ``n``: if no δ is given."""
        return cls(
            sigmas=ddpm_decay(i_N, decay, len(deltas) or n, index_offset=index_offset),
            deltas=tuple(deltas),
            zeta=zeta,
            eta=eta,
            noise_std=noise_std,
            delta_in_scalings=delta_in_scalings,
        )


class CM4IR(SolverBase[CM4IRConfig]):
    r"""Estimate, back-projection, and a step along the estimate with some new noise.

    .. math::
        x &= A_\zeta^+ y + \sigma_1 n, \qquad A_\zeta^+ = A^T (A A^T + \zeta\,\sigma_n^2)^{-1} \\
        d &= \text{clamp}\, f_\theta\big(x, (1 + \delta_k)\,\sigma_k\big) \\
        \hat z &= (d - x) / \sigma_k \\
        b &= d - A_\zeta^+ (A d - y) \\
        x &= b + \sigma_{k+1} \big(\eta\, n + \sqrt{1 - \eta^2}\; \hat z\big)

    with σ_n = ``noise_std``. The result is b of the last step for a noiseless y, and d for a noisy
    one, whose noise b would contain. ẑ is *minus* the predicted noise, as published: the step
    continues in the direction d − x. An operator with its own start (inpainting: medians) uses it
    instead of the pseudo-inverse. With more equations than unknowns, as in multi-coil MRI, b is
    A⁺y for any d.

    Costs one prior call and one pseudo-inverse per level. Source: Garber & Tirer, Zero-Shot Image
    Restoration Using Few-Step Guidance of Consistency Models (and Beyond) (CVPR 2025).
    """

    name = "cm4ir"
    config_type = CM4IRConfig
    kinds = CONSISTENCY

    def refusal(self, operator: Operator) -> str | None:
        return unless_linear(operator, "the pseudo-inverse")

    def _solve(self, run: Run) -> Tensor:
        config, sigmas = self.config, self.config.sigmas
        reg = config.zeta * config.noise_std**2
        x = start(run)
        x = pinv(run.operator, run.y, reg) if x is None else x
        x = x + sigmas[0] * run.noise(x)
        for k, (sigma, delta) in enumerate(zip(sigmas, config.deltas, strict=True), start=1):
            d = self._estimate(run, x, sigma, delta)
            minus_noise = (d - x) / sigma
            last = k == len(sigmas)
            guided = not (last and config.noise_std > 0)
            b = d + pinv(run.operator, run.residual(d), reg) if guided else d
            run.record(k, sigma, b, z=d)
            if not last:
                mixed = config.eta * run.noise(b) + math.sqrt(1 - config.eta**2) * minus_noise
                x = b + sigmas[k] * mixed
        return b

    def _estimate(self, run: Run, x: Tensor, sigma: float, delta: float) -> Tensor:
        """f(x, σ) with noise input (1 + δ) σ of the network, or also of its scalings."""
        told, config = (1 + delta) * sigma, self.config
        if delta == 0 or config.delta_in_scalings:
            d = run.prior(x, told)
        else:
            d = run.prior(x, sigma, time_sigma=self._network_level(run, told))
        return run.clamp(d) if config.clamp else d

    def _network_level(self, run: Run, sigma: float) -> float:
        """``sigma`` in units of the prior, clamped to its levels, for priors with time_sigma."""
        prior = run.prior.prior
        if "time_sigma" not in inspect.signature(getattr(prior, "forward", prior)).parameters:
            raise ArgumentError(
                f"deltas = {self.config.deltas} change only the network's noise input, but "
                f"{type(prior).__name__} takes no time_sigma; give delta_in_scalings=True"
            )
        return min(max(sigma * run.prior.scale, prior.sigma_min), prior.sigma_max)
