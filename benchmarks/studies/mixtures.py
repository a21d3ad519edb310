"""Gaussian mixtures of small images: EM, samples, exact posteriors of linear problems."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm import GaussianMixturePrior
from pnpcm.core import LinearOperator
from pnpcm.rng import randn

FLOOR = 0.01
"""Smallest standard deviation of a direction: about one level of an 8-bit image."""


@dataclass(frozen=True)
class Mixture:
    """Σ_j w_j N(m_j, S_j) in float64: weights ``(J,)``, means ``(J, P)``, covariances."""

    weights: Tensor
    means: Tensor
    covariances: Tensor
    shape: tuple[int, int, int]

    def prior(self, kind: str, n_ode: int = 64) -> GaussianMixturePrior:
        """The exact denoiser or consistency function, in float32."""
        variances, bases = torch.linalg.eigh(self.covariances)
        return GaussianMixturePrior(
            self.means.reshape(-1, *self.shape).float(),
            variances.clamp_min(FLOOR**2).sqrt().float(),
            self.weights.float(),
            bases=bases.float(),
            kind=kind,
            n_ode=n_ode,
        )

    def draw(self, which: Tensor, generator: torch.Generator) -> Tensor:
        """One sample ``(B, P)`` of each of the components ``which`` ``(B,)``."""
        roots = torch.linalg.cholesky(self.covariances)
        n = randn((len(which), self.means.shape[1]), generator, self.means)
        return self.means[which] + torch.einsum("bpq,bq->bp", roots[which], n)

    def samples(self, count: int, generator: torch.Generator) -> Tensor:
        """Images ``(count, C, H, W)`` of the mixture, float32."""
        which = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        return self.draw(which, generator).reshape(count, *self.shape).float()


def log_normal(x: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """ln N(x; mean, covariance) of rows ``(B, P)`` up to (2π)^{−P/2}."""
    root = torch.linalg.cholesky(covariance)
    whitened = torch.linalg.solve_triangular(root, (x - mean).T, upper=False)
    return -whitened.square().sum(0) / 2 - root.diagonal().log().sum()


def fit(x: Tensor, count: int, *, n_iter: int, generator: torch.Generator) -> Mixture:
    """EM (own code) from the groups of :func:`k_means`.

    A component's covariance is the weighted one of its images together with P images' worth of the
    covariance S of all images, S_j = (Σ_i r_ij d_ij d_ijᵀ + P S) / (Σ_i r_ij + P) + FLOOR² I, since
    P (P + 1)/2 numbers are estimated from few images.
    """
    rows = x.flatten(1).double()
    total, values = rows.shape
    pooled = torch.cov(rows.T, correction=0)
    floor = FLOOR**2 * torch.eye(values, dtype=rows.dtype)
    nearest = k_means(rows, count, generator=generator)
    r = torch.nn.functional.one_hot(nearest, count).to(rows.dtype)
    mixture = None
    for _ in range(n_iter):
        size = r.sum(0)
        means = (r.T @ rows) / size[:, None]
        covariances = []
        for j in range(count):
            gap = rows - means[j]
            spread = (gap.T * r[:, j]) @ gap
            covariances.append((spread + values * pooled) / (size[j] + values) + floor)
        shape = (x.shape[1], x.shape[2], x.shape[3])
        mixture = Mixture(size / total, means, torch.stack(covariances), shape)
        r = torch.softmax(_log_joint(mixture, rows), 1)
    return mixture


def k_means(rows: Tensor, count: int, *, generator: torch.Generator, n_iter: int = 10) -> Tensor:
    """Number of the nearest of ``count`` means for each row, after Lloyd's iterations."""
    means = rows[torch.randperm(len(rows), generator=generator)[:count]]
    for _ in range(n_iter):
        nearest = torch.cdist(rows, means).argmin(1)
        means = torch.stack([rows[nearest == j].mean(0) for j in range(count)])
    return torch.cdist(rows, means).argmin(1)


def _log_joint(mixture: Mixture, rows: Tensor) -> Tensor:
    """ln w_j N(x; m_j, S_j) up to (2π)^{−P/2}, ``(B, J)``."""
    each = zip(mixture.weights.log(), mixture.means, mixture.covariances, strict=True)
    return torch.stack([w + log_normal(rows, m, s) for w, m, s in each], 1)


class Posterior:
    r"""p(x | y) of a mixture for y = A x + noise: again a mixture, with weights per measurement.

    .. math::
        K_j &= S_j A^T (A S_j A^T + \tau^2 I)^{-1}, \quad E[x \mid y, j] = m_j + K_j (y - A m_j) \\
        w_j(y) &\propto w_j\, N(y;\, A m_j,\, A S_j A^T + \tau^2 I)

    τ is the standard deviation of the noise, ``noise_std``. A is applied to the P unit images.
    """

    def __init__(
        self, mixture: Mixture, operator: LinearOperator, y: Tensor, noise_std: float
    ) -> None:
        values = mixture.means.shape[1]
        units = torch.eye(values, dtype=torch.float64).reshape(values, *mixture.shape)
        self.mixture, self.noise_std = mixture, noise_std
        self.y = y.flatten(1).double()
        self.matrix = operator.A(units).flatten(1).T
        noise = noise_std**2 * torch.eye(len(self.matrix), dtype=torch.float64)
        log_joint, gains = [], []
        each = zip(mixture.weights.log(), mixture.means, mixture.covariances, strict=True)
        for log_weight, mean, covariance in each:
            total = self.matrix @ covariance @ self.matrix.T + noise
            log_joint.append(log_weight + log_normal(self.y, self.matrix @ mean, total))
            gains.append(torch.linalg.solve(total, self.matrix @ covariance).T)
        self.weights = torch.softmax(torch.stack(log_joint, 1), 1)
        self.gains = torch.stack(gains)

    def mean(self) -> Tensor:
        """E[x | y], ``(B, C, H, W)``: the reconstruction with the least mean squared error."""
        gap = self.y[:, None] - self.mixture.means @ self.matrix.T
        each = self.mixture.means + torch.einsum("jpm,bjm->bjp", self.gains, gap)
        return self._images(torch.einsum("bj,bjp->bp", self.weights, each))

    def sample(self, generator: torch.Generator) -> Tensor:
        """One draw per measurement: x + K_j (y − A x − τn) for a draw x of a component j."""
        which = torch.multinomial(self.weights, 1, generator=generator)[:, 0]
        x = self.mixture.draw(which, generator)
        noise = self.noise_std * randn(self.y.shape, generator, self.y)
        gap = self.y - x @ self.matrix.T - noise
        return self._images(x + torch.einsum("bpm,bm->bp", self.gains[which], gap))

    def _images(self, rows: Tensor) -> Tensor:
        return rows.reshape(-1, *self.mixture.shape).float()
