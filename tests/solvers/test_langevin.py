"""Langevin likelihood draws: the law of the exact draw, one step size per image, no graph."""

import pytest
import torch
from torch import Tensor

from pnpcm.errors import OperatorError
from pnpcm.rng import generators
from pnpcm.solvers.base import Run
from pnpcm.solvers.split_gibbs import coupled_langevin, plain_langevin
from solvers.bench import GAINS, NOISE_STD, Diagonal, Y, close, measurement

ETA = 0.3
V = torch.tensor([0.5, -0.4, 0.2, 0.1], dtype=torch.float64)


class Cubic:
    """A(x) = x + x³, a nonlinear operator with nothing but A."""

    def A(self, x: Tensor) -> Tensor:
        return x + x**3


def a_run(y: Tensor, operator: object, *, seed: int = 0) -> Run:
    seeds = generators(range(seed, seed + len(y)))
    return Run(y, operator, None, seeds, None, None, (-1.0, 1.0))  # type: ignore[arg-type]


def exact_law() -> tuple[tuple[float, ...], tuple[float, ...]]:
    precision = GAINS**2 / NOISE_STD**2 + 1 / ETA**2
    mean = (GAINS * Y / NOISE_STD**2 + V / ETA**2) / precision
    return tuple(mean.tolist()), tuple((1 / precision.sqrt()).tolist())


@pytest.mark.parametrize("kind", ["coupled", "plain"])
def test_small_steps_have_the_exact_law(kind: str) -> None:
    rows = 5000
    run = a_run(measurement(1, rows), Diagonal())
    x = V.expand(1, 1, rows, 4).clone()
    if kind == "coupled":  # h = 5e-4 or so
        z = coupled_langevin(run, x, NOISE_STD, ETA, n_steps=600, scale=3.0)
    else:
        z = plain_langevin(run, x, NOISE_STD, ETA, n_steps=600, rate=5e-4)
    mean, std = exact_law()
    close(z.reshape(-1, 4).mean(0), mean, 0.012)
    close(z.reshape(-1, 4).std(0), std, 0.012)


def test_without_likelihood_the_coupling_is_exact_for_any_step() -> None:
    run = a_run(torch.zeros(1, 1, 5000, 4, dtype=torch.float64), Diagonal(torch.zeros(4)))
    x = V.expand(1, 1, 5000, 4).clone()
    z = coupled_langevin(run, x, NOISE_STD, ETA, n_steps=3, scale=1e5)
    close(z.reshape(-1, 4).mean(0), tuple(V.tolist()), 0.015)
    close(z.reshape(-1, 4).std(0), (ETA,) * 4, 0.01)


@pytest.mark.parametrize("kind", ["coupled", "plain"])
def test_one_step_reads_as_the_equation(kind: str) -> None:
    y, x = torch.full((1, 1, 1, 2), 0.7), torch.tensor([[[[0.3, -0.2]]]])
    a, slope = x + x**3, 1 + 3 * x**2
    n = a_run(y, Cubic()).noise(x)
    gradient = slope * (a - y) / NOISE_STD**2
    if kind == "coupled":
        h = 0.6 * NOISE_STD**2 / (50 + (y - a).norm())
        expected = x - ETA**2 * (1 - torch.exp(-h / ETA**2)) * gradient
        expected = expected + ETA * torch.sqrt(1 - torch.exp(-2 * h / ETA**2)) * n
        z = coupled_langevin(a_run(y, Cubic()), x, NOISE_STD, ETA, n_steps=1, scale=0.6)
    else:
        expected = x - 1e-4 * gradient + 2e-4**0.5 * n
        z = plain_langevin(a_run(y, Cubic()), x, NOISE_STD, ETA, n_steps=1, rate=1e-4)
    torch.testing.assert_close(z, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["coupled", "plain"])
def test_images_do_not_meet_and_keep_no_graph(kind: str) -> None:
    y = torch.stack([torch.full((1, 3, 3), 0.1), torch.full((1, 3, 3), 4.0)]).double()
    x = torch.zeros_like(y)

    def draw(run: Run, x: Tensor) -> Tensor:
        if kind == "coupled":
            return coupled_langevin(run, x, NOISE_STD, ETA, n_steps=20, scale=0.6)
        return plain_langevin(run, x, NOISE_STD, ETA, n_steps=20, rate=1e-6)

    both = draw(a_run(y, Cubic()), x)
    assert not both.requires_grad
    assert not x.requires_grad
    for i in range(2):
        alone = draw(a_run(y[i : i + 1], Cubic(), seed=i), x[i : i + 1])
        torch.testing.assert_close(both[i : i + 1], alone, rtol=1e-12, atol=1e-12)


def test_a_broken_graph_is_refused() -> None:
    class Cut:
        def A(self, x: Tensor) -> Tensor:
            return x.detach()

    y = torch.zeros(1, 1, 2, 2)
    with pytest.raises(OperatorError, match="not differentiable"):
        plain_langevin(a_run(y, Cut()), y, NOISE_STD, ETA, n_steps=1, rate=1e-4)
