"""ESPIRiT maps against sigpy's, against the maps behind a simulation, and their own laws."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from golden import gen, needs, relative
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri.espirit import _kernels, _on_grid, _spectrum, coherence, espirit
from pnpcm.mri.scan import crop_centre
from pnpcm.mri.simulate import phantom, simulate_scan
from pnpcm.places import resolve
from pnpcm.transforms import fft2c, ifft2c

BRAIN = "$PNPCM_DATA/mri_kspace/brain_t1_8ch_lowres_128x128.npz"

SIZES = [(64, 60), (61, 64)]


@cache
def scan(size: tuple[int, int], n_coils: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """K-space of a phantom with air around it, and the coil maps behind it."""
    inner = phantom((size[0] * 3 // 4, size[1] * 3 // 4))
    image = torch.zeros(size)
    crop_centre(image, (inner.shape[0], inner.shape[1])).copy_(inner)
    one = simulate_scan(image, n_coils=n_coils, noise_std=0.005, generator=gen(seed))
    return one.kspace, one.coil_maps


def centre(kspace: Tensor) -> Tensor:
    return crop_centre(kspace, (24, 24))


def support(maps: Tensor) -> Tensor:
    return maps.abs().sum(-3) > 0


def sigpy_maps(kspace: Tensor) -> Tensor:
    app = pytest.importorskip("sigpy.mri.app")
    calibrate = app.EspiritCalib(kspace.numpy(), 24, 0.02, 6, 0.95, 100, show_pbar=False)
    return torch.from_numpy(calibrate.run())


def agrees_with_sigpy(kspace: Tensor) -> None:
    size = (kspace.shape[-2], kspace.shape[-1])
    ours, theirs = espirit(centre(kspace), size), sigpy_maps(kspace)
    inside, other = support(ours), support(theirs)
    both = inside & other
    assert 0.2 < float(both.float().mean()) < 0.9
    assert float((inside == other).float().mean()) >= 0.99
    assert float((coherence(ours, theirs)[both] >= 0.999).float().mean()) >= 0.999
    off = (ours - theirs).abs().amax(0)[both & (theirs[0].abs() > 0.05)]  # phases too
    assert float(off.quantile(0.99)) < 0.01


@pytest.mark.parametrize("size", SIZES)
def test_maps_are_those_of_sigpy(size: tuple[int, int]) -> None:
    agrees_with_sigpy(scan(size)[0])


@needs(BRAIN)
def test_maps_of_a_brain_are_those_of_sigpy() -> None:
    agrees_with_sigpy(torch.from_numpy(np.load(resolve(BRAIN))["kspace"]))


@pytest.mark.parametrize("size", SIZES)
def test_maps_are_those_behind_the_simulation(size: tuple[int, int]) -> None:
    kspace, truth = scan(size)
    maps = espirit(centre(kspace), size)
    image = ifft2c(kspace).abs().square().sum(0).sqrt()
    seen = support(maps) & (image > 0.1 * image.max())
    assert float((coherence(maps, truth)[seen] > 0.99).float().mean()) > 0.99


@pytest.mark.parametrize("size", [(64, 60), (150, 97), (8, 5), (1, 1)])
def test_interpolated_and_refined_maps_are_the_eigenvectors(size: tuple[int, int]) -> None:
    calibration = centre(scan((64, 60))[0])
    maps = espirit(calibration, size)
    G = _on_grid(_spectrum(_kernels(calibration, 6, 0.02)), size)
    values, vectors = torch.linalg.eigh(G)
    assert float(values.max()) < 1 + 1e-5  # kernels are orthonormal
    inside = support(maps)
    assert float((inside == (values[..., -1] > 0.95)).float().mean()) > 0.999
    exact = coherence(maps, vectors[..., -1].permute(2, 0, 1))[inside]
    assert float(exact.min()) > 0.9995
    assert float(exact.mean()) > 0.99999


def test_maps_where_two_sets_of_them_overlap() -> None:
    """The object folds over the border of the field of view: both eigenvalues are near 1."""
    size = (96, 64)
    kspace = simulate_scan(torch.ones(size), n_coils=6, generator=gen()).kspace
    maps = espirit(centre(kspace), size)
    G = _on_grid(_spectrum(_kernels(centre(kspace), 6, 0.02)), size)
    values, vectors = torch.linalg.eigh(G)
    ratio = (values[..., -2] / values[..., -1])[support(maps)]
    assert float(ratio.max()) > 0.9  # the case is the one that is meant
    exact = coherence(maps, vectors[..., -1].permute(2, 0, 1))[support(maps)]
    assert float(exact[ratio < 0.99].min()) > 0.999


@pytest.mark.parametrize("size", SIZES)
def test_laws_of_maps(size: tuple[int, int]) -> None:
    maps = espirit(centre(scan(size)[0]), size)
    assert maps.dtype == torch.complex64
    assert maps.shape == (8, *size)
    inside = support(maps)
    assert bool((maps[:, ~inside] == 0).all())
    norm = maps[:, inside].abs().square().sum(0).sqrt()
    assert float((norm - 1).abs().max()) < 1e-5
    assert float(maps[0].imag.abs().max()) < 1e-6
    assert float(maps[0].real.min()) >= 0


def test_a_batch_is_its_slices() -> None:
    size = (64, 60)
    calibration = torch.stack([centre(scan(size, seed=s)[0]) for s in range(3)])
    batch = espirit(calibration, size)
    assert batch.shape == (3, 8, *size)
    for maps, one in zip(batch, calibration, strict=True):
        assert relative(maps, espirit(one, size)) < 1e-5


@pytest.mark.parametrize("factor", [1e-12, 1e6, -1j])
def test_maps_do_not_depend_on_the_scale(factor: complex) -> None:
    calibration = centre(scan((64, 60))[0])
    maps = espirit(calibration, (64, 60))
    assert relative(espirit(factor * calibration, (64, 60)), maps) < 1e-3


def test_larger_images_have_the_same_maps_in_between() -> None:
    calibration = centre(scan((64, 60))[0])
    small, large = espirit(calibration, (32, 30)), espirit(calibration, (64, 60))
    both = support(small) & support(large[:, ::2, ::2])
    assert float(coherence(small, large[:, ::2, ::2])[both].min()) > 0.9995


def test_a_silent_first_coil_leaves_the_others() -> None:
    calibration = centre(scan((64, 60))[0]).clone()
    calibration[0] = 0
    maps = espirit(calibration, (64, 60))
    others = espirit(calibration[1:], (64, 60))
    both = support(maps) & support(others)
    assert float((support(maps) == support(others)).float().mean()) > 0.99
    assert float(coherence(maps[1:], others)[both].min()) > 0.999
    assert float(maps[0].abs().max()) < 1e-3


def test_a_single_coil_has_a_map_of_ones() -> None:
    calibration = centre(fft2c(torch.rand(2, 1, 40, 30, generator=gen()).to(torch.complex64)))
    assert torch.equal(
        espirit(calibration, (40, 30)), torch.ones(2, 1, 40, 30, dtype=torch.complex64)
    )
    assert espirit(calibration[0], (40, 30)).shape == (1, 40, 30)


def test_coherence() -> None:
    a = torch.tensor([1, 1j, 0]).reshape(3, 1, 1)
    assert float(coherence(a, -2j * a)) == pytest.approx(1)
    assert float(coherence(a, torch.tensor([1, -1j, 0]).reshape(3, 1, 1))) == pytest.approx(0)
    assert float(coherence(a, 0 * a)) == 0


def test_what_is_refused() -> None:
    good = centre(scan((64, 60))[0])
    with pytest.raises(ArgumentError, match="24×5, but needs at least the kernel of 6×6"):
        espirit(good[..., :5], (64, 60))
    with pytest.raises(ArgumentError, match="kernel"):
        espirit(good, (64, 60), kernel=0)
    with pytest.raises(ArgumentError, match="slice 1 is all zero"):
        espirit(torch.stack([good, 0 * good]), (64, 60))
    with pytest.raises(ArgumentError, match="slice 0 is not finite"):
        espirit(good * math.nan, (64, 60))
    with pytest.raises(ArgumentError, match="size"):
        espirit(good, (64, 0))
    with pytest.raises(ArgumentError, match="crop is 1"):
        espirit(good, (64, 60), crop=1.0)
    with pytest.raises(ShapeError, match="complex"):
        espirit(good.real, (64, 60))
    with pytest.raises(ShapeError, match="shape"):
        espirit(good[0], (64, 60))
