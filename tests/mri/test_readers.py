"""Raw files written by other libraries, or byte by byte, are read as the scan they contain."""

import importlib
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golden import gen, needs
from pnpcm.errors import ArgumentError, MissingExtraError, PnPCMError, ShapeError, UnknownNameError
from pnpcm.mri import gaussian1d, phantom, simulate_scan
from pnpcm.mri.readers import READERS, read_scan, write_cfl
from pnpcm.mri.sampling import describe_mask, infer_mask
from pnpcm.mri.scan import Protocol, crop_centre
from pnpcm.places import resolve
from pnpcm.transforms import fft2c, ifft2c

h5py = pytest.importorskip("h5py")
SCANS = "$PNPCM_DATA/mri_kspace"
SIZE = (32, 24)
COILS = 4
XML = """<?xml version="1.0"?>
<ismrmrdHeader{namespace}>
  <acquisitionSystemInformation><systemVendor>{vendor}</systemVendor></acquisitionSystemInformation>
  <encoding>
    <encodedSpace><matrixSize><x>{n}</x><y>{w}</y><z>{z}</z></matrixSize>
      <fieldOfView_mm><x>128</x><y>{fov_y}</y><z>{fov_z}</z></fieldOfView_mm></encodedSpace>
    <reconSpace><matrixSize><x>32</x><y>{crop}</y><z>{slab}</z></matrixSize>
      <fieldOfView_mm><x>64</x><y>{crop_fov}</y><z>{slab_fov}</z></fieldOfView_mm></reconSpace>
    <encodingLimits>{limits}</encodingLimits>
    <trajectory>{trajectory}</trajectory>
    <parallelImaging><calibrationMode>{calibration}</calibrationMode></parallelImaging>
  </encoding>
</ismrmrdHeader>"""


def limits(name: str, low: int, centre: int, high: int) -> str:
    inner = f"<minimum>{low}</minimum><maximum>{high}</maximum><center>{centre}</center>"
    return f"<{name}>{inner}</{name}>"


def xml(**changes: Any) -> str:
    values: dict[str, Any] = {
        "namespace": ' xmlns="http://www.ismrm.org/ISMRMRD"',
        "limits": limits("kspace_encoding_step_1", 0, 12, 23),
    }
    values |= {"vendor": "Acme", "trajectory": "cartesian", "calibration": "embedded"}
    values |= {"n": 64, "w": 24, "z": 1, "fov_y": 48, "fov_z": 5}
    values |= {"crop": 20, "crop_fov": 40, "slab": 1, "slab_fov": 5}
    return XML.format(**(values | changes))


def simulated(n_slices: int = 3) -> Tensor:
    """(slices, coils, H, W), all slices different."""
    scans = [
        simulate_scan(phantom(SIZE), n_coils=COILS, noise_std=0.01, generator=gen(s)).kspace
        for s in range(n_slices)
    ]
    return torch.stack(scans)


