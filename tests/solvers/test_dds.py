"""DDS against docs/methods/dds.md and the Gaussian bench."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from ddpm import ALPHA_BAR, skipping
from golden import gen
from pnpcm.core import Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.linalg import norm
from pnpcm.operators import FunctionOperator, Inpainting, MultiCoilMRI
from pnpcm.priors import GaussianPrior
from pnpcm.rng import generators, randn_like
from pnpcm.solvers.dds import DDS, DDSConfig, n_measured
from solvers.bench import (
    GAINS,
    MEAN,
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


# the bench ---------------------------------------------------------------------------------------
def test_published_numbers() -> None:
    """One row of 20 000 chains: A has four different gains, so ten CG iterations are exact."""
    result = sample(DDS(prior(), DDSConfig()), rows=20000)
    mean, std = moments(result)
    close(mean, (0.272, -0.105, -0.001, 0.574))
    close(std, (0.015, 0.060, 0.246, 0.282))
    assert result.nfe == DDSConfig().nfe == 100
    assert len(result.residuals) == 100


def test_noiseless_branch_fits_the_data() -> None:
    x = sample(DDS(prior(), DDSConfig(noiseless=True)), rows=200).x
    assert float((GAINS * x - Y).abs().max()) < 1e-9


# the official update, in its own variables -------------------------------------------------------
def official(config: DDSConfig, y: Tensor, generator: torch.Generator) -> Tensor:
    """DDS on VP variables, with this prior and operator written out and CG run to its end."""
    bars = [ALPHA_BAR[i] for i in skipping(config.n_steps)] + [1.0]
    # the official start is a standard normal x; here the VP image of s₁ z
    x = math.sqrt(1 - bars[0]) * randn_like(y, generator)
    for k, (bar, bar_next) in enumerate(pairwise(bars), start=1):
        level = math.sqrt((1 - bar) / bar)
        x_ve = x / math.sqrt(bar)
        d = (STD**2 * x_ve + level**2 * MEAN) / (STD**2 + level**2)
        eps = (x - math.sqrt(bar) * d) / math.sqrt(1 - bar)
        x = (d + config.gamma * GAINS * y) / (1 + config.gamma * GAINS**2)
        if k < config.n_steps - 1:  # the step to index 0 sets x = x̂, and so does the last one
            fresh = config.eta * randn_like(x, generator) + math.sqrt(1 - config.eta**2) * eps
            x = math.sqrt(bar_next) * x + math.sqrt(1 - bar_next) * fresh
    return x


def test_is_the_official_update_up_to_the_scale_of_its_last_index() -> None:
    y = measurement(rows=50)
    expected = official(DDSConfig(), y, gen(3))
    x = DDS(prior(), DDSConfig())(y, Diagonal(), generator=gen(3)).x
    # x̂ handed to index 0 is not multiplied by √ᾱ₀ = 1 − 5e-5 there
    assert float((x - expected).abs().max()) < 5e-5 * float(x.abs().max())


def test_vp_and_edm_networks_take_the_same_way() -> None:
    results = [sample(DDS(p, DDSConfig()), rows=20).x for p in (prior(), vp_prior())]
    assert float((results[0] - results[1]).abs().max()) < 1e-5  # float32 time input


# the data step -----------------------------------------------------------------------------------
class Keep:
    """A denoiser that returns what it is given, so that one step is its data step."""

    kind, value_range, sigma_min, sigma_max, nfe_per_call = "edm", (-1.0, 1.0), 0.0, 1e6, 1

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return x


def one_step(config: DDSConfig, y: Tensor, operator: object, d: Tensor) -> Tensor:
    config = replace(config, sigmas=(1e-200,))  # d is its own noisy version
    result = DDS(Keep(), config)(y, operator, generator=gen(), x_init=d)  # type: ignore[arg-type]
    assert result.nfe == config.nfe == 1
    return result.x


@pytest.mark.parametrize("gamma", [0.1, 1.0, 30.0])
def test_identity_averages_estimate_and_measurement(gamma: float) -> None:
    d, y = torch.randn((2, 2, 1, 5, 4), generator=gen(1)).double()
    config = DDSConfig(gamma=gamma, cg_iterations=1)
    x = one_step(config, y, Diagonal(torch.ones(4).double()), d)
    assert torch.allclose(x, (d + gamma * y) / (1 + gamma), atol=1e-14)
    whole = one_step(replace(config, noiseless=True), y, Diagonal(torch.ones(4).double()), d)
    assert torch.allclose(whole, y, atol=1e-14)


def complex_mri() -> tuple[MultiCoilMRI, Tensor, Tensor, Tensor]:
    """Operator, its matrix (measurements × pixels, complex), y with noise, an estimate d."""
    g = gen(4)
    operator, x = MultiCoilMRI.example(g, size=(4, 6))
    operator = operator.to(torch.float64)
    units = torch.eye(24).to(torch.complex128).reshape(24, 4, 6)
    matrix = operator.A(units).reshape(24, -1).T
    d = x.double() + 0.3 * torch.randn(x.shape, generator=g).double()
    y = operator.A(x.double())
    return operator, matrix, y + 0.05 * operator.noise_like(y, g), d


def test_complex_images_equal_the_dense_complex_solve() -> None:
    operator, matrix, y, d = complex_mri()
    x = one_step(DDSConfig(gamma=2.0, cg_iterations=100), y, operator, d)
    system = torch.eye(24) + 2.0 * matrix.mH @ matrix
    right = torch.complex(d[0, 0], d[0, 1]).flatten() + 2.0 * matrix.mH @ y.flatten()
    dense = torch.linalg.solve(system, right).reshape(4, 6)
    assert float((torch.complex(x[0, 0], x[0, 1]) - dense).abs().max()) < 1e-12
    few = one_step(DDSConfig(gamma=2.0, cg_iterations=3), y, operator, d)
    assert float((few - x).abs().max()) > 1e-6  # the count is obeyed


def test_noiseless_branch_keeps_what_the_coils_do_not_see() -> None:
    operator, matrix, y, d = complex_mri()
    x = one_step(DDSConfig(noiseless=True, cg_iterations=200), y, operator, d)
    image = torch.complex(d[0, 0], d[0, 1]).flatten()
    image = image + torch.linalg.pinv(matrix, rcond=1e-10) @ (y.flatten() - matrix @ image)
    assert float((torch.complex(x[0, 0], x[0, 1]).flatten() - image).abs().max()) < 1e-7


def test_cg_stops_where_the_residual_is_noise() -> None:
    operator, _, y, d = complex_mri()
    noise_std = 0.05
    config = DDSConfig(noiseless=True, cg_iterations=50)
    radius = noise_std * math.sqrt(operator.n_measured(y))
    sweep = [one_step(replace(config, cg_iterations=n), y, operator, d) for n in range(1, 20)]
    inside = [x for x in sweep if float(norm(y - operator.A(x))) <= radius]
    stopped = one_step(replace(config, noise_std=noise_std), y, operator, d)
    assert 0 < len(inside) < len(sweep)
    assert torch.equal(stopped, inside[0])  # the first iterate of the same CG that is good enough
    assert torch.equal(one_step(replace(config, noise_std=1e3), y, operator, d), d)


def test_each_image_counts_and_stops_on_its_own() -> None:
    g = gen(6)
    mask = (
        torch.rand((3, 1, 6, 8), generator=g) < torch.tensor([0.2, 0.5, 0.9])[:, None, None, None]
    )
    operator = Inpainting(mask)
    x = 0.4 * torch.randn((3, 1, 6, 8), generator=g).double()
    y = operator.A(x) + 0.1 * operator.noise_like(x, g)
    assert int(n_measured(y).sum()) == operator.n_measured(y)
    assert n_measured(y).tolist() == mask.flatten(1).sum(1).tolist()
    mri, _, kspace, _ = complex_mri()
    assert int(n_measured(kspace)) == mri.n_measured(kspace)
    config = DDSConfig(n_steps=6, noise_std=0.1)
    solver = DDS(GaussianPrior(0.0, 0.4, kind="edm"), config)
    together = solver(y, operator, generator=generators([0, 1, 2])).x
    for i in range(3):
        one = solver(y[i : i + 1], Inpainting(mask[i : i + 1]), generator=generators([i])).x
        assert torch.allclose(one, together[i : i + 1], atol=1e-12)


# levels, ranges, refusals ------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 3])
def test_short_runs_end_without_noise(n: int) -> None:
    seen: list[Step] = []
    config = DDSConfig(n_steps=n, gamma=1e12)
    operator = Diagonal(torch.ones(4).double())
    result = DDS(prior(), config)(measurement(), operator, generator=gen(), callback=seen.append)
    assert result.nfe == config.nfe == len(seen) == n
    for step in seen[-2:]:
        assert torch.allclose(step.x, measurement(), atol=1e-6)


def test_other_ranges() -> None:
    operator, _, y, _ = complex_mri()
    solver = DDS(GaussianPrior(0.0, 0.3, kind="edm"), DDSConfig(n_steps=8, noise_std=0.05))
    usual = solver(y, operator, generator=gen()).x
    grey = torch.full_like(usual, 0.5)
    unit = solver((y + operator.A(2 * grey)) / 2, operator, generator=gen(), value_range=(0, 1)).x
    assert torch.allclose(2 * unit - 1, usual, atol=1e-9)


def test_refusals() -> None:
    bent = FunctionOperator(lambda x: x**3, (1, 1, 4))
    with pytest.raises(OperatorError, match="not linear"):
        DDS(prior(), DDSConfig())(measurement(), bent, generator=gen())

    class NoAdjoint:
        linear = True

        def A(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(OperatorError, match="no A_adjoint"):
        DDS(prior(), DDSConfig())(measurement(), NoAdjoint(), generator=gen())
    with pytest.raises(ArgumentError, match="kind 'consistency'"):
        DDS(prior("consistency"), DDSConfig())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_steps": 0}, "n_steps must"),
        ({"sigmas": ()}, "sigmas must"),
        ({"eta": 1.5}, "eta must"),
        ({"gamma": 0.0}, "gamma must"),
        ({"cg_iterations": 0}, "cg_iterations must"),
        ({"cg_iterations": 2.5}, "cg_iterations must"),
        ({"noise_std": -1.0}, "noise_std must"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        DDSConfig(**options)  # type: ignore[arg-type]
