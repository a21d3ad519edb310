"""CM, iterative, against docs/methods/cm-iterative.md."""

import math

import pytest
import torch
from torch import Tensor

from ddpm import karras
from golden import gen
from pnpcm.core import Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import JPEG, Inpainting
from pnpcm.priors import GaussianPrior
from pnpcm.solvers.cm_iterative import CMIterative, CMIterativeConfig
from solvers.bench import GAINS, MEAN, STD, Diagonal, close, flowed, moments, prior, sample

TRUTH = torch.tensor([0.4, -0.3, 0.1, 0.9], dtype=torch.float64)


class Constant:
    """A prior that always returns the same image and stores its arguments."""

    value_range, sigma_min, sigma_max, nfe_per_call = (-1.0, 1.0), 0.002, 80.0, 1

    def __init__(self, value: float) -> None:
        self.value, self.asked = value, list[tuple[Tensor, float]]()

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        self.asked.append((x, float(sigma)))
        return torch.full_like(x, self.value)


def free(**options: object) -> CMIterativeConfig:
    """Without the clamp: the bench is unbounded."""
    return CMIterativeConfig(clamp=False, **options)  # type: ignore[arg-type]


def test_measured_coordinates_are_y_and_the_others_the_prior() -> None:
    y = (GAINS * TRUTH).expand(1, 1, 20_000, 4)
    result = CMIterative(prior("consistency"), free(n_steps=39))(y, Diagonal(), generator=gen())
    measured = GAINS > 0
    assert (result.x - TRUTH)[..., measured].abs().max() < 1e-9
    mean, std = moments(result)
    assert float(mean[2]) == pytest.approx(float(MEAN[2]), abs=0.01)
    assert float(std[2]) == pytest.approx(float(STD[2]), abs=0.005)


def test_without_measurement_it_samples_the_prior() -> None:
    nothing = Diagonal(torch.zeros(4, dtype=torch.float64))
    y = torch.zeros(1, 1, 20_000, 4, dtype=torch.float64)
    mean, std = moments(CMIterative(prior("consistency"), free())(y, nothing, generator=gen()))
    close(mean, tuple(MEAN.tolist()), 0.02)
    close(std, tuple(STD.tolist()), 0.015)


def test_noise_of_y_stays_in_the_result() -> None:
    """On the bench A x = y, noise included: no posterior, and no fix by default."""
    result = sample(CMIterative(prior("consistency"), free()), rows=2000)
    mean, std = moments(result)
    close(mean[GAINS > 0], (0.27216, -0.06347 / 0.6, 0.20988 / 0.3), 1e-9)
    assert std[GAINS > 0].max() < 1e-9


def test_it_is_the_published_loop() -> None:
    """The published loop line by line, with the same draws."""
    f, operator, y = prior("consistency"), Diagonal(), (GAINS * TRUTH)[None, None, None] + 0.05
    steps, generator = 9, gen(3)

    def level(i: int) -> float:
        a, b = 80 ** (1 / 7), 0.002 ** (1 / 7)
        return (a + i / (steps - 1) * (b - a)) ** 7

    def draw() -> Tensor:
        return torch.randn((1, 1, 1, 4), generator=generator).double()

    x = 80 * draw()
    for i in range(steps - 1):
        x0 = flowed(x, level(i)).clamp(-1, 1)
        x0 = torch.where(GAINS > 0, y / GAINS.clamp_min(1e-9), x0)
        x = x0 + math.sqrt(max(level(i + 1) ** 2 - 0.002**2, 0)) * draw()
    solver = CMIterative(f, CMIterativeConfig(n_steps=steps - 1))
    assert torch.allclose(solver(y, operator, generator=gen(3)).x, x, rtol=0, atol=1e-8)


def test_the_clamp_precedes_the_replacement() -> None:
    y = torch.full((1, 1, 2, 2), 3.0)
    operator = Inpainting(torch.tensor([[1, 1], [0, 0]]))
    x = CMIterative(Constant(2.0), CMIterativeConfig(n_steps=3))(
        y * operator.mask[0], operator, generator=gen()
    ).x
    assert x.flatten().tolist() == [3, 3, 1, 1]


def test_injected_noise_and_start() -> None:
    f, y = Constant(0.5), torch.zeros(1, 1, 64, 64, dtype=torch.float64)
    nothing = Diagonal(torch.zeros(64, dtype=torch.float64))
    CMIterative(f, free(sigmas=(80.0, 3.0, 0.003)))(y, nothing, generator=gen())
    generator = gen()
    z = [torch.randn((1, 1, 64, 64), generator=generator).double() for _ in range(3)]
    (first, _), (second, _), (third, _) = f.asked
    assert torch.equal(first, 80 * z[0])
    assert torch.allclose(second - 0.5, math.sqrt(3**2 - 0.002**2) * z[1])
    assert torch.allclose(third - 0.5, math.sqrt(0.003**2 - 0.002**2) * z[2])


