"""PiGDM: the official VP update, the exact posterior, consistency with y, nonlinear operators."""

import math

import pytest
import torch
from torch import Tensor

from ddpm import ALPHA_BAR, LEVELS, skipping
from golden import LINEAR, gen, relative
from pnpcm import OPERATORS, GaussianPrior, measure
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.linalg import norm
from pnpcm.operators import JPEG, FunctionOperator, NonlinearBlur
from pnpcm.rng import generators
from pnpcm.solvers.pigdm import INVERSES, PiGDM, PiGDMConfig
from solvers.bench import (
    GAINS,
    MEAN,
    NOISE_STD,
    POSTERIOR_MEAN,
    POSTERIOR_STD,
    STD,
    Diagonal,
    Y,
    close,
    measurement,
    prior,
    sample,
    vp_prior,
)

SEEN = GAINS > 0
INVERSE = torch.where(SEEN, 1 / GAINS, 0)


def normal(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=generator).double()


@pytest.mark.parametrize(("variant", "weight"), [("official", 1.0), ("mcg", 0.3), ("ddim", 0.7)])
def test_the_official_vp_update_with_the_same_noise(variant: str, weight: float) -> None:
    """On VP variables, with the network that predicts noise and autograd through it."""
    y = measurement(rows=3)
    config = PiGDMConfig(n_steps=50, variant=variant, weight=weight)
    result = PiGDM(prior(), config)(y, Diagonal(), generator=gen(1)).x
    bars = [ALPHA_BAR[i] for i in skipping(50)]
    x = math.sqrt(bars[0]) * INVERSE * y
    x = x + math.sqrt(1 - bars[0]) * normal(gen(1), y.shape[1:])
    for bar, after in zip(bars, [*bars[1:], 1.0], strict=True):
        x = x.detach().requires_grad_()
        s2 = (1 - bar) / bar
        clean = (STD**2 * x / math.sqrt(bar) + s2 * MEAN) / (STD**2 + s2)
        e = (x - math.sqrt(bar) * clean) / math.sqrt(1 - bar)
        x0 = (x - math.sqrt(1 - bar) * e) / math.sqrt(bar)
        v = (INVERSE * y - INVERSE * GAINS * x0).detach()
        (g,) = torch.autograd.grad((v * x0).sum(), x)
        coefficient = {
            "official": math.sqrt(bar * after),
            "mcg": math.sqrt(bar),
            # DDIM from x0 + w g/√(1 + s²), whose noise estimate moves as well
            "ddim": math.sqrt(bar) * (math.sqrt(after) - math.sqrt((1 - after) / s2)),
        }[variant]
        x = math.sqrt(after) * x0 + math.sqrt(1 - after) * e + weight * coefficient * g
    assert (result - x).abs().max() < 1e-10


def law(solver: PiGDM) -> tuple[Tensor, Tensor]:
    """Exact mean and std on the bench: a chain is affine in its one draw, so two chains do."""
    first, second = sample(solver, rows=2).x[0, 0]
    z_first, z_second = normal(generators([0])[0], (2, 4))
    slope = (first - second) / (z_first - z_second)
    return first - slope * z_first, slope.abs()


def test_the_exact_variant_samples_the_posterior() -> None:
    """One run per coordinate, since r² is its own there."""
    runs = [
        PiGDMConfig(n_steps=1000, variant="posterior", noise_std=NOISE_STD, data_std=std)
        for std in STD.tolist()
    ]
    mean, std = torch.stack([torch.stack(law(PiGDM(prior(), c))) for c in runs]).unbind(1)
    close(mean.diag(), POSTERIOR_MEAN, 0.005)
    close(std.diag() / torch.tensor(POSTERIOR_STD), (1.0, 1.0, 1.0, 1.0), 0.02)
    close(mean.diag(), (0.271, -0.106, -0.001, 0.638))  # as documented, of 4000 chains
    close(std.diag(), (0.097, 0.156, 0.297, 0.307))


def test_bench_of_the_official_form() -> None:
    mean, std = law(PiGDM(prior(), PiGDMConfig()))
    close(mean, (0.272, -0.106, -0.001, 0.700), 0.005)
    close(std, (0.0, 0.0, 0.286, 0.0), 0.002)
    result = sample(PiGDM(prior(), PiGDMConfig()), rows=1000)
    assert (GAINS * result.x - Y).abs().max() < 1e-6
    assert result.nfe == result.vjps == PiGDMConfig().nfe == 100


