"""Super-resolution against reference.md §3.3 and §9.2, dense algebra and a library resizer."""

import pytest
import torch
import torch.nn.functional as F

from golden import gen, image, relative
from pnpcm.operators import (
    SuperResolution,
)
from pnpcm.operators import superresolution as sr

SHAPE = (3, 256, 256)


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
