"""HDF5 files of strangers: what they may contain, and how they are opened.

Only plain data sets inside the file itself are read. Soft and external links, virtual data sets
and external storage are refused: they make a file show the bytes of another one. The structure of
a file (headers, trees, heaps) is read in a child process first, see :mod:`pnpcm.io.child`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pnpcm.errors import ArgumentError
from pnpcm.io.child import in_child
from pnpcm.io.reading import library, reading

FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32"}
RATIO = 1032
"""Largest compression of gzip, see zlib's technical notes."""
OBJECTS = 100_000
"""A file with more groups and data sets is refused."""
SMALL = 2**20
"""Data sets up to this number of stored bytes are read in the child as a whole."""
TEXT = 2**22
"""Largest number of bytes of one text or attribute; headers of scans have up to some 100 kB."""
NUMBERS = "biufc"
PAIRS = (("real", "imag"), ("r", "i"))
"""Fields of complex numbers, as of MATLAB and of others."""
ROWS, ROOM = 64, 2**28
"""Rows of any length are read so many at a time, fewer if each can have the length of the file."""
CACHE = 2**20
"""Bytes of the last chunks that the library keeps."""
SECONDS = 10.0
BYTES_PER_SECOND = 20e6
"""The child may take ``SECONDS``, and the time of a slow disk for the whole file."""


@contextmanager
def opened(path: Path, format: str) -> Iterator[Any]:
    """The ``h5py.File``, after a child process has read its structure."""
    h5py = library("h5py", f"{format} files")
    with reading(path, format):
        state = path.stat()
        _probed(str(path.absolute()), state.st_size, state.st_mtime_ns)
        with h5py.File(path, "r") as file:
            yield file


def names(group: Any) -> list[str]:
    """Names in a group of what is in the file itself: hard links."""
    h5py = library("h5py", "HDF5 files")
    return [name for name in group if isinstance(group.get(name, getlink=True), h5py.HardLink)]


def member(path: Path, group: Any, name: str) -> Any:
    """The group or data set ``name`` of ``group``; it is refused if it is not plain, see above."""
    h5py = library("h5py", "HDF5 files")
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ArgumentError(
            f"{name} of {path} is a link to another place, which is not followed; copy the data "
            "into the file, for example with h5repack or h5copy"
        )
    found = group[name]
    if isinstance(found, h5py.Dataset):
        _check_plain(path, name, found)
    return found


def check_rows(path: Path, data: Any) -> None:
    """Refuse a data set whose rows are read one by one, but inflated in chunks of many."""
    if data.chunks is None or data.compression is None:
        return
    size = math.prod(data.chunks) * data.dtype.itemsize
    if data.chunks[0] > 1 and size > CACHE:
        raise ArgumentError(
            f"{data.name} of {path} is compressed in chunks of {size} bytes, expected at most "
            f"{CACHE}, since a chunk is inflated for each of its rows; save it without "
            "compression, for example with h5repack -f NONE"
        )


def dataset(path: Path, group: Any, name: str) -> Any:
    """Like :func:`member`, for a data set only."""
    found = member(path, group, name)
    if not hasattr(found, "dtype"):
        raise ArgumentError(f"{name} of {path} is not a data set; expected an array")
    return found


def numbers(path: Path, group: Any, name: str) -> Any:
    """Like :func:`dataset`, for numbers only; complex ones can be pairs, see ``PAIRS``."""
    data = dataset(path, group, name)
    dtype = data.dtype
    is_pair = dtype.names in PAIRS and all(dtype[field].kind in "iuf" for field in dtype.names)
    if dtype.kind not in NUMBERS and not is_pair:
        raise ArgumentError(f"{name} of {path} holds {_type_name(dtype)}, expected numbers")
    return data


def text(path: Path, group: Any, name: str) -> Any:
    """The text (or its bytes) in a data set of one element; long ones are refused."""
    h5py = library("h5py", "HDF5 files")
    data = dataset(path, group, name)
    if data.size != 1 or h5py.check_string_dtype(data.dtype) is None:
        raise ArgumentError(
            f"{name} of {path} is {_type_name(data.dtype)} of shape {data.shape}, expected one text"
        )
    if data.dtype.itemsize > TEXT:  # those without a fixed length were read by the child
        raise ArgumentError(
            f"{name} of {path} is a text of {data.dtype.itemsize} bytes, expected at most {TEXT}; "
            "export the file again"
        )
    return data[()] if data.ndim == 0 else data[(0,) * data.ndim]


def block_shape(data: Any) -> tuple[int, ...]:
    """Shape of what is in memory when one row of a data set is read: the rows of its chunks."""
    if data.chunks is None:
        return tuple(data.shape[1:])
    rows, *sides = data.chunks
    whole = tuple(max(n, side) for n, side in zip(data.shape[1:], sides, strict=True))
    return whole if rows == 1 else (rows, *whole)


