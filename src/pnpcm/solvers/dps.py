"""DPS: ancestral sampling with a gradient step on the residual norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm.arguments import check_number
from pnpcm.errors import OperatorError
from pnpcm.linalg import norm
from pnpcm.schedules import spread_indices
from pnpcm.solvers.ancestral import LevelConfig, ancestral, denoise_with_graph, steps
from pnpcm.solvers.base import DENOISERS, Run, SolverBase


@dataclass(frozen=True)
class DPSConfig(LevelConfig):
    """Parameters of a DPS run; the defaults are those published for deblurring and SR of faces.

    ``zeta``: step size on the norm, not on its square (0.5 for random inpainting, 1.0 for phase
    retrieval); 0 samples from the prior. ``sigmas`` replace the ``n_steps`` levels of DDPM.
    """

    n_steps: int = 1000
    zeta: float = 0.3
    clamp: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("zeta", self.zeta, 0)

    @classmethod
    def example(cls) -> DPSConfig:
        """A short run for the laws."""
        return cls(n_steps=5)


class DPS(SolverBase[DPSConfig]):
    r"""Diffusion posterior sampling: DDPM steps, each with a gradient step on the residual norm.

    .. math::
        d &= \operatorname{clamp}\big(D(x, s)\big), \qquad g = \nabla_x \|y - A(d(x))\| \\
        x' &= d + \tfrac{s'^2}{s^2}(x - d) + \tfrac{s'}{s}\sqrt{s^2 - s'^2}\, z
              - \zeta \sqrt{(1 + s^2)(1 + s'^2)}\; g

    from x = s₁ z down to s′ = 0. The factor of ζ is the image of a constant step in the
    variance-preserving variables of the paper. The gradient runs through A, the clamp and the
    network, so any differentiable operator can be used; noise_std is not used.

    Costs ``n_steps`` prior calls and as many vector-Jacobian products. A given ``x_init`` is the
    image to which the first noise is added. Source: Chung et al., Diffusion posterior sampling for
    general noisy inverse problems (ICLR 2023). Unlike the official code: one norm per image, not
    per batch; the small posterior variance, where that code interpolates with a learned one; levels
    up to the prior's largest.

    >>> result = DPS(prior, DPSConfig(zeta=0.5))(y, operator, generator=g)
    """

    name = "dps"
    config_type = DPSConfig
    kinds = DENOISERS

    def _solve(self, run: Run) -> Tensor:
        config = self.config
        levels = steps(run, config.sigmas, spread_indices(config.n_steps))
        x = run.origin
        x = x + levels[0][0] * run.noise(x)
        for k, (sigma, sigma_next) in enumerate(levels, start=1):
            x = guided_step(run, x, sigma, sigma_next, zeta=config.zeta, clamp=config.clamp)
            run.record(k, sigma, x)
        return x


def guided_step(
    run: Run, x: Tensor, sigma: float, sigma_next: float, *, zeta: float, clamp: bool
) -> Tensor:
    """One DPS update from level ``sigma`` to ``sigma_next``, the last one (0) without noise."""
    leaf, d = denoise_with_graph(run, x, sigma)
    with torch.enable_grad():
        d = run.clamp(d) if clamp else d
        distance = norm(run.residual(d)).sum()
    if not distance.requires_grad:
        raise OperatorError(
            f"A of {type(run.operator).__name__} is not differentiable; write it with torch "
            "operations that keep the graph"
        )
    (g,) = torch.autograd.grad(distance, leaf)
    z = run.noise(x) if sigma_next > 0 else None
    x_next = ancestral(x, d.detach(), sigma, sigma_next, z)
    return x_next - zeta * math.sqrt((1 + sigma**2) * (1 + sigma_next**2)) * g
