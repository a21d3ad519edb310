"""``.npz`` and ``.mat`` files with the array ``kspace``, optionally ``mask`` and coil maps.

``kspace`` is complex (coils, H, W) or (slices, coils, H, W), as in the authors' own files; a
:class:`Layout` tells another name or order of axes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ShapeError
from pnpcm.io import hdf5
from pnpcm.io.arrays import as_dict, opened_npz
from pnpcm.io.reading import Budget
from pnpcm.mri.readers.layout import Layout
from pnpcm.mri.readers.matlab import read_matlab
from pnpcm.mri.readers.opening import (
    OUTSIDE,
    Array,
    Choice,
    as_complex64,
    as_mask,
    check_index,
    checked,
    only_first,
)
from pnpcm.mri.scan import Scan

MAPS = ("coil_maps", "coils", "maps")


def read_npz(path: Path, choice: Choice, budget: Budget, layout: Layout | None = None) -> Scan:
    """Open a NumPy archive; pickled objects are never loaded."""
    only_first(path, choice)
    layout = layout or Layout()
    with opened_npz(path, "NumPy's .npz", budget) as file:
        return array_scan(path, "npz", as_dict(file, wanted(layout)), file.names, layout)


def read_mat(path: Path, choice: Choice, budget: Budget, layout: Layout | None = None) -> Scan:
    """Open a MATLAB file of version 7.3 (HDF5) or older."""
    only_first(path, choice)
    layout = layout or Layout()
    with path.open("rb") as stream:
        is_hdf5 = stream.read(128).startswith((b"MATLAB 7.3", b"\x89HDF"))
    if not is_hdf5:
        return array_scan(path, "mat", *read_matlab(path, wanted(layout), budget), layout)
    with hdf5.opened(path, "MATLAB 7.3") as file:
        found = [name for name in wanted(layout) if name in file]
        arrays = {name: hdf5_array(path, file, name, budget).T for name in found}
        return array_scan(path, "mat", arrays, list(file), layout)


def wanted(layout: Layout) -> tuple[str, ...]:
    """Names of the arrays that are read if the file has them."""
    return tuple(dict.fromkeys((layout.name, "mask", *MAPS)))


def hdf5_array(path: Path, file: Any, name: str, budget: Budget) -> Array:
    """A data set; pairs of numbers, as of MATLAB (real, imag) or (r, i), as complex numbers."""
    data = hdf5.numbers(path, file, name)
    budget.check(path, data.shape or (1,), "numbers")
    values: Array = np.asarray(data[()])
    pair = values.dtype.names
    if pair is not None:
        return np.asarray(values[pair[0]] + 1j * values[pair[1]])
    return values


def array_scan(
    path: Path, format: str, arrays: dict[str, Array], names: list[str], layout: Layout
) -> Scan:
    """The scan in the ``arrays`` of a file, which holds the ``names``."""
    kspace = layout.kspace(arrays, path, names)
    n_slices, n_coils, height, width = kspace.shape
    mask, notes = None, []
    if "mask" in arrays:
        mask = as_mask(path, layout.mask(arrays["mask"].squeeze()), (height, width))
        if bool(kspace[0][..., ~mask.numpy()].any()):
            notes.append(OUTSIDE)

    def load(i: int) -> Tensor:
        return as_complex64(path, i, kspace[i])

    return Scan(
        name=path.stem,
        format=format,
        n_slices=n_slices,
        n_coils=n_coils,
        size=(height, width),
        crop=(height, width),
        kspace=checked(path, n_slices, load, mask),
        mask=mask,
        coil_maps=_coil_maps(path, arrays, kspace.shape, layout),
        notes=tuple(notes),
    )


def _coil_maps(
    path: Path, arrays: dict[str, Array], shape: tuple[int, ...], layout: Layout
) -> Callable[[int], Tensor] | None:
    """Coil maps of a slice, from an array for all slices or for each."""
    name = next((name for name in MAPS if name in arrays and name != layout.key), None)
    if name is None:
        return None
    maps = layout.maps(path, arrays[name])
    if maps.shape not in (shape, shape[1:]) or maps.dtype.kind != "c":
        raise ShapeError(
            f"{name} of {path} is {maps.dtype} of shape {maps.shape}; expected complex "
            f"{shape[1:]} or {shape} to fit kspace: save the coil maps on the grid of kspace"
        )

    def load(i: int) -> Tensor:
        check_index(path, i, shape[0])
        return torch.from_numpy(np.array(maps if maps.ndim == 3 else maps[i], dtype=np.complex64))

    return load
