"""fastMRI ``.h5`` (Zbontar et al. 2018): k-space, ISMRMRD header, often reference and mask.

``kspace`` is (slices, coils, readout, phase), or (slices, readout, phase) for a single coil.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io import hdf5
from pnpcm.io.reading import Budget
from pnpcm.mri.readers.header import Header, limit_notes, parse_header, unoriented
from pnpcm.mri.readers.opening import (
    OUTSIDE,
    Choice,
    as_complex64,
    as_mask,
    check_index,
    check_layout,
    checked,
    missing,
    only_first,
    remove_oversampling,
)
from pnpcm.mri.scan import Scan

FORMAT = "fastMRI"
LAYOUTS = {3: "(slices, readout, phase)", 4: "(slices, coils, readout, phase)"}


def read_fastmri(path: Path, choice: Choice, budget: Budget) -> Scan:
    """Open a fastMRI file; slices are read one by one.

    Readout oversampling is removed; the phase axis keeps its full width. ``crop`` is the image
    size in the header, or that of the reference image if there is no header.
    """
    only_first(path, choice)
    with hdf5.opened(path, FORMAT) as file:
        if "kspace" not in file:
            raise missing(path, "kspace", file.keys())
        kspace = hdf5.numbers(path, file, "kspace")
        shape, dtype = kspace.shape, kspace.dtype
        check_layout(path, shape, dtype, LAYOUTS)
        _check_budget(path, kspace, budget)
        header, notes = _header(file, path)
        target = _target_name(path, file, single=len(shape) == 3)
        image = None
        slices = images = hdf5.row_reader(path, FORMAT, kspace)
        if target:
            image = tuple(file[target].shape[-2:])
            _check_budget(path, file[target], budget)
            images = hdf5.row_reader(path, FORMAT, file[target])
        mask = _mask(path, file, shape)
        row = kspace[0, ..., shape[-2] // 2, :]
        attributes = {name: _plain(value) for name, value in file.attrs.items()}
    readout, width = int(shape[-2]), int(shape[-1])
    keep = header.kept(0, readout)
    size = (keep, width)
    wanted = header.recon.matrix[:2] if header.recon else image or size
    if keep < readout:
        notes.append(f"readout oversampling removed: {readout} samples became {keep}")
    geometry, voxel_sentences = unoriented(header, readout, width)
    sampled = None if mask is None else as_mask(path, mask, size)
    if sampled is not None and sampled.ndim == 1 and row[..., ~sampled.numpy()].any():
        notes.append(OUTSIDE)
    notes += header.notes
    notes += limit_notes(header.lines, width) + voxel_sentences

    def load(i: int) -> Tensor:
        raw = as_complex64(path, i, slices(i))
        return remove_oversampling(raw if raw.ndim == 3 else raw[None], keep)

    def load_target(i: int) -> Tensor:
        check_index(path, i, int(shape[0]))
        return torch.from_numpy(np.asarray(images(i), dtype=np.float32))

    return Scan(
        name=path.stem,
        format=FORMAT,
        n_slices=int(shape[0]),
        n_coils=int(shape[1]) if len(shape) == 4 else 1,
        size=size,
        crop=(min(wanted[0], size[0]), min(wanted[1], size[1])),
        kspace=checked(path, int(shape[0]), load, sampled),
        mask=sampled,
        target=load_target if target else None,
        geometry=geometry,
        protocol=header.protocol,
        notes=tuple(notes),
        attributes=attributes,
    )


def _header(file: Any, path: Path) -> tuple[Header, list[str]]:
    """The header; if there is none, an empty one and a note with the reason."""
    without = "readout oversampling, voxel sizes and padding are unknown"
    if "ismrmrd_header" not in file:
        return Header(), [f"the file has no ismrmrd_header: {without}"]
    text = hdf5.text(path, file, "ismrmrd_header")
    try:
        return parse_header(text, path), []
    except ArgumentError:
        return Header(), [f"the ismrmrd_header is not valid XML: {without}"]


def _check_budget(path: Path, data: Any, budget: Budget) -> None:
    """Check what is in memory when one slice is read: the slice, or those of its chunk."""
    shape = hdf5.block_shape(data)
    where = "a slice" if len(shape) < data.ndim else "the slices of a chunk"
    budget.check(path, shape, f"samples in {where}")


def _mask(path: Path, file: Any, shape: tuple[int, ...]) -> Any:
    if "mask" not in file:
        return None
    mask = hdf5.numbers(path, file, "mask")
    if mask.size > math.prod(shape[-2:]):
        raise ShapeError(f"mask of {path} has shape {mask.shape}, but kspace {shape}; correct it")
    return mask[()]


def _target_name(path: Path, file: Any, *, single: bool) -> str | None:
    """Name of the reference image; for single-coil k-space preferably of the emulated coil."""
    names = ["reconstruction_rss", "reconstruction_esc"]
    for name in reversed(names) if single else names:
        if name in file:
            found = hdf5.numbers(path, file, name)
            if found.ndim == 3 and len(found) == len(file["kspace"]):
                return name
    return None


def _plain(value: Any) -> str | float:
    """An HDF5 attribute as text or number."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if np.isscalar(value) and not isinstance(value, str):
        return float(np.real(value))
    return str(value)
