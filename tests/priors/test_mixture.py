"""Gaussian mixtures with full covariances: denoiser, density, consistency function."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from golden import gen
from pnpcm import GaussianMixturePrior
from pnpcm.errors import ShapeError
from pnpcm.rng import randn_like

MEANS = torch.tensor([[0.5, -0.2], [-0.4, 0.3]], dtype=torch.float64)
COVARIANCES = torch.tensor(
    [[[0.09, 0.05], [0.05, 0.04]], [[0.05, -0.06], [-0.06, 0.16]]], dtype=torch.float64
)
WEIGHTS = torch.tensor([0.3, 0.7], dtype=torch.float64)
POINTS = torch.tensor([[0.1, 0.1], [0.6, 0.0], [-1.0, 0.9]], dtype=torch.float64)


def mixture(kind: str = "edm", count: int = 2, n_ode: int = 64) -> GaussianMixturePrior:
    """The first components, over images of 1×2 pixels."""
    variances, bases = torch.linalg.eigh(COVARIANCES[:count])
    return GaussianMixturePrior(
        MEANS[:count].reshape(-1, 1, 1, 2),
        variances.sqrt(),
        WEIGHTS[:count],
        bases=bases,
        kind=kind,
        n_ode=n_ode,
    )


def images(rows: Tensor) -> Tensor:
    return rows.reshape(-1, 1, 1, 2)


def density(points: np.ndarray) -> np.ndarray:
    """Σ w N(points; m, S), in NumPy."""
    total = np.zeros(points.shape[:-1])
    for w, m, s in zip(WEIGHTS.numpy(), MEANS.numpy(), COVARIANCES.numpy(), strict=True):
        gap = points - m
        square = np.einsum("...p,pq,...q->...", gap, np.linalg.inv(s), gap)
        total += w * np.exp(-square / 2) / (2 * np.pi * np.sqrt(np.linalg.det(s)))
    return total


@pytest.mark.parametrize("sigma", [0.1, 0.4, 2.0])
def test_the_denoiser_is_the_posterior_mean_by_integration(sigma: float) -> None:
    axis = np.linspace(-3, 3, 401)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    prior = density(grid)
    for point in POINTS:
        weight = prior * np.exp(-((grid - point.numpy()) ** 2).sum(-1) / (2 * sigma**2))
        expected = (weight[..., None] * grid).sum((0, 1)) / weight.sum()
        found = mixture()(images(point), sigma).flatten()
        assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_density_is_that_of_torch() -> None:
    for sigma in (0.0, 0.3):
        total = COVARIANCES + sigma**2 * torch.eye(2, dtype=torch.float64)
        each = MultivariateNormal(MEANS, total).log_prob(POINTS[:, None])
        expected = torch.logsumexp(each + WEIGHTS.log(), 1)
        found = mixture().log_density(images(POINTS), sigma)
        assert torch.allclose(found, expected, atol=1e-10)


def test_the_denoiser_follows_the_score() -> None:
    """D(x, σ) = x + σ² ∇ ln p_σ(x), one level per image."""
    x = images(POINTS).requires_grad_()
    levels = torch.tensor([0.2, 0.5, 1.5], dtype=torch.float64)
    (score,) = torch.autograd.grad(mixture().log_density(x, levels).sum(), x)
    expected = x + levels.reshape(-1, 1, 1, 1) ** 2 * score
    assert torch.allclose(mixture()(x, levels), expected, atol=1e-10)


@pytest.mark.parametrize("sigma", [0.05, 0.5, 5.0])
def test_one_component_has_the_consistency_function_of_a_gaussian(sigma: float) -> None:
    """f = m + V √((s² + σ_min²)/(s² + σ²)) Vᵀ(x − m)."""
    variances, bases = np.linalg.eigh(COVARIANCES[0].numpy())
    factor = np.sqrt((variances + 0.002**2) / (variances + sigma**2))
    gap = POINTS.numpy() - MEANS[0].numpy()
    expected = MEANS[0].numpy() + gap @ bases @ np.diag(factor) @ bases.T
    found = mixture("consistency", 1)(images(POINTS), sigma).reshape(-1, 2)
    assert np.abs(found.numpy() - expected).max() < 1e-4


@pytest.mark.parametrize("sigma", [0.05, 0.5, 5.0])
def test_twice_as_many_runge_kutta_steps_change_nothing(sigma: float) -> None:
    once, twice = (mixture("consistency", n_ode=n)(images(POINTS), sigma) for n in (64, 128))
    assert float((once - twice).abs().max()) < 1e-4


def test_the_identity_as_basis_is_the_pixel_basis() -> None:
    means = randn_like(torch.zeros(2, 3, 2, 2), gen())
    stds = torch.rand((2, 12), generator=gen(1)) + 0.1
    x = randn_like(torch.zeros(4, 3, 2, 2), gen(2))
    plain = GaussianMixturePrior(means, stds, kind="edm")
    rotated = GaussianMixturePrior(means, stds, kind="edm", bases=torch.eye(12).expand(2, -1, -1))
    assert torch.allclose(plain(x, 0.5), rotated(x, 0.5), atol=1e-6)


def test_bases_of_another_size_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"bases has shape \(2, 3, 3\), expected \(2, 2, 2\)"):
        GaussianMixturePrior(images(MEANS), torch.ones(2), bases=torch.zeros(2, 3, 3))
