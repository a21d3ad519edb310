"""TV: against its optimality conditions, and another library."""

import pytest
import torch
from skimage.restoration import denoise_tv_chambolle
from torch import Tensor

from golden import gen
from pnpcm import measure
from pnpcm.core import Operator, Step
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import JPEG, GaussianBlur, Inpainting, MultiCoilMRI, SuperResolution
from pnpcm.solvers.base import image_shape
from pnpcm.solvers.total_variation import TV, TVConfig, gradient, gradient_adjoint


def steps_image(channels: int, height: int = 12, width: int = 16) -> Tensor:
    """A bright rectangle and a ramp, in different colours."""
    x = torch.full((1, channels, height, width), -0.4, dtype=torch.float64)
    for c in range(channels):
        x[:, c, 3:11, 4:13] += 0.8 / (c + 1)
        x[:, c] += 0.3 * torch.linspace(-1, 1, width, dtype=torch.float64)
    return x


def identity(height: int = 12, width: int = 16) -> Inpainting:
    return Inpainting(torch.ones(height, width))


def mri() -> MultiCoilMRI:
    maps = torch.randn((3, 12, 16), dtype=torch.complex128, generator=gen())
    maps = maps / maps.abs().square().sum(0).sqrt()
    operator = MultiCoilMRI(maps, torch.arange(16) % 2 == 0)
    operator.max_iter = 12  # enough for these maps, and there are many to solve
    return operator


OPERATORS = {
    "identity": (identity, 3),
    "inpainting": (lambda: Inpainting.random((12, 16), missing=0.5, generator=gen()), 3),
    "superres": (lambda: SuperResolution((3, 12, 16), factor=2), 3),
    "blur": (lambda: GaussianBlur((1, 12, 16)), 1),
    "mri": (mri, 2),
}


def problem(name: str) -> tuple[Operator, Tensor]:
    make, channels = OPERATORS[name]
    operator = make()
    return operator, measure(operator, steps_image(channels), 0.05, generator=gen(1))


def differences(x: Tensor) -> Tensor:
    """Down and right neighbour minus the pixel, 0 at the last row and column; ``(B, 2, …)``."""
    down, right = torch.zeros_like(x), torch.zeros_like(x)
    down[..., :-1, :] = x[..., 1:, :] - x[..., :-1, :]
    right[..., :-1] = x[..., 1:] - x[..., :-1]
    return torch.stack((down, right), 1)


def transposed(p: Tensor) -> Tensor:
    """The adjoint of ``differences``: each difference back to its two pixels."""
    x = torch.zeros_like(p[:, 0])
    x[..., 1:, :] += p[:, 0, ..., :-1, :]
    x[..., :-1, :] -= p[:, 0, ..., :-1, :]
    x[..., 1:] += p[:, 1, ..., :-1]
    x[..., :-1] -= p[:, 1, ..., :-1]
    return x


def lengths(p: Tensor) -> Tensor:
    """Of the differences of all channels at a pixel, ``(B, H, W)``."""
    return p.square().sum((1, 2)).sqrt()


def test_gradient_and_its_adjoint() -> None:
    x = torch.randn((2, 3, 5, 7), generator=gen()).double()
    p = torch.randn((2, 2, 3, 5, 7), generator=gen(1)).double()
    assert float((gradient(x) * p).sum()) == pytest.approx(float((x * gradient_adjoint(p)).sum()))
    assert float(gradient(torch.ones(1, 1, 4, 4)).abs().max()) == 0
    v = torch.randn((1, 1, 64, 64), generator=gen()).double()
    for _ in range(200):
        v = gradient_adjoint(gradient(v / v.norm()))
    assert 7.9 < float(v.norm()) < 8


