"""A single array as k-space: ``.npy`` files, and HDF5 files of any layout."""

from __future__ import annotations

from pathlib import Path

from pnpcm.errors import ArgumentError
from pnpcm.io import hdf5
from pnpcm.io.arrays import mapped_array
from pnpcm.io.reading import Budget
from pnpcm.mri.readers.arrays import array_scan, hdf5_array, wanted
from pnpcm.mri.readers.layout import Layout
from pnpcm.mri.readers.opening import Choice, only_first
from pnpcm.mri.scan import Scan


def read_npy(path: Path, choice: Choice, budget: Budget, layout: Layout | None = None) -> Scan:
    """Open a NumPy array; slices are read from the file on access."""
    only_first(path, choice)
    layout = layout or Layout()
    if layout.key is not None:
        raise ArgumentError(
            f"key is {layout.key!r}, but {path} is an .npy file, which holds one array without a "
            f"name; leave key out"
        )
    scan = array_scan(path, "npy", {layout.name: mapped_array(path)}, [layout.name], layout)
    budget.check(path, (scan.n_coils, *scan.size), "samples in a slice")
    return scan


def read_hdf5(path: Path, choice: Choice, budget: Budget, layout: Layout | None = None) -> Scan:
    """Open an HDF5 file with an array of k-space under any name; no header is read."""
    only_first(path, choice)
    layout = layout or Layout()
    with hdf5.opened(path, "HDF5") as file:
        names = hdf5.datasets(file)
        found = [name for name in wanted(layout) if name in names]
        arrays = {name: hdf5_array(path, file, name, budget) for name in found}
    return array_scan(path, "hdf5", arrays, names, layout)
