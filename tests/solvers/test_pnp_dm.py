"""PnP-DM: its counts, its prior step on every grid, the law at fixed coupling and annealed."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pnpcm.core import Step
from pnpcm.counted import CountedPrior
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.rng import generators
from pnpcm.solvers.base import Run
from pnpcm.solvers.level_grids import GRIDS, euler_steps
from pnpcm.solvers.pnp_dm import PnPDM, PnPDMConfig
from pnpcm.solvers.split_gibbs import reverse_diffusion
from solvers.bench import (
    MEAN,
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

FIXED = ((0.266, -0.104, 0.0, 0.604), (0.302, 0.283, 0.300, 0.391))
SHORT = PnPDMConfig(n_iterations=5, eta_start=2.0, decay=0.5, n_levels=20)


def a_run(y: Tensor) -> Run:
    return Run(y, Diagonal(), CountedPrior(prior()), generators([0]), None, None, (-1.0, 1.0))


# counts ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "linear", "phase"),
    [
        ({"grid": "vp"}, 1861, 1491),
        ({"grid": "vp", "slope": 14.9}, 2121, 1693),
        ({}, 3032, 2482),
        ({"grid": "edm-full"}, 3573, 3023),
        ({"grid": "iddpm"}, 3305, 2562),
        ({"grid": "ve"}, 3898, 3106),
        ({"n_levels": 67}, 2028, None),
    ],
)
def test_published_counts(options: dict[str, Any], linear: int, phase: int | None) -> None:
    assert PnPDMConfig(**options).nfe == linear
    if phase is not None:
        assert PnPDMConfig(**options, eta_min=0.1).nfe == phase


def test_coupling() -> None:
    etas = PnPDMConfig().etas
    assert len(etas) == 100
    assert etas[:2] == (10.0, 9.0)
    assert etas.index(0.3) == 34
    assert max(step.sigma for step in PnPDMConfig(grid="ve").steps(10.0)) < 10


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("eta_min", [0.3, 0.1])
def test_scaled(grid: str, eta_min: float) -> None:
    whole = PnPDMConfig(grid=grid, eta_min=eta_min, average_last=60)
    part = whole.scaled(0.2)
    assert part.nfe == pytest.approx(0.2 * whole.nfe, rel=0.12)
    assert (part.etas[0], part.etas[-1]) == (10.0, eta_min)
    share = [c.etas.index(eta_min) / c.n_iterations for c in (whole, part)]
    assert share[0] == pytest.approx(share[1], abs=0.03)
    assert (part.average_last, part.n_iterations, part.n_levels) == (20, 20, 100)
    assert sample(PnPDM(prior(), part)).nfe == part.nfe


# the prior step ----------------------------------------------------------------------------------
def prior_step(config: PnPDMConfig, eta: float) -> Callable[[Run, Tensor], Tensor]:
    return lambda run, xn: reverse_diffusion(
        run, xn, config.steps(eta), stochastic=True, clamp=False
    )


@pytest.mark.parametrize("eta", [0.4, 0.3])
@pytest.mark.parametrize("grid", GRIDS)
def test_denoising_posterior(grid: str, eta: float) -> None:
    # 100 levels leave few steps below eta, and the first is told the next lower level of the grid
    draw = prior_step(PnPDMConfig(grid=grid), eta)
    check_law(draw, eta, mean_within=0.013, std_within=0.04)


@pytest.mark.parametrize("grid", ["edm", "edm-full", "vp", "ve"])
def test_fine_grids_are_exact(grid: str) -> None:
    draw = prior_step(PnPDMConfig(grid=grid, n_levels=2000), 0.4)
    check_law(draw, 0.4, mean_within=0.001, std_within=0.003, rows=800)


@pytest.mark.parametrize("grid", ["edm", "vp"])
def test_the_flow_ends_where_the_ode_does(grid: str) -> None:
    y = measurement()
    steps = [s for s in euler_steps(grid, 1000) if s.sigma < 2.0]
    start = torch.full_like(y, 1.5)
    x = reverse_diffusion(a_run(y), start, steps, stochastic=False, clamp=False)
    exact = MEAN + (start - MEAN) * STD / torch.sqrt(STD**2 + steps[0].sigma ** 2)
    torch.testing.assert_close(x, exact, rtol=0, atol=0.01)


def test_vp_steps_are_euler_steps_on_scaled_images() -> None:
    n, slope, first, dt = 50, 19.9, 0.1, (1 - 1e-3) / 49

    def level(t: float) -> float:
        return math.sqrt(math.expm1(slope * t**2 / 2 + first * t))

    y = measurement()
    x = start = torch.full_like(y, 0.7)
    steps = euler_steps("vp", n)[30:33]
    noises, run = [], a_run(y)
    for _ in range(2):
        noises.append(run.noise(x))
    t = 1 - 30 * dt
    for noise in noises:
        s, a = level(t), 1 / math.sqrt(1 + level(t) ** 2)
        # derivatives of s and a in t, by differences
        sd = (level(t + 1e-6) - level(t - 1e-6)) / 2e-6
        ad = ((1 + level(t + 1e-6) ** 2) ** -0.5 - (1 + level(t - 1e-6) ** 2) ** -0.5) / 2e-6
        u = a * x
        d = (STD**2 * x + s**2 * MEAN) / (STD**2 + s**2)
        u = u - ((2 * sd / s + ad / a) * u - 2 * sd * a / s * d) * dt
        u = u + a * math.sqrt(2 * s * sd * dt) * noise
        t -= dt
        x = u * math.sqrt(1 + level(t) ** 2)
    d = (STD**2 * x + level(t) ** 2 * MEAN) / (STD**2 + level(t) ** 2)
    got = reverse_diffusion(a_run(y), start, steps, stochastic=True, clamp=False)
    torch.testing.assert_close(got, d, rtol=1e-6, atol=1e-6)


def test_the_last_step_denoises_or_mirrors() -> None:
    y = measurement()
    x = torch.full_like(y, 0.7)
    last = euler_steps("edm", 100)[-1:]
    d = (STD**2 * x + last[0].sigma ** 2 * MEAN) / (STD**2 + last[0].sigma ** 2)
    for denoise_last, expected in ((True, d), (False, 2 * d - x)):
        got = reverse_diffusion(
            a_run(y), x, last, stochastic=True, clamp=False, denoise_last=denoise_last
        )
        torch.testing.assert_close(got, expected)


# the whole chain ---------------------------------------------------------------------------------
def test_published_run() -> None:
    result = sample(PnPDM(prior(), PnPDMConfig()), rows=4000)
    assert result.nfe == 3032
    assert result.vjps == 0
    assert len(result.residuals) == 100
    close(moments(result)[0], FIXED[0], 0.02)
    close(moments(result)[1], FIXED[1], 0.015)


@pytest.mark.parametrize("options", [{}, {"denoise_last": False}, {"grid": "vp"}])
def test_fixed_coupling_inflates_the_noise(options: dict[str, Any]) -> None:
    config = PnPDMConfig(n_iterations=15, eta_start=0.3, n_levels=200, **options)
    result = sample(PnPDM(prior(), config), rows=8000)
    close(moments(result)[0], FIXED[0], 0.015)
    close(moments(result)[1], FIXED[1], 0.012)


def test_langevin_serves_what_is_not_linear() -> None:
    config = PnPDMConfig(
        n_iterations=8, eta_start=0.3, n_levels=100, langevin_steps=150, langevin_rate=1e-3
    )
    seeds = generators([0])
    result = PnPDM(prior(), config)(measurement(1, 2000), Disguised(), generator=seeds)
    assert result.nfe == config.nfe
    close(moments(result)[0], FIXED[0], 0.03)
    close(moments(result)[1], FIXED[1], 0.03)


def test_exact_data_and_close_coupling_give_the_data() -> None:
    eye = Diagonal(torch.ones(4, dtype=torch.float64))
    config = replace(SHORT, eta_min=0.011, decay=0.1, noise_std=1e-6)
    x = PnPDM(prior(), config)(measurement(), eye, generator=generators([0])).x
    close(x.reshape(4), tuple(Y.tolist()), 0.05)


def test_start_states_and_average() -> None:
    seen: list[Step] = []
    config = replace(SHORT, average_last=3)
    x = PnPDM(prior(), config)(
        measurement(), Diagonal(), generator=generators([0]), callback=seen.append
    ).x
    assert [step.k for step in seen] == [1, 2, 3, 4, 5]
    assert [step.sigma for step in seen] == [2.0, 1.0, 0.5, 0.3, 0.3]
    torch.testing.assert_close(x, sum(step.x for step in seen[2:]) / 3)
    assert torch.equal(sample(PnPDM(prior(), SHORT)).x, seen[-1].x)
    zeros = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
    given = PnPDM(prior(), SHORT)(
        measurement(), Diagonal(), generator=generators([0]), x_init=zeros
    )
    assert torch.equal(given.x, seen[-1].x)


@pytest.mark.parametrize("options", [{}, {"mode": "ode"}, {"grid": "vp"}, {"grid": "iddpm"}])
def test_vp_and_edm_agree(options: dict[str, Any]) -> None:
    config = replace(SHORT, **options)
    edm, vp = (sample(PnPDM(p, config), rows=3) for p in (prior(), vp_prior()))
    assert edm.nfe == vp.nfe == config.nfe
    torch.testing.assert_close(edm.x, vp.x, rtol=1e-6, atol=1e-6)


def test_clamp_keeps_the_estimate_in_range() -> None:
    far = prior(mean=torch.full((4,), 5.0), std=torch.full((4,), 0.01))
    for clamp, top in ((True, 1.0), (False, 5.0)):
        config = replace(SHORT, clamp=clamp)
        x = PnPDM(far, config)(measurement(), Diagonal(), generator=generators([0])).x
        assert float(x.max()) == pytest.approx(top, abs=0.1)


# refusals ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_iterations": 0}, "n_iterations must"),
        ({"eta_start": 0.0}, "eta_start must"),
        ({"decay": 1.1}, "decay must"),
        ({"eta_min": 11.0}, "eta_min must"),
        ({"eta_min": 0.01}, "lowest level of grid 'edm'"),
        ({"n_levels": 1}, "n_levels must"),
        ({"grid": "karras"}, "grid must be one of edm, edm-full, vp, ve, iddpm"),
        ({"slope": 0.0}, "slope must"),
        ({"mode": "heun"}, "mode must be one of sde, ode"),
        ({"noise_std": -0.1}, "noise_std must"),
        ({"langevin_steps": 0}, "langevin_steps must"),
        ({"langevin_rate": 0.0}, "langevin_rate must"),
        ({"average_last": 101}, "average_last must"),
        ({"average_last": True}, "average_last must be a whole"),
    ],
)
def test_config_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        PnPDMConfig(**options)


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="share must"):
        PnPDMConfig().scaled(1.5)
    with pytest.raises(ArgumentError, match="kind 'consistency'"):
        PnPDM(prior("consistency"), PnPDMConfig())
    with pytest.raises(ArgumentError, match="largest level of the prior"):
        sample(PnPDM(vp_prior(), replace(SHORT, eta_start=200.0)))
    with pytest.raises(ArgumentError, match="generator is None"):
        PnPDM(prior(), SHORT)(measurement(), Diagonal())

    class Cut(Disguised):
        def A(self, x: Tensor) -> Tensor:
            return x.detach()

    with pytest.raises(OperatorError, match="not differentiable"):
        PnPDM(prior(), SHORT)(measurement(), Cut(), generator=generators([0]))