@pytest.mark.parametrize("name", OPERATORS)
def test_optimality(name: str) -> None:
    """Aᵀ(y − Ax) = ∇ᵀp for some |p| ≤ λ, and ⟨Aᵀ(y − Ax), x⟩ = λ TV(x), after 200 iterations."""
    operator, y = problem(name)
    weight = 0.05
    x = TV(None, TVConfig(weight))(y, operator).x
    force = operator.A_adjoint(y - operator.A(x))  # type: ignore[attr-defined]
    variation = weight * lengths(differences(x)).sum()
    assert float((force * x).sum()) == pytest.approx(float(variation), rel=2e-4)
    # the nearest ∇ᵀp in that ball, by accelerated projected gradients
    p = ahead = torch.zeros_like(differences(x))
    for k in range(400):
        p_next = ahead - differences(transposed(ahead) - force) / 8
        p_next = p_next / (lengths(p_next) / weight).clamp_min(1)[:, None, None]
        p, ahead = p_next, p_next + k / (k + 3) * (p_next - p)
    assert (transposed(p) - force).norm() < 2e-3 * force.norm()


@pytest.mark.parametrize("weight", [0.03, 0.2])
def test_denoising_is_that_of_skimage(weight: float) -> None:
    y = steps_image(1) + 0.1 * torch.randn((1, 1, 12, 16), generator=gen()).double()
    x = TV(None, TVConfig(weight, 1000))(y, identity()).x
    other = denoise_tv_chambolle(y[0, 0].numpy(), weight=weight, eps=1e-12, max_num_iter=5000)
    assert float((x[0, 0] - torch.from_numpy(other)).abs().max()) < 1e-3


def test_without_weight_it_fits_the_data() -> None:
    operator, y = identity(), torch.randn((1, 3, 12, 16), generator=gen()).double()
    x = TV(None, TVConfig(1e-6))(y, operator).x
    assert torch.allclose(x, y, atol=1e-5)
    blur = GaussianBlur((1, 12, 16))
    y = blur.A(steps_image(1)) + 0.01 * torch.randn((1, 1, 12, 16), generator=gen()).double()
    x = TV(None, TVConfig(1e-6))(y, blur).x
    assert float(blur.A_adjoint(y - blur.A(x)).abs().max()) < 1e-5


def test_with_a_large_weight_it_is_flat() -> None:
    y = torch.randn((2, 3, 8, 8), generator=gen()).double()
    x = TV(None, TVConfig(20.0, 1000))(y, identity(8, 8)).x
    assert torch.allclose(x, y.mean((2, 3), keepdim=True).expand_as(x), atol=1e-4)


def test_complex_images_are_turned_by_a_phase() -> None:
    """The gradient's modulus counts: e^{iφ} y gives e^{iφ} x."""
    operator, y = problem("mri")
    turn = torch.polar(torch.tensor(1.0).double(), torch.tensor(0.7).double())
    solver = TV(None, TVConfig(0.05, 20))
    x, turned = (
        torch.complex(z[:, 0], z[:, 1])
        for z in (solver(y, operator).x, solver(turn * y, operator).x)
    )
    assert torch.allclose(turned, turn * x, atol=1e-7)


def test_equal_channels_stay_equal() -> None:
    """Coupled: three equal channels weigh √3 times one, so each has λ/√3."""
    one = steps_image(1) + 0.1 * torch.randn((1, 1, 12, 16), generator=gen()).double()
    grey = TV(None, TVConfig(0.1 / 3**0.5, 500))(one, identity()).x
    colour = TV(None, TVConfig(0.1, 500))(one.expand(-1, 3, -1, -1), identity()).x
    assert torch.allclose(colour, grey.expand_as(colour), atol=1e-4)


def test_steps_start_and_cost() -> None:
    operator, y = problem("inpainting")
    steps: list[Step] = []
    result = TV(None, TVConfig(0.05, 7))(y, operator, callback=steps.append)
    assert [step.k for step in steps] == list(range(1, 8))
    assert result.nfe == TVConfig().nfe == 0
    best = TV(None, TVConfig(0.05, 300))(y, operator).x
    again = TV(None, TVConfig(0.05, 7))(y, operator, x_init=best).x
    assert (again - best).norm() < (result.x - best).norm()
    assert image_shape(y, operator) == tuple(result.x.shape)


def test_refusal_and_config_errors() -> None:
    with pytest.raises(OperatorError, match=r"convex data term.*not linear"):
        TV(None, TVConfig())(torch.zeros(1, 3, 16, 16), JPEG())
    for field, value in (("weight", 0.0), ("weight", float("inf")), ("n_iter", 0)):
        with pytest.raises(ArgumentError, match=field):
            TVConfig(**{field: value})  # type: ignore[arg-type]
