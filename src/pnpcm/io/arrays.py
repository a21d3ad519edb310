"""Arrays in ``.npy`` and ``.npz`` files, whose declared sizes are checked before they are read."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pnpcm.errors import ArgumentError
from pnpcm.io.reading import Budget, reading

Array = NDArray[Any]
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
NUMBER = 32
"""Bytes of memory per number of an array: as read, and converted to complex numbers."""
KINDS = "biufcUS"
"""Types of numbers and texts; pickled objects are never loaded."""
SHORT = 2**16
"""Characters of a text that is read in any budget, e.g. the description of a measurement."""


class Archive:
    """An opened ``.npz`` file: ``names``, and the array of a name, if it fits the budget."""

    def __init__(self, path: Path, file: zipfile.ZipFile, budget: Budget) -> None:
        self.path, self._file, self._budget = path, file, budget
        members = [m for m in file.infolist() if m.filename.endswith(".npy")]
        self._members = {m.filename.removesuffix(".npy"): m for m in members}
        self.names = list(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> Array:
        member = self._member(name)
        with self._file.open(member) as stream:
            return _array(self.path, stream, member.file_size, self._budget)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, of which only the header is read."""
        member = self._member(name)
        with self._file.open(member) as stream:
            return _described(stream, member.file_size)[0]

    def _member(self, name: str) -> zipfile.ZipInfo:
        if name not in self._members:
            found = ", ".join(self.names) or "nothing"
            raise ArgumentError(f"{self.path} has no array {name!r}; it has {found}")
        member = self._members[name]
        if member.compress_type not in METHODS:
            raise ValueError(f"{name} has the compression {member.compress_type} of zip files")
        return member


@contextmanager
def opened_npz(path: Path, format: str, budget: Budget) -> Iterator[Archive]:
    """The arrays of an ``.npz`` file; each is read when it is asked for."""
    with reading(path, format):
        with path.open("rb") as stream:
            if stream.read(6) == npy.MAGIC_PREFIX:
                raise ArgumentError(
                    f"{path} holds a single array without a name; save it with np.savez"
                )
        with zipfile.ZipFile(path) as file:
            yield Archive(path, file, budget)


def read_array(
    path: Path,
    budget: Budget,
    *,
    format: str = "a .npy file of numbers",
    accept: Callable[[tuple[int, ...]], None] = lambda shape: None,
) -> Array:
    """The array of a ``.npy`` file, or the first of an ``.npz``.

    ``accept`` raises an error for a shape that is not wanted; it is called before numbers are read.
    """
    with reading(path, format):
        if zipfile.is_zipfile(path):
            with opened_npz(path, format, budget) as file:
                name = file.names[0] if file.names else "array"
                accept(file.shape(name))
                return file[name]
        with path.open("rb") as stream:
            accept(_described(stream, path.stat().st_size)[0])
            stream.seek(0)
            return _array(path, stream, path.stat().st_size, budget)


def mapped_array(path: Path) -> Array:
    """The array of a ``.npy`` file, whose numbers are read from the file when they are used."""
    with reading(path, "NumPy's .npy"), path.open("rb") as stream:
        shape, in_columns, dtype, head = _described(stream, path.stat().st_size)
    return np.memmap(path, dtype, "r", head.tell(), shape, "F" if in_columns else "C")


def _described(
    stream: IO[bytes], size: int
) -> tuple[tuple[int, ...], bool, np.dtype[Any], io.BytesIO]:
    """Shape, order and type of the array in a stream of ``size`` bytes, and the bytes read.

    The header is checked against the size; the position in the bytes read is after the header.
    """
    head = io.BytesIO(stream.read(min(size, 2**16)))  # NumPy refuses headers above 10 000 bytes
    if not head.getvalue().startswith(npy.MAGIC_PREFIX):
        raise ValueError("it does not begin like a .npy file")
    version = npy.read_magic(head)
    if version not in ((1, 0), (2, 0)):  # 3.0 is for fields with names, which are not read
        raise ValueError(f"version {version} of NumPy's format, expected 1.0 or 2.0")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, in_columns, dtype = read(head)
    if dtype.hasobject or dtype.names or dtype.kind not in KINDS:
        raise ValueError(f"it holds {dtype}, not plain numbers")
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape}")
    declared = math.prod(shape) * dtype.itemsize
    if declared != size - head.tell():
        raise ValueError(f"shape {shape} of {dtype} needs {declared} bytes, it has "
                         f"{size - head.tell()}")  # fmt: skip
    return shape, in_columns, dtype, head


def _array(path: Path, stream: IO[bytes], size: int, budget: Budget) -> Array:
    """The array in a stream of ``size`` bytes in NumPy's format; the header is checked first."""
    shape, in_columns, dtype, head = _described(stream, size)
    _check(path, shape, dtype, budget)
    declared = math.prod(shape) * dtype.itemsize
    content = bytearray(declared)
    view, at = memoryview(content), 0
    while at < declared:
        part = head.read(2**20) or stream.read(min(declared - at, 2**24))
        if not part:
            raise ValueError(f"it ends after {at} of {declared} bytes")
        view[at : at + len(part)] = part
        at += len(part)
    values = np.frombuffer(content, dtype)
    return values.reshape(shape, order="F" if in_columns else "C")


def _check(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], budget: Budget) -> None:
    """Refuse more numbers than the budget allows, or more characters, unless they are few."""
    if dtype.kind not in "SU":
        budget.check(path, shape or (1,), "numbers")
        return
    length = dtype.itemsize // np.dtype(f"{dtype.kind}1").itemsize
    characters = (*shape, max(1, length))
    if math.prod(characters) > SHORT:
        budget.check(path, characters, "characters")


def as_dict(file: Archive, wanted: Iterable[str]) -> dict[str, Array]:
    """The arrays of these names that the file has."""
    return {name: file[name] for name in wanted if name in file}
