"""Readers of raw data formats, which return a :class:`pnpcm.mri.scan.Scan`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from pnpcm.errors import ArgumentError
from pnpcm.io import hdf5
from pnpcm.io.photos import ONLY_IMAGES
from pnpcm.io.reading import Budget, library, reading
from pnpcm.mri.readers.arrays import read_mat, read_npz
from pnpcm.mri.readers.cfl import read_cfl, write_cfl
from pnpcm.mri.readers.fastmri import read_fastmri
from pnpcm.mri.readers.ismrmrd_file import read_ismrmrd
from pnpcm.mri.readers.layout import Layout
from pnpcm.mri.readers.opening import HELD, NEED, Choice, existing, listed
from pnpcm.mri.readers.plain import read_hdf5, read_npy
from pnpcm.mri.readers.twix import read_twix
from pnpcm.mri.scan import Scan
from pnpcm.names import Table

ARRAYS = {"npy": read_npy, "npz": read_npz, "mat": read_mat, "hdf5": read_hdf5}
"""Formats of plain arrays, which take a name and an order of axes."""
READERS: Table[Callable[[Path, Choice, Budget], Scan]] = Table(
    "raw data format",
    {
        "fastmri": read_fastmri,
        "ismrmrd": read_ismrmrd,
        "twix": read_twix,
        "cfl": read_cfl,
        **ARRAYS,
    },
)
WORDS = {"fastmri": "fastMRI", "ismrmrd": "ISMRMRD", "twix": "Siemens twix", "cfl": "BART"}
WORDS |= {"npy": "NumPy's .npy", "npz": "NumPy's .npz", "mat": "MATLAB", "hdf5": "HDF5"}
SUFFIXES = {".dat": "twix", ".cfl": "cfl", ".hdr": "cfl"}
SUFFIXES |= {f".{name}": name for name in ("npy", "npz", "mat")}
HDF5_SUFFIXES = (".h5", ".hdf5", ".mrd")
KNOWN = (
    f"fastMRI or ISMRMRD ({', '.join(HDF5_SUFFIXES)}), Siemens twix (.dat), BART (.cfl with .hdr) "
    "or arrays (.npy, .npz, .mat)"
)
"""The formats with their suffixes, for messages."""


def read_scan(
    path: str | Path,
    *,
    contrast: int | None = None,
    repetition: int | None = None,
    set: int | None = None,
    phase: int | None = None,
    key: str | None = None,
    axes: str | Sequence[str] | None = None,
    format: str | None = None,
    max_pixels: int | None = None,
) -> Scan:
    """Open a raw data file: fastMRI, ISMRMRD, Siemens twix, BART, or arrays.

    ``contrast``, ``repetition``, ``set``, ``phase``: index to read, if the file has several.
    ``key``: name of the array of k-space in ``.npz``, ``.mat`` and HDF5 files. ``axes``: its axes
    in their order, of slice, coil, row (readout) and col (phase), as words or "coil,row,col".
    ``format``: a row of ``READERS``; None: from the suffix and, for HDF5, from the content.
    ``max_pixels``: largest number of k-space samples (coils × H × W) that are read at once; None:
    what the memory of the machine allows.
    """
    path = Path(path)
    choice = {"contrast": contrast, "repetition": repetition, "set": set, "phase": phase}
    layout = None if key is None and axes is None else Layout.of(key, axes)
    name = format or _format_of(path, plain=layout is not None)
    reader = READERS[name]
    if layout is not None and name not in ARRAYS:
        raise ArgumentError(
            f"{'axes' if key is None else 'key'} is given, but {path} is a file of the format "
            f"{name}, which has no choice of arrays; leave it out"
        )
    with reading(path, WORDS[name]):
        source = path if name == "cfl" else existing(path)
        budget = Budget(HELD, max_pixels)
        if layout is None:
            scan = reader(source, choice, budget)
        else:
            scan = ARRAYS[name](source, choice, budget, layout)
    Budget(NEED, max_pixels).check(path, (scan.n_coils, *scan.size), "samples in a slice")
    return scan


def _format_of(path: Path, *, plain: bool) -> str:
    """The format by suffix and content; ``plain``: HDF5 is read as plain arrays."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix in HDF5_SUFFIXES and plain:
        return "hdf5"
    if suffix in HDF5_SUFFIXES:
        return _hdf5_format(existing(path))
    if path.with_name(path.name + ".cfl").is_file():
        return "cfl"
    if suffix in ONLY_IMAGES:
        command = shlex.join(("pnpcm", "restore", str(path), "--task", "denoise"))
        raise ArgumentError(
            f"{path} is an image, not raw k-space: restore it with {command} (or another task), or "
            f"give a file of k-space in {KNOWN}"
        )
    raise ArgumentError(
        f"path is {path}, whose suffix {suffix!r} is not that of a raw data format; expected "
        f"{KNOWN}: rename it if it is one of them, or convert it; in Python the argument format of "
        "read_scan names the format of a file with any suffix"
    )


def _hdf5_format(path: Path) -> str:
    """The format of an HDF5 file: fastMRI or ISMRMRD."""
    h5py = library("h5py", f"{path.suffix} files")
    if not h5py.is_hdf5(path):
        raise ArgumentError(
            f"{path} is not an HDF5 file; expected fastMRI or ISMRMRD in HDF5: copy it again, or "
            f"convert a stream with ismrmrd_stream_to_hdf5"
        )
    with hdf5.opened(path, "HDF5") as file:
        if "kspace" in file:
            return "fastmri"
        for group in (file[name] for name in hdf5.names(file)):
            if isinstance(group, h5py.Group) and {"xml", "data"} <= {*group.keys()}:
                return "ismrmrd"
        found = listed(file)
    raise ArgumentError(
        f"{path} holds {found}; expected kspace (fastMRI) or a group with 'xml' and 'data' "
        f"(ISMRMRD): give the name of its k-space, key=NAME"
    )


__all__ = ["READERS", "read_scan", "write_cfl"]
