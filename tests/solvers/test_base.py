"""Problems of solvers: foreign operators, other value ranges, hints."""

from typing import Any

import pytest
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm import OPERATORS, measure
from pnpcm.operators import FunctionOperator, Inpainting, SuperResolution
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.rng import generators, randn_like
from pnpcm.solvers import DPIR, DPS, DPIRConfig, DPnP, DPnPConfig, DPSConfig, GradientStep
from pnpcm.solvers.base import (
    back_projection,
    image_shape,
    in_usual_range,
    is_linear,
    pinv,
    sample_conditional,
)

SHAPE = (1, 3, 8, 8)


class Foreign:
    """A and its adjoint, and nothing else: x ↦ 0.5 x on every other column, 0 on the rest."""

    def A(self, x: Tensor) -> Tensor:
        return 0.5 * x[..., ::2]

    def A_adjoint(self, y: Tensor) -> Tensor:
        x = y.new_zeros(*y.shape[:-1], 2 * y.shape[-1])
        x[..., ::2] = 0.5 * y
        return x


def test_a_foreign_operator_is_loaded_by_conjugate_gradients() -> None:
    y = randn_like(torch.zeros(2, 1, 4, 3, dtype=torch.float64), gen())
    expected = Foreign().A_adjoint(y)
    assert relative(pinv(Foreign(), y), expected / 0.25) < 1e-10
    assert relative(pinv(Foreign(), y, 0.3), expected / (0.25 + 0.3)) < 1e-10


def test_our_own_operators_are_loaded_by_themselves() -> None:
    operator, x = OPERATORS["gaussian-blur"].example(gen())
    y = operator.A(x.double())
    assert torch.equal(pinv(operator, y, 0.1), operator.A_dagger(y, 0.1))


def test_a_foreign_conditional_draw_has_the_law_of_the_posterior() -> None:
    """Seen values: precision 0.25/s² + 1/e²; others: N(v, e²)."""
    s, e, v, y = 0.2, 0.5, 0.3, 0.4
    rows = 40_000
    around = torch.full((1, 1, rows, 2), v, dtype=torch.float64)
    seen = torch.full((1, 1, rows, 1), y, dtype=torch.float64)
    z = sample_conditional(Foreign(), around, seen, s, e, [gen(3)])[0, 0]
    precision = 0.25 / s**2 + 1 / e**2
    assert float(z[:, 0].mean()) == pytest.approx((0.5 * y / s**2 + v / e**2) / precision, abs=0.01)
    assert float(z[:, 0].std()) == pytest.approx(precision**-0.5, abs=0.01)
    assert float(z[:, 1].mean()) == pytest.approx(v, abs=0.01)
    assert float(z[:, 1].std()) == pytest.approx(e, abs=0.01)


def test_linear_is_what_says_so_or_has_an_adjoint() -> None:
    assert is_linear(Foreign())
    assert not is_linear(FunctionOperator(torch.tanh, SHAPE[1:]))
    assert image_shape(torch.zeros(2, 1, 4, 3), Foreign()) == (2, 1, 4, 6)


def bend(x: Tensor) -> Tensor:
    """A nonlinear camera for images in [0, 1]."""
    return 0.7 * x + 0.3 * x**2


STEP = GradientStep("lbfgs", n_iter=5)
NONLINEAR = {
    "dps": (DPS, DPSConfig(n_steps=8)),
    "dpnp": (DPnP, DPnPConfig.example()),
    "dpir": (DPIR, DPIRConfig(n_steps=3, data_step=STEP)),
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_a_nonlinear_operator_of_another_range_is_the_same_problem(name: str) -> None:
    """By hand: A′(x′) = 2 bend((x′ + 1)/2), since unit and middle of [0, 1] are both ½."""
    solver_type, config = NONLINEAR[name]
    solver: Any = solver_type(StationaryGaussianPrior(kind="edm"), config)  # type: ignore[abstract, arg-type]
    theirs = FunctionOperator(bend, SHAPE[1:])
    ours = FunctionOperator(lambda x: 2 * bend((x + 1) / 2), SHAPE[1:])
    x = 0.3 * randn_like(torch.zeros(SHAPE, dtype=torch.float64), gen(1))
    y = measure(ours, x, 0.05, generator=gen(2))
    usual = solver(y, ours, generator=gen(3)).x
    other = solver(y / 2, theirs, generator=gen(3), value_range=(0.0, 1.0)).x
    assert relative(other, (usual + 1) / 2) < 1e-6


def test_optional_members_follow_into_the_usual_range() -> None:
    operator, x = OPERATORS["jpeg"].example(gen())
    y = operator.acquire(x)
    y_in, seen, start = in_usual_range(y, operator, x, (0.0, 1.0))
    assert isinstance(start, Tensor)
    assert torch.allclose(start, 2 * x - 1)
    inner: Any = seen
    assert torch.allclose(inner.A(start), 2 * operator.A(x), atol=1e-5)
    assert torch.allclose(inner.acquire(start), 2 * operator.acquire(x), atol=1e-5)
    assert torch.allclose(inner.approx_inverse(y_in), 2 * y - 1, atol=1e-6)
    assert torch.allclose(inner.z_start(y_in, None), 2 * y - 1, atol=1e-6)
    assert inner.x_shape(y_in) == tuple(x.shape)
    bare, _ = OPERATORS["phase-retrieval"].example(gen())
    assert not hasattr(in_usual_range(y, bare, None, (0.0, 1.0))[1], "approx_inverse")


def test_a_hint_is_the_measurement_as_an_image() -> None:
    mask = Inpainting.random((8, 8), missing=0.5, generator=gen())
    y = torch.rand(SHAPE, generator=gen())
    assert torch.equal(back_projection(mask, y), y)
    small = SuperResolution((3, 8, 8), factor=4)
    y = measure(small, torch.rand(SHAPE, generator=gen()), 0.05, generator=generators([1]))
    assert torch.equal(back_projection(small, y), small.A_dagger(y))
