"""DDRM: the official update, its law on the bench, every basis against dense singular vectors."""

import math

import pytest
import torch
from torch import Tensor

from ddpm import ALPHA_BAR, LEVELS, skipping
from golden import LINEAR, NONLINEAR, gen, relative
from pnpcm import OPERATORS, GaussianPrior, measure
from pnpcm.core import Operator
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import Blur, Crop, GaussianBlur, Inpainting, SuperResolution, gaussian_kernel
from pnpcm.operators.base import DecomposableOperator
from pnpcm.rng import generators
from pnpcm.solvers.ddrm import DDRM, DDRMConfig
from solvers.bench import (
    GAINS,
    MEAN,
    NOISE_STD,
    STD,
    Diagonal,
    Y,
    close,
    measurement,
    moments,
    prior,
    sample,
    vp_prior,
)

ONES = (1.0, 1.0, 1.0, 1.0)


def normal(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=generator).double()


@pytest.mark.parametrize(("eta", "eta_b", "n"), [(0.85, 1.0, 20), (0.6, 0.7, 50), (1.0, 0.0, 7)])
def test_the_official_vp_update_with_the_same_noise(eta: float, eta_b: float, n: int) -> None:
    """Coordinate by coordinate on VP variables, in plain numbers."""
    config = DDRMConfig(n_steps=n, eta=eta, eta_b=eta_b)
    result = DDRM(prior(), config)(measurement(), Diagonal(), generator=gen(1)).x
    g, bars = gen(1), [ALPHA_BAR[i] for i in skipping(n)]
    draws = [normal(g, (1, 1, 4)).flatten().tolist() for _ in range(n + 1)]
    for i in range(4):
        gain, m, S = float(GAINS[i]), float(MEAN[i]), float(STD[i])
        sigma = math.sqrt((1 - bars[0]) / bars[0])
        x = sigma * draws[0][i]
        if gain * sigma > NOISE_STD:
            spread = math.sqrt(sigma**2 - (NOISE_STD / gain) ** 2)
            x = float(Y[i]) / gain + spread * draws[0][i]
        x = math.sqrt(bars[0]) * x
        for bar, after, z in zip(bars, [*bars[1:], 1.0], draws[1:], strict=True):
            s2, s_next = (1 - bar) / bar, math.sqrt((1 - after) / after)
            x0 = (S**2 * x / math.sqrt(bar) + s2 * m) / (S**2 + s2)
            e = (x - math.sqrt(bar) * x0) / math.sqrt(1 - bar)
            if gain > 0 and gain * s_next > NOISE_STD:
                spread = math.sqrt(s_next**2 - (NOISE_STD / gain * eta_b) ** 2)
                x = float(Y[i]) / gain * eta_b + (1 - eta_b) * x0 + spread * z[i]
            else:
                towards = (float(Y[i]) - gain * x0) / NOISE_STD if gain > 0 else e
                x = x0 + s_next * (math.sqrt(1 - eta**2) * towards + eta * z[i])
            x = math.sqrt(after) * x
        assert float(result[0, 0, 0, i]) == pytest.approx(x, abs=1e-10)


def theory(levels: list[float], eta: float, eta_b: float) -> tuple[Tensor, Tensor]:
    """Mean and std of each coordinate: every case is x′ = a x + b + c z with fresh z."""
    means, stds = [], []
    for y, gain, m, S in zip(*(t.tolist() for t in (Y, GAINS, MEAN, STD)), strict=True):
        tau = NOISE_STD / gain if gain > 0 else math.inf
        led = levels[0] >= tau
        mean = y / gain if led else 0.0
        variance = levels[0] ** 2 - (tau**2 if led else 0.0)
        for s, after in zip(levels, [*levels[1:], 0.0], strict=True):
            shrink, kept = S**2 / (S**2 + s**2), math.sqrt(1 - eta**2)
            shift = (1 - shrink) * m
            if after >= tau:
                a, b = (1 - eta_b) * shrink, (1 - eta_b) * shift + eta_b * y / gain
                c2 = after**2 - eta_b**2 * tau**2
            elif gain > 0:
                pull = after * kept / tau
                a, b = (1 - pull) * shrink, (1 - pull) * shift + pull * y / gain
                c2 = (eta * after) ** 2
            else:
                ratio = after * kept / s
                a, b = shrink + ratio * (1 - shrink), shift - ratio * shift
                c2 = (eta * after) ** 2
            mean, variance = a * mean + b, a**2 * variance + c2
        means.append(mean)
        stds.append(math.sqrt(variance))
    return torch.tensor(means).double(), torch.tensor(stds).double()


