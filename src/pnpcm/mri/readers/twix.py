"""Siemens twix ``.dat`` (VB, VD, VE), read by the library twixtools.

Lines and headers are converted to those of ISMRMRD; the grid, oversampling and geometry then are
those of :mod:`pnpcm.mri.readers.ismrmrd_file`. Of several measurements in a file the last one is
the scan, the others are adjustments. Noise lines are not used, since the header does not tell their
bandwidth reliably.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pnpcm.errors import ArgumentError
from pnpcm.io.child import in_child
from pnpcm.io.reading import Budget, library
from pnpcm.mri.readers.header import (
    Header,
    Limit,
    Space,
    as_date,
    as_position,
    is_length,
    plausible,
)
from pnpcm.mri.readers.ismrmrd_file import Raw, scan_of_lines
from pnpcm.mri.readers.lines import CALIBRATION, REVERSE
from pnpcm.mri.readers.opening import Array, Choice
from pnpcm.mri.scan import Protocol, Scan, Vector
from pnpcm.names import count_of

FORMAT = "Siemens twix"
TRAJECTORIES = {1: "cartesian", 2: "radial", 4: "spiral", 8: "blade"}
CALIBRATIONS = {2: "embedded", 4: "separate"}
THREE_D = 4
SECONDS = 10.0
"""Processor time that a child process may take for the headers."""
LINE, LINE_VB = struct.Struct("<I36xQHH"), struct.Struct("<I16xQHH")
"""Length, flags, samples and channels at the start of a line of VD and VE, and of VB."""
ACQEND, SYNCDATA = 1 << 0, 1 << 5
COUNTERS = {
    "kspace_encode_step_1": "Lin",
    "kspace_encode_step_2": "Par",
    "average": "Ave",
    "slice": "Sli",
    "contrast": "Eco",
    "phase": "Phs",
    "repetition": "Rep",
    "set": "Set",
    "segment": "Seg",
}
"""ISMRMRD's counters and Siemens' names of them."""
ASIDE = {
    "noise": ("NOISEADJSCAN",),
    "phase correction": ("PHASCOR",),
    "phase stabilization": ("PHASESTABSCAN", "REFPHASESTABSCAN"),
    "feedback": ("RTFEEDBACK", "HPFEEDBACK"),
    "navigator": ("noname60",),
}
"""Flags of lines that are no lines of the image."""
HEAD = np.dtype(
    [
        ("flags", "<u8"),
        ("active_channels", "<u2"),
        ("number_of_samples", "<u2"),
        ("discard_pre", "<u2"),
        ("discard_post", "<u2"),
        ("center_sample", "<u2"),
        ("encoding_space_ref", "<u2"),
        ("sample_time_us", "<f4"),
        ("position", "<f4", 3),
        ("read_dir", "<f4", 3),
        ("phase_dir", "<f4", 3),
        ("slice_dir", "<f4", 3),
        ("idx", [(name, "<u2") for name in COUNTERS]),
    ]
)
"""The fields of ISMRMRD's acquisition header that are used."""


def read_twix(path: Path, choice: Choice, budget: Budget) -> Scan:
    """Open a Cartesian scan: 2-D slices, or a 3-D slab whose partitions become slices.

    Echo-planar scans are refused: the phases of their odd and even lines are not corrected here.
    """
    library("twixtools", "Siemens .dat files")
    check_complete(path)
    in_child(f"{__name__}:probe", str(path.absolute()), seconds=SECONDS)
    return scan_of_lines(raw_of(path, _parsed(path)), choice, budget)


def _parsed(path: Path, *, lines: bool = True) -> list[dict[str, Any]]:
    """The measurements of a file, as twixtools reads them; its warnings are not printed."""
    twixtools = library("twixtools", "Siemens .dat files")
    with contextlib.redirect_stdout(io.StringIO()):
        found: list[dict[str, Any]] = twixtools.read_twix(
            str(path),
            verbose=False,
            parse_data=lines,
            parse_pmu=False,
            parse_geometry=False,
            keep_syncdata=False,
        )
    return found


