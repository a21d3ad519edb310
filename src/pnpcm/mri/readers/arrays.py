"""``.npz`` and ``.mat`` files with the array ``kspace``, optionally ``mask`` and coil maps.

``kspace`` is complex (coils, H, W) or (slices, coils, H, W), as in the authors' own files; a
:class:`Layout` tells another name or order of axes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ShapeError
from pnpcm.mri.readers.layout import Layout
from pnpcm.mri.readers.opening import (
    OUTSIDE,
    Array,
    Choice,
    as_mask,
    check_index,
    checked,
    library,
    missing,
    only_first,
    reading,
)
from pnpcm.mri.scan import Scan

MAPS = ("coil_maps", "coils", "maps")


def read_npz(path: Path, choice: Choice, layout: Layout | None = None) -> Scan:
    """Open a NumPy archive; pickled objects are never loaded."""
    only_first(path, choice)
    layout = layout or Layout()
    wanted = (layout.name, "mask", *MAPS)
    with reading(path, "NumPy's .npz"), path.open("rb") as stream:
        file = np.load(stream, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise missing(path, "kspace", ["a single array without a name"])
        arrays = {name: file[name] for name in file.files if name in wanted}
    return array_scan(path, "npz", arrays, file.files, layout)


def read_mat(path: Path, choice: Choice, layout: Layout | None = None) -> Scan:
    """Open a MATLAB file of version 7.3 (HDF5) or older."""
    only_first(path, choice)
    layout = layout or Layout()
    wanted = (layout.name, "mask", *MAPS)
    with path.open("rb") as file:
        is_hdf5 = file.read(128).startswith((b"MATLAB 7.3", b"\x89HDF"))
    if is_hdf5:
        h5py = library("h5py", ".mat files of version 7.3")
        with reading(path, "MATLAB 7.3"), h5py.File(path, "r") as content:
            arrays = {name: _untransposed(content[name][()]) for name in wanted if name in content}
            names = list(content)
        return array_scan(path, "mat", arrays, names, layout)
    io = library("scipy.io", ".mat files")
    with reading(path, "MATLAB"):
        names = [name for name, *_ in io.whosmat(path)]
        arrays = io.loadmat(path, variable_names=wanted)
    found = {n: a for n, a in arrays.items() if n in wanted}
    return array_scan(path, "mat", found, names, layout)


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


def _untransposed(values: Array) -> Array:
    """An array of a 7.3 file with its axes in MATLAB's order and as complex numbers."""
    if values.dtype.names == ("real", "imag"):
        values = values["real"] + 1j * values["imag"]
    return values.T
