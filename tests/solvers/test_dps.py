"""DPS: the official VP update, the sampler without guidance, the bench, operators of all kinds."""

import math

import pytest
import torch
from torch import Tensor

from ddpm import ALPHA_BAR, LEVELS, spread
from golden import LINEAR, NONLINEAR, gen, relative
from pnpcm import OPERATORS, GaussianPrior, measure
from pnpcm.core import Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.linalg import expand, norm
from pnpcm.operators import FunctionOperator
from pnpcm.rng import generators
from pnpcm.solvers.dps import DPS, DPSConfig
from solvers.bench import (
    GAINS,
    MEAN,
    STD,
    Diagonal,
    close,
    measurement,
    moments,
    prior,
    sample,
    vp_prior,
)


def normal(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=generator).double()


def official(y: Tensor, indices: list[int], zeta: float, g: torch.Generator) -> Tensor:
    """The published update on VP variables, for one image of the bench."""
    bars = [ALPHA_BAR[i] for i in indices]
    x = math.sqrt(1 - bars[0]) * normal(g, y.shape[1:])[None]
    for bar, bar_next in zip(bars, [*bars[1:], 1.0], strict=True):
        beta = 1 - bar / bar_next
        x = x.requires_grad_()
        s2 = (1 - bar) / bar
        clean = (STD**2 * x / math.sqrt(bar) + s2 * MEAN) / (STD**2 + s2)
        noise_part = (x - math.sqrt(bar) * clean) / math.sqrt(1 - bar)
        x0 = (x - math.sqrt(1 - bar) * noise_part) / math.sqrt(bar)
        (gradient,) = torch.autograd.grad(torch.linalg.norm(y - GAINS * x0), x)
        x, x0 = x.detach(), x0.detach()
        mean = (
            beta * math.sqrt(bar_next) / (1 - bar) * x0
            + (1 - bar_next) * math.sqrt(bar / bar_next) / (1 - bar) * x
        )
        if bar_next < 1:
            variance = beta * (1 - bar_next) / (1 - bar)
            mean = mean + math.sqrt(variance) * normal(g, y.shape[1:])[None]
        x = mean - zeta * gradient
    return x


@pytest.mark.parametrize(("n", "zeta"), [(1000, 0.3), (50, 1.0), (1, 0.5)])
def test_the_official_vp_update_with_the_same_noise(n: int, zeta: float) -> None:
    y = measurement(rows=3)
    config = DPSConfig(n_steps=n, zeta=zeta, clamp=False)
    x = DPS(prior(), config)(y, Diagonal(), generator=gen(1)).x
    assert (x - official(y, spread(n), zeta, gen(1))).abs().max() < 1e-10


def test_bench() -> None:
    """Consistent with the data, spread wrong; 200 chains, so std is known to 5 %."""
    result = sample(DPS(prior(), DPSConfig(clamp=False)), batch=200)
    mean, std = moments(result)
    close(mean, (0.275, -0.106, 0.017, 0.699), 0.05)
    close(mean[[1, 3]], (-0.106, 0.699), 0.003)
    close(std, (0.16, 0.005, 0.30, 0.012), 0.04)
    close(std[[1, 3]], (0.005, 0.012), 0.005)
    assert result.nfe == result.vjps == DPSConfig().nfe == 1000


def test_without_guidance_it_is_the_ancestral_sampler() -> None:
    config = DPSConfig(n_steps=1000, zeta=0.0, clamp=False)
    result = sample(DPS(prior(), config), rows=3000)
    g = generators([0])[0]
    levels = [LEVELS[i] for i in spread(1000)]
    x = levels[0] * normal(g, (1, 3000, 4))
    for s, after in zip(levels, [*levels[1:], 0.0], strict=True):
        d = (STD**2 * x + s**2 * MEAN) / (STD**2 + s**2)
        x = d + after**2 / s**2 * (x - d)
        if after > 0:
            x = x + after * math.sqrt(s**2 - after**2) / s * normal(g, (1, 3000, 4))
    assert (result.x[0] - x).abs().max() < 1e-10
    mean, std = moments(result)
    close((mean - MEAN) / STD, (0.0, 0.0, 0.0, 0.0), 0.06)  # three standard errors
    close(std / STD, (1.0, 1.0, 1.0, 1.0), 0.04)


def test_a_vp_network_gives_the_same_trajectory() -> None:
    config = DPSConfig(n_steps=60, clamp=False)
    edm, vp = (sample(DPS(p, config), batch=2, rows=3).x for p in (prior(), vp_prior()))
    assert (edm - vp).abs().max() < 1e-9


@pytest.mark.parametrize("name", [*LINEAR, *NONLINEAR])
def test_it_serves_every_operator(name: str) -> None:
    operator, x = OPERATORS[name].example(gen(), batch=2)
    y = measure(operator, x, 0.05, generator=gen(1))
    runs = [
        DPS(GaussianPrior(0.0, 0.5, kind="edm"), DPSConfig(n_steps=40, zeta=zeta))(
            y, operator, generator=gen(2)
        )
        for zeta in (0.0, 0.3)
    ]
    without, guided = (norm(y - operator.A(run.x)) for run in runs)
    assert runs[1].x.shape == x.shape
    assert bool((guided < without).all())


