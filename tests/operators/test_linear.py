"""Linear operators against reference.md §3 and §9.2, and against scipy and dense algebra."""

import itertools

import numpy as np
import pytest
import scipy.ndimage
import torch
import torch.nn.functional as F
from torch import Tensor

from golden import R4_LINES, gen, image, mask, mri, relative
from pnpcm.operators import (
    Blur,
    Compose,
    Crop,
    FunctionOperator,
    GaussianBlur,
    Inpainting,
    LinearOperatorBase,
    MultiCoilMRI,
    SuperResolution,
)
from pnpcm.operators import superresolution as sr
from pnpcm.operators.bases import toeplitz
from pnpcm.solvers import CGStep

SHAPE = (3, 256, 256)


# super-resolution ------------------------------------------------------------------------------
def test_superresolution_of_the_test_image() -> None:
    y = SuperResolution(SHAPE).A(image())
    assert float(y.norm()) == pytest.approx(47.45269, abs=6e-6)
    assert float(y.sum()) == pytest.approx(7.6129, abs=6e-5)
    samples = [float(y[0, 0, 0, k]) for k in range(3)] + [float(y[0, 2, 33, 40])]
    assert samples == pytest.approx([0.222257, 0.390322, 0.608146, -0.047103], abs=2e-6)


def test_bicubic_taps_of_factor_four() -> None:
    first, taps = sr.bicubic_taps(4)
    assert first == -6
    eight = [-0.00170898, -0.01098633, -0.01831055, -0.01196289]
    eight += [0.02270508, 0.09741211, 0.18188477, 0.24096680]
    assert taps.tolist() == pytest.approx(eight + eight[::-1], abs=6e-9)


@pytest.mark.parametrize(("n", "factor"), [(256, 4), (24, 3), (20, 5), (10, 2), (4, 4), (6, 1)])
def test_cosine_singular_values_are_those_of_the_matrix(n: int, factor: int) -> None:
    dense = torch.linalg.svdvals(sr.bicubic_matrix(n, factor))
    closed = sr.singular_values(n, factor).sort(descending=True).values
    assert torch.allclose(closed, dense, atol=1e-12)
    if (n, factor) == (256, 4):
        assert float(closed.max()) == pytest.approx(0.5, abs=1e-6)
        assert float(closed.min()) == pytest.approx(0.348517, abs=1e-6)


def test_bicubic_agrees_with_library_resizer_inside() -> None:
    x = image().float()
    y = SuperResolution(SHAPE).A(x)
    resized = F.interpolate(x, scale_factor=0.25, mode="bicubic", antialias=True)
    inside = (..., slice(2, -2), slice(2, -2))
    assert float((y - resized)[inside].abs().max()) < 1e-6
    assert float((y - resized).abs().max()) > 1e-3  # borders are mirrored here, cut there


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_filtered_path_equals_matrix_path(factor: int) -> None:
    g = gen()
    operator = SuperResolution((2, 36, 48), factor)
    large = SuperResolution((2, 36, 48), factor)
    large.dense = (False, False)
    x = torch.rand((2, 2, 36, 48), generator=g)
    y = operator.A(x)
    assert relative(large.A(x), y) < 1e-6
    assert relative(large.A_adjoint(y), operator.A_adjoint(y)) < 1e-6
    assert relative(large.prox_l2(x, y + 0.1, 7.0), operator.prox_l2(x, y + 0.1, 7.0)) < 1e-6


# blur ------------------------------------------------------------------------------------------
def test_blur_of_the_test_image() -> None:
    y = GaussianBlur(SHAPE).A(image())
    assert float(y.norm()) == pytest.approx(181.50573, abs=6e-6)
    assert float(y.sum()) == pytest.approx(102.668, abs=6e-4)
    samples = [float(y[0, 0, 0, 0]), float(y[0, 1, 100, 37])]
    assert samples == pytest.approx([0.102563, -0.409871], abs=6e-7)


def test_gaussian_taps_and_border() -> None:
    operator = GaussianBlur(SHAPE)
    half = operator.A(torch.full((1, *SHAPE), 0.5, dtype=torch.float64))
    assert float(half[0, 0, 0, 0]) == pytest.approx(0.18060, abs=6e-6)
    assert float(half[0, 0, 9, 9]) == pytest.approx(0.5)
    s = operator.singular_values
    one_d = torch.linalg.svdvals(toeplitz(operator.row, 256, "zero"))
    assert float(one_d[0]) == pytest.approx(0.999852, abs=6e-7)
    assert float(one_d[-1]) == pytest.approx(0.002638, abs=6e-7)
    assert float(s.max()) == pytest.approx(0.999852**2, abs=2e-6)


