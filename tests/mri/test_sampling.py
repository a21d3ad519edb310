"""Sampling of k-space: masks from exact zeros, their description, the calibration block."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from golden import R4_LINES, gen
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri import gaussian1d, phantom, simulate_scan
from pnpcm.mri.sampling import calibration, describe_mask, infer_mask, low_resolution
from pnpcm.transforms import ifft2c


def kspace_of(size: tuple[int, int] = (32, 24), n_coils: int = 3) -> torch.Tensor:
    return simulate_scan(phantom(size), n_coils=n_coils, noise_std=0.01, generator=gen()).kspace


def test_columns_and_points_are_told_apart() -> None:
    kspace, columns = kspace_of(), gaussian1d(24, 3, 6, generator=gen(1))
    assert torch.equal(infer_mask(kspace * columns), columns)
    assert torch.equal(infer_mask(kspace), torch.ones(24, dtype=torch.bool))
    assert torch.equal(infer_mask(torch.stack([kspace, 2 * kspace]) * columns), columns)
    points = torch.rand(32, 24, generator=gen(2)) < 0.4
    assert torch.equal(infer_mask(kspace * points), points)
    assert torch.equal(infer_mask(torch.stack([kspace, 2 * kspace]) * points), points)


def test_a_stray_zero_of_quantised_data_is_no_gap() -> None:
    kspace, columns = kspace_of(), gaussian1d(24, 3, 6, generator=gen(1))
    kspace[:, 3, columns.nonzero()[0]] = 0
    assert torch.equal(infer_mask(kspace * columns), columns)


def test_what_cannot_be_inferred_is_refused() -> None:
    kspace, columns = kspace_of(), gaussian1d(24, 3, 6, generator=gen(1))
    with pytest.raises(ArgumentError, match="all zero, so nothing was measured"):
        infer_mask(torch.zeros_like(kspace))
    with pytest.raises(ArgumentError, match="all zero in slice 1"):
        infer_mask(torch.stack([kspace, 0 * kspace]))
    with pytest.raises(ArgumentError, match="slices 0 and 1 of kspace were sampled differently"):
        infer_mask(torch.stack([kspace, kspace * columns]))
    points = [torch.rand(32, 24, generator=gen(s)) < 0.4 for s in (2, 3)]
    with pytest.raises(ArgumentError, match="sampled differently"):
        infer_mask(torch.stack([kspace * mask for mask in points]))
    with pytest.raises(ShapeError, match=r"expected \(coils, H, W\)"):
        infer_mask(kspace[0])


def test_the_authors_mask_is_described() -> None:
    mask = torch.zeros(320, dtype=torch.bool)
    mask[list(R4_LINES)] = True
    sampling = describe_mask(mask)
    assert sampling.acceleration == pytest.approx(4)
    assert (sampling.acs, sampling.first, sampling.last) == (24, R4_LINES[0], R4_LINES[-1])
    assert sampling.partial_fourier is None
    assert "25.0% of k-space was measured (acceleration 4), with 24 central" in sampling.sentence
    assert "18 lines at the start and 12 at the end" in sampling.sentence
    with pytest.raises(FrozenInstanceError):
        sampling.acs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("first", "last", "step", "fraction"),
    [
        (0, 63, 1, None),
        (8, 55, 1, None),  # zero padding on both sides
        (16, 63, 1, 0.75),
        (0, 39, 1, 0.625),
        (24, 55, 1, 2 / 3),  # both
        (0, 60, 4, None),  # regular undersampling ends early
        (16, 63, 4, 45 / 58),
    ],
)
def test_partial_fourier(first: int, last: int, step: int, fraction: float | None) -> None:
    mask = torch.zeros(64, dtype=torch.bool)
    mask[first : last + 1 : step] = True
    found = describe_mask(mask)
    assert found.partial_fourier == (None if fraction is None else pytest.approx(fraction))
    assert ("partial Fourier" in found.sentence) == (fraction is not None)


def test_full_and_two_dimensional_masks_are_described() -> None:
    full = describe_mask(torch.ones(24))
    assert (full.acs, full.acceleration) == (24, 1)
    assert full.sentence == "all 24 phase lines were measured"
    mask = torch.rand(40, 30, generator=gen(4)) < 0.2
    mask[20 - 4 : 20 + 4, 15 - 4 : 15 + 4] = True
    mask[20 - 5, 15] = mask[20 + 4, 15] = False
    points = describe_mask(mask)
    assert points.acs == 8
    assert not points.columns
    assert points.acceleration == pytest.approx(1200 / int(mask.sum()))
    assert "a central 8 × 8 fully sampled" in points.sentence
    empty = torch.ones(24)
    empty[12] = 0
    assert describe_mask(empty).acs == 0


def test_descriptions_of_nonsense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="mask is all zero"):
        describe_mask(torch.zeros(8))
    with pytest.raises(ShapeError, match=r"expected \(W,\) or \(H, W\)"):
        describe_mask(torch.ones(2, 8, 8))


def test_calibration_is_the_centre() -> None:
    kspace, mask = kspace_of(), torch.zeros(24)
    mask[12 - 5 : 12 + 5] = 1
    block = calibration(kspace * mask, mask, 16)
    assert torch.equal(block, kspace[:, 8:24, 7:17])
    assert torch.equal(calibration(kspace, mask, 8), kspace[:, 12:20, 8:16])
    assert torch.equal(calibration(kspace, torch.ones(24), 100), kspace)
    points = torch.zeros(32, 24)
    points[16 - 4 : 16 + 4, 12 - 4 : 12 + 4] = 1
    assert torch.equal(calibration(kspace, points), kspace[:, 12:20, 8:16])


def test_calibration_that_cannot_be_is_refused() -> None:
    kspace, mask = kspace_of(), torch.zeros(24)
    mask[10:14] = 1
    with pytest.raises(ArgumentError, match="is 4 samples wide, but calibration needs at least"):
        calibration(kspace, mask)
    assert calibration(kspace, mask, kernel=4).shape == (3, 24, 4)
    mask[12] = 0
    with pytest.raises(ArgumentError, match="is 0 samples wide"):
        calibration(kspace, mask)
    with pytest.raises(ArgumentError, match="all zero, although the mask is 1"):
        calibration(torch.zeros_like(kspace), torch.ones(24))
    with pytest.raises(ShapeError, match=r"expected \(24,\) or \(32, 24\)"):
        calibration(kspace, torch.ones(32))
    with pytest.raises(ShapeError, match=r"expected \(coils, H, W\)"):
        calibration(kspace[None], torch.ones(24))


def test_low_resolution_images_are_those_of_the_windowed_centre() -> None:
    kspace, mask = kspace_of()[None], torch.zeros(24)
    mask[12 - 5 : 12 + 5] = 1
    mask[0] = 1
    p, q = torch.arange(24) - 12, torch.arange(10) - 5
    window = (0.54 + 0.46 * torch.cos(2 * torch.pi * p / 24))[:, None] * (
        0.54 + 0.46 * torch.cos(2 * torch.pi * q / 10)
    )
    weights = torch.zeros(32, 24)
    weights[4:28, 7:17] = window
    expected = ifft2c(kspace * weights)
    torch.testing.assert_close(low_resolution(kspace * mask, mask), expected)
    mask[12] = 0  # without a centre: all that was measured
    torch.testing.assert_close(low_resolution(kspace, mask), ifft2c(kspace * mask))
