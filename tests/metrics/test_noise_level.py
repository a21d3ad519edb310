"""The noise of an image, found without its clean version, against noise of a known level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.signal import convolve2d
from scipy.stats import chi2, norm
from torch import Tensor

import pnpcm
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.files import read_image
from pnpcm.metrics.noise_level import (
    STRENGTH,
    estimate_noise_std,
    median_noise_std,
    noise_profile,
)

PHOTOS = sorted((Path(pnpcm.__file__).parent / "data").glob("*.png"))
# Daubechies (1988), table 1, N = 2: low-pass h; the high-pass is its mirror with alternating signs
H = np.array([0.482962913144690, 0.836516303737469, 0.224143868041857, -0.129409522550921])


def by_hand(image: NDArray[Any], every: int) -> float:
    """Mean over channels; the scheme of Donoho and Johnstone at every ``every``-th pixel."""
    high = H * [-1, 1, -1, 1]
    found = []
    for plane in image:
        d = convolve2d(plane, np.outer(high, high), mode="valid")[::every, ::every]
        found.append(np.median(np.abs(d)) / norm.ppf(0.75))
    return float(np.mean(found))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def smooth(height: int = 200, width: int = 240) -> Tensor:
    """Waves of three colours, slow enough to be invisible to the wavelet, within ±0.5."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    waves = [torch.sin(rows / 25 + k) * torch.cos(columns / 40 - k) / 2 for k in range(3)]
    return torch.stack(waves)[None]


@pytest.mark.parametrize("std", [0.01, 0.1, 1.0])
def test_white_noise_on_a_smooth_image_is_found(std: float) -> None:
    y = smooth() + std * noise(1, 3, 200, 240)
    assert estimate_noise_std(y) == pytest.approx(std, rel=0.01)


@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_white_noise_on_photographs_is_found(path: Path) -> None:
    x = read_image(path)
    assert estimate_noise_std(x) < 0.012  # 1.5 of 255
    for std, more in ((0.04, 0.08), (0.1, 0.05), (0.4, 0.03)):
        found = estimate_noise_std(x + std * noise(*x.shape)) / std
        assert 0.97 < found < 1 + more


