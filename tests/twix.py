"""Small Siemens raw files (VD, VE), written by twixtools with a header of our own."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

twixtools = pytest.importorskip("twixtools")
Array = np.ndarray[Any, np.dtype[Any]]
ASCCONV: dict[str, Any] = {
    "tSequenceFileName": '"%SiemensSeq%\\gre"',
    "alTR[0]": 12500,
    "alTE[0]": 3000,
    "alTE[1]": 7000,
    "adFlipAngleDegree[0]": 15,
    "sKSpace.lBaseResolution": 16,
    "sKSpace.lPhaseEncodingLines": 12,
    "sKSpace.lPartitions": 6,
    "sKSpace.lImagesPerSlab": 4,
    "sKSpace.ucDimension": 2,
    "sKSpace.ucTrajectory": 1,
    "sFastImaging.lEPIFactor": 1,
    "sPat.ucRefScanMode": 1,
    "sSliceArray.asSlice[0].dThickness": 4,
    "sSliceArray.asSlice[0].dPhaseFOV": 36,
    "sSliceArray.asSlice[0].dReadoutFOV": 48,
}
DICOM = {
    "Manufacturer": "SIEMENS",
    "ManufacturersModelName": "Skyra",
    "tPatientPosition": "HFS",
    "flMagneticFieldStrength": 2.89,
    "flReadoutOSFactor": 2.0,
}
FRAME = "1.3.12.2.1107.5.2.19.45385.1.20210622151635693.0.0.0"


def param(name: str, value: str | float) -> str:
    kind, text = ("String", f'"{value}"') if isinstance(value, str) else ("Double", f"{value}")
    return f'<Param{kind}."{name}">  {{ {text}  }}\n'


def header_bytes(changes: dict[str, Any], least: int = 0) -> bytes:
    """As a scanner writes it: named texts, each with its length; ``least``: bytes in total."""
    ascconv = "".join(f"{name}\t = \t{value}\n" for name, value in (ASCCONV | changes).items())
    texts = {
        "Config": "<XProtocol>\n" + param("FrameOfReference", FRAME),
        "Dicom": "<XProtocol>\n" + "".join(param(k, v) for k, v in DICOM.items()),
        "Meas": "<XProtocol>\n",
        "MeasYaps": f"### ASCCONV BEGIN ###\n{ascconv}\n### ASCCONV END ###",
    }
    body = b"".join(
        name.encode() + b"\0" + struct.pack("<I", len(text)) + text.encode()
        for name, text in texts.items()
    )
    size = 8 + len(body)
    padded = max(least, -(-size // 32) * 32)
    return struct.pack("<II", padded, len(texts)) + body + bytes(padded - size)


def line(samples: Array, *, flags: tuple[str, ...] = (), **head: Any) -> Any:
    """One line (coils, samples); ``head``: counters and fields of its header."""
    block = twixtools.mdb.Mdb_local(samples)
    block.mdh.CenterCol = head.pop("centre", samples.shape[1] // 2)
    block.mdh.CenterLin = head.pop("centre_line", 6)
    block.mdh.CenterPar = head.pop("centre_partition", 0)
    block.mdh.SliceData.SlicePos.Tra = head.pop("tra", 0.0)
    for k, value in enumerate(head.pop("quaternion", (1, 0, 0, 0))):
        block.mdh.SliceData.Quaternion[k] = value
    for name, value in head.items():
        setattr(block.mdh.Counter, name, value)
    for flag in flags:
        block.add_flag(flag)
    return block


def lines_of(raw: Array, columns: Iterable[int] | None = None, **head: Any) -> list[Any]:
    """The lines of one slice (coils, readout, phase)."""
    steps = range(raw.shape[-1]) if columns is None else columns
    return [line(np.ascontiguousarray(raw[..., c]), Lin=c, **dict(head)) for c in steps]


def write_twix(path: Path, *measurements: list[Any], **changes: Any) -> Path:
    """A file of some measurements, with ``changes`` of ``ASCCONV``."""
    header = np.frombuffer(header_bytes(changes), dtype=np.uint8)
    twixtools.write_twix([{"hdr_str": header, "mdb": m} for m in measurements], str(path))
    return path
