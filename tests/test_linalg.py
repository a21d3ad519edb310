"""Norms of Jacobians by power iteration, against singular values that are known."""

import pytest
import torch

from golden import gen
from pnpcm import GaussianPrior
from pnpcm.linalg import jacobian_norm
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
