"""Intensity conventions bring images to the same brightness; noise is found in k-space."""

import pytest
import torch

from pnpcm.errors import ArgumentError
from pnpcm.mri import gaussian1d, intensity_scale, phantom, simulate_scan
from pnpcm.mri.scale import kspace_noise_std


def images() -> torch.Tensor:
    x = torch.randn(2, 2, 20, 20, generator=torch.Generator().manual_seed(0))
    return x * torch.tensor([1e-5, 300.0])[:, None, None, None]


@pytest.mark.parametrize(
    ("convention", "quantile", "level"),
    [("max", 1.0, 1.0), ("p99.5=0.8", 0.995, 0.8), ("p50=0.25", 0.5, 0.25)],
)
def test_scaled_images_follow_the_convention(
    convention: str, quantile: float, level: float
) -> None:
    x = images()
    scaled = x * intensity_scale(x, convention)[:, None, None, None]
    magnitude = scaled.square().sum(1).sqrt().flatten(1)
    assert torch.quantile(magnitude, quantile, dim=1).tolist() == pytest.approx(
        [level] * 2, rel=1e-5
    )


def test_no_signal_is_left_alone_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="no signal"):
        factor = intensity_scale(torch.zeros(1, 2, 4, 4), "p99.5=0.8")
    assert factor.tolist() == [1.0]


def test_bad_conventions_are_named() -> None:
    for convention in ("median", "p101=1", "p99.5"):
        with pytest.raises(ArgumentError, match="expected 'max' or"):
            intensity_scale(images(), convention)
    with pytest.raises(ArgumentError, match="expected \\(B, 2, H, W\\)"):
        intensity_scale(torch.zeros(1, 3, 4, 4), "max")


@pytest.mark.parametrize("noise_std", [0.005, 0.05])
@pytest.mark.parametrize("points", [False, True])
def test_noise_of_a_smooth_scan_is_found(noise_std: float, points: bool) -> None:
    g = torch.Generator().manual_seed(0)
    p, q = torch.linspace(-1, 1, 64)[:, None], torch.linspace(-1, 1, 72)
    smooth = torch.exp(-6 * (p**2 + q**2))
    scan = simulate_scan(smooth, n_coils=4, noise_std=noise_std, generator=g)
    mask = gaussian1d(72, 2, 16, generator=g)
    mask = torch.rand((64, 72), generator=g) < 0.3 if points else mask
    found = kspace_noise_std(scan.kspace[None] * mask, mask)
    assert found.shape == (1,)
    assert float(found) == pytest.approx(noise_std, rel=0.1)


def test_edges_make_it_an_upper_estimate() -> None:
    g = torch.Generator().manual_seed(0)
    scan = simulate_scan(phantom((64, 72)), n_coils=4, noise_std=0.01, generator=g)
    found = float(kspace_noise_std(scan.kspace[None], torch.ones(72, dtype=torch.bool)))
    assert 0.0095 < found < 0.03


def test_a_narrow_mask_falls_back_to_all_samples() -> None:
    g = torch.Generator().manual_seed(0)
    kspace = torch.randn((2, 3, 64, 72), generator=g, dtype=torch.complex64) * 2**0.5
    mask = torch.zeros(64, 72, dtype=torch.bool)
    mask[28:36, 30:42] = True
    assert kspace_noise_std(kspace * mask, mask) == pytest.approx([1, 1], rel=0.2)


@pytest.mark.parametrize("convention", ["p99.5=0", "p99.5=0.000", "p50=" + "9" * 400, "p101=1", ""])
def test_scales_that_would_be_zero_or_infinite_are_refused(convention: str) -> None:
    with pytest.raises(ArgumentError, match="expected 'max' or"):
        intensity_scale(torch.ones(1, 2, 4, 4), convention)
