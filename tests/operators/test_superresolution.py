"""Super-resolution against docs/method.md §7.2 and §12.2, dense algebra and a library resizer."""

import pytest
import torch
import torch.nn.functional as F

from golden import gen, image, relative
from pnpcm.errors import ArgumentError
from pnpcm.laws import check_operator
from pnpcm.operators import SuperResolution
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
    dense = torch.linalg.svdvals(sr.reduction_matrix(n, factor))
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


# area ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "factor"), [((36, 48), 4), ((15, 21), 3), ((10, 8), 2)])
@pytest.mark.parametrize("dense", [True, False])
def test_area_is_the_mean_of_cells(size: tuple[int, int], factor: int, dense: bool) -> None:
    operator = SuperResolution((3, *size), factor, downsampler="area")
    if not dense:
        operator.dense = (False, False)
    x = torch.randn((2, 3, *size), generator=gen(), dtype=torch.float64)
    y = operator.A(x)
    torch.testing.assert_close(y, F.avg_pool2d(x, factor), rtol=0, atol=1e-14)
    back = F.interpolate(y, scale_factor=factor) / factor**2  # each pixel gets 1/f² of its cell
    torch.testing.assert_close(operator.A_adjoint(y), back, rtol=0, atol=1e-14)
    for gamma in (0.1, 7.0, 1e3):
        # y − A(prox) = (y − Az)/(1 + γ/f²): A Aᵀ = 1/f², worked out by hand
        z = torch.randn(x.shape, generator=gen(1), dtype=torch.float64)
        gap = (y - F.avg_pool2d(z, factor)) / (1 + gamma / factor**2)
        expected = z + gamma * F.interpolate(gap, scale_factor=factor) / factor**2
        torch.testing.assert_close(operator.prox_l2(z, y, gamma), expected, rtol=0, atol=1e-11)
    assert torch.allclose(operator.singular_values, torch.tensor(1 / factor).double())


def test_both_downsamplers_obey_the_laws() -> None:
    for name in sr.DOWNSAMPLERS:
        operator = SuperResolution((3, 16, 20), 2, downsampler=name)
        x = torch.randn((2, 3, 16, 20), generator=gen(), dtype=torch.float64)
        report = check_operator(operator, x, generator=gen())
        assert report.ok, str(report)


def test_the_downsampler_is_named() -> None:
    assert repr(SuperResolution((3, 8, 12), 4)) == "SuperResolution(3×8×12, factor 4, bicubic)"
    assert "area" in repr(SuperResolution((3, 8, 12), 4, downsampler="area"))
    with pytest.raises(ArgumentError, match=r"downsampler is 'lanczos'.*bicubic, area"):
        SuperResolution((3, 8, 12), 4, downsampler="lanczos")
