"""PnP-ADMM: its limit, and its equality to PnP-CM's loop."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pnpcm.core import Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import FunctionOperator
from pnpcm.priors import GaussianPrior
from pnpcm.solvers import CGStep, GradientStep
from pnpcm.solvers.pnp_admm import PnPADMM, PnPADMMConfig
from solvers.bench import (
    GAINS,
    MEAN,
    NOISE_STD,
    POSTERIOR_MEAN,
    STD,
    Diagonal,
    Y,
    close,
    denoised,
    measurement,
    prior,
    vp_prior,
)

BENT = FunctionOperator(lambda x: x + 0.3 * x**3, (1, 1, 4))


def posterior_mean() -> Tensor:
    precision = 1 / STD**2 + GAINS**2 / NOISE_STD**2
    return (MEAN / STD**2 + GAINS * Y / NOISE_STD**2) / precision


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0])
def test_a_constant_level_leads_to_the_posterior_mean(sigma: float) -> None:
    config = PnPADMMConfig(n_steps=1000, sigma_start=sigma, sigma_end=sigma, clamp=False)
    result = PnPADMM(prior(), config)(measurement(), Diagonal())
    assert float((result.x.flatten() - posterior_mean()).abs().max()) < 1e-6
    close(result.x.flatten(), POSTERIOR_MEAN, 1e-4)
    assert result.nfe == config.nfe == 1000


def test_is_admm_with_falling_levels() -> None:
    config = PnPADMMConfig(n_steps=5, sigma_start=0.8, sigma_end=0.2, weight=0.7)
    seen: list[Step] = []
    result = PnPADMM(prior(), config)(measurement(), Diagonal(), callback=seen.append)
    x, u = torch.zeros(1, 1, 1, 4).double(), torch.zeros(1, 1, 1, 4).double()
    for k, step in enumerate(seen):
        sigma = 0.8 * (0.2 / 0.8) ** (k / 4)
        rho = 0.7 * (NOISE_STD / sigma) ** 2
        z = (GAINS * Y + rho * (x - u)) / (GAINS**2 + rho)
        x = denoised(z + u, sigma).clamp(-1, 1)
        u = u + z - x
        assert step.sigma == pytest.approx(sigma)
        for ours, expected in ((step.x, x), (step.z, z), (step.u, u)):
            assert ours is not None
            assert torch.allclose(ours, expected, atol=1e-13)
    assert torch.equal(result.x, seen[-1].x)
    assert result.nfe == len(seen) == 5


def test_default_costs_sixteen_evaluations() -> None:
    assert PnPADMM(prior(), PnPADMMConfig())(measurement(), Diagonal()).nfe == 16


def test_vp_and_edm_networks_take_the_same_way() -> None:
    config = PnPADMMConfig()
    results = [PnPADMM(p, config)(measurement(), Diagonal()).x for p in (prior(), vp_prior())]
    assert float((results[0] - results[1]).abs().max()) < 1e-5  # float32 time input


def test_other_data_steps() -> None:
    config = PnPADMMConfig(n_steps=6)
    exact = PnPADMM(prior(), config)(measurement(), Diagonal()).x
    for step in (CGStep(20), GradientStep("lbfgs", n_iter=200)):
        x = PnPADMM(prior(), replace(config, data_step=step))(measurement(), Diagonal()).x
        assert torch.allclose(x, exact, atol=1e-5)


def test_nonlinear_operators_take_a_gradient_step() -> None:
    truth = torch.tensor([0.5, -0.4, 0.2, 0.7]).double().reshape(1, 1, 1, 4)
    config = PnPADMMConfig(n_steps=20, noise_std=0.01, data_step=GradientStep(n_iter=50))
    x = PnPADMM(prior(), config)(BENT.A(truth), BENT).x
    assert torch.allclose(x, truth, atol=0.02)
    with pytest.raises(OperatorError, match="data_step=GradientStep"):
        PnPADMM(prior(), PnPADMMConfig())(BENT.A(truth), BENT)
    with pytest.raises(OperatorError, match="A_adjoint; give data_step"):
        PnPADMM(prior(), PnPADMMConfig(data_step=CGStep()))(BENT.A(truth), BENT)


def test_identity_without_noise_returns_its_measurement() -> None:
    y = measurement(rows=3)
    x = PnPADMM(prior(), PnPADMMConfig(noise_std=0.0))(y, Diagonal(torch.ones(4).double())).x
    assert torch.allclose(x, y, atol=0.02)


def test_other_ranges() -> None:
    solver = PnPADMM(GaussianPrior(MEAN, STD, kind="edm"), PnPADMMConfig())
    usual = solver(measurement(), Diagonal()).x
    # y of images in [0, 1]: A((x + 1)/2) + noise/2
    y = (measurement() + Diagonal().A(torch.ones(1, 1, 1, 4).double())) / 2
    unit = solver(y, Diagonal(), value_range=(0, 1)).x
    assert torch.allclose(2 * unit - 1, usual, atol=1e-12)


def test_kind_of_prior() -> None:
    with pytest.raises(ArgumentError, match="kind 'consistency'"):
        PnPADMM(prior("consistency"), PnPADMMConfig())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_steps": 0}, "n_steps must"),
        ({"sigma_start": 0.0}, "sigma_start must"),
        ({"sigma_end": math.inf}, "sigma_end must"),
        ({"weight": 0.0}, "weight must"),
        ({"noise_std": -0.1}, "noise_std must"),
        ({"data_step": "prox"}, "data_step is"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        PnPADMMConfig(**options)  # type: ignore[arg-type]


def test_configuration_round_trip_keeps_the_data_step() -> None:
    config = PnPADMMConfig(n_steps=9, data_step=CGStep(7, start="warm"))
    assert PnPADMMConfig.from_dict(config.to_dict()) == config
