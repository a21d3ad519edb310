"""Norms of Jacobians and smooth fits, against matrices."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from golden import gen
from pnpcm import GaussianPrior
from pnpcm.linalg import jacobian_norm, smooth_fit
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.rng import randn_like


def test_the_norm_of_a_linear_map_is_its_largest_singular_value() -> None:
    left, right = torch.linalg.qr(torch.randn((2, 16, 16), generator=gen(), dtype=torch.float64))[0]
    values = torch.tensor([3.0, 2.0, *[1.0] * 14], dtype=torch.float64)
    matrix = left @ torch.diag(values) @ right
    x = randn_like(torch.zeros(3, 1, 4, 4, dtype=torch.float64), gen(1))
    found = jacobian_norm(
        lambda v: (v.flatten(1) @ matrix.T).reshape(v.shape), x, generator=gen(2), tol=0
    )
    assert found.tolist() == pytest.approx([3.0] * 3, rel=1e-9)


def test_the_norm_is_that_of_each_image() -> None:
    """The Jacobian of x³ is diag(3x²), and images of a batch do not mix."""
    x = torch.tensor([[0.1, 0.5], [2.0, -1.0]], dtype=torch.float64).reshape(2, 1, 1, 2)
    found = jacobian_norm(lambda v: v**3, x, generator=gen(), tol=0)
    assert found.tolist() == pytest.approx([3 * 0.5**2, 3 * 2.0**2], rel=1e-9)


@pytest.mark.parametrize("kind", ["consistency", "edm"])
def test_the_norm_of_a_gaussian_prior(kind: str) -> None:
    """√((S² + σ_min²)/(S² + σ²)) or S²/(S² + σ²) at the largest S."""
    std = torch.linspace(0.1, 0.5, 48, dtype=torch.float64).reshape(3, 4, 4)
    std[0, 0, 0] = 0.8
    prior = GaussianPrior(0.1, std, kind=kind)
    share = (0.8**2 + 0.002**2 * (kind == "consistency")) / (0.8**2 + 0.3**2)
    expected = share**0.5 if kind == "consistency" else share
    x = randn_like(torch.zeros(2, 3, 4, 4, dtype=torch.float64), gen())
    found = jacobian_norm(lambda v: prior(v, 0.3), x, generator=gen(1), tol=0)
    assert found.tolist() == pytest.approx([expected] * 2, rel=1e-6)


def test_a_lower_estimate_after_few_iterations() -> None:
    prior = StationaryGaussianPrior()
    x = torch.zeros(1, 3, 16, 16)
    few, many = (
        float(jacobian_norm(lambda v: prior(v, 0.3), x, generator=gen(), n_iter=n, tol=0))
        for n in (2, 40)
    )
    assert few < many < 1 + 1e-5


def test_a_smooth_fit_solves_its_equations() -> None:
    """(AᵀA + λ (L² + τL)) x = Aᵀy with matrices, L by SciPy; each image for itself."""
    rng = np.random.default_rng(0)
    a = np.linalg.qr(rng.normal(size=(48, 20)))[0].T * np.linspace(0.1, 1, 20)[:, None]
    a[0] *= 30  # the largest singular value, 3, is found in few iterations
    planes = np.eye(48).reshape(48, 6, 8)
    laplace = -np.stack([ndimage.laplace(p, mode="nearest").ravel() for p in planes])
    gain = np.linalg.norm(a, 2)
    y = rng.normal(size=(2, 20))
    left = a.T @ a + 0.1 * gain**2 * (laplace @ laplace + 0.05 * laplace)
    expected = np.linalg.solve(left, a.T @ y.T).T

    matrix = torch.from_numpy(a)
    back = (torch.from_numpy(y) @ matrix).reshape(2, 1, 6, 8)

    def normal(x: torch.Tensor) -> torch.Tensor:
        return (x.flatten(1) @ matrix.T @ matrix).reshape(x.shape)

    found = smooth_fit(normal, back, max_iter=500)
    assert found.flatten(1).numpy() == pytest.approx(expected, rel=1e-3, abs=1e-4)
    alone = smooth_fit(normal, back[1:], max_iter=500)
    assert torch.allclose(alone, found[1:], atol=1e-5)