@pytest.mark.parametrize("variant", ["ddim", "mcg"])
def test_other_variants_fit_noiseless_data_too(variant: str) -> None:
    result = sample(PiGDM(prior(), PiGDMConfig(variant=variant)), rows=100)
    assert (GAINS * result.x - Y).abs().max() < 1e-3


def test_without_guidance_it_is_ddim() -> None:
    solver = PiGDM(prior(), PiGDMConfig(weight=0.0))
    result = sample(solver, rows=5)
    levels = [LEVELS[i] for i in skipping(100)]
    x = INVERSE * Y + levels[0] * normal(generators([0])[0], (1, 5, 4))
    for s, after in zip(levels, [*levels[1:], 0.0], strict=True):
        d = (STD**2 * x + s**2 * MEAN) / (STD**2 + s**2)
        x = d + after * (x - d) / s
    assert (result.x[0] - x).abs().max() < 1e-10
    close(law(solver)[1] / STD, (1.0, 1.0, 1.0, 1.0), 0.06)  # 100 steps lose some spread


def test_the_identity_gives_back_y() -> None:
    x = measurement(rows=5)
    identity = Diagonal(torch.ones(4).double())
    result = PiGDM(prior(), PiGDMConfig())(x, identity, generator=gen()).x
    assert (result - x).abs().max() < 1e-6


@pytest.mark.parametrize("variant", ["official", "ddim", "mcg", "posterior"])
def test_noise_aware_guidance_by_hand(variant: str) -> None:
    """Two levels, everything diagonal."""
    (s, after), S, n = (2.0, 0.5), 0.7, 0.3
    config = PiGDMConfig(
        weight=0.9, variant=variant, noise_aware=True, noise_std=n, data_std=S, sigmas=(s, after)
    )
    x = Y + s * normal(gen(4), (1, 6, 4))
    for level, below in ((s, after), (after, 0.0)):
        r2 = level**2 * S**2 / (level**2 + S**2)
        d = (STD**2 * x + level**2 * MEAN) / (STD**2 + level**2)
        v = GAINS / (r2 * GAINS**2 + n**2) * (Y - GAINS * d)
        v = v * (level**2 if variant == "posterior" else r2)
        c = {"official": 1.0, "mcg": math.sqrt(1 + below**2)}.get(variant, 1 - below / level)
        g = STD**2 / (STD**2 + level**2) * v
        x = d + below * (x - d) / level + 0.9 * c * g
    start = Y.expand(1, 1, 6, 4)
    result = PiGDM(prior(), config)(
        measurement(rows=6), Diagonal(), generator=gen(4), x_init=start
    ).x
    assert (result[0] - x).abs().max() < 1e-12


def test_noise_aware_guidance_tends_to_the_official_one() -> None:
    plain, aware, loaded = (
        sample(PiGDM(prior(), config), rows=10).x
        for config in (
            PiGDMConfig(),
            PiGDMConfig(noise_aware=True, noise_std=1e-7),
            PiGDMConfig(noise_aware=True, noise_std=0.1),
        )
    )
    assert (plain - aware).abs().max() < 1e-6
    assert (plain - loaded).abs().max() > 1e-3


def test_the_start_is_loaded_where_guidance_is() -> None:
    """A⁺ alone would amplify noise before the first step; an uninformative prior returns x."""
    operator, x = OPERATORS["gaussian-blur"].example(gen())
    y = measure(operator, x, 0.05, generator=gen(1)).double()
    config = PiGDMConfig(noise_aware=True, noise_std=0.1, weight=0.0, sigmas=(0.5,))
    result = PiGDM(GaussianPrior(0.0, 1e5, kind="edm"), config)(y, operator, generator=gen(2)).x
    start = operator.A_dagger(y, 0.01 * (4 + 1))
    assert relative(result, start + 0.5 * normal(gen(2), tuple(x.shape[1:]))) < 1e-8


def test_a_vp_network_gives_the_same_trajectory() -> None:
    edm, vp = (sample(PiGDM(p, PiGDMConfig()), batch=2, rows=3).x for p in (prior(), vp_prior()))
    assert (edm - vp).abs().max() < 1e-9


