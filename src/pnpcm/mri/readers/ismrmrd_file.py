"""ISMRMRD ``.h5`` and ``.mrd`` (Inati et al. 2017): Cartesian lines, each with its own header.

A line with counter ``encode_step_1`` is column W//2 + step − centre, its sample j is row
N//2 + j − ``center_sample``. Samples missing in a partial echo or partial Fourier scan are zero.
Reversed lines are flipped first; ``center_sample`` counts in the flipped line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.io import hdf5
from pnpcm.io.reading import Budget, library
from pnpcm.mri.readers.header import Header, parse_header, unoriented, voxel_notes
from pnpcm.mri.readers.lines import NOISE, Lines, imaging_lines, on_readout, place
from pnpcm.mri.readers.opening import (
    Array,
    Choice,
    centre,
    checked,
    choose,
    ifft1c,
    missing,
    remove_oversampling,
)
from pnpcm.mri.scan import Geometry, Scan, Vector
from pnpcm.names import count_of

# slice order and geometry, from the headers of the acquisitions ----------------------------------
FARTHEST = 1e4
"""Millimetres from the centre of the magnet above which a position is taken for unknown."""


def oriented(header: Header, heads: Array, grid: Lines) -> tuple[list[int], Geometry, list[str]]:
    """Slice numbers along ``slice_dir``, the geometry, and notes.

    Positions are those of the voxel (H//2, W//2) of each slice; the scan's is their middle.
    """
    numbers = [int(n) for n in np.unique(grid.slice)]
    readout, width, depth = grid.shape
    firsts = np.array([grid.rows[np.flatnonzero(grid.slice == n)[0]] for n in numbers])
    axes = [_unit(heads[key][firsts[0]]) for key in ("read_dir", "phase_dir", "slice_dir")]
    voxel = header.voxel(readout, width)
    positions = heads["position"][firsts].astype(float)
    placed = bool((np.abs(positions) <= FARTHEST).all())  # false for NaN
    if voxel is None or not placed or any(axis is None for axis in axes):
        geometry, notes = unoriented(header, readout, width)
        return numbers, geometry, notes
    along_h, along_w, normal = (axis for axis in axes if axis is not None)
    siemens = header.vendor.lower().startswith("siemens")
    if siemens:
        along_h, along_w = _reversed(along_h), _reversed(along_w)
        normal = _reversed(normal) if depth > 1 else normal
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
    if siemens:
        notes.append(
            "Siemens data: the file's directions are those of a forward Fourier transform of "
            "k-space and were reversed; if a program has conjugated k-space, the image is turned "
            "by 180°: check the orientation once against the scanner's own images"
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


def _reversed(direction: Vector) -> Vector:
    return _vector(-np.array(direction))


def _unit(values: Array) -> Vector | None:
    """A direction of length 1; None where the file has none."""
    length = float(np.linalg.norm(values))
    return _vector(values / length) if 0.5 < length < 2 else None


# reader ------------------------------------------------------------------------------------------
FORMAT = "ISMRMRD"
COUNTERS = ("contrast", "repetition", "set", "phase")


@dataclass(frozen=True)
class Raw:
    """An opened file of lines: its header, the header of each line, and notes.

    ``heads`` has the fields of ISMRMRD's acquisition headers. ``samples(rows)``: complex samples
    (coils, samples) of some lines, one after the other.
    """

    path: Path
    format: str
    header: Header
    heads: Array
    samples: Callable[[Array], Iterator[Array]]
    notes: tuple[str, ...] = ()


def read_ismrmrd(path: Path, choice: Choice, budget: Budget) -> Scan:
    """Open a Cartesian scan: 2-D slices, or a 3-D slab whose partitions become slices."""
    return scan_of_lines(_open(path, budget), choice, budget)


def scan_of_lines(raw: Raw, choice: Choice, budget: Budget) -> Scan:
    """The scan that the lines of a file are."""
    path = raw.path
    lines, notes = imaging_lines(path, raw.header, raw.heads)
    for name in COUNTERS:
        counter = raw.heads["idx"][name][lines]
        found = sorted(set(counter.tolist()))
        lines = lines[counter == choose(path, name, found, choice.get(name))]
    _check_budget(path, raw, lines, budget)
    grid, sentences = place(path, raw.header, raw.heads, lines)
    order, geometry, more = oriented(raw.header, raw.heads, grid)
    readout, width, partitions = grid.shape
    keep, slab = raw.header.kept(0, readout), raw.header.kept(2, partitions)
    notes = [*raw.notes, *raw.header.notes, *notes, *sentences, *more]
    if keep < readout:
        notes.append(f"readout oversampling removed: {readout} samples became {keep}")
    if partitions > 1:
        notes.append(f"3-D: {partitions} partitions transformed to {slab} slices")
    mask = grid.mask()
    if mask is None:
        notes.append("slices were sampled differently; the mask of each is inferred from its zeros")
    n_coils = int(raw.heads["active_channels"][lines[0]])
    noise, noise_notes = _noise(raw, grid, n_coils)

    def load(i: int) -> Tensor:
        if partitions == 1:
            return remove_oversampling(_assemble(raw, grid, order[i])[..., 0], keep)
        return volume()[..., i]

    @lru_cache(maxsize=1)
    def volume() -> Tensor:
        hybrid = ifft1c(_assemble(raw, grid, order[0]), -1)
        hybrid = centre(hybrid, slab, -1).movedim(-1, 0)
        return remove_oversampling(hybrid, keep).movedim(0, -1)

    n_slices = len(order) if partitions == 1 else slab
    return Scan(
        name=path.stem,
        format=raw.format,
        n_slices=n_slices,
        n_coils=n_coils,
        size=(keep, width),
        crop=(keep, raw.header.kept(1, width)),
        kspace=checked(path, n_slices, load),
        mask=mask,
        noise=noise,
        geometry=geometry,
        protocol=raw.header.protocol_of(int(raw.heads["idx"]["contrast"][lines[0]])),
        notes=tuple(notes + noise_notes),
        attributes={"vendor": raw.header.vendor} if raw.header.vendor else {},
    )


def _open(path: Path, budget: Budget) -> Raw:
    """Read the headers of a file; an error if it is not Cartesian."""
    library("ismrmrd", "ISMRMRD files")  # needed for the lines, see Raw.samples
    with hdf5.opened(path, FORMAT) as file:
        groups = [name for name in hdf5.names(file) if {"xml", "data"} <= _members(file[name])]
        if not groups:
            raise missing(path, "group with 'xml' and 'data'", file.keys())
        group = file[groups[0]]
        data = hdf5.dataset(path, group, "data")
        if len(data) == 0:
            raise missing(path, "acquisitions", group.keys())
        budget.check(path, (len(data), -(-data.dtype.itemsize // 8)), "numbers in headers of lines")
        hdf5.check_rows(path, data)
        heads = np.asarray(data["head"])
        header = parse_header(hdf5.text(path, group, "xml"), path)
    if header.trajectory != "cartesian":
        raise ArgumentError(
            f"{path} has a {header.trajectory or 'missing'!r} trajectory; expected 'cartesian': "
            f"grid the data first, or correct the header"
        )
    if header.encoded is None:
        raise ArgumentError(
            f"the header of {path} has no complete encodedSpace (matrixSize and fieldOfView_mm); "
            f"convert the scanner's file again"
        )
    return Raw(path, FORMAT, header, heads, partial(_samples, path, groups[0]))


def _samples(path: Path, group: str, rows: Array) -> Iterator[Array]:
    ismrmrd = library("ismrmrd", "ISMRMRD files")
    with ismrmrd.File(str(path), "r") as file:
        acquisitions = file[group].acquisitions
        for row in rows:
            yield acquisitions[int(row)].data


def _members(group: Any) -> set[str]:
    return set(hdf5.names(group)) if hasattr(group, "keys") else set()


def _check_budget(path: Path, raw: Raw, rows: Array, budget: Budget) -> None:
    """Check the size of a slice or slab in memory, and that the file can hold its lines."""
    assert raw.header.encoded is not None  # checked when the file was opened
    heads = raw.heads[rows]
    coils, samples = (heads[key].astype(int) for key in ("active_channels", "number_of_samples"))
    n_x, width, depth = raw.header.encoded.matrix
    sides = (int(coils.max()), max(n_x, int(samples.max())), width, depth)
    budget.check(path, sides, "samples in a slice or slab")
    stored, longest = path.stat().st_size, 8 * int((coils * samples).max())
    if longest > stored:
        raise ArgumentError(
            f"a line of {path} needs {longest} bytes, the file has {stored}; copy it again"
        )


def _assemble(raw: Raw, grid: Lines, number: int) -> Tensor:
    """K-space ``(coils, readout, phase, partitions)`` of one slice, repeated lines averaged."""
    chosen = np.flatnonzero(grid.slice == number)
    rows = grid.rows[chosen]
    kspace: Array | None = None
    counts = np.zeros(grid.shape[1:], dtype=np.float32)
    for data, row, k in zip(raw.samples(rows), rows, chosen, strict=True):
        if kspace is None:
            kspace = np.zeros((len(data), *grid.shape), dtype=np.complex64)
        start, samples = on_readout(raw.heads[row], data, grid.shape[0])
        column, partition = grid.column[k], grid.partition[k]
        kspace[:, start : start + samples.shape[1], column, partition] += samples
        counts[column, partition] += 1
    assert kspace is not None  # every slice number comes from a line
    return torch.from_numpy(kspace / np.maximum(counts, 1))


def _noise(raw: Raw, grid: Lines, n_coils: int) -> tuple[Tensor | None, list[str]]:
    """Noise samples ``(coils, samples)``, scaled to the standard deviation of the imaging lines.

    It is proportional to √(bandwidth / averages), so that the samples are multiplied by
    √(dwell / (dwell_image · averages)).
    """
    heads = raw.heads
    rows = np.flatnonzero((heads["flags"] & NOISE) != 0)
    rows = rows[heads["active_channels"][rows] == n_coils]
    if not len(rows):
        return None, []
    image, own = (float(heads["sample_time_us"][r]) for r in (grid.rows[0], rows[0]))
    ratio = own / image if 0 < image < np.inf and 0 < own < np.inf else 1.0
    scale = (ratio / grid.repeats()) ** 0.5
    noise = np.concatenate(list(raw.samples(rows)), axis=1)
    notes = [f"noise measured in {count_of(noise.shape[1], 'sample')}"]
    if abs(scale - 1) > 0.01:
        notes = [f"{notes[0]}, scaled by {scale:.3g} to bandwidth and averages of the image"]
    return torch.from_numpy(noise.astype(np.complex64) * np.float32(scale)), notes