def oversampled(kspace: Tensor) -> Tensor:
    """The same scan of twice the field of view along the readout, empty around the middle."""
    image = ifft2c(kspace)
    wide = image.new_zeros(*image.shape[:-2], 2 * SIZE[0], SIZE[1])
    wide[..., SIZE[0] // 2 : 3 * SIZE[0] // 2, :] = image
    return fft2c(wide)


TRUTH = simulated()
RAW = oversampled(TRUTH)
COLUMNS = gaussian1d(24, 2, 8, generator=gen(5))


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and float((a - b).abs().max()) < 1e-5


# fastMRI


def fastmri(path: Path, *, attributes: dict[str, Any] | None = None, **arrays: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=value)
        file.attrs.update(attributes or {})
    return path


def test_fastmri(tmp_path: Path) -> None:
    target = torch.rand(3, 32, 20, generator=gen())
    path = fastmri(
        tmp_path / "knee.h5",
        attributes={"max": 0.5, "norm": np.float32(2), "patient_id": "p7", "acquisition": "PD"},
        kspace=RAW.numpy(),
        ismrmrd_header=xml(),
        reconstruction_rss=target.numpy(),
    )
    scan = read_scan(path)
    assert (scan.name, scan.format, scan.n_slices, scan.n_coils) == ("knee", "fastMRI", 3, COILS)
    assert (scan.size, scan.crop, scan.mask) == (SIZE, (32, 20), None)
    assert close(scan.slices(range(3)), TRUTH)
    assert crop_centre(ifft2c(scan.kspace(0)), scan.crop).shape == (COILS, 32, 20)
    assert scan.target is not None
    assert torch.equal(scan.target(2), target[2])
    assert scan.attributes == {"max": 0.5, "norm": 2.0, "patient_id": "p7", "acquisition": "PD"}
    assert scan.geometry.voxel == pytest.approx((2, 2, 5))
    assert not scan.geometry.known
    assert "readout oversampling removed: 64 samples became 32" in scan.notes
    assert any("neither orientation nor position" in note for note in scan.notes)
    assert not any("not acquired" in note for note in scan.notes)
    for bad in (-1, 3):
        with pytest.raises(ArgumentError, match="slices 0 to 2"):
            scan.kspace(bad)
        with pytest.raises(ArgumentError, match="slices 0 to 2"):
            scan.target(bad)


def test_fastmri_of_one_coil_takes_its_own_reference(tmp_path: Path) -> None:
    images = {
        "reconstruction_rss": np.zeros((3, 20, 20), np.float32),
        "reconstruction_esc": np.ones((3, 32, 18), np.float32),
    }
    scan = read_scan(fastmri(tmp_path / "one.h5", kspace=TRUTH[:, 0].numpy(), **images))
    assert (scan.n_coils, scan.size, scan.crop) == (1, SIZE, (32, 18))  # no header: nothing cut
    assert close(scan.kspace(1), TRUTH[1, :1])
    assert scan.target is not None
    assert float(scan.target(0).min()) == 1
    assert any("no ismrmrd_header" in note for note in scan.notes)
    scan = read_scan(fastmri(tmp_path / "bad.h5", kspace=TRUTH.numpy(), ismrmrd_header="<a><b>"))
    assert (scan.size, scan.crop, scan.target) == (SIZE, SIZE, None)
    assert any("not valid XML" in note for note in scan.notes)


def test_fastmri_mask_is_kept_and_obeyed(tmp_path: Path) -> None:
    masked = (RAW * COLUMNS).numpy()
    scan = read_scan(
        fastmri(
            tmp_path / "test.h5",
            kspace=masked,
            ismrmrd_header=xml(namespace=""),
            mask=COLUMNS.numpy().astype(np.uint8),
        )
    )
    assert scan.mask is not None
    assert torch.equal(scan.mask, COLUMNS)
    assert torch.equal(infer_mask(scan.slices(range(3))), COLUMNS)  # exact zeros survive
    assert not any("outside" in note for note in scan.notes)
    full = fastmri(tmp_path / "full.h5", kspace=RAW.numpy(), mask=COLUMNS.numpy())
    scan = read_scan(full)
    assert torch.equal(infer_mask(scan.kspace(0)), COLUMNS)
    assert any("outside the file's mask was set to zero" in note for note in scan.notes)


@pytest.mark.parametrize(
    ("low", "centre", "high", "notes"),
    [
        (0, 12, 23, []),
        (0, 9, 17, ["phase lines 0–2 and 21–23 were not acquired (zero padding)"]),
        (0, 4, 15, ["phase lines 0–7 were", "partial Fourier: 4 lines before and 11 after"]),
        (8, 12, 23, ["phase lines 0–7 were", "67% of a symmetric range"]),
        (0, 12, 22, ["phase lines 23 were not"]),
    ],
)
def test_fastmri_padding(
    tmp_path: Path, low: int, centre: int, high: int, notes: list[str]
) -> None:
    header = xml(limits=limits("kspace_encoding_step_1", low, centre, high))
    scan = read_scan(fastmri(tmp_path / "a.h5", kspace=RAW.numpy(), ismrmrd_header=header))
    found = [n for n in scan.notes if "phase lines" in n or "partial Fourier" in n]
    assert len(found) == len(notes)
    for note, expected in zip(found, notes, strict=True):
        assert expected in note


def test_pixels_are_those_that_were_measured(tmp_path: Path) -> None:
    header = xml(crop=40)  # the scanner interpolates 40 mm to 40 pixels, we have 2 mm
    scan = read_scan(fastmri(tmp_path / "a.h5", kspace=RAW.numpy(), ismrmrd_header=header))
    assert scan.crop == (32, 24)
    assert scan.geometry.voxel == pytest.approx((2, 2, 5))
    assert any("the scanner interpolates to 2 × 1 mm" in note for note in scan.notes)


# ISMRMRD


def ismrmrd_file(
    path: Path,
    header: str,
    lines: list[tuple[Tensor, dict[str, Any]]],
) -> Path:
    """Written by the library: lines are samples (coils, n) with their headers."""
    ismrmrd = pytest.importorskip("ismrmrd")
    acquisitions = []
    for samples, head in lines:
        line = ismrmrd.Acquisition.from_array(samples.numpy())
        line.center_sample = head.get("centre", samples.shape[1] // 2)
        line.sample_time_us = head.get("dwell", 0)
        line.discard_pre = head.get("discard_pre", 0)
        line.encoding_space_ref = head.get("encoding", 0)
        for key in ("position", "read_dir", "phase_dir", "slice_dir"):
            getattr(line, key)[:] = head.get(key, (0, 0, 0))
        for key, value in head.get("idx", {}).items():
            setattr(line.idx, key, value)
        for flag in head.get("flags", ()):
            line.set_flag(getattr(ismrmrd, flag))
        acquisitions.append(line)
    with ismrmrd.Dataset(str(path), "dataset", create_if_needed=True) as dataset:
        dataset.write_xml_header(header.encode())
    with ismrmrd.File(str(path), "a") as file:
        file["dataset"].acquisitions = acquisitions
    return path


def slice_lines(
    raw: Tensor, *, columns: Tensor | None = None, shift: int = 0, idx: Any = None, **head: Any
) -> list[tuple[Tensor, dict[str, Any]]]:
    """The lines of one slice (coils, readout, phase), step = column − shift."""
    steps = range(raw.shape[-1]) if columns is None else columns.nonzero().flatten().tolist()
    return [
        (
            raw[..., c].contiguous(),
            {"idx": {"kspace_encode_step_1": c - shift, **(idx or {})}} | head,
        )
        for c in steps
    ]


AXES = {"read_dir": (0, 0, -1), "phase_dir": (0, 1, 0), "slice_dir": (1, 0, 0)}


def test_ismrmrd(tmp_path: Path) -> None:
    noise = torch.randn(COILS, 50, dtype=torch.complex64, generator=gen(3))
    lines = [(noise, {"flags": ["ACQ_IS_NOISE_MEASUREMENT"], "dwell": 20.0})]
    lines.append((RAW[0, ..., 3].contiguous(), {"flags": ["ACQ_IS_NAVIGATION_DATA"]}))
    lines.append((RAW[0, ..., 4].contiguous(), {"flags": ["ACQ_IS_DUMMYSCAN_DATA"]}))
    lines.append((RAW[0, ..., 5].contiguous(), {"flags": ["ACQ_IS_PHASECORR_DATA"]}))
    lines.append((RAW[0, ..., 5].contiguous(), {"encoding": 1}))
    for number, place in ((0, 9.0), (1, 1.0), (2, 5.0)):  # interleaved
        position = {"position": (place, 2.0, 3.0)}
        lines += slice_lines(
            RAW[number], columns=COLUMNS, idx={"slice": number}, dwell=5.0, **AXES, **position
        )
    scan = read_scan(ismrmrd_file(tmp_path / "scan.mrd", xml(), lines))
    assert (scan.format, scan.n_slices, scan.n_coils) == ("ISMRMRD", 3, COILS)
    assert (scan.size, scan.crop) == (SIZE, (32, 20))
    assert close(scan.slices(range(3)), TRUTH[[1, 2, 0]] * COLUMNS)  # by position
    assert scan.mask is not None
    assert torch.equal(scan.mask, COLUMNS)
    assert torch.equal(infer_mask(scan.kspace(0)), COLUMNS)
    assert scan.noise is not None
    assert close(scan.noise, 2 * noise)  # the root of 20 µs / 5 µs
    geometry = scan.geometry
    assert geometry.known
    assert geometry.voxel == pytest.approx((2, 2, 4))
    assert geometry.position == pytest.approx((5, 2, 3))
    assert (geometry.readout, geometry.phase, geometry.slice) == ((0, 0, -1), (0, 1, 0), (1, 0, 0))
    notes = " ".join(scan.notes)
    for kind in ("1 navigator", "1 dummy", "1 phase correction"):
        assert f"{kind} line left out" in notes
    assert "other encodings" in notes
    assert "noise measured in 50 samples, scaled by 2" in notes


def test_ismrmrd_without_orientation_keeps_the_index(tmp_path: Path) -> None:
    lines = [
        line
        for n in (2, 0, 1)
        for line in slice_lines(RAW[n], columns=COLUMNS if n else None, idx={"slice": n})
    ]
    scan = read_scan(ismrmrd_file(tmp_path / "scan.h5", xml(limits=""), lines))
    assert close(scan.kspace(0), TRUTH[0])
    assert close(scan.kspace(2), TRUTH[2] * COLUMNS)
    assert scan.mask is None  # slices differ
    assert not scan.geometry.known
    assert any("sampled differently" in note for note in scan.notes)
    assert any("no limits of kspace_encode_step_1" in note for note in scan.notes)


def test_ismrmrd_centre_averages_and_reversed_lines(tmp_path: Path) -> None:
    header = xml(limits=limits("kspace_encoding_step_1", 0, 8, 19))
    part = torch.zeros(24, dtype=torch.bool)
    part[4:] = True  # steps 0 to 19 with the centre at 8: columns 4 to 23
    delta = 0.1 * torch.randn(RAW[0].shape, dtype=torch.complex64, generator=gen(6))
    noise = torch.randn(COILS, 9, dtype=torch.complex64, generator=gen(7))
    lines = [(noise, {"flags": ["ACQ_IS_NOISE_MEASUREMENT"]})]
    lines += slice_lines(RAW[0] + delta, columns=part, shift=4, idx={"average": 0})
    lines += slice_lines(
        (RAW[0] - delta).flip(-2),
        columns=part,
        shift=4,
        idx={"average": 1, "segment": 2},
        flags=["ACQ_IS_REVERSE", "ACQ_LAST_IN_SLICE"],
    )
    scan = read_scan(ismrmrd_file(tmp_path / "scan.mrd", header, lines))
    assert close(scan.kspace(0), TRUTH[0] * part)
    assert scan.mask is not None
    assert torch.equal(scan.mask, part)
    assert scan.noise is not None
    assert close(scan.noise, noise / 2**0.5)
    notes = " ".join(scan.notes)
    for text in ("2 averages averaged", "reversed lines", "phase lines 0–3", "partial Fourier"):
        assert text in notes


def test_ismrmrd_partial_echo_is_filled_on_the_left(tmp_path: Path) -> None:
    lines = slice_lines(RAW[0, :, 20:], centre=12)
    scan = read_scan(ismrmrd_file(tmp_path / "echo.mrd", xml(), lines))
    raw = RAW[0].clone()
    raw[:, :20] = 0
    image = ifft2c(raw)[:, 16:48]
    assert close(scan.kspace(0), fft2c(image))
    assert any("partial echo: 44 of 64" in note for note in scan.notes)
    lines = slice_lines(RAW[0], centre=0, discard_pre=20)  # centre not filled in
    scan = read_scan(ismrmrd_file(tmp_path / "other.mrd", xml(), lines))
    assert close(scan.kspace(0), fft2c(image))
    assert any("without center_sample" in note for note in scan.notes)


def test_ismrmrd_separate_calibration_is_no_image(tmp_path: Path) -> None:
    lines = slice_lines(RAW[0], columns=COLUMNS)
    lines += slice_lines(RAW[1], flags=["ACQ_IS_PARALLEL_CALIBRATION"])
    path = ismrmrd_file(tmp_path / "a.mrd", xml(calibration="separate"), lines)
    scan = read_scan(path)
    assert close(scan.kspace(0), TRUTH[0] * COLUMNS)
    assert any("24 lines of a separate calibration scan left out" in note for note in scan.notes)
    lines = slice_lines(RAW[0], columns=COLUMNS)
    lines += slice_lines(RAW[0], columns=~COLUMNS, flags=["ACQ_IS_PARALLEL_CALIBRATION"])
    embedded = read_scan(ismrmrd_file(tmp_path / "b.mrd", xml(), lines))
    assert close(embedded.kspace(0), TRUTH[0])


def three_dimensional(depth: int = 6) -> tuple[Tensor, Tensor]:
    """Slices (depth, coils, H, W), and raw data (coils, readout, phase, partitions) of them."""
    truth = simulated(depth)
    volume = oversampled(truth).movedim(0, -1)
    shifted = torch.fft.fft(torch.fft.ifftshift(volume, dim=-1), dim=-1, norm="ortho")
    return truth, torch.fft.fftshift(shifted, dim=-1)


def test_ismrmrd_partitions_become_slices(tmp_path: Path) -> None:
    truth, raw = three_dimensional()
    both = limits("kspace_encoding_step_1", 0, 12, 23) + limits("kspace_encoding_step_2", 0, 3, 5)
    header = xml(z=6, fov_z=12, slab=4, slab_fov=8, limits=both)
    lines = [
        line
        for z in range(6)
        for line in slice_lines(
            raw[..., z], columns=COLUMNS, idx={"kspace_encode_step_2": z}, **AXES
        )
    ]
    scan = read_scan(ismrmrd_file(tmp_path / "slab.mrd", header, lines))
    assert scan.n_slices == 4
    assert close(scan.slices(range(4)), truth[1:5] * COLUMNS)  # slice oversampling off
    assert scan.geometry.voxel == pytest.approx((2, 2, 2))
    assert scan.geometry.position == pytest.approx((-1, 0, 0))  # index 2 of 4 is at 0
    assert any("6 partitions transformed to 4 slices" in note for note in scan.notes)
    sparse = [line for k, line in enumerate(lines) if (k // int(COLUMNS.sum())) in (0, 2, 3, 5)]
    with pytest.raises(ArgumentError, match="undersampled along its partitions"):
        read_scan(ismrmrd_file(tmp_path / "sparse.mrd", header, sparse))
    slabs = [(s, h | {"idx": h["idx"] | {"slice": 1}}) for s, h in lines]
    with pytest.raises(ArgumentError, match="holds 2 3-D slabs"):
        read_scan(ismrmrd_file(tmp_path / "slabs.mrd", header, lines + slabs))


@pytest.mark.parametrize("counter", ["contrast", "repetition", "set", "phase"])
def test_ismrmrd_one_of_several_must_be_chosen(tmp_path: Path, counter: str) -> None:
    lines = [line for n in (0, 1) for line in slice_lines(RAW[n], idx={counter: n})]
    path = ismrmrd_file(tmp_path / "two.mrd", xml(), lines)
    with pytest.raises(ArgumentError, match=rf"holds 2 {counter}s \(0, 1\); choose .* {counter}=0"):
        read_scan(path)
    options: dict[str, Any] = {counter: 1}
    assert close(read_scan(path, **options).kspace(0), TRUTH[1])
    with pytest.raises(ArgumentError, match=f"{counter} is 2, but .* holds only 0, 1"):
        read_scan(path, **{counter: 2})  # type: ignore[arg-type]


def test_ismrmrd_refusals(tmp_path: Path) -> None:
    lines = slice_lines(RAW[0])

    def refuse(match: str, header: str, lines: list[Any]) -> None:
        path = tmp_path / "bad.mrd"
        path.unlink(missing_ok=True)
        ismrmrd_file(path, header, lines)
        with pytest.raises(ArgumentError, match=match):
            read_scan(path)

    refuse("has a 'radial' trajectory; expected 'cartesian'", xml(trajectory="radial"), lines)
    refuse("has a 'missing' trajectory", xml(trajectory=""), lines)
    refuse("is not valid XML", "<a><b></a>", lines)
    refuse("no complete encodedSpace", xml(n="many"), lines)
    refuse("beyond the 20 lines of the encodedSpace", xml(w=20), lines)
    refuse("no imaging lines", xml(), slice_lines(RAW[0], flags=["ACQ_IS_NOISE_MEASUREMENT"]))
    refuse("lines of .* have 2, 4 coils", xml(), [*lines, (RAW[0, :2, :, 0].contiguous(), {})])


def test_ismrmrd_headers_that_are_not_quite_right(tmp_path: Path) -> None:
    lines = [
        line
        for n, place in enumerate((0.0, 3.0, 7.0))
        for line in slice_lines(RAW[n], idx={"slice": n}, **AXES, position=(place, 0, 0))
    ]
    header = xml(n=32, z=3)  # readout without oversampling, slices taken for partitions
    scan = read_scan(ismrmrd_file(tmp_path / "a.mrd", header, lines))
    assert close(scan.slices(range(3)), TRUTH)
    notes = " ".join(scan.notes)
    assert "lines have 64 samples, but 32 in the header" in notes
    assert "slices are 3 to 4 mm apart" in notes
    same = [(s, h | {"position": (1, 0, 0)}) for s, h in lines]
    scan = read_scan(ismrmrd_file(tmp_path / "b.mrd", xml(), same))
    assert close(scan.slices(range(3)), TRUTH)
    assert any("in the order of their index" in note for note in scan.notes)


def test_siemens_directions_are_those_of_a_forward_transform(tmp_path: Path) -> None:
    lines = slice_lines(RAW[0], **AXES)
    scan = read_scan(ismrmrd_file(tmp_path / "a.mrd", xml(vendor="SIEMENS"), lines))
    assert scan.attributes == {"vendor": "SIEMENS"}
    assert (scan.geometry.readout, scan.geometry.phase) == ((0, 0, 1), (0, -1, 0))
    assert scan.geometry.slice == (1, 0, 0)
    assert any("check the orientation" in note for note in scan.notes)


PROTOCOL = """<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
<studyInformation><studyDate>2020-02-29</studyDate></studyInformation>
<measurementInformation><patientPosition>FFP</patientPosition></measurementInformation>
<acquisitionSystemInformation><systemVendor>Acme</systemVendor><systemModel>One</systemModel>
<systemFieldStrength_T>1.494</systemFieldStrength_T></acquisitionSystemInformation>
<sequenceParameters><TR>2000</TR><TE>12.5</TE><TE>80</TE><flipAngle_deg>150</flipAngle_deg>
</sequenceParameters></ismrmrdHeader>"""


def test_the_protocol_of_a_header_is_kept(tmp_path: Path) -> None:
    path = fastmri(tmp_path / "a.h5", kspace=TRUTH.numpy(), ismrmrd_header=PROTOCOL)
    told = Protocol(2000.0, 12.5, 150.0, 1.494, "Acme", "One", "20200229", "FFP")
    assert read_scan(path).protocol == told
    assert read_scan(fastmri(tmp_path / "b.h5", kspace=TRUTH.numpy())).protocol == Protocol()
    start, end = PROTOCOL.index("<studyInformation>"), PROTOCOL.rindex("</ismrmrdHeader>")
    whole = xml().replace("<encoding>", PROTOCOL[start:end] + "<encoding>", 1)
    whole = re.sub(
        "<acquisitionSystemInformation><systemVendor>Acme</systemVendor></.*?>", "", whole
    )
    lines = slice_lines(RAW[0]) + slice_lines(RAW[1], idx={"contrast": 1})
    path = ismrmrd_file(tmp_path / "c.mrd", whole, lines)
    assert read_scan(path, contrast=0).protocol == told
    assert read_scan(path, contrast=1).protocol == replace(told, echo_time=80.0)


def test_impossible_values_of_a_protocol_are_left_out(tmp_path: Path) -> None:
    text = PROTOCOL.replace("2020-02-29", "yesterday").replace(">2000<", ">-1<")
    text = text.replace("FFP", "upside down").replace("1.494", "nan")
    scan = read_scan(fastmri(tmp_path / "a.h5", kspace=TRUTH.numpy(), ismrmrd_header=text))
    assert set(scan.protocol.to_dict()) == {"echo_time", "flip_angle", "manufacturer", "model"}


# BART


def cfl_bytes(base: Path, array: Tensor, extra: str = "") -> Path:
    """Byte by byte: first axis fastest, pairs of little-endian floats."""
    flat = array.permute(*reversed(range(array.ndim))).reshape(-1)
    pairs = torch.view_as_real(flat).flatten().numpy().astype("<f4")
    base.with_name(base.name + ".cfl").write_bytes(pairs.tobytes())
    sizes = " ".join(str(n) for n in (*array.shape, *(1,) * (16 - array.ndim)))
    base.with_name(base.name + ".hdr").write_text(f"# Dimensions\n{sizes} \n{extra}")
    return base


def bart(kspace: Tensor) -> Tensor:
    """(slices, coils, H, W) as readout, phase, partition, coil, …, slice."""
    moved = kspace.permute(2, 3, 1, 0)
    return moved[:, :, None, :, None, None, None, None, None, None, None, None, None, :]


def test_cfl(tmp_path: Path) -> None:
    base = cfl_bytes(tmp_path / "scan.v2", bart(TRUTH), "# Command\nbart phantom -k\n")
    for path in (base, tmp_path / "scan.v2.cfl", tmp_path / "scan.v2.hdr"):
        scan = read_scan(path)
        assert (scan.name, scan.format) == ("scan.v2", "BART")
        assert (scan.n_slices, scan.n_coils, scan.size, scan.crop) == (3, COILS, SIZE, SIZE)
        assert torch.equal(scan.slices(range(3)), TRUTH)
    write_cfl(tmp_path / "own.cfl", bart(TRUTH))
    assert (tmp_path / "own.cfl").read_bytes() == (tmp_path / "scan.v2.cfl").read_bytes()
    assert torch.equal(read_scan(tmp_path / "own").slices(range(3)), TRUTH)


def test_cfl_of_one_readout_sample_is_a_slice(tmp_path: Path) -> None:
    write_cfl(tmp_path / "espirit", TRUTH[0].permute(1, 2, 0)[None].numpy())  # (1, H, W, coils)
    scan = read_scan(tmp_path / "espirit")
    assert (scan.n_slices, scan.size) == (1, SIZE)
    assert torch.equal(scan.kspace(0), TRUTH[0])
    assert any("dimensions 1 and 2 are the rows and columns" in note for note in scan.notes)


def test_cfl_partitions_and_counters(tmp_path: Path) -> None:
    truth, raw = three_dimensional()
    write_cfl(tmp_path / "slab", raw.permute(1, 2, 3, 0))
    scan = read_scan(tmp_path / "slab.cfl")
    assert (scan.n_slices, scan.size) == (6, (64, 24))
    assert close(scan.slices(range(6)), oversampled(truth))
    raw[..., 1::2] = 0
    write_cfl(tmp_path / "sparse", raw.permute(1, 2, 3, 0))
    with pytest.raises(ArgumentError, match="run bart fft -i 1"):
        read_scan(tmp_path / "sparse.cfl")
    echoes = TRUTH.permute(2, 3, 1, 0)[:, :, None, :, None]  # slices as dimension 5
    write_cfl(tmp_path / "echoes", echoes)
    with pytest.raises(ArgumentError, match=r"holds 3 contrasts \(0, 1, 2\)"):
        read_scan(tmp_path / "echoes.cfl")
    assert torch.equal(read_scan(tmp_path / "echoes.cfl", contrast=2).kspace(0), TRUTH[2])
    with pytest.raises(ArgumentError, match="set is 1, but"):
        read_scan(tmp_path / "echoes.cfl", contrast=2, set=1)
    write_cfl(tmp_path / "maps", TRUTH.permute(2, 3, 1, 0)[:, :, None])
    with pytest.raises(ArgumentError, match=r"dimension 4 of .* has length 3.*bart slice 4 0"):
        read_scan(tmp_path / "maps.cfl")


def test_cfl_refusals(tmp_path: Path) -> None:
    base = cfl_bytes(tmp_path / "a", bart(TRUTH))
    header, data = tmp_path / "a.hdr", tmp_path / "a.cfl"
    data.write_bytes(data.read_bytes()[:-8])
    with pytest.raises(
        ArgumentError, match=r"a\.cfl has \d+ bytes, but the sizes 32 24 1 4 .* in a\.hdr need"
    ):
        read_scan(base)
    for text in ("32 24\n", "# Dimensions\n", "# Dimensions\n32 x\n", "# Dimensions\n0 2\n"):
        header.write_text(text)
        with pytest.raises(ArgumentError, match="no line of up to 16 sizes"):
            read_scan(data)
    header.unlink()
    with pytest.raises(ArgumentError, match=r"a\.hdr, which is not a file"):
        read_scan(data)
    with pytest.raises(ArgumentError, match="has 17 dimensions"):
        write_cfl(tmp_path / "b", np.zeros((1,) * 17))


# arrays


def savemat(path: Path, **arrays: Any) -> None:
    pytest.importorskip("scipy.io").savemat(path, arrays)


def savemat73(path: Path, **arrays: Any) -> None:
    """As MATLAB writes it: a header of 512 bytes, axes reversed, fields real and imag."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            value = np.asarray(value).T
            if value.dtype.kind == "c":
                pair = np.empty(value.shape, dtype=[("real", "<f4"), ("imag", "<f4")])
                pair["real"], pair["imag"] = value.real, value.imag
                value = pair
            file.create_dataset(name, data=value)
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")


Saver = Callable[..., None]
SAVERS = [("a.npz", np.savez), ("a.mat", savemat), ("b.mat", savemat73)]


@pytest.mark.parametrize(("name", "save"), SAVERS)
def test_arrays(tmp_path: Path, name: str, save: Saver) -> None:
    maps = simulate_scan(phantom(SIZE), n_coils=COILS, generator=gen()).coil_maps
    path = tmp_path / name
    save(path, kspace=TRUTH[0].numpy(), coils=maps.numpy(), mask=COLUMNS.numpy().astype(np.uint8))
    scan = read_scan(path)
    assert (scan.format, scan.n_slices, scan.n_coils) == (name[2:], 1, COILS)
    assert (scan.size, scan.crop) == (SIZE, SIZE)
    assert torch.equal(scan.kspace(0), TRUTH[0] * COLUMNS)
    assert scan.mask is not None
    assert torch.equal(scan.mask, COLUMNS)
    assert scan.coil_maps is not None
    assert torch.equal(scan.coil_maps(0), maps)
    assert any("outside the file's mask" in note for note in scan.notes)

    save(path, kspace=TRUTH.numpy(), maps=TRUTH.numpy())
    scan = read_scan(path)
    assert torch.equal(scan.slices(range(3)), TRUTH)
    assert scan.coil_maps is not None
    assert torch.equal(scan.coil_maps(2), TRUTH[2])
    assert scan.mask is None
    assert scan.notes == ()
    with pytest.raises(ArgumentError, match=r"contrast is 1, but .* holds only 0"):
        read_scan(path, contrast=1)


@pytest.mark.parametrize(("name", "save"), SAVERS)
def test_array_refusals(tmp_path: Path, name: str, save: Saver) -> None:
    path, kspace = tmp_path / name, TRUTH.numpy()

    def refuse(kind: type[Exception], match: str, **arrays: Any) -> None:
        save(path, **arrays)
        with pytest.raises(kind, match=match):
            read_scan(path)

    refuse(ArgumentError, "has no kspace, it holds other", other=kspace)
    refuse(ShapeError, r"has 2 dimensions, .* expected \(coils, H, W\) or", kspace=kspace[0, 0])
    refuse(ArgumentError, "not complex", kspace=kspace.real.copy())
    refuse(ShapeError, "move the coil axis", kspace=np.moveaxis(kspace[0], 0, -1))
    refuse(ShapeError, r"mask .* expected \(24,\) or \(32, 24\)", kspace=kspace, mask=np.ones(32))
    refuse(ArgumentError, "values other than 0 and 1", kspace=kspace, mask=np.arange(24.0))
    refuse(ArgumentError, "mask of .* is all zero", kspace=kspace, mask=np.zeros(24))
    refuse(ShapeError, "coil_maps .* to fit kspace", kspace=kspace, coil_maps=kspace[0, :2])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_found_in_their_slice(tmp_path: Path, bad: float) -> None:
    kspace = TRUTH.clone()
    kspace[1, 2, 3, 4] = bad
    kspace[2] = 0
    np.savez(tmp_path / "a.npz", kspace=kspace.numpy())
    fastmri(tmp_path / "a.h5", kspace=kspace.numpy())
    write_cfl(tmp_path / "a.cfl", bart(kspace))
    for name in ("a.npz", "a.h5", "a.cfl"):
        scan = read_scan(tmp_path / name)
        assert torch.equal(scan.kspace(0), TRUTH[0])
        with pytest.raises(ArgumentError, match=f"{name} has NaN or infinite values in slice 1"):
            scan.kspace(1)
        assert not bool(scan.kspace(2).any())  # an empty slice is a slice


ODD = ["nan", "0", "-48", "1e300", "inf", "1e-300"]


@pytest.mark.parametrize("side", ODD)
def test_a_field_of_view_that_is_none_is_unknown(tmp_path: Path, side: str) -> None:
    for name, header in (
        ("encodedSpace", xml(fov_y=side)),
        ("encodedSpace", xml().replace("<x>128<", f"<x>{side}<")),
        ("reconSpace", xml(crop_fov=side)),
        ("reconSpace", xml().replace("<x>64</x><y>40", f"<x>{side}</x><y>40")),
    ):
        start, value = f"the fieldOfView_mm of {name} is ", f"{float(side):g}"
        path = tmp_path / "a.mrd"
        path.unlink(missing_ok=True)
        lines = slice_lines(RAW[0], **AXES)
        for scan in (
            read_scan(fastmri(tmp_path / "a.h5", kspace=RAW.numpy(), ismrmrd_header=header)),
            read_scan(ismrmrd_file(path, header, lines)),
        ):
            assert scan.size == (64, 24)  # what was measured
            assert close(scan.kspace(0), RAW[0])
            (note,) = (note for note in scan.notes if note.startswith(start))
            assert value in note
            assert note.endswith(", which is taken for unknown")
            assert all(0.1 < length < 100 for length in scan.geometry.voxel)


def test_fields_of_view_of_another_scale_are_unknown(tmp_path: Path) -> None:
    header = xml(crop_fov=40).replace("<x>64</x><y>40", "<x>0.01</x><y>40")
    scan = read_scan(fastmri(tmp_path / "a.h5", kspace=RAW.numpy(), ismrmrd_header=header))
    assert scan.size == (64, 24)
    assert any("reconSpace is 0.01 × 40 × 5, which is taken for unknown" in n for n in scan.notes)


def test_numbers_of_thousands_of_digits_are_unknown(tmp_path: Path) -> None:
    many = "9" * 4000
    for header in (
        xml(crop=many),
        xml(slab=many),
        xml(w=many),
        xml(limits=limits("kspace_encoding_step_1", 0, int(many), 23)),
    ):
        scan = read_scan(fastmri(tmp_path / "a.h5", kspace=RAW.numpy(), ismrmrd_header=header))
        assert scan.n_slices == 3
        assert max(map(len, scan.notes)) < 200


@pytest.mark.parametrize("place", [float("nan"), float("inf"), 1e30])
def test_slices_at_no_place_keep_their_index(tmp_path: Path, place: float) -> None:
    lines = [
        line
        for n in range(3)
        for line in slice_lines(RAW[n], idx={"slice": n}, **AXES, position=(place, 0, 0))
    ]
    scan = read_scan(ismrmrd_file(tmp_path / "a.mrd", xml(), lines))
    assert close(scan.slices(range(3)), TRUTH)
    assert not scan.geometry.known
    assert any("neither orientation nor position" in note for note in scan.notes)


@pytest.mark.parametrize("factor", [1e-60, 1e-40, 1e-25, 1e20, 1e35])
def test_numbers_whose_squares_are_none_are_refused(tmp_path: Path, factor: float) -> None:
    """At 1e20 and above images were wrong without a word."""
    kspace = TRUTH.numpy().astype(np.complex128)
    kspace[1] *= factor
    np.savez(tmp_path / "a.npz", kspace=kspace)
    fastmri(tmp_path / "a.h5", kspace=kspace)
    for name in ("a.npz", "a.h5"):
        scan = read_scan(tmp_path / name)
        assert close(scan.kspace(0), TRUTH[0])
        words = rf"largest value of kspace of .*{name} in slice 1 is .*, expected 1e-18 to 1e\+18"
        with pytest.raises(ArgumentError, match=words):
            scan.kspace(1)


# all of them


def test_hdf5_files_are_told_apart_by_content(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"holds image; expected kspace \(fastMRI\) or a group"):
        read_scan(fastmri(tmp_path / "a.h5", image=np.ones(3)))
    with pytest.raises(ArgumentError, match="holds nothing"):
        read_scan(fastmri(tmp_path / "b.h5"))
    path = fastmri(tmp_path / "c.h5", image=np.ones(3))
    with pytest.raises(ArgumentError, match="has no kspace, it holds image"):
        read_scan(path, format="fastmri")
    pytest.importorskip("ismrmrd")
    with pytest.raises(ArgumentError, match="has no group with 'xml' and 'data'"):
        read_scan(path, format="ismrmrd")
    with pytest.raises(ShapeError, match=r"has 2 dimensions.*\(slices, coils, readout, phase\)"):
        read_scan(fastmri(tmp_path / "d.h5", kspace=TRUTH[0, 0].numpy()))
    with pytest.raises(ArgumentError, match="float32, not complex"):
        read_scan(fastmri(tmp_path / "e.h5", kspace=TRUTH.real.numpy()))
    with pytest.raises(ShapeError, match="an empty axis"):
        read_scan(fastmri(tmp_path / "f.h5", kspace=TRUTH[:0].numpy()))


@pytest.mark.parametrize("suffix", [".h5", ".mrd", ".npz", ".mat", ".cfl"])
def test_damaged_files_raise_our_own_errors(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    (tmp_path / "a.hdr").write_text("# Dimensions\n4 4\n")
    with pytest.raises(ArgumentError, match="not a file; give a raw data file"):
        read_scan(path)
    path.write_bytes(b"")
    with pytest.raises(ArgumentError, match="is empty"):
        read_scan(path)
    whole = tmp_path / f"whole{suffix}"
    if suffix in (".h5", ".mrd"):
        fastmri(whole, kspace=TRUTH.numpy())
    elif suffix == ".npz":
        np.savez_compressed(whole, kspace=TRUTH.numpy())
    elif suffix == ".mat":
        savemat(whole, kspace=TRUTH.numpy())
    contents = [b"\x00" * 10, b"hello, this is not such a file" * 20]
    if whole.exists():
        contents += [whole.read_bytes()[:n] for n in (100, 2000)]
        flipped = bytearray(whole.read_bytes())
        flipped[1000:1400] = b"x" * 400
        contents.append(bytes(flipped[: len(flipped) - 100]))
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(PnPCMError, match=r"a\."):
            read_scan(path).kspace(0)


@pytest.mark.parametrize("name", ["a.png", "my photo.JPG", "a.gif", "a.heic", "a.nef"])
def test_an_image_is_sent_to_restore(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"picture")
    words = re.escape(f"{path} is an image, not raw k-space: restore it with pnpcm restore ")
    with pytest.raises(ArgumentError, match=words) as caught:
        read_scan(path)
    said = str(caught.value)
    command = shlex.split(said.partition("restore it with ")[2].partition(" (or another")[0])
    assert command == ["pnpcm", "restore", str(path), "--task", "denoise"]
    for readable in ("fastMRI", "ISMRMRD", ".h5", ".dat", ".cfl", ".npy", ".npz", ".mat"):
        assert readable in said


def test_unknown_names_and_pickles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(b"meas")
    words = r"suffix '\.raw' is not that of a raw data format; expected fastMRI .*Siemens .*rename"
    with pytest.raises(ArgumentError, match=words):
        read_scan(tmp_path / "a.raw")
    with pytest.raises(UnknownNameError, match="did you mean 'fastmri'"):
        read_scan(tmp_path / "a.raw", format="fastmr")
    with pytest.raises(ArgumentError, match="is a folder"):
        read_scan(tmp_path, format="npz")
    np.savez(tmp_path / "a.npz", kspace=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ArgumentError, match=r"cannot be read as NumPy's \.npz .*holds object"):
        read_scan(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", TRUTH.numpy())
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(ArgumentError, match="holds a single array without a name"):
        read_scan(tmp_path / "b.npz")
    assert set(READERS) == {"fastmri", "ismrmrd", "twix", "cfl", "npy", "npz", "mat", "hdf5"}


@pytest.mark.parametrize(
    ("library", "format"),
    [("h5py", "fastmri"), ("ismrmrd", "ismrmrd"), ("h5py", "hdf5")],
)
def test_a_missing_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, format: str
) -> None:
    whole = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name.split(".")[0] == library:
            raise ImportError(name)
        return whole(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    (tmp_path / "a.mat").write_bytes(b"anything")
    with pytest.raises(
        MissingExtraError, match=rf"needs {library}; run pip install 'pnpcm\[mri\]'"
    ):
        read_scan(tmp_path / "a.mat", format=format)


@needs(SCANS)
@pytest.mark.parametrize(
    ("name", "shape", "acceleration", "acs"),
    [
        ("brain_t1_8ch_lowres_128x128", (8, 128, 128), 1.0, 128),
        ("brain_t2_1ch_320x320", (1, 320, 320), 1.0, 320),
        ("brain_8ch_poisson_undersampled_230x180", (8, 230, 180), 8.06, None),
    ],
)
def test_real_scans(
    name: str, shape: tuple[int, ...], acceleration: float, acs: int | None
) -> None:
    scan = read_scan(resolve(f"{SCANS}/{name}.npz"))
    kspace = scan.kspace(0)
    assert (scan.n_slices, scan.size) == (1, shape[1:])
    assert kspace.shape == shape
    mask = infer_mask(kspace)
    if scan.mask is not None:
        assert torch.equal(mask, scan.mask)
    sampling = describe_mask(mask)
    assert sampling.acceleration == pytest.approx(acceleration, rel=0.01)
    assert sampling.acs == acs or (acs is None and sampling.acs >= 12)
    energy = kspace.abs().square().sum(0)
    peak = divmod(int(energy.argmax()), shape[2])
    assert abs(peak[0] - shape[1] // 2) <= 2  # zero frequency is where we say it is
    assert abs(peak[1] - shape[2] // 2) <= 2
