"""PnP-CM: ADMM whose proximal operator of the prior is a consistency model."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pnpcm.core import Step
from pnpcm.linalg import norm
from pnpcm.solvers.base import Run, SolverBase, start, z_start
from pnpcm.solvers.config import PnPCMConfig


class PnPCM(SolverBase[PnPCMConfig]):
    r"""ADMM whose prior step is a noise-injected consistency model, with momentum.

    .. math::
        z_k &= \operatorname{argmin}_z \tfrac12\|A(z) - y\|^2
               + \tfrac{\rho_k}{2}\|z - (\tilde x - \tilde u)\|^2 \\
        x_k &= f_\theta\big(z_k + \tilde u + \sigma_k n,\ (1+\delta_k)\,\sigma_k\big),
               \quad n \sim N(0, I) \\
        u_k &= \tilde u + z_k - x_k \\
        (\tilde x, \tilde u) &= (x_k, u_k) + \mu_k\big[(x_k, u_k) - (x_{k-1}, u_{k-1})\big]

    Costs ``n_steps`` prior calls. Source: Gülle et al., PnP-CM (CVPR 2026), Algorithm 1.

    >>> result = PnPCM(prior, PRESETS["celeba-hq/superres-4"].solver)(y, operator, generator=g)
    """

    name = "pnp-cm"
    config_type = PnPCMConfig
    usual_range = False  # step sizes of data steps are in units of the problem's range

    def _solve(self, run: Run) -> Tensor:
        config, y, operator = self.config, run.y, run.operator
        z = z_start(run)
        x = self._start(run, z)
        ahead = _Ahead(x, z)
        rows = zip(config.sigmas, config.told, config.rhos, config.momentum, strict=True)
        for k, (sigma, told, rho, mu) in enumerate(rows, start=1):
            z = config.data_step(ahead.x_minus_u(), y, operator, rho, z_prev=ahead.z)
            u = ahead.u_plus(z)  # ũ + z
            x = self._denoised(run, u, k, sigma, told)  # f(ũ + z + σ n, (1 + δ) σ)
            u = u - x
            run.residuals.append(ahead.extrapolate(x, u, mu))  # x̃, ũ
            run.tell(Step(k=k, sigma=sigma, rho=rho, x=x, z=z, u=u))
        return x

    def _start(self, run: Run, z: Tensor | None) -> Tensor:
        if self.config.init in ("auto", "extension"):
            x = start(run, self.config.init)
        else:
            x = z if self.config.init == "z_start" and run.x_init is None else run.x_init
        return run.middle if x is None else x

    def _denoised(self, run: Run, total: Tensor, k: int, sigma: float, told: float) -> Tensor:
        """f(total + σ n, (1 + δ) σ), clamped; the sum is computed in place of the noise."""
        unit = (run.high - run.low) / 2  # configurations are for [-1, 1]
        scale, noised = self.config.noise_scale, total
        if scale > 0:
            noised = run.noise(total)
            noised.mul_(scale * sigma * unit).add_(total)
        x = run.prior(noised, told * unit)
        del noised
        run.check(x, k, sigma)
        return run.clamp(x) if self.config.clamp else x


class _Ahead:
    """x̃ and ũ of the next iteration, and the residuals of z, x and u in this one.

    Images may be large: each is released at its last use, and only tensors that callbacks cannot
    hold (they get x, z and u) are changed in place.
    """

    def __init__(self, x: Tensor, z: Tensor | None) -> None:
        self.x, self.u, self.z = x, torch.zeros_like(x), z
        self.x_ahead, self.u_ahead = self.x, self.u

    def x_minus_u(self) -> Tensor:
        """x̃ − ũ; releases x̃."""
        v = self.x_ahead - self.u_ahead
        del self.x_ahead
        return v

    def u_plus(self, z: Tensor) -> Tensor:
        """ũ + z; releases ũ and the previous z."""
        self.z_moved = norm(z - (self.x if self.z is None else self.z))
        self.z, total = z, z + self.u_ahead
        del self.u_ahead
        return total

    def extrapolate(self, x: Tensor, u: Tensor, mu: float) -> Tensor:
        """(x̃, ũ) = (x, u) + μ [(x, u) − (x_prev, u_prev)], and Δ_k of :class:`Result`."""
        dx, du = x - self.x, u - self.u
        self.x, self.u = x, u
        moved = norm(dx) + self.z_moved + norm(du)
        self.x_ahead, self.u_ahead = dx.mul_(mu).add_(x), du.mul_(mu).add_(u)
        return moved / math.sqrt(x[0].numel())