@pytest.mark.parametrize("A_scale", [1.0, 0.5])
def test_identity_gives_y_back(A_scale: float) -> None:
    operator = Diagonal(torch.full((8,), A_scale, dtype=torch.float64))
    y = torch.randn((1, 1, 8, 8), generator=gen()).double()
    x = CMIterative(Constant(0.0), CMIterativeConfig(n_steps=3))(y, operator, generator=gen()).x
    assert torch.allclose(x, y / A_scale)


def test_loading_and_final_denoising_are_options() -> None:
    operator = Diagonal(torch.full((8,), 0.5, dtype=torch.float64))
    y = torch.randn((1, 1, 8, 8), generator=gen()).double()
    config = CMIterativeConfig(n_steps=2, reg=0.1)
    x = CMIterative(Constant(0.2), config)(y, operator, generator=gen()).x
    assert torch.allclose(x, 0.2 + 0.5 / (0.25 + 0.1) * (y - 0.5 * 0.2))
    f = prior("consistency", torch.tensor(0.1), torch.tensor(0.4))
    config = free(n_steps=2, final_denoise=True, noise_std=0.3)
    x = CMIterative(f, config)(y, operator, generator=gen()).x
    expected = 0.1 + (y / 0.5 - 0.1) * math.sqrt((0.16 + 0.002**2) / (0.16 + 0.09))
    assert torch.allclose(x, expected)


@pytest.mark.parametrize(
    ("config", "nfe"),
    [
        (CMIterativeConfig(), 40),
        (CMIterativeConfig(n_steps=39), 39),
        (CMIterativeConfig(final_denoise=True), 41),
        (CMIterativeConfig(sigmas=(80.0, 4.0, 0.5)), 3),
    ],
)
def test_evaluations(config: CMIterativeConfig, nfe: int) -> None:
    f = Constant(0.0)
    result = CMIterative(f, config)(torch.zeros(1, 1, 4, 4), Diagonal(), generator=gen())
    assert config.nfe == nfe == len(f.asked) == result.nfe


def test_levels() -> None:
    steps: list[Step] = []
    solver = CMIterative(Constant(0.0), CMIterativeConfig(n_steps=39))
    solver(torch.zeros(1, 1, 4, 4), Diagonal(), generator=gen(), callback=steps.append)
    assert [step.k for step in steps] == list(range(1, 40))
    listed = {0: 80.0, 5: 38.3, 10: 16.8, 17: 4.37, 26: 0.47, 35: 0.0175}
    for i, sigma in listed.items():
        assert steps[i].sigma == pytest.approx(sigma, rel=6e-3)


def test_a_prior_that_does_not_reach_80_starts_at_its_own_level() -> None:
    asked: list[Step] = []
    f = GaussianPrior(0.0, 0.5, sigma_max=40.0)
    solver = CMIterative(f, CMIterativeConfig(n_steps=5))
    solver(torch.zeros(1, 1, 4, 4), Diagonal(), generator=gen(), callback=asked.append)
    assert [s.sigma for s in asked] == pytest.approx(karras(6, 0.002, 40.0)[:-1])


def test_a_foreign_operator_needs_only_an_adjoint() -> None:
    class Half:
        def A(self, x: Tensor) -> Tensor:
            return x[..., ::2] * 0.7

        def A_adjoint(self, y: Tensor) -> Tensor:
            x = torch.zeros(*y.shape[:-1], 2 * y.shape[-1], dtype=y.dtype)
            x[..., ::2] = 0.7 * y
            return x

    y = torch.randn((2, 1, 4, 3), generator=gen()).double()
    x = CMIterative(prior("consistency", torch.tensor(0.0)[None], torch.tensor(0.5)), free())(
        y, Half(), generator=gen()
    ).x
    assert torch.allclose(Half().A(x), y, atol=1e-9)


def test_refusals() -> None:
    solver = CMIterative(prior("consistency"), CMIterativeConfig())
    with pytest.raises(OperatorError, match=r"pseudo-inverse.*not linear"):
        solver(torch.zeros(1, 3, 16, 16), JPEG(), generator=gen())
    with pytest.raises(ArgumentError, match="needs consistency"):
        CMIterative(prior("edm"), CMIterativeConfig())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("n_steps", 0), ("n_steps", 2.5), ("reg", -1.0), ("noise_std", math.nan)),
        *(("sigma_max", 0.001), ("sigmas", ()), ("sigmas", (80.0, 0.001))),
    ],
)
def test_config_errors(field: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=field):
        CMIterativeConfig(**{field: value})  # type: ignore[arg-type]
