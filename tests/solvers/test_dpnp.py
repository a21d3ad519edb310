"""DPnP: its grids and counts, its prior draws, the law at fixed coupling, its order and start."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from pnpcm.core import Result, Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.rng import generators
from pnpcm.solvers.base import Run
from pnpcm.solvers.dpnp import DPnP, DPnPConfig
from pnpcm.solvers.dps import DPS, DPSConfig
from pnpcm.solvers.level_grids import EulerStep, official_kappas
from pnpcm.solvers.split_gibbs import posterior_flow, reverse_diffusion
from solvers.bench import (
    GAINS,
    MEAN,
    NOISE_STD,
    STD,
    Diagonal,
    Disguised,
    Y,
    close,
    measurement,
    moments,
    prior,
    sample,
    vp_prior,
)
from solvers.denoising_law import check_law

COUNTS = (*[151] * 5, 147, 145, 140, 173, 167, 161, 156, 151, 147, 142, 139)
SHORT = DPnPConfig(etas=(0.4, 0.3, 0.2), density=0.1, warm_start=10, clamp=False)


def at_fixed_coupling(eta: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Posterior for noise of variance noise_std² + eta² a²."""
    data = GAINS / (NOISE_STD**2 + eta**2 * GAINS**2)
    precision = 1 / STD**2 + GAINS * data
    mean = (MEAN / STD**2 + data * Y) / precision
    return tuple(mean.tolist()), tuple((1 / precision.sqrt()).tolist())


# grids and counts --------------------------------------------------------------------------------
def test_the_official_grid_has_the_published_counts() -> None:
    config = DPnPConfig()
    assert tuple(len(config.grid(eta)) for eta in config.etas) == COUNTS
    assert sum(COUNTS) == 2423
    assert config.nfe == 2923


@pytest.mark.parametrize("eta", [0.16, 0.29, 0.31, 0.4, 1.0])
def test_the_official_grid_falls_without_gaps(eta: float) -> None:
    kappas = official_kappas(eta)
    assert 95 < kappas[0] <= 100.0001
    assert eta * kappas[-1] / (eta**2 + kappas[-1] ** 2) ** 0.5 == pytest.approx(0.01, rel=1e-3)
    for kappa, after in pairwise(kappas):
        assert after < kappa
        assert (1 + kappa**2) / (1 + after**2) < 1.1 + 1e-9


def test_published_run_costs_what_it_announces_and_ends_at_the_last_coupling() -> None:
    result = sample(DPnP(prior(), DPnPConfig(clamp=False)), rows=2000)
    assert result.nfe == 2923
    assert result.vjps == 500
    assert len(result.residuals) == 16
    mean, std = at_fixed_coupling(0.16)
    close(moments(result)[0], mean, 0.025)
    close(moments(result)[1], std, 0.025)


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("options", [{}, {"sampler": "sde"}, {"kappas": "log"}])
def test_scaled(options: dict[str, Any], share: float) -> None:
    whole = DPnPConfig(**options)
    part = whole.scaled(share)
    assert part.nfe == pytest.approx(share * whole.nfe, rel=0.03)
    assert part.etas == whole.etas
    for eta in (0.4, 0.16):
        assert part.grid(eta)[0] == whole.grid(eta)[0]
        assert part.grid(eta)[-1] == whole.grid(eta)[-1]
    short = replace(SHORT, **options)
    assert sample(DPnP(prior(), short.scaled(share))).nfe == short.scaled(share).nfe


# laws --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("eta", [0.4, 0.3])
@pytest.mark.parametrize("kappas", ["official", "log"])
@pytest.mark.parametrize("sampler", ["ode", "sde"])
def test_denoising_posterior(sampler: str, kappas: str, eta: float) -> None:
    grid = DPnPConfig(sampler=sampler, kappas=kappas).grid(eta)

    def draw(run: Run, xn: Tensor) -> Tensor:
        if sampler == "ode":
            return posterior_flow(run, xn, eta, grid, clamp=False)
        steps = EulerStep.row(grid, exact_noise=True)
        return reverse_diffusion(run, xn, steps, stochastic=True, clamp=False)

    check_law(draw, eta, mean_within=0.01, std_within=0.01)


@pytest.mark.parametrize("sampler", ["ode", "sde"])
def test_fixed_coupling_inflates_the_noise(sampler: str) -> None:
    config = DPnPConfig(etas=(0.3,) * 12, sampler=sampler, density=0.5, warm_start=0, clamp=False)
    result = sample(DPnP(prior(), config), rows=8000)
    mean, std = at_fixed_coupling(0.3)
    close(torch.tensor(mean), (0.266, -0.104, 0.0, 0.604), 0.001)  # the documented theory row
    close(torch.tensor(std), (0.302, 0.283, 0.300, 0.391), 0.001)
    close(moments(result)[0], mean, 0.015)
    close(moments(result)[1], std, 0.01)