@pytest.mark.parametrize(("eta", "eta_b"), [(0.85, 1.0), (1.0, 1.0), (0.3, 0.5)])
def test_the_law_on_the_bench(eta: float, eta_b: float) -> None:
    result = sample(DDRM(prior(), DDRMConfig(eta=eta, eta_b=eta_b)), rows=40000)
    levels = [LEVELS[i] for i in skipping(20)]
    expected_mean, expected_std = theory(levels, eta, eta_b)
    mean, std = moments(result)
    close((mean - expected_mean) / expected_std, (0.0,) * 4, 0.02)  # four standard errors
    close(std / expected_std, ONES, 0.015)
    assert (result.nfe, result.vjps) == (20, 0)
    assert DDRMConfig().nfe == 20


def test_bench_numbers_of_the_published_settings() -> None:
    mean, std = theory([LEVELS[i] for i in skipping(20)], 0.85, 1.0)
    close(mean, (0.271, -0.105, 0.0, 0.641), 0.002)
    close(std, (0.134, 0.049, 0.213, 0.147), 0.002)


def test_unmeasured_coordinates_follow_the_prior_without_fresh_noise() -> None:
    """eta = 0 is DDIM there, exact on a fine grid; with eta > 0 the method loses spread."""
    blind = Diagonal(torch.zeros(4).double())
    y = measurement(rows=20000)
    config = DDRMConfig(n_steps=200, eta=0.0)
    mean, std = moments(DDRM(prior(), config)(y, blind, generator=gen()))
    close((mean - MEAN) / STD, (0.0,) * 4, 0.03)
    close(std / STD, ONES, 0.04)


def test_what_is_not_measured_does_not_see_y() -> None:
    seen, blind = (
        DDRM(prior(), DDRMConfig())(measurement(), operator, generator=gen()).x
        for operator in (Diagonal(), Diagonal(torch.zeros(4).double()))
    )
    assert torch.allclose(seen[..., 2], blind[..., 2], rtol=0, atol=1e-14)
    assert not torch.allclose(seen[..., 0], blind[..., 0], atol=1e-2)


@pytest.mark.parametrize(("noise_std", "gap"), [(0.0, 1e-12), (1e-6, 1e-3), (1e-4, 5e-2)])
def test_noiseless_data_are_met(noise_std: float, gap: float) -> None:
    """Exactly without noise; with little noise up to the last level."""
    sigmas = None if noise_std != 1e-6 else (10.0, 1.0, 0.1, 0.01, 1e-4)
    config = DDRMConfig(noise_std=noise_std, sigmas=sigmas)
    result = sample(DDRM(prior(), config), rows=100)
    assert (GAINS * result.x - Y).abs().max() < gap


def test_the_identity_without_noise_gives_back_y() -> None:
    y = measurement(rows=5)
    identity = Diagonal(torch.ones(4).double())
    x = DDRM(prior(), DDRMConfig(noise_std=0.0))(y, identity, generator=gen()).x
    assert (x - y).abs().max() < 1e-14


def test_a_vp_network_gives_the_same_trajectory() -> None:
    edm, vp = (sample(DDRM(p, DDRMConfig()), batch=2, rows=3).x for p in (prior(), vp_prior()))
    assert (edm - vp).abs().max() < 1e-9