def test_reference_blur_of_the_test_image() -> None:
    true, scrambled = GaussianBlur(SHAPE), GaussianBlur(SHAPE, reference=True)
    y = scrambled.A(image())
    assert float(y.norm()) == pytest.approx(166.74, rel=1e-3)
    assert float(y.sum()) == pytest.approx(80.1, rel=1e-3)
    assert float(y[0, 1, 100, 37]) == pytest.approx(-0.4099, abs=1e-3)
    assert relative(y, true.A(image())) == pytest.approx(0.1200, abs=1e-3)
    values = scrambled.singular_values[0].sort(descending=True).values.flatten()
    assert int((scrambled.singular_values == 0).sum()) == 3 * 7936
    assert float(values.max()) <= 1


def test_zeroing_small_values_alone_changes_little() -> None:
    from pnpcm.operators.bases import SeparableBasis

    true = GaussianBlur(SHAPE)
    B = toeplitz(true.row, 256, "zero")
    basis = SeparableBasis(B, B, cut=0.03)
    y = basis.U(basis.singular_values * basis.V_adjoint(image()))
    assert float(y.norm()) == pytest.approx(181.5057, abs=6e-5)
    assert relative(y, true.A(image())) == pytest.approx(2.58e-4, abs=1e-6)


SCIPY_MODE = {"zero": "constant", "circular": "wrap", "reflect": "reflect"}


@pytest.mark.parametrize("boundary", SCIPY_MODE)
@pytest.mark.parametrize("size", [(3, 3), (5, 4), (4, 4), (1, 7), (21, 17)])
def test_blur_is_scipys_convolution(boundary: str, size: tuple[int, int]) -> None:
    g = gen()
    kernel = torch.rand(size, generator=g, dtype=torch.float64)
    x = torch.rand((1, 2, 23, 30), generator=g, dtype=torch.float64)
    y = Blur(kernel, (2, 23, 30), boundary).A(x)
    for c in range(2):
        expected = scipy.ndimage.convolve(
            x[0, c].numpy(), kernel.numpy(), mode=SCIPY_MODE[boundary]
        )
        assert np.allclose(y[0, c].numpy(), expected, atol=1e-12)


def kernels() -> dict[str, Tensor]:
    g = gen(3)
    row = torch.rand(7, generator=g, dtype=torch.float64)
    even = torch.outer(row + row.flip(0), row + row.flip(0))
    general = torch.rand((5, 6), generator=g, dtype=torch.float64)
    large = torch.rand((17, 15), generator=g, dtype=torch.float64)
    named = {"even": even, "separable": torch.outer(row, row[:4]), "general": general}
    return {k: v / v.sum() for k, v in (named | {"large": large}).items()}


@pytest.mark.parametrize(("boundary", "kind"), [*itertools.product(SCIPY_MODE, kernels())])
def test_every_solve_of_a_blur_equals_dense_algebra(boundary: str, kind: str) -> None:
    g = gen(1)
    operator = Blur(kernels()[kind], (1, 18, 20), boundary)
    dense = operator.A(torch.eye(360).double().reshape(360, 1, 18, 20)).reshape(360, 360).T
    z, y = (torch.rand((1, 1, 18, 20), generator=g).double() for _ in range(2))
    eye = torch.eye(360).double()
    right = 30 * dense.T @ y.flatten() + z.flatten()
    expected = torch.linalg.solve(30 * dense.T @ dense + eye, right)
    assert relative(operator.prox_l2(z, y, 30.0).flatten(), expected) < 1e-8
    loaded = dense.T @ torch.linalg.solve(dense @ dense.T + 0.01 * eye, y.flatten())
    assert relative(operator.A_dagger(y, 0.01).flatten(), loaded) < 1e-7


@pytest.mark.parametrize("boundary", ["zero", "reflect"])
def test_iterative_and_closed_blur_agree(boundary: str) -> None:
    """The way chosen for large images gives the same answer as the closed form: 1e-5."""
    operator = Blur(GaussianBlur(SHAPE).kernel, SHAPE, boundary)
    y = operator.A(image().float())
    z = 0.5 * image().float()
    closed = operator.prox_l2(z, y, 1 / 0.01815)
    iterative = LinearOperatorBase._prox_l2(operator, z, y, 1 / 0.01815)
    assert relative(iterative, closed) < 1e-5


def test_long_sides_are_not_factorised() -> None:
    operator = GaussianBlur((1, 700, 20))
    assert not operator.decomposed
    assert operator._basis is None
    x = torch.rand((1, 1, 700, 20), generator=gen())
    z = operator.prox_l2(x, operator.A(x) + 0.1, 50.0)
    slope = 50 * operator.A_adjoint(operator.A(z) - operator.A(x) - 0.1) + z - x
    assert float(slope.norm() / x.norm()) < 1e-4


# inpainting ------------------------------------------------------------------------------------
def test_median_start_of_the_test_image() -> None:
    operator = Inpainting(mask())
    assert int(operator.mask.sum()) == 19612
    x = operator.x_start(operator.A(image()))
    assert float(x.norm()) == pytest.approx(196.6170, abs=6e-5)
    assert float((x - image()).square().mean()) == pytest.approx(0.0319001, abs=6e-8)
    row = [0.300000, 0.265363, 0.088535, 0.265363, 0.205721, 0.205721]
    assert x[0, 0, 0, :6].tolist() == pytest.approx(row, abs=6e-7)


