"""Transforms and borders against SciPy and NumPy."""

import numpy as np
import pytest
import scipy.fft
import torch

from golden import gen
from pnpcm.transforms import (
    BOUNDARIES,
    dct,
    dct2,
    fast_length,
    fft2c,
    idct,
    idct2,
    ifft2c,
    pad,
    pad_adjoint,
)

NUMPY_MODE = {"zero": "constant", "circular": "wrap", "reflect": "symmetric"}


@pytest.mark.parametrize("n", [1, 8, 15, 512, 513, 600])  # a matrix up to 512, then an FFT
def test_cosine_transform_is_scipys(n: int) -> None:
    x = torch.randn((3, n, 2), generator=gen(), dtype=torch.float64)
    expected = scipy.fft.dct(x.numpy(), axis=1, norm="ortho")
    assert np.allclose(dct(x, 1).numpy(), expected, atol=1e-12)
    expected = scipy.fft.idct(x.numpy(), axis=1, norm="ortho")
    assert np.allclose(idct(x, 1).numpy(), expected, atol=1e-12)


def test_cosine_transform_of_images_is_scipys() -> None:
    x = torch.randn((2, 3, 9, 14), generator=gen(), dtype=torch.float64)
    expected = scipy.fft.dctn(x.numpy(), axes=(-2, -1), norm="ortho")
    assert np.allclose(dct2(x).numpy(), expected, atol=1e-13)
    expected = scipy.fft.idctn(x.numpy(), axes=(-2, -1), norm="ortho")
    assert np.allclose(idct2(x).numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("size", [(8, 6), (7, 9)])
def test_centred_fft_is_the_sum_over_centred_coordinates(size: tuple[int, int]) -> None:
    """X[k] = Σ x[p] e^(−2πi kp/n)/√n with p and k counted from n//2, as matrices."""
    x = torch.randn(size, generator=gen(), dtype=torch.complex128)
    row, column = (np.arange(n) - n // 2 for n in size)
    rows = np.exp(-2j * np.pi * np.outer(row, row) / size[0]) / np.sqrt(size[0])
    columns = np.exp(-2j * np.pi * np.outer(column, column) / size[1]) / np.sqrt(size[1])
    assert np.allclose(fft2c(x).numpy(), rows @ x.numpy() @ columns.T, atol=1e-13)
    back = rows.conj() @ x.numpy() @ columns.conj().T
    assert np.allclose(ifft2c(x).numpy(), back, atol=1e-13)


def test_fast_lengths_are_the_next_even_products_of_2_3_and_5() -> None:
    def smooth(n: int) -> bool:
        for p in (2, 3, 5):
            while n % p == 0:
                n //= p
        return n == 1

    for n in range(1, 1100):
        expected = next(m for m in range(n, 2 * n + 2) if m % 2 == 0 and smooth(m))
        assert fast_length(n) == expected


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_borders_are_numpys_and_the_adjoint_is_the_transpose(boundary: str) -> None:
    x = torch.randn((2, 1, 5, 6), generator=gen(), dtype=torch.float64)
    left, right, top, bottom = pads = (2, 3, 1, 4)
    widths = ((0, 0), (0, 0), (top, bottom), (left, right))
    grown = np.pad(x.numpy(), widths, mode=NUMPY_MODE[boundary])  # type: ignore[call-overload]
    assert np.array_equal(pad(x, pads, boundary).numpy(), grown)
    v = torch.randn(grown.shape, generator=gen(1), dtype=torch.float64)
    inner = float((v.numpy() * grown).sum())
    assert float((pad_adjoint(v, pads, boundary) * x).sum()) == pytest.approx(inner)
