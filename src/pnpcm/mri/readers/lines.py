"""ISMRMRD acquisitions on a Cartesian grid: the imaging lines and the position of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.mri.readers.header import Header, Limit, limit_notes
from pnpcm.mri.readers.opening import Array
from pnpcm.names import count_of

# bits of an acquisition's flags: the standard counts them from 1
NOISE, CALIBRATION, REVERSE = (np.uint64(1 << (bit - 1)) for bit in (19, 20, 22))
ASIDE = {
    "navigator": (23,),
    "phase correction": (24, 30, 31),
    "feedback": (26, 28),
    "dummy": (27,),
    "coil correction": (29,),
}


@dataclass(frozen=True)
class Lines:
    """The imaging lines: ``rows`` in the file, and the position of each on the grid."""

    shape: tuple[int, int, int]  # readout, phase, partitions
    rows: Array
    slice: Array
    column: Array
    partition: Array

    def repeats(self) -> float:
        """Median of the number of times that a line was measured."""
        places = np.stack([self.slice, self.column, self.partition])
        return float(np.median(np.unique(places, axis=1, return_counts=True)[1]))

    def mask(self) -> Tensor | None:
        """Boolean ``(W,)`` of the measured columns; None if slices differ."""
        masks = []
        for number in np.unique(self.slice):
            mask = np.zeros(self.shape[1], dtype=bool)
            mask[self.column[self.slice == number]] = True
            masks.append(mask)
        alike = all(np.array_equal(mask, masks[0]) for mask in masks)
        return torch.from_numpy(masks[0]) if alike else None


def imaging_lines(path: Path, header: Header, heads: Array) -> tuple[Array, list[str]]:
    """Rows of the imaging acquisitions in the file, and notes on the others."""
    flags, notes = heads["flags"], []
    aside = (flags & NOISE) != 0
    for name, bits in ASIDE.items():
        found = (flags & np.uint64(sum(1 << (bit - 1) for bit in bits))) != 0
        if found.any():
            notes.append(f"{count_of(int(found.sum()), f'{name} line')} left out")
        aside |= found
    if header.calibration in ("separate", "external"):
        found = (flags & CALIBRATION) != 0
        if found.any():
            notes.append(
                f"{count_of(int(found.sum()), 'line')} of a separate calibration scan left out"
            )
        aside |= found
    other = (heads["encoding_space_ref"] != 0) & ~aside
    if other.any():
        notes.append(
            f"{count_of(int(other.sum()), 'line')} of other encodings than the first left out"
        )
    rows = np.flatnonzero(~aside & ~other)
    if not len(rows):
        raise ArgumentError(
            f"{path} has {len(heads)} acquisitions but no imaging lines; expected lines without "
            f"the flags for noise or navigators: convert the scanner's file again"
        )
    return rows, notes


def place(path: Path, header: Header, heads: Array, rows: Array) -> tuple[Lines, list[str]]:
    """The grid of the header with the position of every line, and notes."""
    assert header.encoded is not None  # checked when the file was opened
    n_x, width, depth = header.encoded.matrix
    coils = np.unique(heads["active_channels"][rows])
    if len(coils) > 1:
        raise ArgumentError(
            f"lines of {path} have {', '.join(map(str, coils))} coils; expected the same number "
            f"in all of them: convert the scanner's file again"
        )
    notes = []
    samples = int(heads["number_of_samples"][rows].max())
    if samples > n_x:
        notes.append(f"lines have {samples} samples, but {n_x} in the header; all were kept")
    readout = max(samples, n_x)
    first = heads[rows[0]]
    used = int(first["number_of_samples"]) - int(first["discard_pre"]) - int(first["discard_post"])
    if used < readout:
        notes.append(f"partial echo: {used} of {readout} readout samples were acquired")
    if not heads["center_sample"][rows].all():
        notes.append("lines without center_sample: their middle is used as the centre")
    steps = heads["idx"]
    if not steps["kspace_encode_step_2"][rows].any() and not (
        header.partitions and header.partitions.maximum
    ):
        depth = 1  # slices; some headers store their number in the matrix
    column = _placed(path, "kspace_encode_step_1", steps, rows, header.lines, width, notes)
    partition = _placed(path, "kspace_encode_step_2", steps, rows, header.partitions, depth, notes)
    slice_ = steps["slice"][rows].astype(int)
    grid = Lines((readout, width, depth), rows, slice_, column, partition)
    if depth > 1:
        _check_partitions(path, grid)
    averages = int(np.unique(steps["average"][rows]).size)
    if averages > 1:
        notes.append(f"{averages} averages averaged")
    if ((heads["flags"][rows] & REVERSE) != 0).any():
        notes.append("reversed lines were flipped")
    return grid, notes + limit_notes(header.lines, width)


def on_readout(head: Any, data: Array, readout: int) -> tuple[int, Array]:
    """First row of a line on the readout axis, and its samples in the order of rows."""
    n, pre, post = data.shape[1], int(head["discard_pre"]), int(head["discard_post"])
    middle = int(head["center_sample"]) or n // 2  # 0: not filled in
    if head["flags"] & REVERSE:
        data, pre, post = data[:, ::-1], post, pre
    start = readout // 2 - middle
    first = max(pre, -start)
    stop = min(n - post, readout - start)
    return start + first, data[:, first:stop]


def _placed(
    path: Path, name: str, steps: Array, rows: Array, limit: Limit | None, n: int, notes: list[str]
) -> Array:
    """Index of every line on an axis of length n; the header's centre becomes n//2."""
    counter = steps[name][rows].astype(int)
    if n == 1 and not counter.any():
        return counter
    if limit is None:
        notes.append(f"the header has no limits of {name}; {n // 2} is used as its centre")
    index: Array = counter + n // 2 - (limit.centre if limit else n // 2)
    if index.min() < 0 or index.max() >= n:
        raise ArgumentError(
            f"{name} of {path} is {counter.min()} … {counter.max()} with its centre at "
            f"{limit.centre if limit else n // 2}, beyond the {n} lines of the encodedSpace; "
            f"correct matrixSize or encodingLimits in the header"
        )
    return index


def _check_partitions(path: Path, grid: Lines) -> None:
    """Refuse several slabs, and gaps between partitions, which would alias slices."""
    if len(np.unique(grid.slice)) > 1:
        raise ArgumentError(
            f"{path} holds {len(np.unique(grid.slice))} 3-D slabs; expected one: save each slab "
            f"to its own file"
        )
    seen = np.zeros(grid.shape[1:], dtype=bool)
    seen[grid.column, grid.partition] = True
    check_unbroken(path, seen, "sample every partition")


def check_unbroken(path: Path, seen: Array, move: str) -> None:
    """Refuse a sampling ``seen`` (phase, partitions) with gaps between partitions of a line."""
    starts = (np.diff(seen.astype(np.int8), axis=1, prepend=0) == 1).sum(1)
    if (starts > 1).any():
        raise ArgumentError(
            f"{path} is a 3-D scan undersampled along its partitions and cannot be split into "
            f"slices; expected partitions without gaps: {move}"
        )
