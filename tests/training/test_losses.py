"""Losses against numbers computed by hand, and their schedules against docs/method.md §11."""

import math

import pytest
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.metrics.lpips import available
from pnpcm.names import METHOD_NAMES
from pnpcm.rng import generators
from pnpcm.schedules import karras
from pnpcm.training.losses import (
    LOSSES,
    ConsistencyLoss,
    DistillLoss,
    ECTLoss,
    EDMLoss,
    ct_schedule,
    heun_step,
    log_normal,
)
from pnpcm.training.step import DISTANCES, Batch, Nets, neighbours

KARRAS_40 = (
    *(80, 69.45095, 60.11739, 51.88032, 44.63020, 38.26646, 32.69689, 27.83711, 23.61009),
    *(19.94563, 16.77989, 14.05498, 11.71851, 9.72320, 8.02648, 6.59014, 5.38000, 4.36556),
    *(3.51970, 2.81839, 2.24044, 1.76720, 1.38237, 1.07172, 0.82294, 0.62540, 0.46998, 0.34892),
    *(0.25563, 0.18459, 0.13120, 0.09163, 0.06276, 0.04207, 0.02753, 0.01752, 0.01081, 0.00644),
    *(0.00368, 0.002),
)


def batch(n: int = 4, step: int = 0, steps: int = 100) -> Batch:
    g = torch.Generator().manual_seed(0)
    return Batch(torch.rand((n, 1, 4, 4), generator=g) - 0.5, generators(range(n)), step, steps)


def test_torch_free_names_are_those_of_the_table() -> None:
    assert tuple(LOSSES) == METHOD_NAMES


def test_karras_grid_of_the_reference() -> None:
    assert karras(40) == pytest.approx(KARRAS_40, abs=5.1e-6)


@pytest.mark.parametrize(
    ("fraction", "points", "rate"),
    [
        (0, 2, 0.902500),
        (0.001, 6, 0.979692),
        (0.01, 16, 0.993184),
        (0.1, 48, 0.997820),
        (0.25, 76, 0.998633),
        (0.5, 107, 0.999033),
        (1, 151, 0.999316),
    ],
)
def test_ct_schedule_of_the_reference(fraction: float, points: int, rate: float) -> None:
    n, ema = ct_schedule(fraction, 2, 150, 0.95)
    assert n == points
    assert ema == pytest.approx(rate, abs=5.1e-7)


