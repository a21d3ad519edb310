"""Blurs against docs/method.md §7.3 and §12.2, scipy and dense algebra."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.ndimage
import torch
from torch import Tensor

from golden import gen, image, relative
from pnpcm.operators import Blur, GaussianBlur
from pnpcm.operators.bases import Basis, SeparableBasis

SHAPE = (3, 256, 256)


def one_dimensional_blur() -> Tensor:
    """256×256, zeros beyond the ends; taps e^(−k²/200), k = −2 … 2, with sum 1."""
    taps = np.exp(-(np.arange(3) ** 2) / 200)
    taps /= taps[0] + 2 * taps[1:].sum()
    return torch.from_numpy(scipy.linalg.toeplitz(np.pad(taps, (0, 253))))


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
    one_d = torch.linalg.svdvals(one_dimensional_blur())
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
    true, B = GaussianBlur(SHAPE), one_dimensional_blur()
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


class Iterative(Blur):
    """A blur without a known decomposition."""

    decomposed = False


@pytest.mark.parametrize("boundary", ["zero", "reflect"])
def test_iterative_and_closed_blur_agree(boundary: str) -> None:
    """The method for large images gives the same answer as the closed form: 1e-5."""
    kernel = GaussianBlur(SHAPE).kernel
    y = Blur(kernel, SHAPE, boundary).A(image().float())
    z = 0.5 * image().float()
    closed, iterative = (
        kind(kernel, SHAPE, boundary).prox_l2(z, y, 1 / 0.01815) for kind in (Blur, Iterative)
    )
    assert 0 < relative(iterative, closed) < 1e-5


class Unfactorised(GaussianBlur):
    """Raises an error when its basis is used."""

    @property
    def basis(self) -> Basis:
        raise AssertionError("a side of 700 was factorised")


def test_long_sides_are_not_factorised() -> None:
    operator = Unfactorised((1, 2100, 20))
    assert not operator.decomposed
    x = torch.rand((1, 1, 2100, 20), generator=gen())
    z = operator.prox_l2(x, operator.A(x) + 0.1, 50.0)
    slope = 50 * operator.A_adjoint(operator.A(z) - operator.A(x) - 0.1) + z - x
    assert float(slope.norm() / x.norm()) < 1e-4


@pytest.mark.parametrize(("size", "sigma"), [(5, 10.0), (4, 1.5)])  # an even size is not symmetric
def test_long_sides_have_the_closed_form_too(size: int, sigma: float) -> None:
    """(1 + γ AᵀA) x = z + γ Aᵀy, with A written as SciPy's convolution, for a side above 512."""
    operator = GaussianBlur((1, 520, 24), size, sigma)
    assert operator.decomposed
    z, y = torch.rand((2, 1, 1, 520, 24), generator=gen(), dtype=torch.float64)
    x = operator.prox_l2(z, y, 3.0)
    taps = np.exp(-((np.arange(size) - size // 2) ** 2) / (2 * sigma**2))
    kernel = np.outer(taps, taps) / taps.sum() ** 2
    back = np.pad(kernel[::-1, ::-1], [(1 - size % 2, 0)] * 2)  # centre of the even size stays

    def blur(image: np.ndarray, k: np.ndarray) -> np.ndarray:
        return scipy.ndimage.convolve(image, k, mode="constant")

    (image,), (start,), (measured,) = (t[0].numpy() for t in (x, z, y))
    left = image + 3 * blur(blur(image, kernel), back)
    assert np.allclose(left, start + 3 * blur(measured, back), rtol=0, atol=1e-10)