def row_reader(path: Path, format: str, data: Any) -> Callable[[int], Any]:
    """``read(i)``: row i of a data set, whose file may have been closed.

    The rows of one chunk are read together and kept until those of another one are needed, so that
    a chunk is not inflated for each of its rows.
    """
    name, rows = data.name, data.chunks[0] if data.chunks else 1

    @lru_cache(maxsize=1)
    def block(k: int) -> Any:
        with opened(path, format) as file:
            return file[name][k * rows : (k + 1) * rows]

    return lambda i: block(i // rows)[i % rows].copy()


def _type_name(dtype: Any) -> str:
    return "texts" if dtype.kind in "SUO" else "fields" if dtype.names else str(dtype)


def _check_plain(path: Path, name: str, data: Any) -> None:
    """Refuse data outside the file, unusual filters, and shapes that the file cannot hold."""
    if data.external or data.is_virtual:
        raise ArgumentError(
            f"{name} of {path} is stored in other files, which are not read; copy the data into "
            "the file, for example with h5repack"
        )
    if data.shape is None:
        raise ArgumentError(f"{name} of {path} is an empty data set; expected an array")
    properties = data.id.get_create_plist()
    found = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    for number, *_, label in found:
        if number not in FILTERS:
            words = label.decode("utf-8", "replace") or f"number {number}"
            raise ArgumentError(
                f"{name} of {path} uses the filter {words}; expected {', '.join(FILTERS.values())} "
                "or none: save it again with compression='gzip'"
            )
    deflated = any(number == 1 for number, *_ in found)
    declared, stored = data.size * data.dtype.itemsize, data.id.get_storage_size()
    if declared > stored * (RATIO if deflated else 1):
        raise ArgumentError(
            f"{name} of {path} has shape {data.shape}, {declared} bytes, but {stored} bytes are "
            "stored; copy the file again"
        )
    if data.chunks is not None:
        pairs = zip(data.shape, data.chunks, strict=True)
        expected, there = math.prod(-(-n // size) for n, size in pairs), data.id.get_num_chunks()
        if there < expected:
            raise ArgumentError(
                f"{name} of {path} has {there} of its {expected} chunks; copy the file again"
            )


@lru_cache(maxsize=64)
def _probed(path: str, size: int, changed: int) -> None:
    in_child(f"{__name__}:probe", path, seconds=SECONDS + size / BYTES_PER_SECOND)


def probe(path: str) -> None:
    """Read the whole structure of a file, and data whose place is part of it (rows of any length).

    Other data are bytes at places that are checked here.
    """
    h5py = library("h5py", "HDF5 files")
    with h5py.File(path, "r") as file:
        for thing in _things(file):
            for name in thing.attrs:
                _check_attribute(thing, name)
            if isinstance(thing, h5py.Dataset):
                _touch(Path(path), thing)


def datasets(file: Any) -> list[str]:
    """Names of all data sets that are in the file itself, those in groups as GROUP/NAME."""
    h5py = library("h5py", "HDF5 files")
    found = [thing.name for thing in _things(file) if isinstance(thing, h5py.Dataset)]
    return [name.removeprefix("/") for name in found]


def _things(file: Any) -> Iterator[Any]:
    """The groups, data sets and types of a file, each once: groups can contain each other."""
    h5py = library("h5py", "HDF5 files")
    seen: set[Any] = set()
    rest = [file]
    while rest:
        thing = rest.pop()
        place = h5py.h5o.get_info(thing.id).addr
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > OBJECTS:
            raise ValueError(f"more than {OBJECTS} groups and data sets")
        yield thing
        if isinstance(thing, h5py.Group):
            rest += [thing[name] for name in names(thing)]


def _touch(path: Path, data: Any) -> None:
    try:
        _check_plain(path, data.name, data)
    except ArgumentError:  # told by the reader, if it needs this one
        return
    end = path.stat().st_size
    if _has_references(data.dtype):
        _check_rows(data, end)
    elif data.id.get_storage_size() <= SMALL and data.size * data.dtype.itemsize <= 64 * SMALL:
        _ = data[()]
    if data.chunks is not None:
        data.id.chunk_iter(lambda chunk: _check_chunk(chunk, end))


def _check_rows(data: Any, end: int) -> None:
    """Refuse rows of any length that are longer than the file, or texts longer than ``TEXT``.

    Each is stored once in a valid file; many that lie at one place would exhaust memory.
    """
    step, total = max(1, min(ROWS, ROOM // end)), 0
    for start in range(0, len(data) if data.ndim else 1, step):
        part = data[start : start + step] if data.ndim else data[()]
        sizes = list(_sizes(part))
        total += sum(sizes)
        if total > end:
            raise ValueError(f"{data.name} has more bytes than the file")
        if data.dtype.kind == "O" and max(sizes, default=0) > TEXT:
            raise ValueError(f"{data.name} has a text of {max(sizes)} bytes, expected up to {TEXT}")


def _check_attribute(thing: Any, name: str) -> None:
    """Refuse an attribute of more than ``TEXT`` bytes."""
    stored = thing.attrs.get_id(name).get_storage_size()
    if stored > TEXT or max(stored, sum(_sizes(thing.attrs[name]))) > TEXT:
        raise ValueError(f"the attribute {name[:40]} has more than {TEXT} bytes")


def _sizes(value: Any) -> Iterator[int]:
    """Bytes of each text and each row of any length in a value."""
    if isinstance(value, bytes | str):
        yield len(value)
    elif getattr(getattr(value, "dtype", None), "names", None):
        for field in value.dtype.names:
            if _has_references(value.dtype[field]):
                yield from _sizes(value[field])
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        for one in value.flat:
            yield from _sizes(one)
    elif isinstance(value, np.ndarray):
        yield value.nbytes


def _check_chunk(chunk: Any, end: int) -> None:
    if chunk.byte_offset is None or chunk.byte_offset + chunk.size > end:
        raise ValueError(f"a chunk at byte {chunk.byte_offset} lies outside the file")


def _has_references(dtype: Any) -> bool:
    """Whether values of this type lie elsewhere in the file (texts, rows of any length)."""
    if dtype.names:
        return any(_has_references(dtype[name]) for name in dtype.names)
    return bool(dtype.hasobject) or (dtype.subdtype is not None and dtype.subdtype[0].hasobject)
