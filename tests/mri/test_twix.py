"""Siemens raw files, written by twixtools, are read as the scan they contain."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from golden import needs
from pnpcm.errors import ArgumentError
from pnpcm.mri.readers import read_scan
from pnpcm.mri.scan import Protocol
from pnpcm.places import resolve
from twix import header_bytes, line, lines_of, write_twix

twixtools = pytest.importorskip("twixtools")
SAMPLES = "$PNPCM_DATA/mri_twix"
COILS, READOUT, WIDTH = 3, 32, 12
RNG = np.random.default_rng(0)
RAW = (RNG.normal(size=(6, COILS, READOUT, WIDTH, 2)) @ [1, 1j]).astype(np.complex64)
"""(slices, coils, readout with oversampling, phase)"""


def without_oversampling(raw: np.ndarray) -> torch.Tensor:
    """The middle half of the image rows, by a sum over all samples: x = Σ k exp(2πi k x / n)."""
    n = np.arange(READOUT) - READOUT // 2
    m = np.arange(READOUT // 2) - READOUT // 4
    inverse = np.exp(2j * np.pi * np.outer(m, n) / READOUT) / READOUT**0.5
    forward = np.exp(-2j * np.pi * np.outer(m, m) / (READOUT // 2)) / (READOUT // 2) ** 0.5
    return torch.from_numpy(np.einsum("ij,...jw->...iw", forward @ inverse, raw)).to(
        torch.complex64
    )


def test_slices_are_placed_by_position(tmp_path: Path) -> None:
    columns = [0, 3, 4, 5, 6, 7, 8, 11]
    lines = [line(RAW[0, :, :, 0], flags=("NOISEADJSCAN",))]
    lines.append(line(RAW[0, :, :, 0], flags=("PHASCOR",)))
    for number, place in ((0, 10.0), (1, 0.0), (2, 5.0)):  # interleaved
        lines += lines_of(RAW[number], columns, Sli=number, tra=place)
    scan = read_scan(write_twix(tmp_path / "meas.dat", lines))
    assert (scan.name, scan.format, scan.n_slices) == ("meas", "Siemens twix", 3)
    assert (scan.n_coils, scan.size, scan.crop) == (COILS, (READOUT // 2, WIDTH), (16, 12))
    mask = torch.zeros(WIDTH, dtype=torch.bool)
    mask[columns] = True
    assert scan.mask is not None
    assert torch.equal(scan.mask, mask)
    truth = without_oversampling(RAW[[1, 2, 0]]) * mask
    assert float((scan.slices(range(3)) - truth).abs().max()) < 1e-5
    assert scan.protocol == Protocol(12.5, 3.0, 15.0, 2.89, "SIEMENS", "Skyra", "20210622", "HFS")
    assert scan.geometry.voxel == pytest.approx((3, 3, 5))
    assert scan.geometry.position == pytest.approx((0, 0, 5))
    notes = " ".join(scan.notes)
    for text in ("1 noise line left out", "1 phase correction line left out", "32 samples"):
        assert text in notes


@pytest.mark.skipif(shutil.which("bart") is None, reason="bart is not installed")
def test_bart_reads_the_same_lines(tmp_path: Path) -> None:
    path = write_twix(tmp_path / "meas.dat", lines_of(RAW[0]))
    words = ["bart", "twixread", "-A", str(path), str(tmp_path / "bart")]
    subprocess.run(words, check=True, capture_output=True)
    values = np.fromfile(tmp_path / "bart.cfl", "<c8").reshape((READOUT, WIDTH, COILS), order="F")
    truth = without_oversampling(values.transpose(2, 0, 1))
    assert float((read_scan(path).kspace(0) - truth).abs().max()) < 1e-5


def test_files_of_software_version_vb(tmp_path: Path) -> None:
    """One measurement from the start of the file, and a header before each coil of a line."""
    content = header_bytes({}, least=16384)
    for c in range(WIDTH):
        block = twixtools.mdb.Mdb_local(RAW[0, ..., c], version_is_ve=False)
        block.mdh.CenterCol, block.mdh.CenterLin, block.mdh.Counter.Lin = READOUT // 2, 6, c
        for coil in range(COILS):
            content += bytes(block.mdh) + RAW[0, coil, :, c].tobytes()
    end = twixtools.mdb.Mdb_local(version_is_ve=False)
    end.add_flag("ACQEND")
    path = tmp_path / "meas.dat"
    path.write_bytes(content + bytes(end.mdh) + bytes(256))
    scan = read_scan(path)
    assert float((scan.kspace(0) - without_oversampling(RAW[0])).abs().max()) < 1e-5
    assert not scan.geometry.known  # this file has no quaternion


def test_directions_are_those_of_the_image(tmp_path: Path) -> None:
    """A rotation by 90° about z: phase (0, 1, 0), readout (−1, 0, 0), both reversed."""
    half = 0.5**0.5
    path = write_twix(tmp_path / "a.dat", lines_of(RAW[0], quaternion=(half, 0, 0, half)))
    geometry = read_scan(path).geometry
    assert geometry.known
    assert geometry.readout == pytest.approx((1, 0, 0), abs=1e-6)
    assert geometry.phase == pytest.approx((0, -1, 0), abs=1e-6)
    assert geometry.slice == pytest.approx((0, 0, 1), abs=1e-6)


def test_echoes_are_chosen_and_reversed_ones_are_flipped(tmp_path: Path) -> None:
    lines = lines_of(RAW[0], Eco=0) + lines_of(RAW[1][:, ::-1], Eco=1, flags=("REFLECT",))
    path = write_twix(tmp_path / "a.dat", lines)
    with pytest.raises(ArgumentError, match=r"holds 2 contrasts \(0, 1\); choose one"):
        read_scan(path)
    for contrast, time in ((0, 3.0), (1, 7.0)):
        scan = read_scan(path, contrast=contrast)
        truth = without_oversampling(RAW[contrast])
        assert float((scan.kspace(0) - truth).abs().max()) < 1e-5
        assert scan.protocol.echo_time == time


def test_partitions_become_slices_in_reverse_direction(tmp_path: Path) -> None:
    """Six partitions with half as much slice oversampling: four slices remain."""
    lines = [one for p in range(6) for one in lines_of(RAW[p], Par=p, centre_partition=3, tra=20.0)]
    changes = {"sKSpace.ucDimension": 4, "sKSpace.dSliceOversamplingForDialog": 0.5}
    changes["sSliceArray.asSlice[0].dThickness"] = 8
    scan = read_scan(write_twix(tmp_path / "a.dat", lines, **changes))
    n = np.arange(6) - 3
    turn = np.exp(2j * np.pi * np.outer(n, n) / 6) / 6**0.5
    truth = without_oversampling(np.einsum("ij,jcrw->icrw", turn, RAW))[1:5]
    assert scan.n_slices == 4
    assert float((scan.slices(range(4)) - truth).abs().max()) < 1e-5
    assert scan.geometry.slice == pytest.approx((0, 0, -1))
    assert scan.geometry.voxel[2] == pytest.approx(2)
    assert scan.geometry.position[2] == pytest.approx(20 + 1)  # index 2 is at 20, going down


def test_partial_fourier_and_lines_beyond_the_header(tmp_path: Path) -> None:
    lines = [line(RAW[0, :, :, c + 4], Lin=c, centre_line=2) for c in range(8)]
    scan = read_scan(write_twix(tmp_path / "a.dat", lines))
    assert scan.size[1] == WIDTH
    assert scan.mask is not None
    assert scan.mask.tolist() == [False] * 4 + [True] * 8
    assert any("partial Fourier" in note for note in scan.notes)
    short = {"sKSpace.lPhaseEncodingLines": 8}
    scan = read_scan(write_twix(tmp_path / "b.dat", lines_of(RAW[0]), **short))
    assert scan.size[1] == WIDTH
    assert scan.geometry.voxel[1] == pytest.approx(3)


def test_a_separate_calibration_scan_is_left_out(tmp_path: Path) -> None:
    lines = lines_of(RAW[0], range(0, WIDTH, 2))
    lines += lines_of(RAW[1], flags=("PATREFSCAN",))
    path = write_twix(tmp_path / "a.dat", lines, **{"sPat.ucRefScanMode": 4})
    scan = read_scan(path)
    assert scan.mask is not None
    assert scan.mask.tolist() == [True, False] * 6
    assert any("12 lines of a separate calibration scan" in note for note in scan.notes)
    embedded = lines_of(RAW[0], range(0, WIDTH, 2))
    embedded += lines_of(RAW[0], range(1, WIDTH, 2), flags=("PATREFSCAN",))
    path = write_twix(tmp_path / "b.dat", embedded, **{"sPat.ucRefScanMode": 2})
    truth = without_oversampling(RAW[0])
    assert float((read_scan(path).kspace(0) - truth).abs().max()) < 1e-5


def test_the_last_measurement_is_the_scan(tmp_path: Path) -> None:
    adjustment = [line(RAW[3, :, :, 0], flags=("NOISEADJSCAN",))]
    scan = read_scan(write_twix(tmp_path / "a.dat", adjustment, lines_of(RAW[0])))
    assert scan.n_slices == 1
    assert "measurement 2 of 2 in the file was read" in scan.notes


def refused(path: Path, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        read_scan(path)


def test_scans_that_need_more_than_a_fourier_transform_are_named(tmp_path: Path) -> None:
    mixed = lines_of(RAW[0], range(0, 12, 2)) + lines_of(
        RAW[0], range(1, 12, 2), flags=("REFLECT",)
    )
    refused(
        write_twix(tmp_path / "a.dat", mixed), r"echo-planar scan \(EPI, sequence %SiemensSeq%/gre"
    )
    lines = lines_of(RAW[0])
    for name, change, match in (
        ("b", {"sFastImaging.lEPIFactor": 64}, "leave ghosts, which pnpcm does not correct"),
        ("c", {"sKSpace.ucTrajectory": 2}, "has a 'radial' trajectory"),
        ("d", {"sSliceAcceleration.lMultiBandFactor": 2}, "excites 2 slices at a time"),
    ):
        refused(write_twix(tmp_path / f"{name}.dat", lines, **change), match)
    noise = [line(RAW[0, :, :, 0], flags=("NOISEADJSCAN",))]
    refused(write_twix(tmp_path / "e.dat", noise), "1 lines but no imaging lines")


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    whole = write_twix(tmp_path / "whole.dat", lines_of(RAW[0])).read_bytes()
    path = tmp_path / "a.dat"
    for content, match in (
        (whole[:-600], r"has \d+ bytes, but its table lists \d+; copy it again"),
        (b"no", "is not a Siemens raw data file"),
        (b"time signal\n" * 5000, "is not a Siemens raw data file"),
        (bytes(20000), "is not a Siemens raw data file"),
        (b"", "is empty"),
    ):
        path.write_bytes(content)
        refused(path, match)
    lost = bytearray(whole)
    start = lost.index(b"sKSpace.lBaseResolution")
    lost[start : start + 7] = b"xKSpace"
    path.write_bytes(lost)
    refused(path, "cannot be read as Siemens twix")


def test_files_on_which_the_library_would_not_end_are_refused(tmp_path: Path) -> None:
    """A line of no length, a list of 10⁹ values, and a text that goes on after the header."""
    path = write_twix(tmp_path / "a.dat", lines_of(RAW[0]))
    content = path.read_bytes()
    start = 10240 + int.from_bytes(content[10240:10244], "little")
    endless = bytearray(content)
    endless[start : start + 4] = bytes(4)
    endless[start + 40 : start + 48] = (1 << 5).to_bytes(8, "little")  # SYNCDATA
    path.write_bytes(endless)
    refused(path, f"the line at byte {start} has 0 bytes")
    endless = bytearray(content)
    endless[start + 48 : start + 52] = bytes([252, 255, 0, 32])  # 2¹³ channels of 2¹⁹ bytes: 2³²
    path.write_bytes(endless)
    refused(path, f"the line at byte {start} has {2**32 + 192} bytes")
    path.unlink()
    refused(write_twix(path, lines_of(RAW[0]), **{"alTR[999999999]": 1}), "list of 999999999")
    long = bytearray(content)
    at = long.index(b"MeasYaps\0") + 9
    long[at : at + 4] = (len(content) - at).to_bytes(4, "little")
    path.write_bytes(long)
    refused(path, "bytes in a header of")
    table = bytearray(content)
    table[4] = 2  # a first measurement of 2⁶³ bytes, before one that is in order
    table[8 + 152 : 8 + 304] = content[8 : 8 + 152]
    table[8 + 16 : 8 + 24] = (1 << 63).to_bytes(8, "little")
    path.write_bytes(table)
    refused(path, "its table lists 9223372036854")


def test_a_scan_above_the_budget_is_refused(tmp_path: Path) -> None:
    path = write_twix(tmp_path / "a.dat", lines_of(RAW[0]))
    with pytest.raises(ArgumentError, match="3×32×12×1 = 1152 samples in a slice or slab, more"):
        read_scan(path, max_pixels=1151)
    assert read_scan(path, max_pixels=1152).n_coils == COILS


# two files of a scanner: a phantom of the American College of Radiology
@needs(SAMPLES)
def test_the_phantom_is_upright() -> None:
    """Its wedges, a dark notch in the edge, are at the anterior side; the plate of holes below."""
    scan = read_scan(resolve(f"{SAMPLES}/gre.dat"))
    assert (scan.n_slices, scan.n_coils, scan.size) == (1, 2, (160, 160))
    assert scan.protocol.repetition_time == 10
    geometry = scan.geometry
    assert geometry.readout == pytest.approx((1, 0, 0), abs=1e-3)  # to the left
    assert geometry.phase == pytest.approx((0, -1, 0), abs=0.05)  # to the front
    kspace = np.fft.ifftshift(scan.kspace(0).numpy(), axes=(1, 2))
    image = np.linalg.norm(np.fft.fftshift(np.fft.ifft2(kspace), axes=(1, 2)), axis=0)
    front, back = image[78:82, 140:146], image[78:82, 14:20]
    assert front.mean() < 0.4 * back.mean()


@needs(SAMPLES)
@pytest.mark.skipif(shutil.which("bart") is None, reason="bart is not installed")
def test_bart_reads_the_same_phantom(tmp_path: Path) -> None:
    path = resolve(f"{SAMPLES}/gre.dat")
    words = ["bart", "twixread", "-A", str(path), str(tmp_path / "bart")]
    subprocess.run(words, check=True, capture_output=True)
    values = np.fromfile(tmp_path / "bart.cfl", "<c8").reshape((320, 160, 2), order="F")
    coils = np.fft.ifftshift(values.transpose(2, 0, 1), axes=1)
    image = np.fft.fftshift(np.fft.ifft(coils, axis=1, norm="ortho"), axes=1)[:, 80:240]
    back = np.fft.fft(np.fft.ifftshift(image, axes=1), axis=1, norm="ortho")
    truth = torch.from_numpy(np.fft.fftshift(back, axes=1).astype(np.complex64))
    kspace = read_scan(path).kspace(0)
    assert float((kspace - truth).abs().max()) < 1e-6 * float(kspace.abs().max())


@needs(SAMPLES)
def test_the_echo_planar_sample_is_refused() -> None:
    refused(resolve(f"{SAMPLES}/epi.dat"), r"is an echo-planar scan \(EPI, .*ep2d_bold")


@pytest.mark.parametrize("side", ["0", "-48", "1e300", "nan", "inf"])
@pytest.mark.parametrize("name", ["dReadoutFOV", "dPhaseFOV"])
def test_a_field_of_view_that_is_none_is_unknown(tmp_path: Path, name: str, side: str) -> None:
    changes = {f"sSliceArray.asSlice[0].{name}": side}
    path = write_twix(tmp_path / "a.dat", lines_of(RAW[0]), **changes)
    scan = read_scan(path)
    assert any("which is taken for unknown" in note for note in scan.notes)
    assert scan.size == (32, 12)
    assert scan.geometry.voxel == (1, 1, 1)
