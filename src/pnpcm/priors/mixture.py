"""Gaussian mixtures: a prior in closed form that is not log-concave."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pnpcm.core import ValueRange
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import expand
from pnpcm.priors.base import levels
from pnpcm.priors.gaussian import KINDS


class GaussianMixturePrior:
    r"""Σ_j w_j N(m_j, s_j² I) over whole images, ``means`` of shape ``(J, C, H, W)``.

    .. math::
        D(x, \sigma) &= \sum_j r_j(x) \Big(m_j + \frac{s_j^2}{s_j^2 + \sigma^2}(x - m_j)\Big),
        \quad r_j \propto w_j\, N(x;\, m_j, (s_j^2 + \sigma^2) I) \\
        \frac{dx}{d\ln\sigma} &= x - D(x, \sigma)

    ``kind="edm"`` is D; ``kind="consistency"`` integrates the probability-flow ODE in the second
    line from σ down to σ_min with ``n_ode`` classical Runge–Kutta steps, even in ln σ.
    """

    nfe_per_call = 1

    def __init__(
        self,
        means: Tensor,
        stds: Tensor,
        weights: Tensor | None = None,
        *,
        kind: str = "consistency",
        n_ode: int = 64,
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        value_range: ValueRange = (-1.0, 1.0),
    ) -> None:
        if kind not in KINDS:
            raise ArgumentError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        means, stds = (torch.as_tensor(t).detach().clone() for t in (means, stds))
        if means.ndim != 4:
            raise ShapeError(f"means has shape {tuple(means.shape)}, expected (J, C, H, W)")
        count = len(means)
        if stds.numel() not in (1, count):
            raise ShapeError(f"stds has {stds.numel()} values for {count} means; give one per mean")
        stds = stds.reshape(-1).expand(count)
        weights = torch.ones(count) if weights is None else torch.as_tensor(weights)
        if weights.shape != (count,) or not bool((weights > 0).all()):
            raise ArgumentError(f"weights must be {count} positive numbers, got {weights.tolist()}")
        if not bool((stds > 0).all()):
            raise ArgumentError(f"stds must be positive, got {stds.tolist()}")
        self.means, self.stds, self.weights = means, stds, weights / weights.sum()
        self.kind, self.n_ode, self.value_range = kind, n_ode, value_range
        self.sigma_min, self.sigma_max = float(sigma_min), float(sigma_max)

    @classmethod
    def example(cls) -> GaussianMixturePrior:
        """A mixture of two tiny images, for the laws."""
        means = torch.stack([torch.full((3, 16, 20), -0.3), torch.full((3, 16, 20), 0.4)])
        return cls(means, torch.tensor([0.2, 0.3]))

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        if x.shape[1:] != self.means.shape[1:]:
            raise ShapeError(
                f"x has shape {tuple(x.shape)}, this mixture is over (B, "
                f"{', '.join(map(str, self.means.shape[1:]))})"
            )
        level = levels(sigma, x).to(x.dtype)
        return self.denoise(x, level) if self.kind == "edm" else self._flow(x, level)

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """E[x₀ | x₀ + σn = x]; ``sigma`` is one level per image."""
        means, stds, weights = (t.to(x) for t in (self.means, self.stds, self.weights))
        variance = stds**2 + sigma[:, None] ** 2  # (B, J)
        gap = x[:, None] - means  # (B, J, C, H, W)
        square = gap.flatten(2).square().sum(2)
        log_r = weights.log() - 0.5 * square / variance - 0.5 * x[0].numel() * variance.log()
        r = torch.softmax(log_r, dim=1)
        keep = stds**2 / variance
        return torch.einsum("bj,bjchw->bchw", r, means + keep[:, :, None, None, None] * gap)

    def _flow(self, x: Tensor, sigma: Tensor) -> Tensor:
        t = sigma.log()
        h = (math.log(self.sigma_min) - t) / self.n_ode
        step = expand(h, x)

        def slope(x: Tensor, t: Tensor) -> Tensor:
            return x - self.denoise(x, t.exp())

        for _ in range(self.n_ode):
            k1 = slope(x, t)
            k2 = slope(x + step / 2 * k1, t + h / 2)
            k3 = slope(x + step / 2 * k2, t + h / 2)
            k4 = slope(x + step * k3, t + h)
            x = x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            t = t + h
        return x