def probe(path: str) -> None:
    """Read the headers of a file, in a child process: the library's time has no bound."""
    for scan in _parsed(Path(path), lines=False):
        length = sum(len(text) for name, text in scan["hdr"].items() if name.endswith("_raw"))
        if length > len(scan["hdr_str"]):
            raise ValueError(f"texts of {length} bytes in a header of {len(scan['hdr_str'])}")


def check_complete(path: Path) -> None:
    """Refuse a file that is not twix, that ends before a measurement, or that would not end.

    VD and VE: a table of (offset, length) of up to 64 measurements; VB: one measurement from the
    start. A measurement starts with the length of its header, a text with ``<XProtocol>``.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        first, count = struct.unpack("<II", file.read(8).ljust(8, b"\xff"))
        table, places = b"", [(0, size)]
        if is_ve := first < 10000 and 1 <= count <= 64:
            table = file.read(152 * count)
            is_ve = len(table) == 152 * count
        if is_ve:
            places = [struct.unpack_from("<8xQQ", table, 152 * k) for k in range(count)]
        if count == 1 and places[0][1] == 0:  # not filled in: up to the end
            places = [(places[0][0], max(0, size - places[0][0]))]
        end = max(start + length for start, length in places)
        if end > size:
            raise ArgumentError(
                f"{path} has {size} bytes, but its table lists {end}; copy it again, it is "
                f"incomplete"
            )
        file.seek(places[-1][0])
        if b"<XProtocol>" not in file.read(4096):
            raise ArgumentError(
                f"{path} is not a Siemens raw data file (no <XProtocol> in its header); expected "
                f"twix of VB, VD or VE: give the meas_….dat file of the scanner's twix export"
            )
        for start, length in places:
            _check_header(file, start, start + length)
            _check_lines(file, start, start + length, LINE if is_ve else LINE_VB)


def _check_header(file: BinaryIO, start: int, end: int) -> None:
    """Refuse a header beyond its measurement, and lists longer than a protocol can have."""
    file.seek(start)
    length = int.from_bytes(file.read(4), "little")
    if length > end - start:
        raise ValueError(f"a header of {length} bytes in a measurement of {end - start}")
    if found := re.search(rb"\[0*([1-9][0-9]{5,})\]", file.read(length)):
        raise ValueError(f"the header has a list of {found[1][:20].decode()} values")


def _check_lines(file: BinaryIO, start: int, end: int, line: struct.Struct) -> None:
    """Refuse lines of no length or beyond the end, on which the library's loop would not end."""
    file.seek(start)
    at = start + int.from_bytes(file.read(4), "little")
    while at + 128 < end:
        file.seek(at)
        head = file.read(line.size)
        if len(head) < line.size:
            return
        packed, flags, samples, channels = line.unpack(head)
        if flags & ACQEND and not flags & SYNCDATA:  # with both the library goes on
            return
        if flags & SYNCDATA:
            step = packed % 2**25
        elif line is LINE:
            step = 192 + channels * (32 + 8 * samples)
        else:
            step = channels * (128 + 8 * samples)
        if not 0 < step <= end - at:
            raise ValueError(f"the line at byte {at} has {step} bytes, of {end - at} that are left")
        at += step


