"""CM4IR against docs/methods/cm4ir.md."""

import math

import pytest
import torch
from torch import Tensor

from golden import gen
from pnpcm import ConsistencyModel
from pnpcm.core import Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import JPEG, GaussianBlur, Inpainting, MultiCoilMRI
from pnpcm.priors import GaussianPrior, TiledPrior
from pnpcm.rng import generators
from pnpcm.solvers.cm4ir import CM4IR, CM4IRConfig
from solvers.bench import (
    GAINS,
    NOISE_STD,
    Diagonal,
    Y,
    close,
    flowed,
    measurement,
    moments,
    prior,
    sample,
)

BENCH = CM4IRConfig.from_paper(150, 0.05, 1.0)


def free(config: CM4IRConfig, **changes: object) -> CM4IRConfig:
    """Without the clamp: the bench is unbounded."""
    return CM4IRConfig.from_dict(config.to_dict() | {"clamp": False} | changes)


class Constant:
    """A prior that always returns the same image and stores its arguments."""

    value_range, sigma_min, sigma_max, nfe_per_call = (-1.0, 1.0), 0.002, 80.0, 1

    def __init__(self, value: float) -> None:
        self.value, self.asked = value, list[tuple[Tensor, float]]()

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        self.asked.append((x, float(sigma)))
        return torch.full_like(x, self.value)


class Told:
    """A network that stores its noise inputs and images."""

    def __init__(self) -> None:
        self.times, self.inputs = list[float](), list[Tensor]()

    def __call__(self, x: Tensor, c_noise: Tensor) -> Tensor:
        self.times.append(math.exp(float(c_noise[0]) / 250))
        self.inputs.append(x)
        return torch.zeros_like(x)


def test_levels() -> None:
    """√(1 − ᾱ) from table index i_N + 1 on; documented examples."""
    assert BENCH.sigmas == pytest.approx((0.4654, 0.4212, 0.3691, 0.3051), abs=5e-5)
    firsts = {50: 0.176, 75: 0.253, 100: 0.327, 150: 0.465, 250: 0.694, 400: 0.899}
    for i_N, sigma in firsts.items():
        assert CM4IRConfig.from_paper(i_N, 0.2).sigmas[0] == pytest.approx(sigma, abs=6e-4)
    assert min(CM4IRConfig.from_paper(50, 0.7, n=8).sigmas) == pytest.approx(0.01)


def test_bench() -> None:
    mean, std = moments(sample(CM4IR(prior("consistency"), free(BENCH)), rows=4000))
    close(mean, (0.266, -0.104, 0.000, 0.641), 0.003)
    close(std, (0.029, 0.027, 0.023, 0.029), 0.002)


def test_it_is_the_published_loop() -> None:
    """The published loop line by line, with the same draws; noisy, loaded, clamped."""
    f, y, generator = prior("consistency"), measurement(), gen(5)
    reg, eta, t = 1.0 * NOISE_STD**2, 0.1, BENCH.sigmas

    def pinv(v: Tensor) -> Tensor:
        return GAINS / (GAINS**2 + reg) * v

    def draw() -> Tensor:
        return torch.randn((1, 1, 1, 4), generator=generator).double()

    x = pinv(y) + t[0] * draw()
    for k in range(4):
        d = flowed(x, t[k]).clamp(-1, 1)
        zm = (d - x) / t[k]
        if k == 3:
            break
        xb = d - pinv(GAINS * d - y)
        x = xb + t[k + 1] * (eta * draw() + math.sqrt(1 - eta**2) * zm)
    result = CM4IR(f, BENCH)(y, Diagonal(), generator=gen(5))
    assert torch.allclose(result.x, d, rtol=0, atol=1e-12)
    assert result.nfe == BENCH.nfe == 4