class Dense:
    """Any linear operator by the singular vectors of its matrix, with deepinv's names."""

    def __init__(self, operator: DecomposableOperator, shape: tuple[int, ...]) -> None:
        basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
        images = [operator.A(b[None]).flatten() for b in basis]
        self.shape, self.matrix = shape, torch.stack(images, 1)
        self.left, self.mask, right = torch.linalg.svd(self.matrix, full_matrices=False)
        self.right = right.T

    def A(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.matrix.T

    def A_adjoint(self, y: Tensor) -> Tensor:
        return (y.flatten(1) @ self.matrix).reshape(-1, *self.shape)

    def U_adjoint(self, y: Tensor) -> Tensor:
        return y.flatten(1) @ self.left

    def V(self, c: Tensor) -> Tensor:
        return (c @ self.right.T).reshape(-1, *self.shape)

    def V_adjoint(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.right


SHAPE = (3, 8, 12)
SKEW = torch.tensor([[0.1, 0.5, 0.0], [0.0, 0.3, 0.4]])
OURS = {
    "inpainting": Inpainting.random(SHAPE[1:], missing=0.6, generator=gen(3)),
    "superresolution": SuperResolution(SHAPE, 4),
    "area": SuperResolution(SHAPE, 2, downsampler="area"),
    "gaussian-blur": GaussianBlur(SHAPE, 3, 1.0),
    "reference blur": GaussianBlur(SHAPE, reference=True),
    "circular blur": Blur(SKEW, SHAPE, boundary="circular"),
    "even circular blur": Blur(gaussian_kernel(3, 0.8), SHAPE, boundary="circular"),
    "mirrored blur": Blur(gaussian_kernel(5, 1.0), SHAPE, boundary="reflect"),
    "crop": Crop(SHAPE, (1, 2, 3, 0)),
}


@pytest.mark.parametrize("noise_std", [0.1, 0.01])
@pytest.mark.parametrize("name", OURS)
def test_the_basis_does_not_matter(name: str, noise_std: float) -> None:
    """Fourier, cosine, separable, thin or none: the same images as with dense singular vectors."""
    operator = OURS[name]
    x = 2 * torch.rand((2, *SHAPE), generator=gen(), dtype=torch.float64) - 1
    y = measure(operator, x, noise_std / 2, generator=gen(1))
    solver = DDRM(GaussianPrior(0.1, 0.4, kind="edm"), DDRMConfig(noise_std=noise_std, eta_b=0.9))
    ours = solver(y, operator, generator=generators([2, 3])).x
    dense = solver(y, Dense(operator, SHAPE), generator=generators([2, 3])).x
    assert relative(ours, dense) < 1e-7


@pytest.mark.parametrize("name", OURS)
def test_noiseless_data_are_met_by_our_operators(name: str) -> None:
    operator = OURS[name]
    x = 2 * torch.rand((1, *SHAPE), generator=gen(), dtype=torch.float64) - 1
    y = operator.A(x)
    solver = DDRM(GaussianPrior(0.1, 0.4, kind="edm"), DDRMConfig(n_steps=5, noise_std=0.0))
    result = solver(y, operator, generator=gen(2)).x
    assert relative(operator.A(result), y) < 1e-8
    assert not torch.allclose(result, solver(y, operator, generator=gen(3)).x) or name in (
        "gaussian-blur",  # these see everything
        "circular blur",
        "even circular blur",
        "mirrored blur",
    )


DECOMPOSABLE = ("inpainting", "superresolution", "gaussian-blur", "crop")


@pytest.mark.parametrize("name", [*LINEAR, *NONLINEAR])
def test_examples_run_or_are_refused(name: str) -> None:
    operator, x = OPERATORS[name].example(gen(), batch=2)
    y = measure(operator, x, 0.05, generator=gen(1))
    solver = DDRM(GaussianPrior(0.0, 0.5, kind="edm"), DDRMConfig.example())
    if name in DECOMPOSABLE:
        result = solver(y, operator, generator=gen(2))
        assert result.x.shape == x.shape
        assert result.nfe == DDRMConfig.example().nfe
        return
    with pytest.raises(OperatorError, match=r"ddrm cannot serve .* the decomposition A = U S Vᵀ"):
        solver(y, operator, generator=gen(2))


def test_a_foreign_operator_without_a_decomposition_is_refused() -> None:
    class Plain:
        def A(self, x: Tensor) -> Tensor:
            return x

    operator: Operator = Plain()
    assert "use PnPCM" in (DDRM(prior(), DDRMConfig()).refusal(operator) or "")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_steps": 0}, "n_steps"),
        ({"eta": 1.5}, "eta must lie in .0, 1., got 1.5"),
        ({"eta_b": -0.1}, "eta_b must lie in"),
        ({"noise_std": -1.0}, "noise_std must be finite and ≥ 0, got -1.0"),
        ({"sigmas": (0.1, 0.2)}, "sigmas"),
    ],
)
def test_configurations_that_make_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DDRMConfig(**values)  # type: ignore[arg-type]
