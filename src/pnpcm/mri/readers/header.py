"""The ISMRMRD header, an XML text that fastMRI files contain too."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

from pnpcm.errors import ArgumentError
from pnpcm.mri.sampling import partial_fourier
from pnpcm.mri.scan import Geometry, Protocol, Vector

XML = ElementTree.Element
ECHO_TIME = ("sequenceParameters", "TE")


SHORTEST, LONGEST = 1e-3, 1e4
"""Of a field of view, in millimetres."""
OVERSAMPLING = 32
"""Largest ratio of the measured field of view to that of the image; usual is 2."""
MOST = 2**20
"""Largest number of samples along an axis; counters of lines have 16 bits."""


@dataclass(frozen=True)
class Space:
    """A grid: samples and field of view in millimetres along (readout, phase, partitions)."""

    matrix: tuple[int, int, int]
    fov: Vector


@dataclass(frozen=True)
class Limit:
    """Range of the counter of lines or partitions, and its value at zero frequency."""

    minimum: int
    centre: int
    maximum: int


@dataclass(frozen=True)
class Header:
    """``encoded``: the measured grid; ``recon``: the grid of the scanner's image."""

    encoded: Space | None = None
    recon: Space | None = None
    lines: Limit | None = None
    partitions: Limit | None = None
    trajectory: str = ""
    calibration: str = ""
    vendor: str = ""
    protocol: Protocol = field(default_factory=Protocol)
    echo_times: tuple[float, ...] = ()
    """Of each contrast, in milliseconds; ``protocol`` has that of the first one."""
    notes: tuple[str, ...] = ()
    """Sentences on values that are no lengths, and are treated as unknown."""

    def protocol_of(self, contrast: int) -> Protocol:
        """The protocol with the echo time of one contrast."""
        if contrast >= len(self.echo_times):
            return self.protocol
        return replace(self.protocol, echo_time=self.echo_times[contrast])

    def kept(self, axis: int, n: int) -> int:
        """Number of the ``n`` pixels of an image axis inside the field of view of ``recon``."""
        if self.encoded is None or self.recon is None:
            return n
        whole, part = self.encoded.fov[axis], self.recon.fov[axis]
        return max(1, round(n * part / whole)) if 0 < part < whole else n

    def voxel(self, readout: int, phase: int) -> Vector | None:
        """Voxel size in mm of an image of all ``readout`` × ``phase`` samples.

        Equal to ``recon.fov / recon.matrix`` unless the scanner interpolates its image.
        """
        space = self.encoded or self.recon
        if space is None or min(space.fov[:2]) <= 0:
            return None
        thick = self.recon or space
        depth = thick.fov[2] / thick.matrix[2] if thick.fov[2] > 0 else 1.0
        if space is self.recon:
            readout, phase = space.matrix[:2]
        return (space.fov[0] / readout, space.fov[1] / phase, depth)


def parse_header(text: str | bytes, path: Path) -> Header:
    """The first encoding of a header, in any XML namespace."""
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise ArgumentError(
            f"the ISMRMRD header of {path} is not valid XML ({error}); export the file again"
        ) from error
    encoding, protocol = root.find("{*}encoding"), _protocol(root)
    if encoding is None:
        return Header(protocol=protocol)
    encoded, recon = (_space(encoding, name) for name in ("encodedSpace", "reconSpace"))
    encoded, recon, notes = plausible(encoded, recon)
    return Header(
        encoded=encoded,
        recon=recon,
        notes=notes,
        lines=_limit(encoding, "kspace_encoding_step_1"),
        partitions=_limit(encoding, "kspace_encoding_step_2"),
        trajectory=_text(encoding, "trajectory").lower(),
        calibration=_text(encoding, "parallelImaging", "calibrationMode").lower(),
        vendor=protocol.manufacturer or "",
        protocol=protocol,
        echo_times=tuple(t for t in map(_positive, _texts(root, *ECHO_TIME)) if t is not None),
    )


def plausible(
    encoded: Space | None, recon: Space | None
) -> tuple[Space | None, Space | None, tuple[str, ...]]:
    """Both grids with fields of view in millimetres, or of zeros if unknown; and notes.

    That of ``encoded`` is at most ``OVERSAMPLING`` times that of ``recon``.
    """
    notes = []
    found = []
    for name, space in (("encodedSpace", encoded), ("reconSpace", recon)):
        if space is not None and not is_length(space.fov):
            notes.append(_unknown(name, space.fov))
            space = replace(space, fov=(0.0, 0.0, 0.0))
        found.append(space)
    encoded, recon = found
    if encoded is not None and recon is not None:
        pairs = zip(encoded.fov[:2], recon.fov[:2], strict=True)
        if any(whole > OVERSAMPLING * part > 0 for whole, part in pairs):
            notes.append(_unknown("reconSpace", recon.fov))
            recon = replace(recon, fov=(0.0, 0.0, 0.0))
    return encoded, recon, tuple(notes)


def is_length(fov: Vector) -> bool:
    """Whether a field of view is one: 1 µm to 10 m along the image; thickness can be missing."""
    return all(SHORTEST <= side <= LONGEST for side in fov[:2]) and (
        fov[2] == 0 or SHORTEST <= fov[2] <= LONGEST
    )


