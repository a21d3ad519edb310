"""From raw files to volumes: units, batches, masks, crops, scores, refusals."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golden import needs
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import to_complex
from pnpcm.mri import gaussian1d, phantom, simulate_scan
from pnpcm.mri.espirit import espirit
from pnpcm.mri.plausibility import ghost_amplitude, kspace_warnings
from pnpcm.mri.preparation import Preparation, SliceOptions, Slices
from pnpcm.mri.readers import read_scan
from pnpcm.mri.scan import Protocol, Scan, crop_centre
from pnpcm.mri.simulate import phantoms, write_simulated
from pnpcm.operators import MultiCoilMRI
from pnpcm.places import resolve
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.recon import reconstruct
from pnpcm.recon.scan import volume_report
from pnpcm.transforms import fft2c, ifft2c

h5py = pytest.importorskip("h5py")
LARGE_BRAIN = "$PNPCM_DATA/mri_kspace/brain_t1_8ch_230x180.npz"
SIZE = (32, 40)
MASK = gaussian1d(40, 2, 12, generator=torch.Generator().manual_seed(0))
PRIOR = StationaryGaussianPrior()


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "scan.h5"
    write_simulated(path, phantoms(3, SIZE), n_coils=4, noise_std=0.005)
    return path


def scan_of(kspace: torch.Tensor, **more: object) -> Scan:
    n, coils, height, width = kspace.shape
    return Scan(
        "s",
        "test",
        n,
        coils,
        (height, width),
        (height, width),
        lambda i: kspace[i],
        **more,  # type: ignore[arg-type]
    )


def test_simulated_files_are_fastmri_files(raw: Path) -> None:
    scan = read_scan(raw)
    assert (scan.format, scan.n_slices, scan.n_coils, scan.size) == ("fastMRI", 3, 4, SIZE)
    with h5py.File(raw) as file:
        assert file["kspace"].shape == (3, 4, 64, 40)
    rss = ifft2c(scan.kspace(1)).abs().square().sum(0).sqrt()
    assert scan.target is not None
    torch.testing.assert_close(rss, scan.target(1), atol=1e-5, rtol=0)


def test_full_scan_undersampled_in_retrospect_is_scored(raw: Path) -> None:
    volume = reconstruct(
        read_scan(raw), PRIOR, preparation=SliceOptions(mask=MASK, kernel=4), preset="fastmri/pd-r4"
    )
    assert volume.image.shape == (3, *SIZE)
    names = [s["convention"] for s in volume.record["scores"]]
    assert [n.split()[0] for n in names] == ["paper", "fastMRI"]
    assert all(s["psnr"] > 20 for s in volume.record["scores"])
    assert volume.reference is not None
    # the scan's own units and phase: as the fully sampled image has them
    scan = read_scan(raw)
    prepared = Preparation(scan, SliceOptions(mask=MASK, kernel=4), "max")(scan.slices([1]), [1])
    assert prepared.reference is not None
    found, wanted = volume.image[1], prepared.reference[0]
    share = (wanted.conj() * found).sum() / wanted.abs().square().sum()
    assert float((share - 1).abs()) < 0.1


def test_batches_and_seeds_change_nothing(raw: Path) -> None:
    scan, options = read_scan(raw), SliceOptions(mask=MASK, kernel=4)
    whole, single = (
        reconstruct(scan, PRIOR, preparation=options, preset="fastmri/pd-r4", batch=b)
        for b in (3, 1)
    )
    torch.testing.assert_close(whole.image, single.image, atol=1e-5, rtol=1e-4)
    again = reconstruct(scan, PRIOR, preparation=options, preset="fastmri/pd-r4", batch=3)
    assert torch.equal(whole.image, again.image)
    last = reconstruct(scan, PRIOR, preparation=options, preset="fastmri/pd-r4", slices=[2])
    torch.testing.assert_close(last.image[0], whole.image[2], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("factor", [1e-6, 1e4])
def test_scanner_units_do_not_matter(raw: Path, factor: float) -> None:
    k = read_scan(raw).slices([0])
    plain, scaled = (
        reconstruct(
            scan_of(c * k), PRIOR, preparation=SliceOptions(kernel=4), preset="fastmri/pd-r4"
        )
        for c in (1.0, factor)
    )
    torch.testing.assert_close(scaled.image / factor, plain.image, atol=1e-4, rtol=1e-3)


def test_prospective_data_keep_their_mask_and_full_width(tmp_path: Path) -> None:
    path = tmp_path / "under.h5"
    write_simulated(path, phantoms(1, SIZE), n_coils=4, noise_std=0.002, mask=MASK)
    scan = read_scan(path)
    assert torch.equal(scan.mask, MASK)
    volume = reconstruct(scan, PRIOR, preparation=SliceOptions(kernel=4), preset="fastmri/pd-r4")
    assert torch.equal(volume.mask, MASK)
    assert volume.reference is None
    assert volume.record["scores"] == []
    with pytest.raises(ArgumentError, match="already undersampled"):
        reconstruct(scan, PRIOR, preparation=SliceOptions(mask=MASK, kernel=4))


def test_masks_are_inferred_for_each_slice(raw: Path) -> None:
    k = read_scan(raw).slices([0, 1, 2])
    other = MASK.flip(0).clone()
    other[14:26] = True
    k[0] *= MASK
    k[1] *= other
    k[2] *= MASK
    volume = reconstruct(
        scan_of(k), PRIOR, preparation=SliceOptions(kernel=4), preset="fastmri/pd-r4"
    )
    alone = reconstruct(
        scan_of(k), PRIOR, preparation=SliceOptions(kernel=4), preset="fastmri/pd-r4", slices=[1]
    )
    torch.testing.assert_close(volume.image[1], alone.image[0], atol=1e-5, rtol=1e-4)


def test_empty_slices_stay_empty(raw: Path) -> None:
    k = read_scan(raw).slices([0, 1, 2])
    k[1] = 0
    volume = reconstruct(
        scan_of(k), PRIOR, preparation=SliceOptions(mask=MASK, kernel=4), preset="fastmri/pd-r4"
    )
    assert not bool(volume.image[1].any())
    assert bool(volume.image[0].any())
    assert any("left empty: 1" in note for note in volume.record["notes"])
    with pytest.raises(ArgumentError, match="no signal"):
        reconstruct(scan_of(0 * k), PRIOR)


def test_noise_is_whitened_and_coils_compressed(raw: Path) -> None:
    k = read_scan(raw).slices([1])
    g = torch.Generator().manual_seed(3)
    noise = 0.005 * torch.randn((4, 500), generator=g, dtype=torch.complex64) * 2**0.5
    options = SliceOptions(kernel=4, n_coils=3)
    volume = reconstruct(
        scan_of(k, noise=noise), PRIOR, preparation=options, preset="fastmri/pd-r4"
    )
    assert any("pre-whitened" in n for n in volume.record["notes"])
    assert any("compressed to 3" in n for n in volume.record["notes"])
    plain = reconstruct(
        scan_of(k), PRIOR, preparation=SliceOptions(kernel=4), preset="fastmri/pd-r4"
    )
    a, b = volume.image.abs() * 0.005, plain.image.abs()
    assert float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b)) < 0.1
    assert volume.record["sigma_y"] == pytest.approx(0.0025, rel=0.2)  # brightest ≈ 1


def test_own_maps_and_crop_first(raw: Path) -> None:
    scan = read_scan(raw)
    maps = torch.ones(3, *SIZE, dtype=torch.complex64)
    with pytest.raises(ShapeError, match="coil_maps have shape"):
        reconstruct(scan, PRIOR, preparation=SliceOptions(coil_maps=maps), preset="fastmri/pd-r4")
    two = torch.ones(2, 4, *SIZE, dtype=torch.complex64)
    with pytest.raises(ShapeError, match=r"coil_maps have .* 2 slices, but scan has 3; give maps"):
        reconstruct(scan, PRIOR, coil_maps=two, preset="fastmri/pd-r4")
    mask = gaussian1d(32, 2, 12, generator=torch.Generator().manual_seed(0))
    options = SliceOptions(mask=mask, kernel=4, crop_first=(32, 32), maps_from="scan")
    volume = reconstruct(scan, PRIOR, preparation=options, preset="fastmri/pd-r4")
    assert volume.image.shape == (3, 32, 32)


def test_crop_first_does_not_hide_that_lines_are_missing(raw: Path) -> None:
    k = read_scan(raw).slices([0]) * MASK
    mask = gaussian1d(32, 2, 12, generator=torch.Generator().manual_seed(0))
    options = SliceOptions(mask=mask, kernel=4, crop_first=(32, 32))
    for scan in (scan_of(k), scan_of(k, mask=MASK)):
        with pytest.raises(ArgumentError, match="already undersampled"):
            reconstruct(scan, PRIOR, preparation=options, preset="fastmri/pd-r4")


def test_samples_have_a_mean_and_a_spread(raw: Path) -> None:
    options = SliceOptions(mask=MASK, kernel=4)
    volume = reconstruct(
        read_scan(raw), PRIOR, preparation=options, preset="fastmri/pd-r4", samples=3, slices=[1]
    )
    assert volume.std is not None
    assert float(volume.std.max()) > 0
    nfe = 3 * len(volume.record["solver"]["sigmas"])
    assert volume.record["nfe"] == nfe
    assert f"{nfe} network evaluations per slice, prior" in volume_report(volume)


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="scale is 'best'"):
        SliceOptions(scale="best")
    k = torch.ones(1, 2, 16, 16, dtype=torch.complex64)
    with pytest.raises(ArgumentError, match=r"oracle.*needs a fully sampled"):
        reconstruct(scan_of(k), PRIOR, scale="oracle")
    with pytest.raises(ArgumentError, match="crop_first would destroy"):
        reconstruct(scan_of(k), PRIOR, crop_first=(8, 8))
    k[..., 6:10] = 0
    with pytest.raises(ArgumentError, match=r"calibration|centre|central"):
        reconstruct(scan_of(k), PRIOR, preset="fastmri/pd-r4")
    with pytest.raises(ArgumentError, match="has 0…0"):
        reconstruct(scan_of(k), PRIOR, slices=[4])
    with pytest.raises(ArgumentError, match="does not take complex images"):
        reconstruct(scan_of(k), "natural")


def test_other_methods_take_the_place_of_pnp_cm(raw: Path) -> None:
    """Other methods get the same y, operator and generators."""

    def zero_filled(part: Slices, seeds: list[list[int]]) -> torch.Tensor:
        return part.operator.A_adjoint(part.y)[None]

    scan, options = read_scan(raw), SliceOptions(mask=MASK, kernel=4)
    volume = reconstruct(
        scan, PRIOR, preparation=options, preset="fastmri/pd-r4", solve=zero_filled
    )
    part = Preparation(scan, options, "max")(scan.slices([0]), [0])
    expected = to_complex(part.operator.A_adjoint(part.y)) / part.factor[:, None, None]
    inside = part.support[0]
    assert 0.3 < float(inside.float().mean()) < 1
    torch.testing.assert_close(volume.image[0][inside], expected[0][inside])


def test_record_holds_everything(raw: Path) -> None:
    volume = reconstruct(
        read_scan(raw), PRIOR, preparation=SliceOptions(mask=MASK, kernel=4), preset="fastmri/pd-r4"
    )
    record = json.loads(json.dumps(volume.record))
    assert record["solver"]["data_step"]["max_iter"] == 10
    assert {"plan", "read", "maps and scale", "solve"} <= set(record["seconds"])
    assert "acceleration" in record["sampling"]
    assert np.isfinite(record["sigma_y"])


def test_the_protocol_of_the_scan_is_that_of_the_volume(raw: Path) -> None:
    protocol = Protocol(repetition_time=2000.0, manufacturer="Acme")
    scan = replace(read_scan(raw), protocol=protocol)
    volume = reconstruct(scan, PRIOR, mask=MASK, kernel=4, preset="fastmri/pd-r4", slices=[1])
    assert volume.protocol == protocol
    told = volume.record["scan"]["protocol"]
    assert told == {"repetition_time": 2000.0, "manufacturer": "Acme"}


def test_every_slice_is_read_once(raw: Path) -> None:
    """The middle slice, on which the plan is made, is not prepared again."""
    k, read = read_scan(raw).slices([0, 1, 2]), []

    def one(i: int) -> torch.Tensor:
        read.append(i)
        return k[i]

    scan = Scan("s", "test", 3, 4, SIZE, SIZE, one)
    reconstruct(scan, PRIOR, kernel=4, preset="fastmri/pd-r4", batch=2)
    assert sorted(read) == [0, 1, 2]


def test_the_record_says_how_far_the_result_is_from_the_data(raw: Path) -> None:
    volume = reconstruct(read_scan(raw), PRIOR, mask=MASK, kernel=4, preset="fastmri/pd-r4")
    check = volume.record["check"]
    assert {"ratio", "verdict", "fit", "warnings", "ok"} <= check.keys()
    assert check["warnings"] == []
    destroyed = reconstruct(
        read_scan(raw), PRIOR, mask=MASK, kernel=4, preset="fastmri/pd-r4",
        solve=lambda part, seeds: 0 * part.operator.A_adjoint(part.y)[None],
    )  # fmt: skip
    # a blank image leaves all of y unexplained, signal and noise
    assert destroyed.record["check"]["ratio"] > 2
    assert "does not explain the data" in destroyed.record["check"]["verdict"]
    assert not destroyed.record["check"]["ok"]


def test_an_image_passed_as_kspace_is_named(raw: Path) -> None:
    images = ifft2c(read_scan(raw).slices([1]))
    volume = reconstruct(scan_of(images), PRIOR, kernel=4, preset="fastmri/pd-r4", mask=MASK)
    (warning,) = volume.record["check"]["warnings"]
    assert "looks like an image, not k-space" in warning


def with_ghost(kspace: torch.Tensor, phase: float) -> torch.Tensor:
    """K-space whose odd and even columns differ by twice ``phase``, as in echo-planar imaging."""
    sign = torch.ones(kspace.shape[-1])
    sign[1::2] = -1
    return kspace * torch.polar(torch.ones(1), phase * sign)


@pytest.mark.parametrize("size", [(64, 64), (96, 80)])
def test_ghosts_of_echo_planar_imaging_are_named(size: tuple[int, int]) -> None:
    scan = simulate_scan(
        phantom(size, zoom=0.7), noise_std=0.01, generator=torch.Generator().manual_seed(0)
    )
    assert ghost_amplitude(scan.kspace) == 0
    assert kspace_warnings(scan.kspace) == []
    for phase in (0.15, 0.3):  # the copy has tan(phase) of the intensity
        found = ghost_amplitude(with_ghost(scan.kspace, phase))
        assert found == pytest.approx(math.tan(phase), abs=0.06)
    few = torch.zeros(size[1])
    few[size[1] // 2 - 2 : size[1] // 2 + 2] = 1
    assert ghost_amplitude(with_ghost(scan.kspace, 0.3) * few) == 0  # too few lines to tell
    (warning,) = kspace_warnings(with_ghost(scan.kspace, 0.3))
    assert "odd and even" in warning
    assert "EPI" in warning


def test_the_scale_of_one_coil_is_that_of_its_zero_filled_image() -> None:
    """AᴴA is a projection for one coil, so that the least-squares image is the zero-filled one."""
    scan = simulate_scan(
        phantom((64, 64)),
        n_coils=1,
        noise_std=0.005,
        generator=torch.Generator().manual_seed(0),
    )
    mask = gaussian1d(64, 3, 12, generator=torch.Generator().manual_seed(0))
    factors = [
        Preparation(scan_of(scan.kspace[None]), SliceOptions(mask=mask, scale=scale), "max")(
            scan.kspace[None], [0]
        ).factor
        for scale in ("cg", "zero-filled")
    ]
    torch.testing.assert_close(*factors, rtol=1e-3, atol=0)


def test_a_phantom_is_unlike_the_brains_of_the_prior() -> None:
    scan = simulate_scan(
        phantom((144, 144)), noise_std=0.003, generator=torch.Generator().manual_seed(0)
    )
    check = reconstruct(
        scan_of(scan.kspace[None]), mask=gaussian1d(144, 3, 24, generator=torch.Generator())
    ).record["check"]
    assert check["domain_ratio"] > 1
    assert "unlike those the prior was trained on" in check["fit"]
    assert not check["ok"]


def test_the_phantom_of_simulate_mri_is_at_least_at_the_edge(tmp_path: Path) -> None:
    path = tmp_path / "phantom.h5"
    write_simulated(path, phantoms(1, (128, 128)))
    for r in (4, 8):
        mask = gaussian1d(128, r, 12, generator=torch.Generator().manual_seed(0))
        fit = reconstruct(read_scan(path), mask=mask).record["check"]["fit"]
        assert "at the edge of" in fit or "unlike" in fit


@needs(LARGE_BRAIN)
def test_a_brain_is_like_the_brains_of_the_prior() -> None:
    kspace = torch.from_numpy(np.load(resolve(LARGE_BRAIN))["kspace"])[None]
    mask = gaussian1d(kspace.shape[-1], 4, 24, generator=torch.Generator())
    check = reconstruct(scan_of(kspace.to(torch.complex64)), mask=mask).record["check"]
    assert check["domain_ratio"] < 1
    assert check["ok"], check
    ghosts = scan_of(with_ghost(kspace.to(torch.complex64), 0.3))
    assert not reconstruct(ghosts, mask=mask).record["check"]["ok"]


@pytest.mark.parametrize("method", ["pnp-admm", "dpir", "dds"])
def test_another_method_with_its_tuned_numbers(raw: Path, method: str) -> None:
    volume = reconstruct(read_scan(raw), mask=MASK, kernel=4, method=method, slices=[1])
    assert volume.record["method"] == method
    assert f"{method}/mri" in volume.record["parameters_from"]
    assert volume.record["prior_kind"] == "edm"
    assert volume.record["scores"][0]["psnr"] > 20


def test_a_method_that_cannot_serve_is_refused_with_the_reason(raw: Path) -> None:
    with pytest.raises(ArgumentError, match=r"ddrm.*(cannot serve|no tuned numbers)"):
        reconstruct(read_scan(raw), mask=MASK, kernel=4, method="ddrm")
    with pytest.raises(ArgumentError, match="it belongs to the method pnp-cm"):
        reconstruct(read_scan(raw), mask=MASK, method="dpir", preset="fastmri/pd-r4")


# coil maps of few calibration lines ---------------------------------------------------------------
FEW = gaussian1d(64, 4, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def head() -> torch.Tensor:
    """K-space ``(1, coils, H, W)`` of a phantom with air around it."""
    image = torch.zeros(64, 64)
    crop_centre(image, (48, 48)).copy_(phantom((48, 48)))
    g = torch.Generator().manual_seed(0)
    return simulate_scan(image, n_coils=4, noise_std=0.005, generator=g).kspace[None]


def oracle(truth: torch.Tensor) -> Any:
    """A solver that knows the fully sampled coil images ``(1, coils, H, W)``."""

    def solve(part: Slices, seeds: list[list[int]]) -> torch.Tensor:
        full = MultiCoilMRI(part.operator.coil_maps, torch.ones(truth.shape[-1]))
        return (full.A_adjoint(fft2c(truth)) * part.factor[:, None, None, None])[None]

    return solve


def test_an_image_that_the_maps_cut_off_scores_badly_by_both_conventions(
    head: torch.Tensor,
) -> None:
    """Kernel 6 and crop 0.95 with 8 lines: maps of part of the object, the rest is lost."""
    poor = SliceOptions(mask=FEW, kernel=6, crop=0.95)
    good = SliceOptions(mask=FEW)
    solve, scores = oracle(ifft2c(head)), {}
    for name, options in (("poor", poor), ("good", good)):
        volume = reconstruct(
            scan_of(head), PRIOR, preparation=options, preset="fastmri/pd-r4", solve=solve
        )
        scores[name] = {s["convention"].split()[0]: s for s in volume.record["scores"]}
        assert set(scores[name]) == {"paper", "fastMRI"}
    for convention in ("paper", "fastMRI"):
        assert scores["good"][convention]["psnr"] > 30
        assert scores["poor"][convention]["psnr"] < scores["good"][convention]["psnr"] - 8


def test_a_destroyed_image_scores_badly_by_both_conventions(head: torch.Tensor) -> None:
    truth, options = oracle(ifft2c(head)), SliceOptions(mask=FEW)

    def destroyed(part: Slices, seeds: list[list[int]]) -> torch.Tensor:
        x = truth(part, seeds)
        x[..., 20:, :] = 0
        return x

    for solve, least, most in ((truth, 30, 99), (destroyed, 0, 20)):
        volume = reconstruct(
            scan_of(head), PRIOR, preparation=options, preset="fastmri/pd-r4", solve=solve
        )
        assert len(volume.record["scores"]) == 2
        assert all(least < s["psnr"] < most for s in volume.record["scores"])


def test_scores_do_not_depend_on_the_maps_in_use(head: torch.Tensor) -> None:
    parts = [
        Preparation(scan_of(head), SliceOptions(mask=FEW, kernel=k, crop=c), "max")(head, [0])
        for k, c in ((4, 0.9), (5, 0.99), (None, None))
    ]
    assert not torch.equal(parts[0].support, parts[1].support)
    for part in parts[1:]:
        assert part.reference is not None
        assert parts[0].reference is not None
        torch.testing.assert_close(part.reference, parts[0].reference)
        assert part.full_support is not None
        assert parts[0].full_support is not None
        assert torch.equal(part.full_support, parts[0].full_support)
    assert part.rss is not None
    bright = part.rss > 0.1 * part.rss.max()
    assert bool(part.full_support[bright].all())


def test_nothing_outside_the_maps_is_lost(head: torch.Tensor) -> None:
    """Own maps of the left half only: the right half is the zero-filled image of full data."""
    maps = simulate_scan(
        torch.ones(64, 64), n_coils=4, generator=torch.Generator()
    ).coil_maps.clone()
    maps[..., 32:] = 0
    options = SliceOptions(coil_maps=maps)
    volume = reconstruct(
        scan_of(head),
        PRIOR,
        preparation=options,
        preset="fastmri/pd-r4",
        solve=oracle(ifft2c(head)),
    )
    rss = ifft2c(head).abs().square().sum(1).sqrt()[0]
    for half in (slice(0, 32), slice(32, 64)):
        a, b = volume.image[0].abs()[:, half], rss[:, half]
        assert float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b)) < 0.1
    (note,) = [n for n in volume.record["notes"] if "cover only" in n]
    share = volume.record["preparation"]["maps"]["covered"]
    assert 0.4 < share < 0.6
    assert f"{share:.0%}" in note


def test_maps_that_cover_little_are_noted_and_those_of_nothing_refused(
    head: torch.Tensor,
) -> None:
    poor = SliceOptions(mask=FEW, kernel=6, crop=0.95)
    volume = reconstruct(scan_of(head), PRIOR, preparation=poor, preset="fastmri/pd-r4")
    (note,) = [n for n in volume.record["notes"] if "cover only" in n]
    assert "8 calibration lines with kernel 6" in note
    assert "--acs" in note
    assert "--kernel" in note
    good = reconstruct(
        scan_of(head), PRIOR, preparation=SliceOptions(mask=FEW), preset="fastmri/pd-r4"
    )
    assert good.record["notes"] == []
    assert good.record["preparation"]["maps"]["kernel"] == 4
    maps = torch.zeros(4, 64, 64, dtype=torch.complex64)
    maps[:, 30, 30] = 0.5
    with pytest.raises(ArgumentError, match=r"slice 0 cover .*% of its signal energy"):
        reconstruct(scan_of(head), PRIOR, preparation=SliceOptions(coil_maps=maps))


def test_one_slice_without_maps_does_not_stop_a_volume(head: torch.Tensor) -> None:
    maps = espirit(crop_centre(head[0], (24, 24)), (64, 64)).repeat(3, 1, 1, 1)
    maps[2, :, :, :34] = 0
    maps[2, :, :, 35:] = 0
    volume = reconstruct(
        scan_of(head.expand(3, -1, -1, -1)),
        PRIOR,
        preparation=SliceOptions(coil_maps=maps),
        preset="fastmri/pd-r4",
    )
    (note,) = [n for n in volume.record["notes"] if "cover only" in n]
    assert "of slice 2;" in note
    assert float(volume.image[2].abs().max()) > 0.5 * float(volume.image[1].abs().max())


# objects larger than the field of view ------------------------------------------------------------
@pytest.fixture(scope="module")
def folded() -> torch.Tensor:
    """Three slices of half the field of view; only the first two fold over themselves."""
    g, slices = torch.Generator().manual_seed(0), []
    for size in ((36, 96), (40, 92), (30, 34)):
        image = torch.zeros(48, 96)
        crop_centre(image, size).copy_(phantom(size))
        slices.append(simulate_scan(image, n_coils=8, noise_std=0.003, generator=g).kspace)
    return torch.stack(slices)[..., ::2].contiguous()


HALF = gaussian1d(48, 2, 14, generator=torch.Generator().manual_seed(0))


def test_two_sets_are_used_where_the_object_folds(folded: torch.Tensor) -> None:
    """Against the root-sum-of-squares of the folded coil images, with and without."""
    found = {}
    for sets in (None, 1):
        volume = reconstruct(
            scan_of(folded),
            PRIOR,
            preparation=SliceOptions(mask=HALF, map_sets=sets),
            preset="fastmri/pd-r4",
            slices=[0, 1],
        )
        maps = volume.record["preparation"]["maps"]
        assert maps["map_sets"] == (2 if sets is None else 1)
        assert any("two sets" in n for n in volume.record["notes"]) == (sets is None)
        found[sets] = [s["psnr"] for s in volume.record["scores"]]
    assert all(a > b + 2 for a, b in zip(found[None], found[1], strict=True))


def test_slices_of_one_and_of_two_sets_are_solved_apart(folded: torch.Tensor) -> None:
    options = SliceOptions(mask=HALF)
    whole, single = (
        reconstruct(scan_of(folded), PRIOR, preparation=options, preset="fastmri/pd-r4", batch=b)
        for b in (3, 1)
    )
    torch.testing.assert_close(whole.image, single.image, atol=1e-5, rtol=1e-4)
    assert whole.record["preparation"]["maps"]["map_sets"] == [1, 2]
    with pytest.raises(ArgumentError, match="different numbers of sets"):
        Preparation(scan_of(folded), options, "max")(folded, [0, 1, 2])


def test_own_maps_of_two_sets(folded: torch.Tensor) -> None:
    maps = espirit(crop_centre(folded[0], (24, 24)), (48, 48), map_sets=2)
    images = []
    for given in (maps[None].expand(3, -1, -1, -1, -1), maps):
        options = SliceOptions(mask=HALF, coil_maps=given, map_sets=2)
        volume = reconstruct(
            scan_of(folded), PRIOR, preparation=options, preset="fastmri/pd-r4", slices=[0]
        )
        images.append(volume.image)
    assert torch.equal(images[0], images[1])


def test_levels_outside_the_range_of_the_prior_are_noted_once(raw: Path) -> None:
    """The first level of the paper's preset is 0.24; this prior ends at 0.1."""
    narrow = StationaryGaussianPrior(sigma_max=0.1)
    for prior, count in ((PRIOR, 0), (narrow, 1)):
        volume = reconstruct(raw, prior, mask=MASK, kernel=4, preset="fastmri/pd-r4", batch=1)
        notes = [note for note in volume.record["notes"] if "outside the range" in note]
        assert len(notes) == count
        assert all("0.002 … 0.1 (images in [-1, 1])" in note for note in notes)