def textured(height: int = 128, width: int = 160) -> Tensor:
    """Waves of every frequency, weaker in half of the image, equal in the three channels."""
    generator = torch.Generator().manual_seed(5)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    x = torch.zeros(height, width)
    for _ in range(12):
        a, b, phase = 3 * torch.rand(3, generator=generator)
        x += torch.sin(a * rows + b * columns + phase) / 12
    x[:, : width // 2] /= 20
    return x.expand(1, 3, height, width)


@pytest.mark.parametrize(("std", "error"), [(0.02, 0.06), (0.1, 0.03), (0.4, 0.03)])
def test_texture_is_not_noise(std: float, error: float) -> None:
    x = textured()
    assert estimate_noise_std(x) < 0.005
    y = x + std * noise(*x.shape)
    assert estimate_noise_std(y) == pytest.approx(std, rel=error)
    assert std > 0.1 or median_noise_std(y) > 1.2 * std


def test_the_limit_is_the_chi_square_quantile_of_noise_without_its_trend() -> None:
    assert chi2.ppf(1 - 1e-6, 7 * 7 - 6) == pytest.approx(STRENGTH, rel=0.01)


def test_noise_that_the_channels_share_is_found() -> None:
    """A grey picture in colour: nothing differs between its channels."""
    y = (smooth()[:, :1] + 0.1 * noise(1, 1, 200, 240)).expand(1, 3, 200, 240)
    assert estimate_noise_std(y) == pytest.approx(0.1, rel=0.02)


def test_a_batch_has_the_mean_of_its_images() -> None:
    y = torch.cat([read_image(PHOTOS[i]) + 0.1 * (i + 1) * noise(1, 3, 256, 256) for i in (0, 1)])
    singles = [estimate_noise_std(y[i : i + 1]) for i in (0, 1)]
    assert estimate_noise_std(y) == pytest.approx(sum(singles) / 2, rel=1e-12)


def test_a_large_image_is_sampled() -> None:
    y = smooth(900, 1100)[:, :1] + 0.1 * noise(1, 1, 900, 1100)
    assert estimate_noise_std(y) == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("path", PHOTOS[:2], ids=lambda path: path.stem)
def test_it_is_the_median_of_daubechies_diagonal(path: Path) -> None:
    y = read_image(path) + 0.1 * noise(1, 3, 256, 256)
    image = y[0].double().numpy()
    assert median_noise_std(y) == pytest.approx(by_hand(image, every=1), rel=1e-6)
    assert median_noise_std(y) == pytest.approx(by_hand(image, every=2), rel=0.03)


def test_it_agrees_with_scikit_image() -> None:
    pytest.importorskip("pywt")
    from skimage.restoration import estimate_sigma

    y = read_image(PHOTOS[0]) + 0.1 * noise(1, 3, 256, 256)
    theirs = estimate_sigma(y[0].numpy(), channel_axis=0, average_sigmas=True)
    assert median_noise_std(y) == pytest.approx(theirs, rel=0.03)


def test_without_noise_it_is_small() -> None:
    assert estimate_noise_std(smooth()) < 1e-3
    assert estimate_noise_std(torch.full((2, 3, 32, 32), 0.3)) == 0
    ramp = torch.linspace(-1, 1, 64).expand(1, 1, 64, 64)
    assert estimate_noise_std(ramp) < 1e-6


@pytest.mark.parametrize("scale", [2.0, 127.5, 1e-3])
def test_scaling_law(scale: float) -> None:
    y = read_image(PHOTOS[2]).double() + 0.1 * noise(1, 3, 256, 256)
    expected = scale * estimate_noise_std(y)
    assert estimate_noise_std(scale * y) == pytest.approx(expected, rel=1e-9)
    assert estimate_noise_std(-scale * y + 5) == pytest.approx(expected, rel=1e-9)


def test_eight_bit_integers_are_taken_as_they_are() -> None:
    y = (smooth() * 127.5 + 127.5 + 10 * noise(1, 3, 200, 240)).round().to(torch.uint8)
    assert estimate_noise_std(y) == pytest.approx(10, rel=0.01)


def test_channels_and_images_are_averaged() -> None:
    std = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])[..., None, None]
    y = smooth() + std * noise(2, 3, 200, 240)
    for estimate, error in ((median_noise_std, 0.01), (estimate_noise_std, 0.02)):
        assert estimate(y) == pytest.approx(0.35, rel=error)
        assert estimate(y[:1]) == pytest.approx(0.2, rel=error)


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(200, 240), (1, 1, 200, 240), (1, 3, 200, 240)])
def test_with_70_percent_missing(shape: tuple[int, ...]) -> None:
    keep = (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.3).float()
    y = keep * (smooth() + 0.1 * noise(1, 3, 200, 240))
    assert estimate_noise_std(y, keep) == pytest.approx(0.1, rel=0.1)  # about 390 windows a channel
    hidden = torch.where(keep.bool(), y, torch.nan)  # what is missing has no say
    assert estimate_noise_std(hidden, keep) == estimate_noise_std(y, keep)


def test_a_hole_changes_nothing_else() -> None:
    y = smooth() + 0.1 * noise(1, 3, 200, 240)
    keep = torch.ones(200, 240, dtype=torch.bool)
    keep[:, 100:] = False
    assert estimate_noise_std(y * keep, keep) == estimate_noise_std(y[..., :100])


def test_too_little_is_known() -> None:
    y = smooth() + 0.1 * noise(1, 3, 200, 240)
    keep = torch.zeros(200, 240)
    keep[::2] = 1  # no two neighbours below each other
    with pytest.raises(ArgumentError, match=r"24000 known pixels per channel.*give sigma_y"):
        estimate_noise_std(y, keep)
    with pytest.raises(ArgumentError, match=r"0 known pixels per channel.*give sigma_y"):
        estimate_noise_std(y, torch.zeros(200, 240))
    for height, width in ((1, 1), (1, 240), (3, 3), (7, 8)):
        with pytest.raises(ArgumentError, match="give sigma_y"):
            estimate_noise_std(y[..., :height, :width])
    assert estimate_noise_std(y[..., :8, :9]) == pytest.approx(0.1, rel=0.5)  # 56 windows of 2×2


# --- what has no noise to show --------------------------------------------------------------------


def test_a_burnt_out_sky_does_not_hide_the_noise() -> None:
    x = smooth()
    x[..., :150, :] = 1.5  # three quarters of the image
    y = (x + 0.1 * noise(1, 3, 200, 240)).clamp(-1, 1)
    eight = ((y + 1) * 127.5).round()
    assert estimate_noise_std(y) == pytest.approx(0.1, rel=0.02)
    assert estimate_noise_std(eight) / 127.5 == pytest.approx(0.1, rel=0.02)


