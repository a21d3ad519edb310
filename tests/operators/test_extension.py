"""Extension of known pixels against a dense solve, scikit-image and a linear function."""

import itertools

import numpy as np
import pytest
import torch

from golden import gen
from pnpcm.operators import Inpainting
from pnpcm.operators.extension import extension


def dense_extension(y: np.ndarray, known: np.ndarray, tension: float) -> np.ndarray:
    """(L² + τL)x = 0 at the missing pixels of one plane, L entered edge by edge."""
    height, width = y.shape
    number = np.arange(y.size).reshape(y.shape)
    laplacian = np.zeros((y.size, y.size))
    for i, j in np.ndindex(height, width):
        for k, m in ((i + 1, j), (i, j + 1)):
            if k < height and m < width:
                a, b = number[i, j], number[k, m]
                laplacian[[a, b], [a, b]] += 1
                laplacian[[a, b], [b, a]] -= 1
    hole = ~known.ravel()
    matrix = (laplacian @ laplacian + tension * laplacian)[hole]
    x = y.ravel().copy()
    x[hole] = np.linalg.solve(matrix[:, hole], -matrix[:, ~hole] @ x[~hole])
    return x.reshape(y.shape).clip(y[known].min(), y[known].max())


@pytest.mark.parametrize("tension", [0.0, 0.05])
def test_equals_the_dense_solve_also_at_borders(tension: float) -> None:
    g = gen()
    y = torch.rand((1, 1, 11, 13), generator=g, dtype=torch.float64) * 2 - 1
    known = torch.rand((11, 13), generator=g) > 0.5
    known[3:8, 4:9] = False
    known[9:, :4] = False
    found = extension(y * known, known[None, None], tension=tension, tol=1e-12)[0, 0].numpy()
    assert np.abs(found - dense_extension(y[0, 0].numpy(), known.numpy(), tension)).max() < 1e-8


def test_equals_scikit_image_without_tension() -> None:
    inpaint = pytest.importorskip("skimage.restoration").inpaint_biharmonic
    g = gen()
    y = torch.rand((1, 3, 30, 25), generator=g, dtype=torch.float64)
    known = torch.rand((30, 25), generator=g) > 0.3
    known[10:14] = False
    known[:, 20] = False
    found = extension(y * known, known[None, None], tension=0.0, tol=1e-12)[0]
    expected = inpaint((y * known)[0].movedim(0, -1).numpy(), ~known.numpy(), channel_axis=-1)
    assert np.abs(found.movedim(0, -1).numpy() - expected).max() < 1e-8


def test_a_ramp_continues_through_a_wide_hole() -> None:
    i, j = torch.meshgrid(torch.arange(75.0), torch.arange(91.0), indexing="ij")
    ramp = (0.01 * i - 0.008 * j)[None, None]
    known = torch.ones(75, 91)
    known[12:60, 15:70] = 0
    found = Inpainting(known).x_extension(ramp * known)
    assert float((found - ramp).abs().max()) < 0.01  # of a range of 1.46


def test_batch_equals_singles_and_known_pixels_are_unchanged() -> None:
    g = gen()
    y = torch.rand((2, 3, 33, 20), generator=g) * 2 - 1
    shared = torch.rand((1, 1, 33, 20), generator=g) > 0.4
    of_each = torch.rand((2, 3, 33, 20), generator=g) > 0.7
    for mask in (shared, shared.expand(2, 1, -1, -1), of_each):
        found = Inpainting(mask).x_extension(y * mask)
        assert torch.equal(torch.where(mask, found, 0), y * mask)
        for b, c in itertools.product(range(2), range(3)):
            one = mask[min(b, len(mask) - 1), min(c, mask.shape[1] - 1)]
            alone = Inpainting(one).x_extension((y[b, c] * one)[None, None])
            assert float((alone[0, 0] - found[b, c]).abs().max()) < 1e-6


def test_values_stay_between_the_known_ones_and_an_unknown_plane_is_zero() -> None:
    y = torch.zeros(1, 2, 9, 9)
    y[0, 0, :, :3], y[0, 0, :, 3:] = -0.5, 0.5
    mask = torch.zeros(1, 2, 9, 9)
    mask[0, 0, :, [1, 2, 3, 4]] = 1  # a step between known columns overshoots if not limited
    found = Inpainting(mask).x_extension(y * mask)
    assert float(found.abs().max()) == 0.5
    assert not found[0, 1].any()