def test_complex_residuals_have_one_norm_per_image() -> None:
    """One step by hand: D = x/(1 + s²/S²) has the Jacobian j, so g = −j Aᵀr/‖r‖."""
    operator, x = OPERATORS["mri"].example(gen(), batch=2)
    y = operator.A(x.double() * torch.tensor([1.0, 30.0]).reshape(2, 1, 1, 1))
    s, j = 0.7, 0.25 / (0.25 + 0.49)
    config = DPSConfig(zeta=0.4, clamp=False, sigmas=(s,))
    start = torch.zeros_like(x).double()
    result = DPS(GaussianPrior(0.0, 0.5, kind="edm"), config)(
        y, operator, generator=generators([3, 4]), x_init=start + 0.1
    )
    noise = torch.stack([normal(g, tuple(x.shape[1:])) for g in generators([3, 4])])
    d = j * (start + 0.1 + s * noise)
    r = y - operator.A(d)
    length = r.abs().square().flatten(1).sum(1).sqrt()
    g = -j * operator.A_adjoint(r) / expand(length, d)
    assert relative(result.x, d - 0.4 * math.sqrt(1 + s**2) * g) < 1e-10


def test_the_clamp_is_inside_the_derivative() -> None:
    """Where the estimate is saturated, guidance is zero."""
    y = torch.full((1, 1, 2, 4), -1.0).double()
    bright = GaussianPrior(torch.tensor([3.0, 3.0, -3.0, 0.0]), 0.01, kind="edm")
    operator = FunctionOperator(lambda x: x, (1, 2, 4))
    x = DPS(bright, DPSConfig(zeta=0.5, sigmas=(1.0,)))(y, operator, generator=gen()).x
    assert torch.equal(x[..., :3], torch.tensor([1.0, 1.0, -1.0]).expand(1, 1, 2, 3).double())
    assert bool((x[..., 3] != 0).all())


def test_levels_stay_within_what_the_prior_knows() -> None:
    seen: list[Step] = []
    operator = FunctionOperator(lambda x: x, (1, 4, 4))
    edm = GaussianPrior(0.0, 0.5, kind="edm")
    y = torch.zeros(1, 1, 4, 4)
    DPS(edm, DPSConfig(n_steps=30))(y, operator, generator=gen(), callback=seen.append)
    levels = [step.sigma for step in seen]
    assert 79.9 < levels[0] <= 80
    assert len(levels) == 30
    assert levels == sorted(levels, reverse=True)
    assert [step.k for step in seen] == list(range(1, 31))
    # a prior of images in [0, 1] quotes its levels there: 80 is 160 on our scale
    seen.clear()
    half = GaussianPrior(0.5, 0.25, kind="edm", value_range=(0.0, 1.0))
    DPS(half, DPSConfig(n_steps=30))(y, operator, generator=gen(), callback=seen.append)
    assert seen[0].sigma == pytest.approx(LEVELS[-1])
    config = DPSConfig(n_steps=7, sigmas=(3.0, 1.0, 0.1))
    assert DPS(edm, config)(y, operator, generator=gen()).nfe == config.nfe == 3


def test_refusals() -> None:
    y = measurement()
    flat = FunctionOperator(lambda x: x.detach(), (1, 1, 4))
    with pytest.raises(OperatorError, match="A of FunctionOperator is not differentiable"):
        DPS(prior(), DPSConfig.example())(y, flat, generator=gen())

    class Stiff(GaussianPrior):
        def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
            return super().__call__(x, sigma).detach()

    stiff = Stiff(MEAN, STD, kind="edm")
    with pytest.raises(ArgumentError, match="prior is not differentiable in x"):
        DPS(stiff, DPSConfig.example())(y, Diagonal(), generator=gen())
    with pytest.raises(ArgumentError, match="dps needs edm or vp"):
        DPS(prior("consistency"), DPSConfig())
    with pytest.raises(ArgumentError, match="generator is None"):
        DPS(prior(), DPSConfig.example())(y, Diagonal())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_steps": 0}, "n_steps must be a whole number, in .1, 1000., got 0"),
        ({"n_steps": 1001}, "n_steps"),
        ({"n_steps": 2.5}, "n_steps"),
        ({"zeta": -0.1}, "zeta must be finite and ≥ 0, got -0.1"),
        ({"zeta": math.nan}, "zeta"),
        ({"sigmas": ()}, "sigmas must be positive, finite and decreasing"),
        ({"sigmas": (1.0, 1.0)}, "sigmas"),
        ({"sigmas": (1.0, 0.0)}, "sigmas"),
        ({"sigmas": (math.inf, 1.0)}, "sigmas"),
        ({"sigmas": 3.0}, "expected None or a tuple of levels"),
    ],
)
def test_configurations_that_make_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DPSConfig(**values)  # type: ignore[arg-type]
