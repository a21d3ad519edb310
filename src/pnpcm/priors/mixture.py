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
    r"""Σ_j w_j N(m_j, V_j diag(s_j²) V_jᵀ) over whole images, ``means`` of shape ``(J, C, H, W)``.

    .. math::
        D(x, \sigma) &= \sum_j r_j(x) \Big(m_j + V_j \operatorname{diag}\Big(\frac{s_j^2}{s_j^2 +
        \sigma^2}\Big) V_j^T (x - m_j)\Big), \quad r_j \propto w_j\, N(x;\, m_j, V_j
        \operatorname{diag}(s_j^2 + \sigma^2) V_j^T) \\
        \frac{dx}{d\ln\sigma} &= x - D(x, \sigma)

    ``stds``: one number, one per mean, or ``(J, P)``, one for each of the P = C·H·W directions.
    ``bases`` ``(J, P, P)``: V_j, whose columns are the orthonormal directions; None: the pixels.
    A covariance matrix S is given by ``s², V = torch.linalg.eigh(S)``.

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
        bases: Tensor | None = None,
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
        count, values = len(means), means[0].numel()
        if stds.shape != (count, values):
            if stds.numel() not in (1, count):
                raise ShapeError(
                    f"stds has {stds.numel()} values for {count} means; give one per mean, or one "
                    f"per mean and direction ({count}, {values})"
                )
            stds = stds.reshape(-1, 1).expand(count, values)
        if bases is not None and bases.shape != (count, values, values):
            raise ShapeError(
                f"bases has shape {tuple(bases.shape)}, expected ({count}, {values}, {values}): "
                "the columns are the directions of one mean"
            )
        weights = torch.ones(count) if weights is None else torch.as_tensor(weights)
        if weights.shape != (count,) or not bool((weights > 0).all()):
            raise ArgumentError(f"weights must be {count} positive numbers, got {weights.tolist()}")
        if not bool((stds > 0).all()):
            raise ArgumentError(f"stds must be positive, got a minimum of {float(stds.min()):g}")
        self.means, self.stds, self.weights = means, stds, weights / weights.sum()
        self.bases = None if bases is None else bases.detach().clone()
        self.kind, self.n_ode, self.value_range = kind, n_ode, value_range
        self.sigma_min, self.sigma_max = float(sigma_min), float(sigma_max)

    @classmethod
    def example(cls) -> GaussianMixturePrior:
        """A mixture of two tiny images, for the laws."""
        means = torch.stack([torch.full((3, 16, 20), -0.3), torch.full((3, 16, 20), 0.4)])
        return cls(means, torch.tensor([0.2, 0.3]))

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        self._check(x)
        level = levels(sigma, x).to(x.dtype)
        level = level[:1] if torch.as_tensor(sigma).numel() == 1 else level  # once for all images
        return self.denoise(x, level) if self.kind == "edm" else self._flow(x, level)

    def _check(self, x: Tensor) -> None:
        if x.shape[1:] != self.means.shape[1:]:
            raise ShapeError(
                f"x has shape {tuple(x.shape)}, this mixture is over (B, "
                f"{', '.join(map(str, self.means.shape[1:]))})"
            )

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """E[x₀ | x₀ + σn = x]; ``sigma`` is one level ``(1,)``, or one per image ``(B,)``."""
        c, variance, log_joint = self._components(x, sigma)
        r = torch.softmax(log_joint, dim=1)
        kept = r[:, :, None] * (self.stds.to(x) ** 2 / variance) * c
        return (r @ self.means.to(x).flatten(1) + self._synthesise(kept)).reshape(x.shape)

    def log_density(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        """ln p of x₀ + σn at ``x`` for each image, ``(B,)``; σ = 0: ln p of the mixture itself."""
        self._check(x)
        log_joint = self._components(x, levels(sigma, x).to(x.dtype))[2]
        return torch.logsumexp(log_joint, 1) - x[0].numel() / 2 * math.log(2 * math.pi)

    def _components(self, x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """V_jᵀ(x − m_j) and s_j² + σ² ``(B, J, P)``; ln w_j N(x; …) up to (2π)^{−P/2}, (B, J)."""
        variance = self.stds.to(x) ** 2 + sigma[:, None, None] ** 2
        c = self._analyse(x)
        square = (c**2 / variance).sum(2) + variance.log().sum(2)
        return c, variance, self.weights.to(x).log() - square / 2

    def _analyse(self, x: Tensor) -> Tensor:
        """V_jᵀ(x − m_j), ``(B, J, P)``."""
        gap = x.flatten(1)[:, None] - self.means.to(x).flatten(1)
        return gap if self.bases is None else torch.einsum("bjp,jpq->bjq", gap, self.bases.to(x))

    def _synthesise(self, c: Tensor) -> Tensor:
        """Σ_j V_j c_j, ``(B, P)``."""
        return c.sum(1) if self.bases is None else torch.einsum("bjq,jpq->bp", c, self.bases.to(c))

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