@pytest.mark.parametrize("eta", [0.0, 0.1, 1.0])
def test_the_second_iterate_goes_on_along_the_estimate(eta: float) -> None:
    """xb + t_2 (η z + √(1−η²) (c − x)/t_1): *minus* the predicted noise."""
    f, operator, y = Constant(0.3), Diagonal(), Y[None, None, None]
    config = CM4IRConfig(sigmas=(0.5, 0.4), eta=eta, noise_std=0.1, zeta=1.0)
    result = CM4IR(f, config)(y, operator, generator=gen(1))
    generator = gen(1)
    z1, z2 = (torch.randn((1, 1, 1, 4), generator=generator).double() for _ in range(2))
    gain = GAINS / (GAINS**2 + 0.01)
    (x, _), (second, _) = f.asked
    assert torch.allclose(x, gain * y + 0.5 * z1, rtol=0, atol=1e-14)
    xb = 0.3 - gain * (GAINS * 0.3 - y)
    mixed = eta * z2 + math.sqrt(1 - eta**2) * (0.3 - x) / 0.5
    assert torch.allclose(second, xb + 0.4 * mixed, rtol=0, atol=1e-14)
    assert torch.equal(result.x, torch.full_like(x, 0.3))  # noisy: d, not projected back


def test_noiseless_results_fit_y() -> None:
    y = (GAINS * torch.tensor([0.4, -0.3, 0.1, 0.9], dtype=torch.float64)).expand(2, 1, 3, 4)
    config = free(BENCH, noise_std=0.0)
    solver = CM4IR(prior("consistency"), config)
    x = solver(y, Diagonal(), generator=generators([0, 1])).x
    assert (GAINS * x - y).abs().max() < 1e-12
    identity = Diagonal(torch.ones(4, dtype=torch.float64))
    assert torch.allclose(solver(y, identity, generator=generators([0, 1])).x, y, atol=1e-14)


def test_zero_singular_values_without_loading_are_left_out() -> None:
    x = CM4IR(prior("consistency"), free(BENCH, zeta=0.0))(
        measurement(), Diagonal(), generator=gen()
    ).x
    assert bool(torch.isfinite(x).all())


def test_the_start_of_inpainting_is_the_median_fill() -> None:
    operator = Inpainting.random((8, 8), missing=0.5, generator=gen())
    y = operator.A(torch.rand((1, 3, 8, 8), generator=gen(1)))
    f = Constant(0.0)
    CM4IR(f, CM4IRConfig(sigmas=(0.5,)))(y, operator, generator=gen(2))
    noise = torch.randn((1, 3, 8, 8), generator=gen(2))
    assert torch.allclose(f.asked[0][0], operator.x_start(y) + 0.5 * noise)
    CM4IR(f, CM4IRConfig(sigmas=(0.5,)))(
        y, operator, generator=gen(2), x_init=torch.full_like(y, 0.1)
    )
    assert torch.allclose(f.asked[1][0], 0.1 + 0.5 * noise)


def test_loading_of_a_blur() -> None:
    """The start is Aᵀ(AAᵀ + ζ noise_std²)⁻¹ y."""
    operator, f = GaussianBlur((1, 12, 12)), Constant(0.0)
    y = torch.randn((1, 1, 12, 12), generator=gen()).double()
    CM4IR(f, CM4IRConfig(sigmas=(0.5,), zeta=3.0))(y, operator, generator=gen(1))
    start = f.asked[0][0] - 0.5 * torch.randn((1, 1, 12, 12), generator=gen(1)).double()
    left = operator.A_adjoint(operator.A(start)) + 0.03 * start
    assert torch.allclose(left, operator.A_adjoint(y), atol=1e-10)


# multi-coil MRI ----------------------------------------------------------------------------------
def coils() -> MultiCoilMRI:
    """More equations than unknowns: four coils, half of the columns."""
    maps = torch.randn((4, 8, 8), dtype=torch.complex128, generator=gen())
    return MultiCoilMRI(maps, torch.tensor([1, 0, 1, 0, 1, 0, 1, 0]))


def test_mri_guidance_is_the_pseudo_inverse_of_y() -> None:
    operator = coils()
    y = operator.A(torch.randn((2, 2, 8, 8), generator=gen(1)).double())
    y = y + 0.1 * operator.noise_like(y, generators([2, 3]))
    steps: list[Step] = []
    config = CM4IRConfig.from_paper(150, 0.2, noise_std=0.0)
    x = CM4IR(GaussianPrior(0.0, 0.5), config)(
        y, operator, generator=generators([0, 1]), callback=steps.append
    ).x
    units = torch.eye(64, dtype=torch.complex128).reshape(64, 8, 8)
    inverse = torch.linalg.pinv(operator.A(units).reshape(64, -1).T, rtol=1e-12)
    found = (inverse @ y.reshape(2, -1).T).T.reshape(2, 8, 8)
    direct = torch.stack([found.real, found.imag], 1)
    for image in (x, *(step.x for step in steps)):
        assert torch.allclose(image, direct, atol=1e-6)


