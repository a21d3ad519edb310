"""DiffPIR against docs/methods/diffpir.md and the Gaussian bench."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from ddpm import ALPHA_BAR, LEVELS, quadratic
from golden import gen
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import FunctionOperator, Inpainting
from pnpcm.priors import GaussianPrior
from pnpcm.rng import randn_like
from pnpcm.solvers.diffpir import DiffPIR, DiffPIRConfig
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
    moments,
    prior,
    sample,
    vp_prior,
)

FREE = DiffPIRConfig(clamp=False)
"""The published numbers; the bench's prior is unbounded."""


# the bench ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("denoise_last", [False, True])
def test_consistent_weight_and_fresh_noise(denoise_last: bool) -> None:
    config = replace(FREE, lam=1.0, zeta=1.0, denoise_last=denoise_last)
    result = sample(DiffPIR(prior(), config), rows=20000)
    mean, std = moments(result)
    close(mean, (0.271, -0.105, -0.002, 0.643))
    close(mean, POSTERIOR_MEAN)
    close(std, (0.065, 0.104, 0.206, 0.205))
    assert result.nfe == FREE.nfe == 100
    assert len(result.residuals) == 100


def test_published_numbers() -> None:
    result = sample(DiffPIR(prior(), FREE), rows=20000)
    mean, std = moments(result)
    close(mean, (0.271, -0.106, -0.004, 0.619))
    close(std, (0.119, 0.178, 0.281, 0.346))


