"""A single array as k-space: ``.npy`` files, and HDF5 files of any layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pnpcm.errors import ArgumentError
from pnpcm.mri.readers.arrays import MAPS, array_scan
from pnpcm.mri.readers.layout import Layout
from pnpcm.mri.readers.opening import Array, Choice, library, only_first, reading
from pnpcm.mri.scan import Scan


def read_npy(path: Path, choice: Choice, layout: Layout | None = None) -> Scan:
    """Open a NumPy array; slices are read from the file on access."""
    only_first(path, choice)
    layout = layout or Layout()
    if layout.key is not None:
        raise ArgumentError(
            f"key is {layout.key!r}, but {path} is an .npy file, which holds one array without a "
            f"name; leave key out"
        )
    with reading(path, "NumPy's .npy"):
        values: Array = np.lib.format.open_memmap(path, mode="r")
    return array_scan(path, "npy", {layout.name: values}, [layout.name], layout)


def read_hdf5(path: Path, choice: Choice, layout: Layout | None = None) -> Scan:
    """Open an HDF5 file with an array of k-space under any name; no header is read."""
    only_first(path, choice)
    layout = layout or Layout()
    h5py = library("h5py", f"{path.suffix} files")
    with reading(path, "HDF5"), h5py.File(path, "r") as file:
        names: list[str] = []
        file.visititems(lambda name, item: _add(names, name, item, h5py))
        wanted = {layout.name, "mask", *MAPS} & set(names)
        arrays = {name: _complex(file[name][()]) for name in wanted}
    return array_scan(path, "hdf5", arrays, names, layout)


def _add(names: list[str], name: str, item: Any, h5py: Any) -> None:
    if isinstance(item, h5py.Dataset):
        names.append(name)


def _complex(values: Array) -> Array:
    """Pairs of numbers, as of MATLAB (real, imag) and h5py (r, i), as complex numbers."""
    pair = values.dtype.names
    if pair in (("real", "imag"), ("r", "i")):
        return np.asarray(values[pair[0]] + 1j * values[pair[1]])
    return values
