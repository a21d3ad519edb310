"""TV: least squares with total variation, a baseline without a learned prior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm.arguments import check_count, check_number
from pnpcm.core import Config, Operator
from pnpcm.solvers.base import Run, SolverBase, prox, start, unless_linear


@dataclass(frozen=True)
class TVConfig(Config):
    """``weight`` λ of the total variation, in units of the squared data misfit on [-1, 1]."""

    weight: float = 0.03
    n_iter: int = 200

    def __post_init__(self) -> None:
        check_number("weight", self.weight, 0, open_low=True)
        check_count("n_iter", self.n_iter)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run: none."""
        return 0

    @classmethod
    def example(cls) -> TVConfig:
        """A short run for the laws."""
        return cls(weight=0.05, n_iter=10)


class TV(SolverBase[TVConfig]):
    r"""Least squares with isotropic total variation, by primal-dual hybrid gradients.

    .. math::
        \min_x \tfrac12 \|Ax - y\|^2 + \lambda \sum_{i} \Big(\sum_{c, a}
        (\partial_a x)_{c, i}^2\Big)^{1/2}

    with forward differences over rows and columns (0 at the far borders). The root is over all
    channels of a pixel, which aligns the edges of colours; for complex images in two channels it is
    the modulus of the complex gradient. The iteration, with τ s ‖∇‖² ≤ 1:

    .. math::
        p &\leftarrow \text{proj}_{|p_i| \le \lambda}(p + s \nabla \bar x) \\
        x^+ &= \operatorname{argmin}_z \tfrac12 \|Az - y\|^2
               + \tfrac{1}{2\tau} \|z - (x - \tau \nabla^T p)\|^2 \\
        \bar x &= 2 x^+ - x

    Costs ``n_iter`` proximal steps of the operator, no prior call. Sources: Rudin, Osher & Fatemi
    (Physica D, 1992), Bresson & Chan (2008) for the channels, Chambolle & Pock (2011).

    >>> result = TV(None, TVConfig(weight=0.03))(y, operator)
    """

    name = "tv"
    config_type = TVConfig
    takes_prior = False

    def refusal(self, operator: Operator) -> str | None:
        return unless_linear(operator, "the proximal step of a convex data term")

    def _solve(self, run: Run) -> Tensor:
        weight = self.config.weight
        # x is of order 1 and p of order λ, at most 1: the step sizes are in this proportion
        tau = max(0.05 / weight, 0.1)
        s = 1 / (8 * tau)
        x = start(run)
        x = run.middle if x is None else x
        ahead, p = x, torch.zeros_like(gradient(x))
        for k in range(1, self.config.n_iter + 1):
            p = project(p + s * gradient(ahead), weight)
            x, x_before = prox(run.operator, x - tau * gradient_adjoint(p), run.y, 1 / tau), x
            ahead = 2 * x - x_before
            run.record(k, 0.0, x)
        return x


def gradient(x: Tensor) -> Tensor:
    """Forward differences over columns and rows, ``(2, B, C, H, W)``; ‖∇‖² ≤ 8."""
    g = x.new_zeros(2, *x.shape)
    torch.sub(x[..., 1:], x[..., :-1], out=g[0, ..., :-1])
    torch.sub(x[..., 1:, :], x[..., :-1, :], out=g[1, ..., :-1, :])
    return g


def gradient_adjoint(p: Tensor) -> Tensor:
    """∇ᵀp, minus the divergence."""
    x = torch.zeros_like(p[0])
    across, down = p[0, ..., :-1], p[1, ..., :-1, :]
    x[..., 1:] += across
    x[..., :-1] -= across
    x[..., 1:, :] += down
    x[..., :-1, :] -= down
    return x


def modulus(p: Tensor) -> Tensor:
    """√(Σ over channels and directions) at each pixel, ``(B, 1, H, W)``."""
    return p.square().sum(0).sum(1, keepdim=True).sqrt()


def project(p: Tensor, weight: float) -> Tensor:
    """The nearest p with |p_i| ≤ weight at every pixel."""
    return p / (modulus(p) / weight).clamp_min(1)
