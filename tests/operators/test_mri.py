"""Multi-coil MRI against docs/method.md §12.2 and closed forms."""

import pytest
import torch

from golden import R4_LINES, gen, image, mask, mri, relative
from pnpcm.errors import ShapeError
from pnpcm.linalg import like_form, to_channels, to_complex
from pnpcm.operators import (
    Inpainting,
    MultiCoilMRI,
)
from pnpcm.solvers import CGStep
from pnpcm.transforms import fft2c


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


@pytest.mark.parametrize("each", [True, False], ids=["each its own", "one for all"])
@pytest.mark.parametrize("reg", [0.0, 0.05])
def test_pseudo_inverse_by_rows_is_that_of_the_matrix(each: bool, reg: float) -> None:
    """Against Aᴴ(AAᴴ + reg)⁺ of the matrix written out, with two coils for four unknowns."""
    g, n, size = gen(), 2 if each else 1, (3, 12)
    maps = torch.randn((n, 2, *size), generator=g, dtype=torch.complex128)
    lines = (torch.arange(12) % torch.tensor([[4], [3]]) == 0)[:n, None]
    operator = MultiCoilMRI(maps, lines.expand(n, *size))
    y = operator.noise_like(torch.zeros((2, 2, *size), dtype=torch.complex128), g)
    found = operator.A_dagger(y, reg)
    for i in range(2):
        alone = MultiCoilMRI(maps[i % n], lines[i % n].expand(size))
        basis = torch.eye(36, dtype=torch.complex128).reshape(36, *size)
        A = alone.A(basis).reshape(36, -1).T
        loaded = A @ A.mH + reg * torch.eye(len(A), dtype=A.dtype)
        expected = A.mH @ (torch.linalg.pinv(loaded, rtol=1e-10) @ y[i].flatten())
        image = torch.complex(found[i, 0], found[i, 1]).flatten()
        assert relative(image, expected) < 1e-9


@pytest.mark.parametrize("each", [True, False], ids=["each its own", "one for all"])
@pytest.mark.parametrize("complex_image", [True, False])
def test_prox_by_rows_solves_the_normal_equations(each: bool, complex_image: bool) -> None:
    """γAᴴ(Ax − y) + x − z = 0 with one γ per image, from small to huge."""
    g, n, size = gen(), 3 if each else 1, (5, 12)
    maps = torch.randn((n, 2, *size), generator=g, dtype=torch.complex128)
    lines = (torch.arange(12) % torch.tensor([[4], [3], [2]]) == 0)[:n, None]
    operator = MultiCoilMRI(maps, lines.expand(n, *size))
    assert operator.row_wise
    y = operator.noise_like(torch.zeros((3, 2, *size), dtype=torch.complex128), g)
    z = torch.randn((3, 2, *size), generator=g, dtype=torch.float64)
    z = torch.complex(z[:, 0], z[:, 1]) if complex_image else z
    gamma = torch.tensor([0.1, 10.0, 1e4], dtype=torch.float64)
    x = operator.prox_l2(z, y, gamma)
    assert x.dtype == z.dtype
    for i in range(3):
        one = MultiCoilMRI(maps[i % n], lines[i % n].expand(size))
        pull = one.A_adjoint_A(x[i : i + 1]) - like_form(one.A_adjoint(y[i : i + 1]), z)
        gradient = gamma[i] * pull + x[i : i + 1] - z[i : i + 1]
        assert float(gradient.abs().max()) < 1e-9 * float(gamma[i])


def test_rows_that_are_coupled_or_large_are_left_to_cg() -> None:
    maps = torch.ones((1, 8, 8), dtype=torch.complex64)
    points = torch.eye(8)
    assert not MultiCoilMRI(maps, points).row_wise
    assert MultiCoilMRI(maps, points[0]).row_wise
    assert not MultiCoilMRI(
        torch.ones((1, 320, 320), dtype=torch.complex64), torch.ones(320)
    ).row_wise