@pytest.mark.parametrize("name", LINEAR)
def test_linear_operators(name: str) -> None:
    operator, x = OPERATORS[name].example(gen(), batch=2)
    y = measure(operator, x, 0.05, generator=gen(1))
    config = PiGDMConfig(n_steps=20, noise_aware=True, noise_std=0.1)
    edm = GaussianPrior(0.0, 0.5, kind="edm")
    result = PiGDM(edm, config)(y, operator, generator=gen(2))
    assert result.x.shape == x.shape
    noise = 0.1 * math.sqrt(operator.n_measured(y) / 2)
    assert bool((norm(y - operator.A(result.x)) < 1.1 * noise).all())


@pytest.mark.parametrize("inverse", INVERSES)
@pytest.mark.parametrize("operator", [JPEG(10), NonlinearBlur(length=5.0)], ids=["jpeg", "blur"])
def test_nonlinear_operators_by_hand(operator: JPEG | NonlinearBlur, inverse: str) -> None:
    x = 2 * torch.rand((1, 3, 16, 16), generator=gen(), dtype=torch.float64) - 1
    y = operator.acquire(x)

    def back(v: Tensor) -> Tensor:
        return operator.acquire(v) if inverse == "forward" else v

    config = PiGDMConfig(weight=0.8, inverse=inverse, sigmas=(1.0, 0.2))
    edm = GaussianPrior(0.0, 0.5, kind="edm")
    result = PiGDM(edm, config)(y, operator, generator=gen(5))
    x = back(y) + normal(gen(5), (3, 16, 16))
    for s, after in ((1.0, 0.2), (0.2, 0.0)):
        j = 0.25 / (0.25 + s**2)
        d = j * x
        x = d + after / s * (x - d) + 0.8 * j * (back(y) - back(operator.acquire(d)))
    assert relative(result.x, x) < 1e-10
    assert (result.nfe, result.vjps) == (2, 2)


class Photo:
    """A JPEG for images in [0, 1]."""

    linear = False
    jpeg = JPEG(10)

    def A(self, x: Tensor) -> Tensor:
        return (self.jpeg.A(2 * x - 1) + 1) / 2

    def acquire(self, x: Tensor) -> Tensor:
        return (self.jpeg.acquire(2 * x - 1) + 1) / 2

    def approx_inverse(self, y: Tensor) -> Tensor:
        return y

    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        return tuple(y.shape)


@pytest.mark.parametrize("inverse", INVERSES)
def test_a_nonlinear_operator_in_another_range(inverse: str) -> None:
    x = 2 * torch.rand((1, 3, 16, 16), generator=gen(), dtype=torch.float64) - 1
    y = Photo.jpeg.acquire(x)
    solver = PiGDM(
        GaussianPrior(0.0, 0.5, kind="edm"), PiGDMConfig(inverse=inverse, sigmas=(0.3, 0.1))
    )
    usual = solver(y, Photo.jpeg, generator=gen(1)).x
    other = solver((y + 1) / 2, Photo(), generator=gen(1), value_range=(0.0, 1.0)).x
    # a codec may round a tie differently; almost all pixels agree to rounding
    assert ((2 * other - 1 - usual).abs() < 1e-9).double().mean() > 0.9


def test_refusals() -> None:
    solver, aware = PiGDM(prior(), PiGDMConfig()), PiGDM(prior(), PiGDMConfig(noise_aware=True))
    operator, x = OPERATORS["phase-retrieval"].example(gen())
    with pytest.raises(OperatorError, match=r"needs approx_inverse.*use PnPCM, DPS or DPnP"):
        solver(operator.A(x), operator, generator=gen())
    for refused in (aware, PiGDM(prior(), PiGDMConfig(variant="posterior"))):
        with pytest.raises(OperatorError, match="noise-aware guidance, and this operator is not"):
            refused(torch.zeros(1, 3, 16, 16), JPEG(10), generator=gen())
    function = FunctionOperator(torch.tanh, (1, 1, 4))
    assert "approx_inverse" in (solver.refusal(function) or "")
    assert solver.refusal(Diagonal()) is aware.refusal(Diagonal()) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_steps": 0}, "n_steps"),
        ({"weight": -1.0}, "weight must be finite and ≥ 0, got -1.0"),
        ({"variant": "awd"}, "variant must be one of official, ddim, mcg, posterior, got 'awd'"),
        ({"noise_std": math.inf}, "noise_std"),
        ({"data_std": 0.0}, "data_std must be finite and > 0, got 0.0"),
        ({"inverse": "none"}, "inverse must be one of own, forward"),
        ({"sigmas": (0.1, 0.2)}, "sigmas"),
    ],
)
def test_configurations_that_make_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        PiGDMConfig(**values)  # type: ignore[arg-type]