def test_edm_is_the_weighted_square() -> None:
    """A network that returns 0 pays (1/σ² + 1/σ_d²) mean x²; noise and level from the seeds."""
    b = batch()
    seen: list[Tensor] = []

    def zero(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append(sigma)
        return torch.zeros_like(x)

    losses = EDMLoss(P_mean=-1.0, P_std=0.5)(Nets(zero, sigma_data=0.4), b)
    for i, x in enumerate(b.x):
        g = torch.Generator().manual_seed(i)
        torch.rand((), generator=g)
        sigma = math.exp(-1.0 + 0.5 * float(torch.randn((), generator=g)))
        assert float(seen[0][i]) == pytest.approx(sigma, rel=1e-6)
        expected = (1 / sigma**2 + 1 / 0.4**2) * float(x.square().mean())
        assert float(losses[i]) == pytest.approx(expected, rel=1e-5)


def test_the_median_level_of_edm_is_that_of_the_reference() -> None:
    u, g = torch.rand(2, 20001, generator=torch.Generator().manual_seed(0))
    normal = torch.erfinv(2 * g - 1) * math.sqrt(2)
    assert float(log_normal(normal, u, -1.2, 1.2, 0.0, (2, 80)).median()) == pytest.approx(
        0.301, abs=0.01
    )


def test_a_wide_part_of_the_batch_is_log_uniform() -> None:
    u = (torch.arange(10000) + 0.5) / 10000
    sigma = log_normal(torch.zeros_like(u), u, 0.0, 1.0, 0.1, (2.0, 80.0))
    wide = sigma[u < 0.1]
    assert len(wide) == 1000
    assert float(wide.min()) == pytest.approx(2.0, rel=1e-2)
    assert float(wide.max()) == pytest.approx(80.0, rel=1e-2)
    assert float(wide.log().mean()) == pytest.approx(math.log(2 * 80) / 2, rel=1e-2)
    assert bool((sigma[u >= 0.1] == 1).all())


def test_heun_step_is_second_order_on_a_gaussian() -> None:
    """dx/dσ = (x − D)/σ has the solution x √((s² + σ²)/(s² + t²)) for N(0, s²) data."""
    s2 = 0.25
    x = torch.ones(1, 1, 1, 1, dtype=torch.float64)

    def error(h: float) -> float:
        t, t2 = (torch.tensor([v], dtype=torch.float64) for v in (1.0, 1.0 - h))
        step = heun_step(lambda v, s: v * s2 / (s2 + s.view(-1, 1, 1, 1) ** 2), x, t, t2)
        return abs(float(step) - math.sqrt((s2 + (1 - h) ** 2) / (s2 + 1)))

    assert error(0.1) / error(0.05) == pytest.approx(8, rel=0.1)  # local error of order 3


@pytest.mark.parametrize("method", ["distill", "consistency", "ect"])
def test_consistent_networks_have_no_loss(method: str) -> None:
    """With point-mass data the exact consistency function is the point: every loss is zero."""
    b = batch()
    point = b.x[:1]
    same = Batch(point.expand_as(b.x), b.generators, 50, 100)

    def answer(x: Tensor, sigma: Tensor) -> Tensor:
        return point.expand_as(x)

    loss = LOSSES[method]()
    assert float(loss(Nets(answer, answer, answer), same).abs().max()) == 0


def test_distillation_compares_neighbours_of_the_grid() -> None:
    levels: dict[str, Tensor] = {}

    def student(x: Tensor, sigma: Tensor) -> Tensor:
        levels["t"] = sigma
        return x

    def target(x: Tensor, sigma: Tensor) -> Tensor:
        levels["t2"] = sigma
        return x

    losses = DistillLoss(points=40)(
        Nets(student, target, lambda x, s: torch.zeros_like(x)), batch()
    )
    for t, t2 in zip(levels["t"].tolist(), levels["t2"].tolist(), strict=True):
        i = min(range(40), key=lambda k: abs(KARRAS_40[k] - t))
        assert t == pytest.approx(KARRAS_40[i], rel=1e-3)
        assert t2 == pytest.approx(KARRAS_40[i + 1], rel=1e-3)
    assert bool((losses > 0).all())
    assert DistillLoss().target_rate(7, 10) == 0.95


def test_every_neighbour_is_drawn_equally_often() -> None:
    u = (torch.arange(3900) + 0.5) / 3900
    t, t2 = neighbours(u, torch.tensor(KARRAS_40))
    values, counts = t.unique(return_counts=True)
    assert len(values) == 39
    assert counts.tolist() == [100] * 39
    assert bool((t2 < t).all())


def test_consistency_training_uses_the_same_noise() -> None:
    """(x_t − x)/t and (x_t2 − x)/t2 are the same noise."""
    b = batch(step=100)
    seen = []

    def spy(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append((x - b.x) / sigma.view(-1, 1, 1, 1))
        return x

    ConsistencyLoss()(Nets(spy, spy), b)
    torch.testing.assert_close(seen[0], seen[1], rtol=1e-3, atol=1e-3)


def test_ect_levels_close_in_stage_by_stage() -> None:
    """r = t (1 − n(t)/q^a), n = 1 + 8 sigmoid(−t), never below σ_min."""
    t = torch.tensor([0.01, 0.5, 3.0, 80.0], dtype=torch.float64)
    loss = ECTLoss(q=2.0, stage=100)
    for step, power in ((0, 2), (99, 2), (100, 4), (350, 16), (900, 1024)):
        for level, r in zip(t.tolist(), loss.lower(t, step).tolist(), strict=True):
            n = 1 + 8 / (1 + math.exp(level))
            assert r == pytest.approx(max(0.002, level * (1 - n / power)), rel=1e-12)


def test_ect_weights_by_the_gap() -> None:
    """A network that returns its input pays mean((t − r)² n²)/(t − r) = (t − r) mean n²."""
    b = batch()
    levels = []

    def identity(x: Tensor, sigma: Tensor) -> Tensor:
        levels.append(sigma)
        return x

    losses = ECTLoss(P_mean=0.0, P_std=0.3, distance="l2")(Nets(identity), b)
    r, t = levels
    for i in range(len(b.x)):
        g = torch.Generator().manual_seed(i)
        torch.rand((), generator=g), torch.randn((), generator=g)
        n = torch.randn(b.x.shape[1:], generator=g)
        expected = float((t[i] - r[i]) * n.square().mean())
        assert float(losses[i]) == pytest.approx(expected, rel=1e-3)


def test_the_anchor_is_the_denoising_loss_of_the_same_output() -> None:
    """A network that returns its input pays (1/t² + 1/σ_data²) t² mean n² = (1 + 4 t²) mean n²."""
    b, levels = batch(), []

    def identity(x: Tensor, sigma: Tensor) -> Tensor:
        levels.append(sigma)
        return x

    plain = ECTLoss(P_mean=0.0, P_std=0.3)(Nets(identity), b)
    t = levels[1]
    anchored = ECTLoss(P_mean=0.0, P_std=0.3, anchor=0.7)(Nets(identity, sigma_data=0.5), batch())
    for i in range(len(b.x)):
        g = torch.Generator().manual_seed(i)
        torch.rand((), generator=g), torch.randn((), generator=g)
        n = torch.randn(b.x.shape[1:], generator=g)
        expected = 0.7 * float((1 + 4 * t[i] ** 2) * n.square().mean())
        assert float(anchored[i] - plain[i]) == pytest.approx(expected, rel=1e-3)
    assert len(levels) == 4  # the student is evaluated once
    with pytest.raises(ArgumentError, match="anchor"):
        ECTLoss(anchor=-1.0)


def test_distances_of_known_images() -> None:
    a, b = torch.zeros(1, 1, 2, 2), torch.tensor([[[[3.0, 0], [0, 4]]]])
    assert float(DISTANCES["l2"](a, b)) == pytest.approx(25 / 4)
    assert float(DISTANCES["l1"](a, b)) == pytest.approx(7 / 4)
    c = 0.00054 * 2
    assert float(DISTANCES["huber"](a, b)) == pytest.approx(math.sqrt(25 + c**2) - c)
    assert float(DISTANCES["huber"](a, a)) == 0


@pytest.mark.parametrize("name", ["l2", "l1", "huber"])
def test_distances_are_one_number_per_image(name: str) -> None:
    a, b = torch.randn(2, 3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    whole = DISTANCES[name](a, b)
    singles = torch.cat([DISTANCES[name](a[i : i + 1], b[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(whole, singles)


def test_lpips_l2_adds_the_mean_square() -> None:
    if not available():
        pytest.skip("the weights of LPIPS are not installed")
    a = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    b = a + torch.tensor([0.1, 0.3])[:, None, None, None]  # mean squares 0.01 and 0.09
    squares = DISTANCES["lpips-l2"](a, b) - DISTANCES["lpips-native"](a, b)
    torch.testing.assert_close(squares, torch.tensor([0.01, 0.09]), atol=1e-5, rtol=0)


def test_gradients_stop_at_the_target() -> None:
    weight = torch.ones((), requires_grad=True)
    calls = []

    def network(x: Tensor, sigma: Tensor) -> Tensor:
        out = weight * x
        calls.append(out.requires_grad)
        return out

    ECTLoss()(Nets(network), batch()).mean().backward()
    assert calls == [False, True]
    assert weight.grad is not None
