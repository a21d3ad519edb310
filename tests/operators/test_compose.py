"""Compositions, functions, and moving operators."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy import signal
from torch import Tensor

from golden import gen, relative
from pnpcm.errors import ArgumentError
from pnpcm.operators import (
    Blur,
    Compose,
    Crop,
    FunctionOperator,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    SuperResolution,
    canvas_for,
    gaussian_kernel,
    motion_kernel,
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


# unknown borders -------------------------------------------------------------------------------
def dense_prox(operator: Any, z: Tensor, y: Tensor, gamma: float) -> Tensor:
    """(γAᵀA + 1)⁻¹ (γAᵀy + z) with A as a matrix, column by column."""
    n = z[0].numel()
    A = operator.A(torch.eye(n, dtype=z.dtype).reshape(n, *z.shape[1:])).flatten(1).T
    right = gamma * y.flatten(1) @ A + z.flatten(1)
    return torch.linalg.solve(gamma * A.T @ A + torch.eye(n).to(A), right.T).T.reshape(z.shape)


def masked_operators() -> dict[str, Any]:
    shape = (2, 12, 15)
    blur = Blur(torch.rand((4, 5), generator=gen()).double() / 10, shape, "circular")
    mask = torch.rand((12, 15), generator=gen(1)) < 0.6
    each = torch.rand((2, 2, 12, 15), generator=gen(2)) < 0.6
    small = torch.rand((4, 5), generator=gen(3)) < 0.7
    return {
        "crop": Compose(Crop(shape, (2, 3, 1, 2)), blur),
        "nothing missing": Compose(Crop(shape, 0), blur),
        "mask": Compose(Inpainting(mask), blur),
        "mask per image and channel": Compose(Inpainting(each), blur),
        "mask, then crop": Compose(Crop(shape, 2), Inpainting(mask), blur),
        "zero border": Compose(Crop(shape, 1), GaussianBlur(shape)),
        "even reflect": Compose(Crop(shape, 1), Blur(torch.ones(3, 5) / 15, shape, "reflect")),
        "scrambled": Compose(Crop(shape, 1), GaussianBlur(shape, reference=True)),
        "reduction": Compose(Inpainting(small), SuperResolution(shape, 3)),
    }


@pytest.mark.parametrize("name", masked_operators())
@pytest.mark.parametrize("gamma", [0.5, 300.0])
def test_prox_with_missing_measurements_is_that_of_the_matrix(name: str, gamma: float) -> None:
    operator = masked_operators()[name]
    z = torch.randn((2, 2, 12, 15), generator=gen(4)).double()
    y = operator.A(torch.randn(z.shape, generator=gen(5)).double())
    y = y + 0.1 * operator.noise_like(y, gen(6))
    x = operator.prox_l2(z, y, gamma)
    if name == "mask per image and channel":
        singles = [
            Compose(Inpainting(m), operator.operators[1]) for m in operator.operators[0].mask
        ]
        exact = [dense_prox(op, z[i : i + 1], y[i : i + 1], gamma) for i, op in enumerate(singles)]
        assert relative(x, torch.cat(exact)) < 1e-9
    else:
        assert relative(x, dense_prox(operator, z, y, gamma)) < 1e-9
        # one weight per image is each image's own prox
        weights = torch.tensor([gamma, 2 * gamma]).double()
        second = operator.prox_l2(z[1:], y[1:], 2 * gamma)
        assert relative(operator.prox_l2(z, y, weights)[1:], second) < 1e-9


def test_a_border_takes_few_iterations() -> None:
    """CG on the whole canvas takes 229 iterations here; on the border, preconditioned, about 30."""
    kernel = gaussian_kernel(5, 10.0)
    canvas, margins = canvas_for(kernel, (1, 96, 96))
    operator = Compose(Crop(canvas, margins), Blur(kernel, canvas, "circular"))
    z = torch.randn((1, *canvas), generator=gen())
    y = operator.A(z) + 0.1
    full: Any = operator
    exact = full.prox_l2(z.double(), y.double(), 1000.0).float()
    full.max_iter = 35
    assert relative(full.prox_l2(z, y, 1000.0), exact) < 1e-5
    full.max_iter = 5
    assert relative(full.prox_l2(z, y, 1000.0), exact) > 1e-5


class Watched(Blur):
    """A blur that records which planes it transforms."""

    seen: ClassVar[set[tuple[int, ...]]] = set()

    def V_adjoint(self, x: Tensor) -> Tensor:
        self.seen.add(tuple(x.shape))
        return super().V_adjoint(x)


def test_large_images_are_solved_channel_by_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = torch.rand((4, 5), generator=gen()).double() / 10
    operator: Any = Compose(
        Crop((2, 12, 15), (2, 3, 1, 2)), Watched(kernel, (2, 12, 15), "circular")
    )
    z = torch.randn((2, 2, 12, 15), generator=gen()).double()
    y = operator.A(z) + 0.1
    weights = torch.tensor([2.0, 9.0]).double()
    Watched.seen.clear()
    together = operator.prox_l2(z, y, weights)
    assert Watched.seen == {(4, 1, 12, 15)}  # two channels of two images
    monkeypatch.setattr("pnpcm.operators.blur.PLANES_AT_ONCE", 200)
    Watched.seen.clear()
    assert relative(operator.prox_l2(z, y, weights), together) < 1e-10
    assert Watched.seen == {(1, 1, 12, 15)}


@pytest.mark.parametrize(
    ("kernel", "size"),  # at least 37 + height − 1 and 50 + width − 1, even products of 2, 3 and 5
    [((5, 5), (48, 54)), ((4, 7), (40, 60)), ((1, 1), (40, 50)), ((31, 2), (72, 54))],
)
def test_the_canvas_holds_all_that_the_picture_sees(
    kernel: tuple[int, int], size: tuple[int, int]
) -> None:
    """On the canvas the circular blur agrees with the valid part of scipy's convolution."""
    taps = torch.rand(kernel, generator=gen(), dtype=torch.float64)
    canvas, margins = canvas_for(taps, (1, 37, 50))
    assert canvas == (1, *size)
    x = torch.randn((1, *canvas), generator=gen(1), dtype=torch.float64)
    y = Compose(Crop(canvas, margins), Blur(taps, canvas, "circular")).A(x)
    assert y.shape == (1, 1, 37, 50)
    valid = signal.convolve2d(x[0, 0].numpy(), taps.numpy(), mode="valid")
    assert np.allclose(y[0, 0].numpy(), valid[:37, :50], atol=1e-12)


def test_kernels_sum_to_one() -> None:
    for kernel in (gaussian_kernel(5, 10.0), gaussian_kernel(4, 0.7), motion_kernel(15, 30)):
        assert float(kernel.sum()) == pytest.approx(1, abs=1e-12)
    near, far = math.exp(-1 / 2), math.exp(-2)  # σ = 1, one and two pixels away
    row = [far, near, 1, near, far]
    total = sum(row)
    expected = torch.tensor([[a * b / total**2 for b in row] for a in row], dtype=torch.float64)
    torch.testing.assert_close(gaussian_kernel(5, 1.0), expected)
    assert torch.equal(GaussianBlur((1, 9, 9), 5, 1.0).kernel, gaussian_kernel(5, 1.0))
    with pytest.raises(ArgumentError, match="sigma must be positive"):
        gaussian_kernel(5, 0.0)
    with pytest.raises(ArgumentError, match="size must be a whole number"):
        gaussian_kernel(0, 1.0)