def test_padding_does_not_hide_the_noise() -> None:
    y = smooth() + 0.1 * noise(1, 3, 200, 240)
    padded = torch.nn.functional.pad(y, (80, 80, 0, 0), value=-0.1)
    assert estimate_noise_std(padded) == pytest.approx(0.1, rel=0.05)


def test_a_clean_drawing_has_no_noise() -> None:
    x = torch.zeros(1, 1, 128, 128)
    x[..., 20:60, 20:60], x[..., 50:100, 70:110], x[..., :, 10:12] = 0.5, -0.7, 1.0
    assert estimate_noise_std(x) == 0


def test_noise_of_less_than_one_level_of_eight_bits() -> None:
    y = (100 + 0.3 * noise(1, 1, 128, 128)).round()  # 99, 100, 101: ends, but no clipping
    expected = by_hand_nonzero(y)
    assert expected > 0.2
    assert median_noise_std(y) == pytest.approx(expected, rel=1e-6)
    assert estimate_noise_std(y) == pytest.approx(float(y.std()), rel=0.02)


def by_hand_nonzero(y: Tensor) -> float:
    high = H * [-1, 1, -1, 1]
    plane = y[0, 0].double().numpy()
    windows = np.lib.stride_tricks.sliding_window_view(plane, (4, 4))
    varied = windows.max((2, 3)) > windows.min((2, 3))
    d = convolve2d(plane, np.outer(high, high), mode="valid")[varied]
    return float(np.median(np.abs(d)) / norm.ppf(0.75))


# --- noise that is not white ----------------------------------------------------------------------


def test_the_profile_of_white_noise() -> None:
    found = noise_profile(smooth(128, 160) + 0.1 * noise(1, 3, 128, 160))
    assert found is not None
    assert found.std == pytest.approx([0.1] * 5, rel=0.08)
    assert abs(found.correlation) < 0.05
    assert abs(found.slope) < 0.2 * found.offset
    assert noise_profile(smooth()[..., :20, :20]) is None


def test_the_profile_of_noise_that_depends_on_brightness() -> None:
    x = torch.linspace(0, 1, 160).expand(1, 3, 128, 160)
    y = x + (0.01 + 0.03 * x).sqrt() * noise(1, 3, 128, 160)
    found = noise_profile(y)
    assert found is not None
    assert found.brightness == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=0.03)
    expected = [(0.01 + 0.03 * b) ** 0.5 for b in found.brightness]
    assert found.std == pytest.approx(expected, rel=0.08)
    assert (found.offset, found.slope) == (
        pytest.approx(0.01, rel=0.25),
        pytest.approx(0.03, rel=0.2),
    )


def test_the_profile_of_correlated_noise() -> None:
    """Means of 2×2 pixels of white noise: neighbours have 2 of 4 pixels in common."""
    wide = noise(1, 3, 129, 161)
    mean = torch.nn.functional.avg_pool2d(wide, 2, stride=1)  # standard deviation 1/2
    found = noise_profile(smooth(128, 160) + 0.2 * mean)
    assert found is not None
    assert found.correlation == pytest.approx(0.5, abs=0.1)
    assert found.spread < 3


# --- refused --------------------------------------------------------------------------------------


def test_bad_arguments() -> None:
    y = smooth()
    with pytest.raises(ShapeError, match=r"y has shape \(3, 200, 240\)"):
        estimate_noise_std(y[0])
    with pytest.raises(ShapeError, match=r"mask has shape \(3, 3\)"):
        estimate_noise_std(y, torch.ones(3, 3))
    with pytest.raises(ArgumentError, match="other than 0 and 1"):
        estimate_noise_std(y, torch.full((200, 240), 0.5))
    with pytest.raises(ArgumentError, match=r"complex64"):
        estimate_noise_std(y.to(torch.complex64))
    y[0, 0, 3, 3] = torch.nan
    with pytest.raises(ArgumentError, match="not finite"):
        estimate_noise_std(y)


def test_the_argument_stays_as_it_is() -> None:
    y = (smooth() + 0.1 * noise(1, 3, 200, 240)).requires_grad_()
    before = y.detach().clone()
    estimate_noise_std(y)
    assert torch.equal(y, before)