def raw_of(path: Path, measurements: Sequence[Mapping[str, Any]]) -> Raw:
    """The lines of the last measurement; an error if they are not those of a Cartesian scan."""
    scan = measurements[-1]
    notes = []
    if len(measurements) > 1:
        notes.append(f"measurement {len(measurements)} of {len(measurements)} in the file was read")
    blocks = []
    aside = dict.fromkeys(ASIDE, 0)
    for block in scan["mdb"]:
        kinds = [kind for kind, flags in ASIDE.items() if any(map(block.is_flag_set, flags))]
        for kind in kinds[:1]:
            aside[kind] += 1
        if not kinds:
            blocks.append(block)
    notes += [f"{count_of(n, f'{kind} line')} left out" for kind, n in aside.items() if n]
    if not blocks:
        raise ArgumentError(
            f"{path} has {len(scan['mdb'])} lines but no imaging lines; give the file of the scan, "
            f"not of an adjustment"
        )
    heads = heads_of(blocks)
    header = header_of(scan["hdr"], heads, blocks[0].mdh)
    _refuse_others(path, scan["hdr"], header, heads)
    return Raw(path, FORMAT, header, heads, partial(_samples, path, blocks), tuple(notes))


def heads_of(blocks: Sequence[Any]) -> Array:
    """The headers of lines in ISMRMRD's fields.

    Siemens' quaternion (w, x, y, z) is a rotation with the columns phase, readout and slice.
    """
    heads = np.zeros(len(blocks), HEAD)
    for head, block in zip(heads, blocks, strict=True):
        mdh = block.mdh
        head["flags"] = REVERSE if block.is_flag_set("REFLECT") else 0
        if block.is_flag_set("PATREFSCAN") and not block.is_flag_set("PATREFANDIMASCAN"):
            head["flags"] |= CALIBRATION
        head["active_channels"], head["number_of_samples"] = mdh.UsedChannels, mdh.SamplesInScan
        head["discard_pre"], head["discard_post"] = mdh.CutOff.Pre, mdh.CutOff.Post
        head["center_sample"] = mdh.CenterCol
        place = mdh.SliceData.SlicePos
        head["position"] = place.Sag, place.Cor, place.Tra
        axes = _rotation(np.asarray(mdh.SliceData.Quaternion, dtype=float)).T
        head["phase_dir"], head["read_dir"], head["slice_dir"] = axes
        for name, counter in COUNTERS.items():
            head["idx"][name] = getattr(mdh.Counter, counter)
    return heads


def _rotation(quaternion: Array) -> Array:
    """The matrix of a quaternion (w, x, y, z); zeros if it has no length."""
    length = float(np.linalg.norm(quaternion))
    if length < 0.5:
        return np.zeros((3, 3))
    w, x, y, z = quaternion / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def header_of(texts: Mapping[str, Any], heads: Array, first: Any) -> Header:
    """The grid and the protocol of a measurement; ``first``: header of its first line."""
    protocol, dicom = texts["MeasYaps"], texts.get("Dicom", {})
    k, slab = protocol["sKSpace"], protocol["sSliceArray"]["asSlice"][0]
    base, three = int(k["lBaseResolution"]), k.get("ucDimension") == THREE_D
    wide = _number(dicom.get("flReadoutOSFactor")) or 2.0
    more_lines = 1 + (_number(k.get("dPhaseOversamplingForDialog")) or 0.0)
    more_slices = 1 + (_number(k.get("dSliceOversamplingForDialog")) or 0.0) if three else 1.0
    fov: Vector = (float(slab["dReadoutFOV"]), float(slab["dPhaseFOV"]), float(slab["dThickness"]))
    steps = heads["idx"]
    width, lines = _axis(steps["kspace_encode_step_1"], first.CenterLin, k["lPhaseEncodingLines"])
    depth, partitions = 1, None
    if three:
        depth, partitions = _axis(steps["kspace_encode_step_2"], first.CenterPar, k["lPartitions"])
    images = int(k.get("lImagesPerSlab", depth)) if three else 1
    times = [t / 1000 for t in map(_number, _list(protocol.get("alTE"))) if t]
    columns = round(base * fov[1] / fov[0]) if is_length(fov) else base
    encoded, recon, notes = plausible(
        Space(
            (round(base * wide), width, depth),
            (fov[0] * wide, fov[1] * more_lines, fov[2] * more_slices),
        ),
        Space((base, max(1, columns), images), fov),
    )
    return Header(
        encoded=encoded,
        recon=recon,
        notes=notes,
        lines=lines,
        partitions=partitions,
        trajectory=TRAJECTORIES.get(k.get("ucTrajectory", 1), "unknown"),
        calibration=CALIBRATIONS.get(protocol.get("sPat", {}).get("ucRefScanMode"), ""),
        vendor="SIEMENS",
        protocol=_protocol(texts, times),
        echo_times=tuple(times),
    )


