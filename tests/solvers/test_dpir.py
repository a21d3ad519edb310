"""DPIR: its schedule, its updates, its starts."""

import math

import pytest
import torch
from torch import Tensor

from golden import gen
from pnpcm.core import Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import FunctionOperator, Inpainting, PhaseRetrieval, SuperResolution
from pnpcm.priors import GaussianPrior
from pnpcm.rng import generators
from pnpcm.solvers import CGStep, GradientStep
from pnpcm.solvers.dpir import DPIR, DPIRConfig
from solvers.bench import GAINS, MEAN, NOISE_STD, STD, Diagonal, Y, measurement, prior, vp_prior

BENT = FunctionOperator(lambda x: x + 0.3 * x**3, (1, 1, 4))


def history(config: DPIRConfig, **more: Tensor) -> list[Step]:
    seen: list[Step] = []
    result = DPIR(prior(), config)(measurement(), Diagonal(), callback=seen.append, **more)  # type: ignore[arg-type]
    assert result.nfe == config.nfe == len(seen)
    assert torch.equal(result.x, seen[-1].x)
    return seen


def test_schedule_is_the_published_one() -> None:
    """The authors' get_rho_sigma with σ_1 = 49, on [0, 255]: levels and noise double here."""
    noise = NOISE_STD / 2
    for k, step in enumerate(history(DPIRConfig())):
        sigma = 10 ** (math.log10(49) + k / 7 * (math.log10(noise * 255) - math.log10(49))) / 255
        assert step.sigma == pytest.approx(2 * sigma)
        assert step.rho == pytest.approx(0.23 * noise**2 / sigma**2)


def test_is_half_quadratic_splitting() -> None:
    x = torch.full((1, 1, 1, 4), 0.1).double()
    for step in history(DPIRConfig(n_steps=4), x_init=x):
        assert step.rho is not None
        assert step.z is not None
        z = (GAINS * Y + step.rho * x) / (GAINS**2 + step.rho)
        x = (STD**2 * z + step.sigma**2 * MEAN) / (STD**2 + step.sigma**2)
        assert torch.allclose(step.z, z, atol=1e-14)
        assert torch.allclose(step.x, x, atol=1e-14)


def test_a_constant_level_has_the_fixed_point_of_the_split_problem() -> None:
    """min ‖Az − y‖²/2σ_y² + ‖z − x‖²/2σ² − log p(x) if lam = 1, here in closed form.

    Without z the data term is that of noise σ_y² + a²σ²: the split counts σ as noise.
    """
    sigma = 0.3
    config = DPIRConfig(n_steps=1000, sigma_start=sigma, sigma_end=sigma, lam=1.0)
    x = DPIR(prior(), config)(measurement(), Diagonal()).x.flatten()
    weight = GAINS**2 / (NOISE_STD**2 + (GAINS * sigma) ** 2)
    seen = torch.where(GAINS > 0, Y / GAINS.clamp_min(1e-9), 0)
    fixed = (MEAN / STD**2 + weight * seen) / (1 / STD**2 + weight)
    assert float((x - fixed).abs().max()) < 1e-6


def test_levels_end_where_told() -> None:
    def last(**options: float) -> float:
        return DPIRConfig(**options).schedule().sigmas[-1]  # type: ignore[arg-type]

    assert last() == pytest.approx(0.1)
    assert last(sigma_end=0.03) == pytest.approx(0.03)
    assert last(noise_std=0.0) == pytest.approx(0.002)
    assert last(noise_std=5.0) == pytest.approx(2 * 49 / 255)
    assert DPIRConfig(n_steps=1).schedule().sigmas == pytest.approx((2 * 49 / 255,))
    assert DPIRConfig(noise_std=0.0).schedule().rhos[-1] == pytest.approx(0.23)


def test_vp_and_edm_networks_take_the_same_way() -> None:
    results = [DPIR(p, DPIRConfig())(measurement(), Diagonal()).x for p in (prior(), vp_prior())]
    assert float((results[0] - results[1]).abs().max()) < 1e-5  # float32 time input


