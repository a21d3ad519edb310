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
    usual_range = False  # step sizes of data steps are quoted in the problem's own range

    def _solve(self, run: Run) -> Tensor:
        config, y, operator = self.config, run.y, run.operator
        unit = (run.high - run.low) / 2  # configurations are quoted for [-1, 1]
        z_prev = z_start(run)
        x = self._start(run, z_prev)
        u = torch.zeros_like(x)
        x_ahead, u_ahead = x, u
        steps = zip(config.sigmas, config.deltas, config.rhos, config.momentum, strict=True)
        # images may be large: what is not needed again is dropped at once, and what nobody else
        # can hold (callbacks keep x, z, u) is changed in place
        for k, (sigma, delta, rho, mu) in enumerate(steps, start=1):
            v = x_ahead - u_ahead
            del x_ahead
            z = config.data_step(v, y, operator, rho, z_prev=z_prev)
            del v
            z_moved = norm(z - (x if z_prev is None else z_prev))
            z_prev, total = z, z + u_ahead
            del u_ahead
            noised = total
            if config.noise_scale > 0:
                noised = run.noise(total)
                noised.mul_(config.noise_scale * sigma * unit).add_(total)
            x_next = run.prior(noised, (1 + delta) * sigma * unit)
            del noised
            run.check(x_next, k, sigma)
            if config.clamp:
                x_next = run.clamp(x_next)
            u_next = total - x_next
            del total
            dx, du = x_next - x, u_next - u
            run.residuals.append((norm(dx) + z_moved + norm(du)) / math.sqrt(x[0].numel()))
            x, u = x_next, u_next
            x_ahead, u_ahead = dx.mul_(mu).add_(x), du.mul_(mu).add_(u)  # noqa: F841  # seen by k + 1
            del x_next, u_next, dx, du
            run.tell(Step(k=k, sigma=sigma, rho=rho, x=x, z=z, u=u))
        return x

    def _start(self, run: Run, z: Tensor | None) -> Tensor:
        if self.config.init == "auto":
            return start(run, lambda: run.middle)
        from_z = self.config.init == "z_start" and run.x_init is None
        return z if from_z and z is not None else run.origin
