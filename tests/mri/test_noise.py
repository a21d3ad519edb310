"""The noise of a scan, from its own k-space."""

import pytest
import torch

from pnpcm.mri import gaussian1d, phantom, simulate_scan
from pnpcm.mri.scale import kspace_noise_std


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