def _unknown(name: str, fov: Vector) -> str:
    sides = " × ".join(f"{side:g}" for side in fov)
    return f"the fieldOfView_mm of {name} is {sides}, which is taken for unknown"


def _protocol(root: XML) -> Protocol:
    """Parameters of the measurement; those of several contrasts are of the first one."""
    system, sequence = "acquisitionSystemInformation", "sequenceParameters"
    return Protocol(
        repetition_time=_positive(_text(root, sequence, "TR")),
        echo_time=_positive(_text(root, *ECHO_TIME)),
        flip_angle=_positive(_text(root, sequence, "flipAngle_deg")),
        field_strength=_positive(_text(root, system, "systemFieldStrength_T")),
        manufacturer=_text(root, system, "systemVendor") or None,
        model=_text(root, system, "systemModel") or None,
        study_date=as_date(_text(root, "studyInformation", "studyDate")),
        patient_position=as_position(_text(root, "measurementInformation", "patientPosition")),
    )


def _positive(text: str) -> float | None:
    """A number above 0 of up to 9 digits; None: there is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def as_date(text: str) -> str | None:
    """YYYYMMDD of a date such as 2021-06-22; None if it is not one."""
    found = re.fullmatch(r"((?:19|20)\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])", text.strip())
    return "".join(found.groups()) if found else None


def as_position(text: str) -> str | None:
    """A patient position in DICOM's words, HFS, FFP, …; None if it is not one."""
    text = text.strip().upper()
    return text if re.fullmatch("[HF]F(S|P|DL|DR)", text) else None


def limit_notes(lines: Limit | None, width: int) -> list[str]:
    """Notes on lines at the edges that were not acquired according to the header."""
    if lines is None:
        return []
    first = max(0, width // 2 - lines.centre + lines.minimum)
    last = min(width - 1, width // 2 - lines.centre + lines.maximum)
    if first > last or (first == 0 and last == width - 1):
        return []
    gaps = [(0, first - 1)] * (first > 0) + [(last + 1, width - 1)] * (last < width - 1)
    names = " and ".join(f"{a}–{b}" if a < b else f"{a}" for a, b in gaps)
    notes = [f"phase lines {names} were not acquired (zero padding)"]
    fraction = partial_fourier(first, last, width)
    if fraction is not None:
        before, after = width // 2 - first, last - width // 2
        notes.append(
            f"partial Fourier: {before} lines before and {after} after the centre were "
            f"acquired, {fraction:.0%} of a symmetric range"
        )
    return notes


def voxel_notes(header: Header, voxel: Vector) -> list[str]:
    """A note if the scanner interpolates its image to another pixel size."""
    if header.recon is None or min(header.recon.fov[:2]) <= 0:
        return []
    theirs = [f / n for f, n in zip(header.recon.fov[:2], header.recon.matrix[:2], strict=True)]
    if all(abs(a - b) <= 0.01 * b for a, b in zip(voxel[:2], theirs, strict=True)):
        return []
    return [
        f"pixels are {voxel[0]:.3g} × {voxel[1]:.3g} mm as measured; the scanner interpolates to "
        f"{theirs[0]:.3g} × {theirs[1]:.3g} mm"
    ]


def unoriented(header: Header, readout: int, width: int) -> tuple[Geometry, list[str]]:
    """Geometry of a file without orientation and position, and notes."""
    voxel = header.voxel(readout, width)
    if voxel is None:
        return Geometry(), []
    sizes = " × ".join(f"{v:.3g}" for v in voxel)
    notes = [f"voxels are {sizes} mm; the file contains neither orientation nor position"]
    return Geometry(voxel=voxel), notes + voxel_notes(header, voxel)


def _text(parent: XML, *names: str) -> str:
    """The text of the descendant ``names``, namespace or not; "" without one."""
    return (parent.findtext("/".join(f"{{*}}{name}" for name in names)) or "").strip()


def _texts(parent: XML, *names: str) -> list[str]:
    """The texts of all descendants ``names``."""
    found = parent.findall("/".join(f"{{*}}{name}" for name in names))
    return [(element.text or "").strip() for element in found]


def _space(encoding: XML, name: str) -> Space | None:
    try:
        sizes = [int(_text(encoding, name, "matrixSize", axis)) for axis in "xyz"]
        x, y, z = (float(_text(encoding, name, "fieldOfView_mm", axis)) for axis in "xyz")
    except ValueError:
        return None
    if not all(1 <= n <= MOST for n in sizes):
        return None
    return Space((sizes[0], sizes[1], sizes[2]), (x, y, z))


def _limit(encoding: XML, name: str) -> Limit | None:
    try:
        minimum, centre, maximum = (
            int(_text(encoding, "encodingLimits", name, end))
            for end in ("minimum", "center", "maximum")
        )
    except ValueError:
        return None
    if max(abs(minimum), abs(centre), abs(maximum)) > MOST:
        return None
    return Limit(minimum, centre, maximum)
