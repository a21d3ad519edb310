"""Slice order and geometry from the headers of ISMRMRD acquisitions."""

from __future__ import annotations

import numpy as np

from pnpcm.mri.readers.header import Header, unoriented, voxel_notes
from pnpcm.mri.readers.lines import Lines
from pnpcm.mri.readers.opening import Array
from pnpcm.mri.scan import Geometry, Vector


def oriented(header: Header, heads: Array, grid: Lines) -> tuple[list[int], Geometry, list[str]]:
    """Slice numbers along ``slice_dir``, the geometry, and notes.

    Positions are those of the voxel (H//2, W//2) of each slice; the scan's is their middle.
    """
    numbers = [int(n) for n in np.unique(grid.slice)]
    readout, width, depth = grid.shape
    firsts = np.array([grid.rows[np.flatnonzero(grid.slice == n)[0]] for n in numbers])
    axes = [_unit(heads[key][firsts[0]]) for key in ("read_dir", "phase_dir", "slice_dir")]
    voxel = header.voxel(readout, width)
    if voxel is None or any(axis is None for axis in axes):
        geometry, notes = unoriented(header, readout, width)
        return numbers, geometry, notes
    along_h, along_w, normal = (axis for axis in axes if axis is not None)
    positions = heads["position"][firsts].astype(float)
    height = positions @ np.array(normal)
    notes = voxel_notes(header, voxel)
    spacing = voxel[2]
    steps = np.diff(np.sort(height))
    order = list(range(len(numbers)))
    if len(steps) and steps.min() > 1e-3:
        order = np.argsort(height).tolist()
        spacing = float(np.median(steps))
        if steps.max() - steps.min() > 0.01 * spacing:
            notes.append(f"slices are {steps.min():.3g} to {steps.max():.3g} mm apart, not equally")
    elif len(steps):
        notes.append("slices share a position in the file; they are in the order of their index")
    centre = positions.mean(0)
    if depth > 1 and header.encoded is not None and header.encoded.fov[2] > 0:
        spacing = header.encoded.fov[2] / depth
        kept = header.kept(2, depth)
        centre = centre + ((kept - 1) / 2 - kept // 2) * spacing * np.array(normal)
    if header.vendor.lower().startswith("siemens"):
        notes.append(
            "Siemens data: some programs conjugate k-space, which turns the image by 180°; "
            "check the orientation once against the scanner's own images"
        )
    geometry = Geometry(
        voxel=(voxel[0], voxel[1], spacing),
        position=_vector(centre),
        readout=along_h,
        phase=along_w,
        slice=normal,
        known=True,
    )
    return [numbers[i] for i in order], geometry, notes


def _vector(values: Array) -> Vector:
    x, y, z = (float(v) for v in values)
    return (x, y, z)


def _unit(values: Array) -> Vector | None:
    """A direction of length 1; None where the file has none."""
    length = float(np.linalg.norm(values))
    return _vector(values / length) if 0.5 < length < 2 else None
