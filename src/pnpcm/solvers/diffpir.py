"""DiffPIR: half-quadratic splitting along the levels of a diffusion model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from pnpcm.arguments import check_number
from pnpcm.core import Operator
from pnpcm.errors import ArgumentError
from pnpcm.schedules import quadratic_indices
from pnpcm.solvers.ancestral import LevelConfig, steps
from pnpcm.solvers.base import DENOISERS, Run, SolverBase, prox, unless_linear
from pnpcm.solvers.dpir import x_start
from pnpcm.solvers.pnp_admm import NOISE_FLOOR


@dataclass(frozen=True)
class DiffPIRConfig(LevelConfig):
    """Parameters of a DiffPIR run, for images in [-1, 1].

    ``lam``: weight of the denoised image. The official code has σ_y on [0, 1] and the levels on
    [-1, 1], so its λ is four times ours: the default is its 7. ``zeta``: share of new noise, as a
    variance. ``guidance``: share of the data step that is applied. ``noise_std`` is at least
    0.002. ``sigmas``: levels instead of the published grid of ``n_steps``.
    ``denoise_last=True`` returns the denoised image of the last level instead of the noisy one.
    """

    n_steps: int = 100
    lam: float = 7 / 4
    zeta: float = 0.3
    noise_std: float = 0.1
    guidance: float = 1.0
    clamp: bool = True
    denoise_last: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nfe < 2:  # the last level has no update
            raise ArgumentError(
                "n_steps or sigmas must give at least two levels, "
                f"got n_steps = {self.n_steps}, sigmas = {self.sigmas}"
            )
        check_number("lam", self.lam, 0, open_low=True)
        check_number("zeta", self.zeta, 0, 1)
        check_number("noise_std", self.noise_std, 0)
        check_number("guidance", self.guidance, 0)

    @classmethod
    def example(cls) -> DiffPIRConfig:
        """A short run for the laws."""
        return cls(sigmas=(2.0, 0.7, 0.3, 0.1))


class DiffPIR(SolverBase[DiffPIRConfig]):
    r"""Denoising, a data fit, and a step to the next level with old and new noise.

    .. math::
        d &= D(x, \sigma) \\
        \hat x &= d + g\,\Big(\operatorname{argmin}_z \tfrac12\|Az - y\|^2
                  + \tfrac{\rho}{2}\|z - d\|^2 - d\Big),
                  \quad \rho = \lambda\,\sigma_y^2/\sigma^2 \\
        x &\leftarrow \hat x + \sigma'\Big(\sqrt{1-\zeta}\,\frac{x - \hat x}{\sigma}
             + \sqrt{\zeta}\,n\Big), \quad n \sim N(0, I)

    Costs ``n_steps`` denoiser calls for ``n_steps − 1`` updates: as in the official code the call
    at the last level is not used, and the noisy iterate of that level is returned
    (σ = 0.01, VE scale); ``denoise_last=True`` returns that call's D instead. Linear operators.
    Source: Zhu et al., Denoising Diffusion Models for Plug-and-Play Image Restoration (CVPRW
    2023). Deviations: exact prox for every operator, a start from :func:`x_start` plus noise
    (theirs: y or its enlargement), and levels within the prior's range.
    """

    name = "diffpir"
    config_type = DiffPIRConfig
    kinds = DENOISERS

    def refusal(self, operator: Operator) -> str | None:
        return unless_linear(operator, "the proximal operator of the data term")

    def _solve(self, run: Run) -> Tensor:
        config, zeta = self.config, self.config.zeta
        noise_std = max(config.noise_std, NOISE_FLOOR)
        *levels, (last, _) = steps(run, config.sigmas, quadratic_indices(config.n_steps))
        x = x_start(run, noise_std)
        x = x + levels[0][0] * run.noise(x)
        for k, (sigma, sigma_next) in enumerate(levels, start=1):
            d = self._denoise(run, x, sigma)
            x_hat = prox(run.operator, d, run.y, config.lam * (noise_std / sigma) ** 2)
            x_hat = d + config.guidance * (x_hat - d)
            e = (x - x_hat) / sigma
            x = x_hat + sigma_next * (math.sqrt(1 - zeta) * e + math.sqrt(zeta) * run.noise(x))
            run.record(k, sigma, x)
        d = self._denoise(run, x, last)
        x = d if config.denoise_last else x
        run.record(len(levels) + 1, last, x)
        return x

    def _denoise(self, run: Run, x: Tensor, sigma: float) -> Tensor:
        d = run.prior(x, sigma)
        return run.clamp(d) if self.config.clamp else d
