"""Reading of LMDB files (``data.mdb``), with a check of every place before it is read.

LMDB's own library follows page numbers and offsets of a damaged file out of its memory map, which
ends the process. The format (version 1 of lmdb.h, 64 bits, little endian) is a B+ tree of pages:
header, 16-bit offsets of the nodes, nodes with key and value; large values lie in pages of their
own. Only the main database is read, without duplicates of keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from pnpcm.io.reading import reading

MAGIC, VERSION = 0xBEEFC0DE, 1
HEADER = 16
"""Bytes of the header of a page: number, padding, flags, first and last free byte."""
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
BIG = 1
"""Flag of a node whose value is the number of its own pages; other flags are of sub-databases."""
EMPTY = 2**64 - 1
SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
FORMAT = "LMDB"


class Meta(NamedTuple):
    """Transaction, page size, depth and root of the main database, its flags and entries."""

    transaction: int
    page_size: int
    flags: int
    depth: int
    entries: int
    root: int


class Database:
    """The ``keys`` of a file, sorted, and the value of each."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size
        self.keys: list[bytes] = []
        self._places: list[tuple[int, int]] = []
        with reading(path, FORMAT), path.open("rb") as file:
            meta = _newest(file)
            self._page_size = meta.page_size
            if meta.flags:
                raise ValueError(f"a database with flags {meta.flags}, expected one without")
            if meta.root != EMPTY:
                for key, at, size in self._entries(file, meta):
                    self.keys.append(key)
                    self._places.append((at, size))
            if len(self.keys) != meta.entries:
                raise ValueError(f"{len(self.keys)} entries, expected {meta.entries}")

    def value(self, i: int) -> bytes:
        """The value of ``keys[i]``."""
        at, size = self._places[i]
        with reading(self.path, FORMAT), self.path.open("rb") as file:
            return _read(file, at, size)

    def _entries(self, file: IO[bytes], meta: Meta) -> Iterator[tuple[bytes, int, int]]:
        """Key, and place and size of the value in the file, of all leaves from left to right."""
        rest = [(meta.root, 1)]
        visited = 0
        while rest:
            number, depth = rest.pop()
            visited += 1
            if visited * meta.page_size > self.size or depth > meta.depth:
                raise ValueError("a loop in the tree of pages")
            start = number * meta.page_size
            page = _read(file, start, meta.page_size)
            (flags,) = struct.unpack_from("<H", page, 10)
            if flags & (BRANCH | LEAF) not in (BRANCH, LEAF) or (flags & LEAF) != (
                LEAF if depth == meta.depth else 0
            ):
                raise ValueError(f"page {number} has flags {flags}")
            if flags & BRANCH:
                children = [_child(page, at) for at in _nodes(page)]
                rest += [(child, depth + 1) for child in reversed(children)]
                continue
            for at in _nodes(page):
                yield self._leaf(file, page, start, at)

    def _leaf(self, file: IO[bytes], page: bytes, start: int, at: int) -> tuple[bytes, int, int]:
        low, high, flags, length = struct.unpack_from("<HHHH", page, at)
        size, first = low | high << 16, at + 8 + length
        if flags & ~BIG:
            raise ValueError(f"a node with flags {flags}, expected plain values")
        key = page[at + 8 : first]
        if not flags & BIG:
            _inside(first, size, len(page))
            return key, start + first, size
        (number,) = struct.unpack_from("<Q", page, first)
        place = number * self._page_size
        head = _read(file, place, HEADER)
        (kind,) = struct.unpack_from("<H", head, 10)
        (pages,) = struct.unpack_from("<I", head, 12)
        if kind != OVERFLOW:
            raise ValueError(f"page {number} has flags {kind}")
        _inside(HEADER, size, pages * self._page_size)
        _inside(place + HEADER, size, self.size)
        return key, place + HEADER, size


def _newest(file: IO[bytes]) -> Meta:
    """The newer of the two descriptions at the start of a file."""
    first = _meta(_read(file, 0, 152))
    second = _meta(_read(file, first.page_size, 152))
    return max(first, second)


def _meta(page: bytes) -> Meta:
    magic, version = struct.unpack_from("<II", page, HEADER)
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(f"magic number {magic:#x}, version {version}")
    (page_size,) = struct.unpack_from("<I", page, HEADER + 24)
    if page_size not in SIZES:
        raise ValueError(f"pages of {page_size} bytes")
    _, flags, depth, *_, entries, root = struct.unpack_from("<IHHQQQQQ", page, HEADER + 72)
    (transaction,) = struct.unpack_from("<Q", page, HEADER + 128)
    return Meta(transaction, page_size, flags, depth, entries, root)


def _nodes(page: bytes) -> tuple[int, ...]:
    """Offsets of the nodes of a page, each with its header inside the page."""
    (lower,) = struct.unpack_from("<H", page, 12)
    _inside(HEADER, lower - HEADER, len(page))
    offsets = struct.unpack_from(f"<{(lower - HEADER) // 2}H", page, HEADER)
    for at in offsets:
        _inside(at, 8, len(page))
        _inside(at + 8, struct.unpack_from("<H", page, at + 6)[0], len(page))
    return offsets


def _child(page: bytes, at: int) -> int:
    low, high, top = struct.unpack_from("<HHH", page, at)
    return int(low | high << 16 | top << 32)


def _inside(at: int, size: int, end: int) -> None:
    if size < 0 or at < 0 or at + size > end:
        raise ValueError(f"{size} bytes at {at} of {end}")


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    if at >= 2**62:
        raise ValueError(f"byte {at}")
    file.seek(at)
    content = file.read(size)
    if len(content) < size:
        raise ValueError(f"{size} bytes at {at}, of which {len(content)} are there")
    return content