def test_langevin_serves_what_is_not_linear() -> None:
    config = DPnPConfig(
        etas=(0.3,) * 7,
        density=0.2,
        warm_start=5,
        langevin_steps=150,
        langevin_scale=12.0,
        clamp=False,
    )
    seeds = generators([0])
    result = DPnP(prior(), config)(measurement(1, 2000), Disguised(), generator=seeds)
    assert result.nfe == config.nfe
    mean, std = at_fixed_coupling(0.3)
    close(moments(result)[0], mean, 0.03)
    close(moments(result)[1], std, 0.03)


def test_exact_data_and_close_coupling_give_the_data() -> None:
    eye = Diagonal(torch.ones(4, dtype=torch.float64))
    config = DPnPConfig(etas=(0.3, 0.05, 0.011), noise_std=1e-6, density=0.3, warm_start=4)
    x = DPnP(prior(), config)(measurement(), eye, generator=generators([0])).x
    close(x.reshape(4), tuple(Y.tolist()), 0.05)  # the last prior draw spreads by 0.011


# order, start, wrappers --------------------------------------------------------------------------
@pytest.mark.parametrize(("sampler", "draws"), [("ode", 3), ("sde", 2)])
def test_order(sampler: str, draws: int) -> None:
    class Counting(Diagonal):
        drawn = 0

        def sample_conditional(self, *arguments: Any) -> Tensor:
            Counting.drawn += 1
            return super().sample_conditional(*arguments)

    seen: list[Step] = []
    start = torch.full((1, 1, 1, 4), 0.3, dtype=torch.float64)
    solver = DPnP(prior(), replace(SHORT, sampler=sampler, warm_start=0))
    result = solver(
        measurement(), Counting(), generator=generators([0]), x_init=start, callback=seen.append
    )
    assert Counting.drawn == draws
    assert [step.k for step in seen] == [1, 2, 3]
    assert torch.equal(seen[-1].x, result.x)
    assert seen[0].z is not None
    assert torch.equal(seen[0].z, start) == (sampler == "sde")


def test_the_warm_start_is_dps() -> None:
    seen: list[Step] = []
    solver = DPnP(prior(), replace(SHORT, sampler="sde"))
    solver(measurement(), Diagonal(), generator=generators([3]), callback=seen.append)
    dps = DPS(prior(), DPSConfig(n_steps=10, zeta=0.8, clamp=False))
    assert seen[0].z is not None
    assert torch.equal(seen[0].z, sample(dps, seed=3).x)


@pytest.mark.parametrize("sampler", ["ode", "sde"])
def test_vp_and_edm_agree(sampler: str) -> None:
    # κ grids pass below the lowest level of a VP network by rounding only
    config = replace(SHORT, sampler=sampler)
    by: list[Result] = [sample(DPnP(p, config), rows=3) for p in (prior(), vp_prior())]
    torch.testing.assert_close(by[0].x, by[1].x, rtol=1e-6, atol=1e-6)


def test_clamp_keeps_the_estimate_in_range() -> None:
    far = prior(mean=torch.full((4,), 5.0), std=torch.full((4,), 0.01))
    for clamp, top in ((True, 1.0), (False, 5.0)):
        config = replace(SHORT, sampler="sde", warm_start=0, clamp=clamp)
        x = DPnP(far, config)(measurement(), Diagonal(), generator=generators([0])).x
        assert float(x.max()) == pytest.approx(top, abs=0.1)


# refusals ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"etas": ()}, "etas is empty"),
        ({"etas": (0.4, -0.1)}, "etas must"),
        ({"etas": 0.4}, "etas is 0.4"),
        ({"etas": (0.005,)}, "lowest DDPM level"),
        ({"noise_std": 0.0}, "noise_std must"),
        ({"sampler": "euler"}, "sampler must be one of ode, sde"),
        ({"kappas": "linear"}, "kappas must be one of official, log"),
        ({"n_kappas": 0}, "n_kappas must"),
        ({"density": 1.5}, "density must"),
        ({"warm_start": -1}, "warm_start must"),
        ({"warm_start": 2.5}, "warm_start must be a whole"),
        ({"warm_zeta": float("nan")}, "warm_zeta must"),
        ({"langevin_steps": 0}, "langevin_steps must"),
        ({"langevin_steps": 3.0}, "langevin_steps must be a whole"),
        ({"langevin_scale": 0.0}, "langevin_scale must"),
    ],
)
def test_config_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DPnPConfig(**options)


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="share must"):
        DPnPConfig().scaled(0.0)
    with pytest.raises(ArgumentError, match="kind 'consistency'"):
        DPnP(prior("consistency"), DPnPConfig())
    config = DPnPConfig(etas=(200.0,), kappas="log", n_kappas=3, warm_start=0)
    with pytest.raises(ArgumentError, match="largest level of the prior"):
        sample(DPnP(vp_prior(), config))
    with pytest.raises(ArgumentError, match="generator is None"):
        DPnP(prior(), SHORT)(measurement(), Diagonal())

    class Cut(Disguised):
        def A(self, x: Tensor) -> Tensor:
            return x.detach()

    with pytest.raises(OperatorError, match="not differentiable"):
        DPnP(prior(), SHORT)(measurement(), Cut(), generator=generators([0]))
