"""Masks against docs/method.md §7.7, and simulated scans against their own truth."""

import pytest
import torch

from golden import R4_LINES, R8_LINES, gen, relative
from pnpcm.mri import acs_start, birdcage_maps, gaussian1d, phantom, simulate_scan
from pnpcm.operators import MultiCoilMRI


@pytest.mark.parametrize(("R", "acs", "lines"), [(4, 24, R4_LINES), (8, 12, R8_LINES)])
def test_reference_masks_are_the_authors(R: int, acs: int, lines: tuple[int, ...]) -> None:
    mask = gaussian1d(320, R, acs, reference=True)
    assert mask.nonzero().flatten().tolist() == list(lines)


def test_default_masks_are_centred_and_seeded() -> None:
    mask = gaussian1d(320, 4, 24, generator=gen(1))
    assert int(mask.sum()) == 80
    assert acs_start(320, 24) == 148
    assert bool(mask[148:172].all())
    assert torch.equal(mask, gaussian1d(320, 4, 24, generator=gen(1)))
    assert not torch.equal(mask, gaussian1d(320, 4, 24, generator=gen(2)))
    many = sum(gaussian1d(320, 4, 24, generator=gen(s)).float() for s in range(200))
    assert float(many[100:140].mean()) > 3 * float(many[:40].mean())
    assert int(gaussian1d(64, 4, 16, generator=gen()).sum()) == 16


def test_coil_maps_are_smooth_and_normalised() -> None:
    maps = birdcage_maps(8, (64, 48))
    assert torch.allclose(maps.abs().square().sum(0), torch.ones(64, 48), atol=1e-5)
    steps = []
    for n in (64, 128, 256):  # smooth: steps between neighbours halve with the grid, jumps stay
        fine = birdcage_maps(8, (n, n))
        steps.append(float((fine[:, 1:] - fine[:, :-1]).abs().max()))
    assert steps[1] < 0.6 * steps[0]
    assert steps[2] < 0.6 * steps[1]


def test_scan_is_the_operator_applied_to_the_truth() -> None:
    scan = simulate_scan(phantom((48, 40)), n_coils=4, generator=gen())
    operator = MultiCoilMRI(scan.coil_maps, torch.ones(40))
    assert relative(operator.A(scan.x_true)[0], scan.kspace) < 1e-6
    assert relative(operator.A_adjoint(scan.kspace[None]), scan.x_true) < 1e-5
    assert float(scan.image.abs().max()) == pytest.approx(1)
    assert float(scan.image.angle()[10:30, 10:30].std()) > 0.01


def test_coil_noise_has_the_stated_level_and_correlation() -> None:
    clean = simulate_scan(phantom((96, 96)), n_coils=4, generator=gen(1))
    noisy = simulate_scan(phantom((96, 96)), n_coils=4, noise_std=0.1, generator=gen(1))
    noise = torch.view_as_real(noisy.kspace - clean.kspace).permute(0, 3, 1, 2).flatten(1)
    covariance = noise @ noise.T / noise.shape[1] / 0.1**2
    expected = torch.eye(4)
    for i in range(4):
        expected[i, (i + 1) % 4] = expected[(i + 1) % 4, i] = 0.2
    assert torch.allclose(covariance, expected, atol=0.04)


def test_phantom_is_in_range_at_any_size() -> None:
    for size in ((32, 32), (65, 40)):
        image = phantom(size)
        assert image.shape == size
        assert float(image.min()) >= 0
        assert 0.7 < float(image.max()) <= 1
