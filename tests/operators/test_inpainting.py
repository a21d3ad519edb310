"""Inpainting and its median start against docs/method.md §6 and §12.2."""

import itertools

import numpy as np
import pytest
import torch

from golden import gen, image, mask
from pnpcm.operators import (
    Inpainting,
)


def test_median_start_of_the_test_image() -> None:
    operator = Inpainting(mask())
    assert int(operator.mask.sum()) == 19612
    x = operator.x_start(operator.A(image()))
    assert float(x.norm()) == pytest.approx(196.6170, abs=6e-5)
    assert float((x - image()).square().mean()) == pytest.approx(0.0319001, abs=6e-8)
    row = [0.300000, 0.265363, 0.088535, 0.265363, 0.205721, 0.205721]
    assert x[0, 0, 0, :6].tolist() == pytest.approx(row, abs=6e-7)


def slow_median_fill(y: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Pixel by pixel, as docs/method.md §6 describes it."""
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
