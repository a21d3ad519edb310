"""ESPIRiT maps against sigpy's, against the maps behind a simulation, and their own laws."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from golden import gen, needs, relative
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri.espirit import (
    _kernels,
    _on_grid,
    _spectrum,
    coherence,
    count_sets,
    espirit,
    fit_kernel,
)
from pnpcm.mri.scan import crop_centre
from pnpcm.mri.simulate import phantom, simulate_scan
from pnpcm.places import resolve
from pnpcm.transforms import fft2c, ifft2c

BRAIN = "$PNPCM_DATA/mri_kspace/brain_t1_8ch_lowres_128x128.npz"
LARGE_BRAIN = "$PNPCM_DATA/mri_kspace/brain_t1_8ch_230x180.npz"
LINES = [6, 8, 10, 12, 14, 24]

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


def kept(kspace: Tensor, lines: int, inside: Tensor) -> float:
    """Share of ``inside`` that maps from a few calibration lines cover."""
    size = (kspace.shape[-2], kspace.shape[-1])
    maps = espirit(crop_centre(kspace, (24, lines)), size)
    return float((support(maps) & inside).sum() / inside.sum())


@pytest.mark.parametrize("n_coils", [4, 12])
@pytest.mark.parametrize("lines", LINES)
def test_few_calibration_lines_keep_the_object(lines: int, n_coils: int) -> None:
    """With the kernel of many lines, most of it would be cut off."""
    kspace, truth = scan((64, 60), n_coils)
    inside = ifft2c(kspace).abs().square().sum(0).sqrt() > 0.1
    assert kept(kspace, lines, inside) >= 0.95
    maps = espirit(crop_centre(kspace, (24, lines)), (64, 60))
    seen = support(maps) & inside
    assert float((coherence(maps, truth)[seen] > 0.95).float().mean()) > 0.95


@needs(LARGE_BRAIN)
@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("path", [BRAIN, LARGE_BRAIN], ids=["128x128", "230x180"])
def test_few_calibration_lines_keep_a_brain(path: str, lines: int) -> None:
    kspace = torch.from_numpy(np.load(resolve(path))["kspace"])
    size = (kspace.shape[-2], kspace.shape[-1])
    inside = support(espirit(centre(kspace), size, kernel=6, crop=0.95))
    assert kept(kspace, lines, inside) >= 0.95


def test_kernel_and_crop_fit_the_lines_unless_given() -> None:
    assert [fit_kernel(n)[0] for n in (5, 7, 8, 9, 10, 13, 14, 24, 48)] == [
        3, 3, 4, 4, 5, 5, 6, 6, 6,
    ]  # fmt: skip
    assert [fit_kernel(n)[1] for n in (8, 14, 16, 24)] == [0.9, 0.925, 0.95, 0.95]
    assert fit_kernel(8, kernel=6) == (6, 0.9)
    assert fit_kernel(4, kernel=2, crop=0.5) == (2, 0.5)
    calibration = crop_centre(scan((64, 60))[0], (24, 8))
    chosen = espirit(calibration, (64, 60))
    assert torch.equal(chosen, espirit(calibration, (64, 60), kernel=4, crop=0.9))
    assert not torch.equal(chosen, espirit(calibration, (64, 60), kernel=3))


# several sets -------------------------------------------------------------------------------------
@cache
def folded(n_coils: int = 8) -> Tensor:
    """K-space (coils, 64, 30) of half the field of view along the lines: the object is wider."""
    image = torch.zeros(64, 60)
    crop_centre(image, (48, 60)).copy_(phantom((48, 60)))
    whole = simulate_scan(image, n_coils=n_coils, noise_std=0.005, generator=gen()).kspace
    return whole[..., ::2].contiguous()


def test_two_sets_span_the_two_largest_eigenvectors() -> None:
    kspace, size = folded(), (64, 30)
    maps = espirit(centre(kspace), size, map_sets=2)
    assert maps.shape == (2, 8, *size)
    G = _on_grid(_spectrum(_kernels(centre(kspace), 6, 0.02)), size)
    values, vectors = torch.linalg.eigh(G)
    for k in range(2):
        agreement = support(maps[k]) == (values[..., -1 - k] > 0.95)
        assert float(agreement.float().mean()) > 0.99
    both = support(maps[1])
    assert float(both.float().mean()) > 0.1  # the case is the one that is meant
    found = torch.einsum("mchw,mdhw->hwcd", maps, maps.conj())[both]
    exact = (vectors[..., -2:] @ vectors[..., -2:].mH)[both]
    assert float((found - exact).abs().max()) < 5e-3
    assert float((maps[0].conj() * maps[1]).sum(0).abs().max()) < 1e-5
    assert torch.equal(maps[0], espirit(centre(kspace), size))
    assert float(maps[:, 0].imag.abs().max()) < 1e-6
    assert float(maps[:, 0].real.min()) >= 0


def test_two_sets_explain_what_one_cannot() -> None:
    """Coil images of a folded object lie in the span of two maps, not of one."""
    images = ifft2c(folded())
    maps = espirit(centre(folded()), (64, 30), map_sets=2)
    parts = torch.einsum("mchw,chw->mhw", maps.conj(), images)

    both = support(maps[1])

    def unexplained(sets: int) -> float:
        explained = torch.einsum("mchw,mhw->chw", maps[:sets], parts[:sets])
        return relative(explained[:, both], images[:, both])

    assert unexplained(2) < 0.1
    assert unexplained(1) > 2 * unexplained(2)


def test_the_number_of_sets_is_counted() -> None:
    for n_coils in (4, 8):
        for lines in (8, 12, 24):
            assert count_sets(crop_centre(scan((64, 60), n_coils)[0], (24, lines))) == 1
            assert count_sets(crop_centre(folded(n_coils), (24, lines))) == 2
    assert count_sets(centre(folded())[:2]) == 1  # two coils cannot tell two maps
    assert count_sets(centre(folded())[:1]) == 1


def test_a_batch_of_two_sets_is_its_slices() -> None:
    calibration = torch.stack([centre(folded()), 2j * centre(scan((64, 60))[0])])
    batch = espirit(calibration, (32, 30), map_sets=2)
    assert batch.shape == (2, 2, 8, 32, 30)
    for maps, one in zip(batch, calibration, strict=True):
        assert relative(maps, espirit(one, (32, 30), map_sets=2)) < 1e-5


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
        espirit(good[..., :5], (64, 60), kernel=6)
    with pytest.raises(ArgumentError, match="4 samples wide, but calibration needs at least 5"):
        espirit(good[..., :4], (64, 60))
    with pytest.raises(ArgumentError, match="map_sets is 9, but there are 8 coils"):
        espirit(good, (64, 60), map_sets=9)
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


def test_kernels_that_need_more_memory_than_there_is_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibration = torch.ones(8, 24, 24, dtype=torch.complex64)
    monkeypatch.setitem(espirit.__globals__, "memory", lambda: 2**20)
    words = r"kernel is 6, whose blocks of a calibration of 24×24 with 8 coils need 0.0031 GiB"
    with pytest.raises(ArgumentError, match=words):
        espirit(calibration, (32, 32))