# the official update, in its own variables -------------------------------------------------------
def official(config: DiffPIRConfig, start: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """DiffPIR's code on VP variables, with this prior and operator written out; eta = 0."""
    bars = [ALPHA_BAR[i] for i in quadratic(config.n_steps)]
    x = math.sqrt(bars[0]) * start + math.sqrt(1 - bars[0]) * randn_like(start, generator)
    for bar, bar_next in pairwise(bars):
        level = math.sqrt((1 - bar) / bar)
        x_ve = x / math.sqrt(bar)
        x0 = (STD**2 * x_ve + level**2 * MEAN) / (STD**2 + level**2)
        if config.clamp:
            x0 = x0.clamp(-1, 1)
        # λ of the official code: σ_n on [0, 1]
        rho = 4 * config.lam * (config.noise_std / 2) ** 2 * bar / (1 - bar)
        x0 = (GAINS * y + rho * x0) / (GAINS**2 + rho)
        eps = (x - math.sqrt(bar) * x0) / math.sqrt(1 - bar)
        fresh = randn_like(x, generator)
        x = math.sqrt(bar_next) * x0 + math.sqrt(1 - bar_next) * (
            math.sqrt(1 - config.zeta) * eps + math.sqrt(config.zeta) * fresh
        )
    return x / math.sqrt(bars[-1])


@pytest.mark.parametrize("changes", [{}, {"clamp": False, "zeta": 0.0}, {"lam": 0.1, "zeta": 1.0}])
def test_is_the_official_update_in_other_variables(changes: dict[str, float]) -> None:
    config = replace(DiffPIRConfig(), **changes)  # type: ignore[arg-type]
    y, start = measurement(rows=50), torch.full((1, 1, 50, 4), 0.1).double()
    expected = official(config, start, y, gen(3))
    x = DiffPIR(prior(), config)(y, Diagonal(), generator=gen(3), x_init=start).x
    assert float((x - expected).abs().max()) < 1e-12


def test_vp_and_edm_networks_take_the_same_way() -> None:
    results = [sample(DiffPIR(p, FREE), rows=20).x for p in (prior(), vp_prior())]
    assert float((results[0] - results[1]).abs().max()) < 1e-5  # float32 time input


# limits ------------------------------------------------------------------------------------------
def test_without_weight_the_data_hold_up_to_the_last_level() -> None:
    x = sample(DiffPIR(prior(), replace(FREE, lam=1e-9)), rows=5000).x
    gap = (GAINS * x - Y).reshape(-1, 4)[:, [0, 1, 3]]
    spread = gap.std(0) / GAINS[[0, 1, 3]]
    close(spread, (LEVELS[0],) * 3, 1e-3)
    assert float(gap.mean(0).abs().max()) < 1e-3


def test_infinite_weight_and_no_guidance_sample_from_the_prior_alone() -> None:
    alone = sample(DiffPIR(prior(), replace(FREE, guidance=0.0)), rows=100)
    heavy = sample(DiffPIR(prior(), replace(FREE, lam=1e20)), rows=100)
    assert float((alone.x - heavy.x).abs().max()) < 1e-9
    # along the probability flow, ζ = 0, the law is the prior's up to the grid
    flow = sample(DiffPIR(prior(), replace(FREE, guidance=0.0, zeta=0.0, n_steps=400)), rows=10000)
    mean, std = moments(flow)
    close(mean, tuple(MEAN.tolist()), 0.03)
    close(std / STD, (1.0,) * 4, 0.04)


def test_a_noiseless_identity_returns_its_measurement() -> None:
    y = 0.5 * torch.randn((1, 1, 2000, 4), generator=gen(1)).double().clamp(-1, 1)
    config = DiffPIRConfig(lam=1e-3, noise_std=0.0)
    x = DiffPIR(prior(), config)(y, Diagonal(torch.ones(4).double()), generator=gen()).x
    assert float((x - y).std()) == pytest.approx(LEVELS[0], rel=0.05)
    levels = (10.0, 1.0, 0.1, 1e-3, 1e-5)
    config = replace(config, sigmas=levels)
    x = DiffPIR(prior(), config)(y, Diagonal(torch.ones(4).double()), generator=gen()).x
    assert float((x - y).abs().max()) < 1e-2  # ρ = 0.004 at the level before the last


def test_noise_below_the_floor_is_the_floor() -> None:
    def solve(noise_std: float) -> Tensor:
        return sample(DiffPIR(prior(), replace(FREE, noise_std=noise_std, n_steps=8))).x

    assert torch.equal(solve(0.0), solve(0.002))
    assert not torch.equal(solve(0.0), solve(0.003))


# what is returned, levels, starts, refusals ------------------------------------------------------
def test_the_last_call_gives_the_result_only_if_asked() -> None:
    noisy = sample(DiffPIR(prior(), FREE), rows=3).x
    clean = sample(DiffPIR(prior(), replace(FREE, denoise_last=True)), rows=3).x
    assert torch.allclose(clean, denoised(noisy, LEVELS[0]), atol=1e-12)


def test_levels_stay_within_the_prior() -> None:
    levels: list[float] = []

    class Told(GaussianPrior):
        def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
            levels.append(float(sigma))
            return super().__call__(x, sigma)

    result = sample(DiffPIR(Told(MEAN, STD, kind="edm"), DiffPIRConfig()))
    assert result.nfe == len(levels) == 100
    assert max(levels) <= 80
    assert (levels[0], levels[-1]) == pytest.approx((80, 0.01), rel=1e-3)
    assert sorted(levels, reverse=True) == levels
    own = DiffPIRConfig(sigmas=(3.0, 1.0, 0.2))
    assert own.nfe == sample(DiffPIR(prior(), own)).nfe == 3


def test_inpainting_and_other_ranges() -> None:
    mask = torch.rand((1, 1, 8, 8), generator=gen(2)) < 0.6
    operator = Inpainting(mask)
    x = 0.3 * torch.randn((2, 1, 8, 8), generator=gen(5)).double()
    y = operator.A(x)
    solver = DiffPIR(GaussianPrior(0.0, 0.3, kind="edm"), DiffPIRConfig(n_steps=20, noise_std=0.0))
    usual = solver(y, operator, generator=gen()).x
    unit = solver(operator.A((x + 1) / 2), operator, generator=gen(), value_range=(0, 1)).x
    assert torch.allclose(2 * unit - 1, usual, atol=1e-9)
    assert float(((usual - x) * mask).std()) < 0.02


def test_refusals() -> None:
    bent = FunctionOperator(lambda x: x**3, (1, 1, 4))
    with pytest.raises(OperatorError, match="not linear"):
        DiffPIR(prior(), FREE)(measurement(), bent, generator=gen())
    with pytest.raises(ArgumentError, match="kind 'consistency'"):
        DiffPIR(prior("consistency"), FREE)
    with pytest.raises(ArgumentError, match="generator"):
        DiffPIR(prior(), FREE)(measurement(), Diagonal())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_steps": 1}, "at least two levels"),
        ({"n_steps": 1001}, "n_steps must"),
        ({"sigmas": (1.0,)}, "at least two levels"),
        ({"sigmas": (0.1, 1.0)}, "sigmas must"),
        ({"lam": 0.0}, "lam must"),
        ({"lam": math.inf}, "lam must"),
        ({"zeta": 1.1}, "zeta must"),
        ({"noise_std": -NOISE_STD}, "noise_std must"),
        ({"guidance": math.nan}, "guidance must"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        DiffPIRConfig(**options)  # type: ignore[arg-type]
