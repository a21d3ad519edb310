"""``.npz`` and ``.mat`` files with the array ``kspace``, optionally ``mask`` and coil maps.

``kspace`` is complex (coils, H, W) or (slices, coils, H, W), as in the authors' own files.
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
from pnpcm.mri.readers.matlab import read_matlab
from pnpcm.mri.readers.opening import (
    OUTSIDE,
    Array,
    Choice,
    as_mask,
    check_index,
    check_layout,
    checked,
    missing,
    only_first,
)
from pnpcm.mri.scan import Scan

LAYOUTS = {3: "(coils, H, W)", 4: "(slices, coils, H, W)"}
MAPS = ("coil_maps", "coils", "maps")
NAMES = ("kspace", "mask", *MAPS)


def read_npz(path: Path, choice: Choice, budget: Budget) -> Scan:
    """Open a NumPy archive; pickled objects are never loaded."""
    only_first(path, choice)
    with opened_npz(path, "NumPy's .npz", budget) as file:
        return _scan(path, "npz", as_dict(file, NAMES), file.names)


def read_mat(path: Path, choice: Choice, budget: Budget) -> Scan:
    """Open a MATLAB file of version 7.3 (HDF5) or older."""
    only_first(path, choice)
    with path.open("rb") as stream:
        is_hdf5 = stream.read(128).startswith((b"MATLAB 7.3", b"\x89HDF"))
    if not is_hdf5:
        return _scan(path, "mat", *read_matlab(path, NAMES, budget))
    with hdf5.opened(path, "MATLAB 7.3") as file:
        arrays = {name: _of_hdf5(path, file, name, budget) for name in NAMES if name in file}
        return _scan(path, "mat", arrays, list(file))


def _of_hdf5(path: Path, file: Any, name: str, budget: Budget) -> Array:
    data = hdf5.dataset(path, file, name)
    budget.check(path, data.shape or (1,), "numbers")
    return _untransposed(data[()])


def _scan(path: Path, format: str, arrays: dict[str, Array], names: list[str]) -> Scan:
    if "kspace" not in arrays:
        raise missing(path, "kspace", names)
    kspace = arrays["kspace"]
    check_layout(path, kspace.shape, kspace.dtype, LAYOUTS)
    kspace = kspace if kspace.ndim == 4 else kspace[None]
    n_slices, n_coils, height, width = kspace.shape
    if n_coils > 2 * min(height, width):
        raise ShapeError(
            f"kspace of {path} has shape {arrays['kspace'].shape}, {n_coils} coils of "
            f"{height} × {width}; expected {LAYOUTS[arrays['kspace'].ndim]}: move the coil axis, "
            f"np.moveaxis(kspace, -1, -3)"
        )
    mask, notes = None, []
    if "mask" in arrays:
        mask = as_mask(path, arrays["mask"], (height, width))
        if bool(kspace[0][..., ~mask.numpy()].any()):
            notes.append(OUTSIDE)

    def load(i: int) -> Tensor:
        return torch.from_numpy(np.array(kspace[i], dtype=np.complex64))

    return Scan(
        name=path.stem,
        format=format,
        n_slices=n_slices,
        n_coils=n_coils,
        size=(height, width),
        crop=(height, width),
        kspace=checked(path, n_slices, load, mask),
        mask=mask,
        coil_maps=_coil_maps(path, arrays, kspace.shape),
        notes=tuple(notes),
    )


def _coil_maps(
    path: Path, arrays: dict[str, Array], shape: tuple[int, ...]
) -> Callable[[int], Tensor] | None:
    """Coil maps of a slice, from an array for all slices or for each."""
    name = next((name for name in MAPS if name in arrays), None)
    if name is None:
        return None
    maps = arrays[name]
    if maps.shape not in (shape, shape[1:]) or maps.dtype.kind != "c":
        raise ShapeError(
            f"{name} of {path} is {maps.dtype} of shape {maps.shape}; expected complex "
            f"{shape[1:]} or {shape} to fit kspace: save the coil maps on the grid of kspace"
        )

    def load(i: int) -> Tensor:
        check_index(path, i, shape[0])
        return torch.from_numpy(np.array(maps if maps.ndim == 3 else maps[i], dtype=np.complex64))

    return load


def _untransposed(values: Array) -> Array:
    """An array of a 7.3 file with its axes in MATLAB's order and as complex numbers."""
    if values.dtype.names == ("real", "imag"):
        values = values["real"] + 1j * values["imag"]
    return values.T
