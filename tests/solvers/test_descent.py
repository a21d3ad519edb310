"""Inner optimisers: the scalar model problem of docs/method.md §12.4, and per-image decisions."""

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm import GradientStep
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.linalg import cg, inner, norm, power_norm
from pnpcm.operators import FunctionOperator, GaussianBlur
from pnpcm.solvers.data_steps import Objective, gradient_descent, lbfgs


def scalar(curvature: float) -> tuple[Objective, list[float]]:
    """L = λz²/2 of one pixel, and the list of points at which it was evaluated."""
    points: list[float] = []

    def objective(z: Tensor) -> tuple[Tensor, Tensor]:
        points.append(float(z))
        return 0.5 * curvature * z.flatten(1).square().sum(1), curvature * z

    return objective, points


JPEG = {"lr": 5e-4, "n_iter": 100, "lr_decay": 0.8}
DEBLUR = {"lr": 0.05, "n_iter": 100, "lr_decay": 0.8, "adam": True}
PHASE = {"lr": 0.4, "n_iter": 1000, "lr_decay": 0.95}


@pytest.mark.parametrize(
    ("options", "curvature", "accumulated", "cleared"),
    [
        (JPEG, 1.079, -0.1212, 0.9576),
        (JPEG, 3.579, -0.2221, 0.8662),
        (DEBLUR, 1.127, -0.2510, -0.0478),
        (PHASE, 1.0067, -0.1193, 0.0),
        (PHASE, 0.0067, 0.2512, 0.0781),
        (PHASE, 0.474, 0.1392, 0.0),
    ],
)
def test_scalar_model_problem(
    options: dict[str, float], curvature: float, accumulated: float, cleared: float
) -> None:
    one = torch.ones((1, 1, 1, 1), dtype=torch.float64)
    for accumulate, expected in ((True, accumulated), (False, cleared)):
        objective, _ = scalar(curvature)
        z = gradient_descent(objective, one, accumulate=accumulate, decay_first=True, **options)  # type: ignore[arg-type]
        # λ is given to four digits, hence the relative part
        assert float(z) == pytest.approx(expected, abs=3e-3)


def test_accumulated_descent_passes_the_minimum_at_the_golden_step() -> None:
    one = torch.ones((1, 1, 1, 1), dtype=torch.float64)
    for curvature, step in ((1.079, 75), (3.579, 41)):
        objective, points = scalar(curvature)
        gradient_descent(objective, one, accumulate=True, decay_first=True, **JPEG)  # type: ignore[arg-type]
        crossing = next(j for j, z in enumerate(points) if z < 0)
        assert abs(crossing - step) <= 1


def banana(z: Tensor) -> tuple[Tensor, Tensor]:
    """Rosenbrock's valley, one per image, shifted by the image's own first value."""
    with torch.enable_grad():
        leaf = z.detach().requires_grad_()
        a, b = leaf[:, 0, 0, 0], leaf[:, 0, 0, 1]
        loss = (1 - a) ** 2 + 100 * (b - a**2) ** 2
        (g,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), g


def test_lbfgs_solves_rosenbrock_for_each_image() -> None:
    z = torch.tensor([[-1.2, 1.0], [2.0, 3.0], [0.0, -1.0]]).double().reshape(3, 1, 1, 2)
    out = lbfgs(banana, z, lr=1e-3, n_iter=80)
    assert float((out - 1).abs().max()) < 1e-5
    for i in range(3):
        alone = lbfgs(banana, z[i : i + 1], lr=1e-3, n_iter=80)
        assert torch.allclose(out[i : i + 1], alone, atol=1e-9)


def test_lbfgs_finds_the_scale_of_its_first_step() -> None:
    """On L = λz²/2 from 1 the step 1 leads to 1 − λ, the parabola through both to its minimum."""
    for curvature in (40.0, 1000.0):
        objective, points = scalar(curvature)
        z = lbfgs(objective, torch.ones((1, 1, 1, 1), dtype=torch.float64), n_iter=20)
        assert points[:3] == pytest.approx([1, 1 - curvature, 0], abs=1e-12)
        assert (len(points), float(z)) == (3, pytest.approx(0, abs=1e-12))


def test_lbfgs_stops_at_the_rounding_of_its_loss() -> None:
    """½(z − y)² + ½(z − v)² is least, and not zero, at (y + v)/2; float32 has no more digits."""
    calls = 0

    def identity(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x

    operator = FunctionOperator(identity, (1, 8, 8))
    y, v = torch.rand((2, 1, 1, 8, 8), generator=gen())
    calls = 0
    z = GradientStep("lbfgs", n_iter=40)(v, y, operator, 1.0, z_prev=None)
    assert torch.allclose(z, (y + v) / 2, atol=1e-5)
    assert calls <= 4  # start, the refused step 1 to y, the half of it, at most one to confirm


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "lbfgs"])
def test_every_optimizer_reaches_the_prox_of_a_linear_operator(optimizer: str) -> None:
    g = gen()
    operator = GaussianBlur((1, 12, 12), 3, 1.0)
    y, v = (torch.rand((2, 1, 12, 12), generator=g).double() for _ in range(2))
    lr = {"sgd": 0.5, "adam": 0.05, "lbfgs": 1.0}[optimizer]
    step = GradientStep(optimizer, lr=lr, n_iter=400, lr_decay=0.9)
    z = step(v, y, operator, 0.5, z_prev=None)
    assert relative(z, operator.prox_l2(v, y, 1 / 0.5)) < 1e-3