def test_clamp_is_an_option() -> None:
    y = 3 * measurement() + 2
    free, bounded = (
        DPIR(prior(), DPIRConfig(clamp=clamp))(y, Diagonal()).x for clamp in (False, True)
    )
    assert float(free.max()) > 1
    assert float(bounded.max()) == 1


# starts ------------------------------------------------------------------------------------------
class Keep:
    """A denoiser that returns what it is given."""

    kind, value_range, sigma_min, sigma_max, nfe_per_call = "edm", (-1.0, 1.0), 0.0, 1e6, 1

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return x


def first_image(y: Tensor, operator: object) -> Tensor:
    """With a huge weight nothing is taken from y: the start is returned."""
    config = DPIRConfig(n_steps=1, lam=1e14, data_step=GradientStep(n_iter=1, lr=1e-30))
    generator = generators(range(len(y)))
    return DPIR(Keep(), config)(y, operator, generator=generator).x  # type: ignore[arg-type]


def test_starts() -> None:
    x = 0.3 * torch.randn((2, 1, 8, 8), generator=gen(1)).double()
    inpainting = Inpainting(torch.rand((1, 1, 8, 8), generator=gen(2)) < 0.5)
    y = inpainting.A(x)
    assert torch.allclose(first_image(y, inpainting), inpainting.x_start(y))
    small = SuperResolution((1, 8, 8), factor=2)
    y = small.A(x)
    assert torch.allclose(first_image(y, small), small.A_dagger(y, 0.01), atol=1e-9)
    phase = PhaseRetrieval.random((8, 8), gen(3))
    y = phase.A(x)
    assert torch.allclose(first_image(y, phase), phase.z_start(y, generators([0, 1])))
    assert float(first_image(BENT.A(measurement()), BENT).abs().max()) < 1e-20  # grey


def test_identity_without_noise_returns_its_measurement() -> None:
    y = measurement(rows=3)
    x = DPIR(prior(), DPIRConfig(noise_std=0.0))(y, Diagonal(torch.ones(4).double())).x
    assert torch.allclose(x, y, atol=1e-3)


# other operators, ranges, refusals ---------------------------------------------------------------
def test_other_data_steps_and_nonlinear_operators() -> None:
    exact = DPIR(prior(), DPIRConfig())(measurement(), Diagonal()).x
    x = DPIR(prior(), DPIRConfig(data_step=CGStep(20)))(measurement(), Diagonal()).x
    assert torch.allclose(x, exact, atol=1e-9)
    truth = torch.tensor([0.5, -0.4, 0.2, 0.7]).double().reshape(1, 1, 1, 4)
    config = DPIRConfig(noise_std=0.01, data_step=GradientStep(n_iter=50))
    assert torch.allclose(DPIR(prior(), config)(BENT.A(truth), BENT).x, truth, atol=0.01)
    with pytest.raises(OperatorError, match="data_step=GradientStep"):
        DPIR(prior(), DPIRConfig())(BENT.A(truth), BENT)


def test_other_ranges() -> None:
    solver = DPIR(GaussianPrior(MEAN, STD, kind="edm"), DPIRConfig(clamp=True))
    usual = solver(measurement(), Diagonal()).x
    y = (measurement() + Diagonal().A(torch.ones(1, 1, 1, 4).double())) / 2
    unit = solver(y, Diagonal(), value_range=(0, 1)).x
    assert torch.allclose(2 * unit - 1, usual, atol=1e-12)


def test_kind_of_prior() -> None:
    with pytest.raises(ArgumentError, match="kind 'consistency'"):
        DPIR(prior("consistency"), DPIRConfig())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_steps": 0}, "n_steps must"),
        ({"n_steps": True}, "n_steps must"),
        ({"sigma_start": -1.0}, "sigma_start must"),
        ({"sigma_end": 0.5}, "sigma_end must"),
        ({"sigma_end": 0.0}, "sigma_end must"),
        ({"lam": 0.0}, "lam must"),
        ({"noise_std": math.inf}, "noise_std must"),
        ({"data_step": None}, "data_step is"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        DPIRConfig(**options)  # type: ignore[arg-type]
