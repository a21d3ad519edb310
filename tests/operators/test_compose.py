"""Compositions, functions, and moving operators."""

import torch

from golden import gen
from pnpcm.operators import (
    Blur,
    Compose,
    Crop,
    FunctionOperator,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    SuperResolution,
)


def test_compose_is_right_to_left_and_knows_its_shapes() -> None:
    g = gen()
    blur = Blur(torch.rand((3, 3), generator=g), (1, 20, 24))
    crop = Crop((1, 20, 24), 2)
    both = Compose(crop, blur)
    x = torch.rand((2, 1, 20, 24), generator=g)
    assert torch.equal(both.A(x), crop.A(blur.A(x)))
    assert both.x_shape(both.A(x)) == (2, 1, 20, 24)
    assert both.linear
    nonlinear = Compose(FunctionOperator(torch.sin, (1, 20, 24)), blur)
    assert not nonlinear.linear
    assert not hasattr(nonlinear, "prox_l2")
    assert torch.equal(nonlinear.A(x), blur.A(x).sin())


def test_function_operator_takes_a_given_adjoint() -> None:
    operator = FunctionOperator(lambda x: 3 * x, (1, 4, 4), linear=True, adjoint=lambda y: 3 * y)
    auto = FunctionOperator(lambda x: 3 * x, (1, 4, 4), linear=True)
    y = torch.rand((2, 1, 4, 4), generator=gen())
    assert torch.allclose(operator.A_adjoint(y), auto.A_adjoint(y))
    assert torch.allclose(operator.prox_l2(y, y, 2.0), (y + 6 * y) / (1 + 18), atol=1e-6)


def test_to_moves_constants_and_leaves_the_original() -> None:
    for operator in (
        SuperResolution((1, 8, 8), 2),
        Compose(Inpainting(torch.ones(8, 8)), GaussianBlur((1, 8, 8), 3)),
        MultiCoilMRI(torch.ones((1, 8, 8), dtype=torch.complex64), torch.ones(8)),
    ):
        moved = operator.to(torch.float64)
        assert type(moved) is type(operator)
        x = torch.ones((1, 2 if isinstance(operator, MultiCoilMRI) else 1, 8, 8)).double()
        assert torch.allclose(moved.A(x), operator.A(x))
    moved = MultiCoilMRI(torch.ones((1, 8, 8), dtype=torch.complex64), torch.ones(8)).to(
        torch.float64
    )
    assert moved.coil_maps.dtype == torch.complex128
    assert moved.mask.dtype == torch.bool