def test_tolerance_stops_each_image_on_its_own() -> None:
    """The first image starts at its solution; it must stay there while the second moves."""
    operator = FunctionOperator(lambda x: x, (1, 2, 2))
    y = torch.tensor([0.5, 0.5]).double().reshape(2, 1, 1, 1).expand(2, 1, 2, 2)
    start = y.clone()
    start[1] = -3.0
    for optimizer in ("sgd", "lbfgs"):
        step = GradientStep(optimizer, lr=0.3, n_iter=200, tol=1e-6)
        z = step(y, y, operator, 1.0, z_prev=start)
        assert torch.equal(z[0], start[0])
        assert relative(z[1:], y[1:]) < 1e-4


def test_names_of_optimizers() -> None:
    assert GradientStep("GD", 0.1) == GradientStep("sgd", 0.1)
    assert GradientStep("Adam").optimizer == "adam"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "newton"}, "optimizer must be one of"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"n_iter": 0}, "n_iter"),
        ({"lr_decay": 1.5}, "lr_decay"),
        ({"tol": -1.0}, "tol"),
        ({"reference": True}, "belongs to 'sgd' or 'adam'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        GradientStep(**options)  # type: ignore[arg-type]


def test_an_operator_without_gradient_is_refused() -> None:
    operator = FunctionOperator(lambda x: x.detach().round(), (1, 2, 2))
    y = torch.zeros(1, 1, 2, 2)
    with pytest.raises(OperatorError, match="not differentiable"):
        GradientStep()(y, y, operator, 1.0, z_prev=None)


# conjugate gradients -----------------------------------------------------------------------------
def system(n: int, batch: int) -> tuple[Tensor, Tensor]:
    g = gen(8)
    root = torch.randn((batch, n, n), generator=g, dtype=torch.float64)
    return root @ root.mT + torch.eye(n).double(), torch.randn((batch, n), generator=g).double()


def test_cg_solves_each_system_and_survives_a_zero_one() -> None:
    matrix, b = system(12, 3)
    b[1] = 0
    x = cg(lambda p: torch.einsum("bij,bj->bi", matrix, p), b, max_iter=60)
    assert torch.allclose(x, torch.linalg.solve(matrix, b), atol=1e-8)
    assert torch.equal(x[1], torch.zeros(12).double())
    alone = cg(lambda p: torch.einsum("bij,bj->bi", matrix[2:], p), b[2:], max_iter=7)
    together = cg(lambda p: torch.einsum("bij,bj->bi", matrix, p), b, max_iter=7)
    assert torch.allclose(alone, together[2:], rtol=1e-9)


def test_a_good_preconditioner_finishes_at_once() -> None:
    matrix, b = system(12, 2)
    inverse = torch.linalg.inv(matrix)
    x = cg(
        lambda p: torch.einsum("bij,bj->bi", matrix, p),
        b,
        max_iter=2,
        precondition=lambda r: torch.einsum("bij,bj->bi", inverse, r),
    )
    assert torch.allclose(x, torch.linalg.solve(matrix, b), atol=1e-8)


def test_cg_lets_each_image_say_when_it_is_done() -> None:
    matrix, b = system(12, 3)
    bounds = norm(b) * torch.tensor([0.5, 1e-2, 2.0]).double()

    def normal(p: Tensor) -> Tensor:
        return torch.einsum("bij,bj->bi", matrix, p)

    x = cg(normal, b, max_iter=60, stop=lambda x: norm(b - normal(x)) <= bounds)
    runs = [cg(normal, b, max_iter=n) for n in range(60)]
    for i in range(3):  # the first iterate of the plain run that is good enough
        first = next(r for r in runs if bool(norm(b - normal(r))[i] <= bounds[i]))
        assert torch.equal(x[i], first[i])
    assert torch.equal(x[2], torch.zeros(12).double())  # asked before the first iteration


def test_power_norm_and_inner_product() -> None:
    operator = GaussianBlur((1, 32, 32))  # taps e^(−k²/200), k = −2 … 2, on rows and columns
    x = torch.zeros(1, 1, 32, 32).double()
    value = power_norm(operator.A_adjoint_A, x, generator=gen(), n_iter=500, tol=1e-9)
    taps = np.exp(-(np.arange(3) ** 2) / 200)
    matrix = scipy.linalg.toeplitz(np.pad(taps, (0, 29))) / (taps[0] + 2 * taps[1:].sum())
    assert float(value) == pytest.approx(np.linalg.norm(matrix, 2) ** 2, rel=1e-3)
    z = torch.tensor([[1 + 2j, 3j]])
    assert float(inner(z, z)) == pytest.approx(14)