def slow_median_fill(y: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Pixel by pixel, as reference.md §4.4 words it."""
    x = np.where(kept, y, np.nan)
    w = 2
    while np.isnan(x).any():
        before = x.copy()
        for i, j in np.argwhere(np.isnan(before)):
            window = before[max(i - w, 0) : i + w + 1, max(j - w, 0) : j + w + 1]
            values = np.sort(window[~np.isnan(window)])
            if len(values):
                x[i, j] = values[(len(values) - 1) // 2]
        w += 1
    return x


def test_median_fill_of_a_large_hole_and_per_image_masks() -> None:
    g = gen()
    kept = torch.rand((2, 1, 31, 27), generator=g) < 0.4
    kept[0, 0, 4:26, 3:24] = False
    y = torch.randn((2, 2, 31, 27), generator=g, dtype=torch.float64) * kept
    filled = Inpainting(kept).x_start(y)
    for b, c in itertools.product(range(2), range(2)):
        expected = slow_median_fill(y[b, c].numpy(), kept[b, 0].numpy())
        assert np.array_equal(filled[b, c].numpy(), expected)


def test_random_mask_has_the_fraction() -> None:
    operator = Inpainting.random((200, 200), missing=0.7, generator=gen())
    assert float(operator.mask.float().mean()) == pytest.approx(0.3, abs=0.01)


# MRI -------------------------------------------------------------------------------------------
def test_mri_adjoint_and_cg_of_the_test_object() -> None:
    x, maps, lines = mri()
    operator = MultiCoilMRI(maps, lines)
    y = operator.A(x)
    assert float(operator.A_adjoint(y).norm()) == pytest.approx(76.41050, abs=6e-6)
    z = CGStep(10)(torch.zeros_like(x), y, operator, 0.01105, z_prev=None)
    assert float(z.norm()) == pytest.approx(75.575, abs=1e-3)
    assert relative(z, x) == pytest.approx(0.010934, abs=1e-6)
    right = operator.A_adjoint(y)
    residual = operator.A_adjoint_A(z) + 0.01105 * z - right
    assert float(residual.norm() / right.norm()) < 1e-6
    assert lines.nonzero().flatten().tolist() == list(R4_LINES)


@pytest.mark.parametrize("size", [(8, 12), (9, 11)])
@pytest.mark.parametrize("columns", [True, False])
def test_normal_operator_without_shifts_is_the_normal_operator(
    size: tuple[int, int], columns: bool
) -> None:
    g = gen()
    maps = torch.randn((2, 3, *size), generator=g, dtype=torch.complex128)
    lines = torch.rand((2, 1 if columns else size[0], size[1]), generator=g) < 0.5
    operator = MultiCoilMRI(maps, lines.expand(2, *size))
    assert operator.columns == columns
    x = torch.randn((2, 2, *size), generator=g, dtype=torch.float64)
    assert relative(operator.A_adjoint_A(x), operator.A_adjoint(operator.A(x))) < 1e-12


def test_one_uniform_coil_has_the_closed_form() -> None:
    """(mask + ρ) Z = mask Y + ρ V in k-space, against CG."""
    from pnpcm.transforms import fft2c, ifft2c

    g = gen()
    lines = torch.rand((12, 10), generator=g) < 0.5
    operator = MultiCoilMRI(torch.ones((1, 12, 10), dtype=torch.complex128), lines)
    x, v = (torch.randn((2, 12, 10), generator=g, dtype=torch.complex128) for _ in range(2))
    y = operator.A(x)
    closed = ifft2c((lines * y[:, 0] + 0.3 * fft2c(v)) / (lines.double() + 0.3))
    assert relative(operator.prox_l2(v, y, 1 / 0.3), closed) < 1e-9
    paired = torch.stack([y.real, y.imag], dim=1)  # deepinv's layout (B, 2, coils, H, W)
    assert torch.equal(operator.A_adjoint(paired), operator.A_adjoint(y))


def test_noise_and_counts_only_where_something_is_measured() -> None:
    from pnpcm import measure

    x, maps, lines = mri()
    operator = MultiCoilMRI(maps, lines)
    y = measure(operator, x, 0.05, generator=gen())
    noise = torch.view_as_real(y - operator.A(x))
    assert bool((noise[..., ~lines, :] == 0).all())
    assert operator.n_measured(y) == 2 * 4 * 320 * 80
    assert float(noise.norm()) == pytest.approx(0.1 * operator.n_measured(y) ** 0.5, rel=5e-3)
    kept = Inpainting(mask())
    y = measure(kept, image(), 0.05, generator=gen())
    assert bool((y[..., ~mask()] == 0).all())
    assert kept.n_measured(y) == 3 * 19612


# the others ------------------------------------------------------------------------------------
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
