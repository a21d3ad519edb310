"""What can be proved: docs/method.md §9, with the bench of docs/methods/README.md."""

import math

import pytest
import torch
from torch import Tensor

from golden import gen
from pnpcm import GaussianPrior, PnPCM, PnPCMConfig
from pnpcm.rng import randn_like
from solvers.bench import (
    GAINS,
    MEAN,
    NOISE_STD,
    POSTERIOR_MEAN,
    STD,
    Diagonal,
    Y,
    measurement,
    prior,
)


def constant(n: int, sigma: float, rho: float, **changes: object) -> PnPCMConfig:
    options = {"noise_scale": 0.0, "clamp": False} | changes
    return PnPCMConfig((sigma,) * n, (0.0,) * n, (rho,) * n, **options)  # type: ignore[arg-type]


def posterior_mean() -> Tensor:
    precision = 1 / STD**2 + GAINS**2 / NOISE_STD**2
    return (MEAN / STD**2 + GAINS * Y / NOISE_STD**2) / precision


@pytest.mark.parametrize("rho", [0.05, 0.3, 2.0])
def test_denoiser_leads_to_the_posterior_mean(rho: float) -> None:
    """D(·, σ) is the prox of −σ² log p: with σ = noise_std/√ρ ADMM solves the Gaussian MAP."""
    config = constant(4000, NOISE_STD / math.sqrt(rho), rho)
    x = PnPCM(prior("edm"), config)(measurement(), Diagonal()).x.flatten()
    assert float((x - posterior_mean()).abs().max()) < 1e-6
    assert x.tolist() == pytest.approx(POSTERIOR_MEAN, abs=1e-4)


@pytest.mark.parametrize("rho", [0.1, 1.0])
def test_consistency_function_has_its_own_fixed_point(rho: float) -> None:
    """With f = m + c (x − m): u = κ(x − m), κ = 1/c − 1, and a²x + ρu = ay give x."""
    sigma = 0.2
    config = constant(4000, sigma, rho)
    x = PnPCM(prior("consistency"), config)(measurement(), Diagonal()).x.flatten()
    c = ((STD**2 + 0.002**2) / (STD**2 + sigma**2)).sqrt()
    kappa = 1 / c - 1
    fixed = (GAINS * Y + rho * kappa * MEAN) / (GAINS**2 + rho * kappa)
    assert float((x - fixed).abs().max()) < 1e-6
    # the square-root shrink is not that prox
    assert float((x - posterior_mean()).abs().max()) > 1e-3


def told(noise: tuple[float, ...], level: float, rho: float) -> PnPCMConfig:
    """Injected levels ``noise`` while the prior is always told ``level``."""
    tiny = tuple(max(s, 1e-12) for s in noise)
    deltas = tuple(level / s - 1 for s in tiny)
    return PnPCMConfig(tiny, deltas, (rho,) * len(tiny), clamp=False)


def image_problem() -> tuple[Tensor, Diagonal, GaussianPrior, Tensor]:
    """Measurement, operator, denoiser, and the standard deviations of its images."""
    g = gen(2)
    gains = torch.rand((1, 1, 8, 8), generator=g).double()
    std = (0.2 + torch.rand((1, 1, 8, 8), generator=g)).double()
    y = gains * std * randn_like(std, g)
    return y, Diagonal(gains), GaussianPrior(0.0, std, kind="edm"), std


def lipschitz_constant(std: Tensor, level: float) -> float:
    """The denoiser multiplies each pixel by S²/(S² + σ²)."""
    return float((std**2 / (std**2 + level**2)).max())


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_theorem_1_per_step_from_the_same_state(k: int, noise: float) -> None:
    """Δ_k with noise − Δ_k without ≤ (2L/√P) ‖η_k‖ for the same (x, u, z)."""
    y, operator, gaussian, std = image_problem()
    level, rho, n_pixels = 0.3, 0.4, y[0].numel()
    quiet = (0.0,) * (k - 1)
    still = PnPCM(gaussian, told((*quiet, 0.0), level, rho))(y, operator, generator=gen(4))
    moved = PnPCM(gaussian, told((*quiet, noise), level, rho))(y, operator, generator=gen(4))
    draws, g = None, gen(4)
    for _ in range(k):
        draws = randn_like(y, g)
    assert draws is not None
    lipschitz = lipschitz_constant(std, level)
    left = float(moved.residuals[-1] - still.residuals[-1])
    right = 2 * lipschitz / math.sqrt(n_pixels) * noise * float(draws.norm())
    print(f"k = {k}, σ = {noise}: Δ_k − Δ_k⁰ = {left:.5f} ≤ {right:.5f} (L = {lipschitz:.4f})")
    assert left <= right
    if noise == 1.0:
        assert left > 0.3 * right  # large noise dominates Δ_k: the bound is not an empty one


def test_summable_noise_converges_and_constant_noise_does_not() -> None:
    y, operator, gaussian, std = image_problem()
    n, level, rho = 400, 0.3, 0.4
    runs = {
        "none": (0.0,) * n,
        "summable": tuple(0.5 * 0.95**k for k in range(n)),
        "constant": (0.05,) * n,
    }
    results = {
        name: PnPCM(gaussian, told(noise, level, rho))(y, operator, generator=gen(6))
        for name, noise in runs.items()
    }
    last = {name: float(r.residuals[-1]) for name, r in results.items()}
    assert last["none"] < 1e-8
    assert last["summable"] < 1e-6
    assert last["constant"] > 1e-2
    assert torch.allclose(results["summable"].x, results["none"].x, atol=1e-5)
    # the paper sums its one-step inequality over the run; that is not implied, so both are shown
    difference = float((results["summable"].residuals - results["none"].residuals).sum())
    g, total = gen(6), 0.0
    for s in runs["summable"]:
        total += s * float(randn_like(y, g).norm())
    lipschitz = lipschitz_constant(std, level)
    bound = 2 * lipschitz / math.sqrt(y[0].numel()) * total
    print(f"along the run: Σ(Δ_k − Δ_k⁰) = {difference:.3f}, the paper's bound {bound:.3f}")
    assert math.isfinite(difference)