def _axis(counter: Array, centre: int, stated: Any) -> tuple[int, Limit]:
    """Length of an encoded axis, at least the stated one, and the range of its counter.

    The counter ``centre`` becomes the index n//2.
    """
    low, high = int(counter.min()), int(counter.max())
    n = max(int(stated), 2 * (centre - low), 2 * (high - centre) + 1)
    return n, Limit(low, centre, high)


def _protocol(texts: Mapping[str, Any], echo_times: Sequence[float]) -> Protocol:
    """The study's date is that of its frame of reference, whose UID ends in a time of creation."""
    protocol, dicom = texts["MeasYaps"], texts.get("Dicom", {})
    config = texts.get("Config", {})
    repetition = _number(next(iter(_list(protocol.get("alTR"))), None))
    parts = str(config.get("FrameOfReference", "")).split(".")
    dates = [as_date(part[:8]) for part in parts if len(part) == 17]
    return Protocol(
        repetition_time=None if repetition is None else repetition / 1000,
        echo_time=echo_times[0] if echo_times else None,
        flip_angle=_number(next(iter(_list(protocol.get("adFlipAngleDegree"))), None)),
        field_strength=_number(dicom.get("flMagneticFieldStrength")),
        manufacturer=str(dicom.get("Manufacturer") or "SIEMENS"),
        model=str(dicom.get("ManufacturersModelName") or "") or None,
        study_date=next((date for date in dates if date), None),
        patient_position=as_position(str(dicom.get("tPatientPosition", ""))),
    )


def _refuse_others(path: Path, texts: Mapping[str, Any], header: Header, heads: Array) -> None:
    """Refuse scans that are no Cartesian scan of one slice after the other."""
    protocol = texts["MeasYaps"]
    name = str(protocol.get("tSequenceFileName", "unknown")).strip('"').replace("\\", "/")
    if header.trajectory != "cartesian":
        raise ArgumentError(
            f"{path} has a {header.trajectory!r} trajectory (sequence {name}); expected "
            f"'cartesian': grid the data first and give its k-space as .cfl or .npy"
        )
    turned = (heads["flags"] & REVERSE) != 0
    mixed = any(
        0 < turned[heads["idx"]["contrast"] == c].mean() < 1
        for c in np.unique(heads["idx"]["contrast"])
    )
    if mixed or int(protocol.get("sFastImaging", {}).get("lEPIFactor", 1)) > 1:
        raise ArgumentError(
            f"{path} is an echo-planar scan (EPI, sequence {name}): the phases of its odd and even "
            f"lines differ and would leave ghosts, which pnpcm does not correct; correct and grid "
            f"the data with another program, and give its k-space as .cfl or .npy"
        )
    bands = int(protocol.get("sSliceAcceleration", {}).get("lMultiBandFactor", 1))
    if bands > 1:
        raise ArgumentError(
            f"{path} excites {bands} slices at a time (multiband), which pnpcm does not separate; "
            f"separate them first, and give the k-space of each slice as .cfl or .npy"
        )


def _samples(path: Path, blocks: Sequence[Any], rows: Array) -> Iterator[Array]:
    with path.open("rb") as stream:
        for row in rows:
            blocks[int(row)].fid = stream  # else the library opens the file for every line
            yield blocks[int(row)].data


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """A number above 0; None for the empty texts that stand for absent values, and for others."""
    return float(value) if isinstance(value, int | float) and 0 < value < 1e12 else None