def test_mri_with_noise_returns_the_estimate() -> None:
    operator = coils()
    y = operator.A(torch.randn((1, 2, 8, 8), generator=gen(1)).double())
    config = CM4IRConfig.from_paper(150, 0.2, 1.0)
    x = CM4IR(Constant(0.25), config)(y, operator, generator=gen()).x
    assert torch.equal(x, torch.full_like(x, 0.25))


# where delta goes --------------------------------------------------------------------------------
def test_delta_is_told_to_the_network_alone() -> None:
    network, config = Told(), CM4IRConfig(sigmas=(0.5, 0.4), deltas=(0.2, 0.0), clamp=False)
    CM4IR(ConsistencyModel(network), config)(measurement(), Diagonal(), generator=gen())
    assert network.times == pytest.approx([0.6, 0.4], rel=1e-6)
    start = GAINS.clamp_min(1e-9).reciprocal() * measurement() * (GAINS > 0)
    x = start + 0.5 * torch.randn((1, 1, 1, 4), generator=gen()).double()
    assert torch.allclose(network.inputs[0], x / math.sqrt(0.5**2 + 0.5**2))


def test_delta_in_scalings_is_another_level() -> None:
    network = Told()
    config = CM4IRConfig(sigmas=(0.5, 0.4), deltas=(0.2, 0.0), delta_in_scalings=True)
    CM4IR(ConsistencyModel(network), config)(measurement(), Diagonal(), generator=gen())
    assert network.times == pytest.approx([0.6, 0.4], rel=1e-6)
    start = GAINS.clamp_min(1e-9).reciprocal() * measurement() * (GAINS > 0)
    x = start + 0.5 * torch.randn((1, 1, 1, 4), generator=gen()).double()
    assert torch.allclose(network.inputs[0], x / math.sqrt(0.6**2 + 0.5**2))


def test_the_told_level_is_in_units_of_the_prior_and_within_its_range() -> None:
    network = Told()
    model = ConsistencyModel(network, value_range=(0.0, 1.0), sigma_max=0.22)
    config = CM4IRConfig(sigmas=(0.4, 0.4), deltas=(0.05, 0.5))
    CM4IR(model, config)(measurement(), Diagonal(), generator=gen())
    assert network.times == pytest.approx([0.21, 0.22], rel=1e-6)


def test_priors_without_the_keyword_say_so() -> None:
    config = CM4IRConfig(sigmas=(0.5, 0.4), deltas=(0.0, 0.1))
    tiled = TiledPrior(ConsistencyModel.example(), tile=9, halo=0)
    for foreign in (Constant(0.0), tiled):
        with pytest.raises(ArgumentError, match=r"time_sigma.*delta_in_scalings=True"):
            CM4IR(foreign, config)(measurement(), Diagonal(), generator=gen())
        CM4IR(foreign, free(config, delta_in_scalings=True))(
            measurement(), Diagonal(), generator=gen()
        )


# refusals ----------------------------------------------------------------------------------------
def test_refusals() -> None:
    solver = CM4IR(prior("consistency"), BENCH)
    with pytest.raises(OperatorError, match=r"pseudo-inverse.*not linear"):
        solver(torch.zeros(1, 3, 16, 16), JPEG(), generator=gen())
    with pytest.raises(ArgumentError, match="needs consistency"):
        CM4IR(prior("edm"), BENCH)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("sigmas", ()), ("sigmas", (0.1, 0.0)), ("deltas", (0.1,)), ("deltas", (0.0, -1.0))),
        *(("zeta", -1.0), ("eta", 1.1), ("eta", -0.1), ("noise_std", -0.1)),
    ],
)
def test_config_errors(field: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=field):
        CM4IRConfig(**({"sigmas": (0.5, 0.4)} | {field: value}))  # type: ignore[arg-type]


def test_deltas_decide_how_many_levels() -> None:
    config = CM4IRConfig.from_paper(250, 0.2, 0.0, (0.0, 0.3, 0.05))
    assert config.nfe == 3
    assert CM4IRConfig(sigmas=(0.5, 0.4)).deltas == (0.0, 0.0)