@pytest.mark.parametrize("columns", [True, False], ids=["by rows", "by CG"])
def test_two_sets_against_the_matrix(columns: bool) -> None:
    """y_c = mask F (S_1c x_1 + S_2c x_2), written out as a matrix; prox and A⁺ solved with it."""
    g, size = gen(), (3, 8)
    maps = torch.randn((2, 3, *size), generator=g, dtype=torch.complex128)
    mask = torch.rand(size if not columns else (1, 8), generator=g).expand(size) < 0.5
    operator = MultiCoilMRI(maps, mask, map_sets=2)
    assert operator.row_wise == columns
    assert operator.image_shape == (4, *size)
    basis = torch.eye(24, dtype=torch.complex128).reshape(24, *size)
    F = fft2c(basis).reshape(24, 24).T
    chosen = mask.flatten().to(F.dtype)[:, None] * F
    A = torch.cat([torch.cat([chosen * s.flatten() for s in one]) for one in maps], 1)
    x = torch.randn((2, 2, *size), generator=g, dtype=torch.complex128)
    y = (x.flatten(1) @ A.T).reshape(2, 3, *size)
    assert relative(operator.A(x), y) < 1e-12
    channels = torch.stack([x[:, 0].real, x[:, 0].imag, x[:, 1].real, x[:, 1].imag], 1)
    assert relative(operator.A(channels), y) < 1e-12
    assert (
        relative(operator.A_adjoint(y), to_channels((y.flatten(1) @ A.conj()).reshape(x.shape)))
        < 1e-12
    )
    noisy = y + operator.noise_like(y, g)
    eye = torch.eye(48, dtype=A.dtype)
    expected = torch.linalg.solve(
        7 * A.mH @ A + eye, 7 * A.mH @ noisy.flatten(1).T + x.flatten(1).T
    )
    found = operator.prox_l2(x, noisy, 7.0)
    assert found.shape == x.shape
    assert relative(found.flatten(1).T, expected) < 1e-8
    assert relative(operator.prox_l2(channels, noisy, 7.0), to_channels(found)) < 1e-8
    loaded = torch.linalg.solve(A.mH @ A + 0.1 * eye, A.mH @ noisy.flatten(1).T)
    assert relative(to_complex(operator.A_dagger(noisy, 0.1)).flatten(1).T, loaded) < 1e-8


def test_one_set_written_as_several_is_one_set() -> None:
    operator, x = MultiCoilMRI.example(gen())
    lines = operator.mask[0, 0]
    same = MultiCoilMRI(operator.coil_maps[:, None], lines)
    assert torch.equal(same.A(x), operator.A(x))
    assert torch.equal(same.coil_maps, operator.coil_maps)
    assert same.x_shape(operator.A(x)) == (1, 2, 16, 20)


def test_four_axes_are_a_batch_unless_map_sets_says_otherwise() -> None:
    maps, lines = torch.ones((2, 3, 4, 6), dtype=torch.complex64), torch.ones(6)
    assert MultiCoilMRI(maps, lines).map_sets == 1
    assert MultiCoilMRI(maps, lines, map_sets=2).map_sets == 2
    with pytest.raises(ShapeError, match=r"map_sets is 3, but coil_maps of shape .* hold 2"):
        MultiCoilMRI(maps, lines, map_sets=3)
    with pytest.raises(ShapeError, match=r"takes \(B, 4, H, W\) or complex \(B, 2, H, W\)"):
        MultiCoilMRI(maps, lines, map_sets=2).A(torch.zeros(1, 2, 4, 6))


def test_one_uniform_coil_has_the_closed_form() -> None:
    """(mask + ρ) Z = mask Y + ρ V in k-space, against CG."""
    g = gen()
    lines = torch.rand((12, 10), generator=g) < 0.5
    operator = MultiCoilMRI(torch.ones((1, 12, 10), dtype=torch.complex128), lines)
    x, v = (torch.randn((2, 12, 10), generator=g, dtype=torch.complex128) for _ in range(2))
    y = operator.A(x)
    plane = (-2, -1)
    spectrum = torch.fft.fft2(torch.fft.ifftshift(v, plane), norm="ortho")
    spectrum = torch.fft.fftshift(spectrum, plane)
    closed = (lines * y[:, 0] + 0.3 * spectrum) / (lines.double() + 0.3)
    closed = torch.fft.ifft2(torch.fft.ifftshift(closed, plane), norm="ortho")
    closed = torch.fft.fftshift(closed, plane)
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
