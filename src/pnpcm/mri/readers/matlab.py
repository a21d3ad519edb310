"""MATLAB files before version 7.3 ("Level 5 MAT-File Format"): arrays of numbers.

The file is a header of 128 bytes and data elements: type, number of bytes, content. Arrays are
elements of type 14 (inside one of type 15: compressed by zlib), of elements themselves: class and
flags, sizes, name, real and imaginary parts. Every number of bytes is checked before it is used.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from pnpcm.errors import ArgumentError
from pnpcm.io.reading import Budget
from pnpcm.mri.readers.opening import Array

MATRIX, COMPRESSED = 14, 15
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"}
CLASSES |= {14: "i8", 15: "u8"}
IMAGINARY = 0x0800
VARIABLES = 10_000
"""A file with more variables is refused."""
HEAD = 2**16
"""Bytes of an array in which its class, sizes and name must be."""


class Element(NamedTuple):
    kind: int
    content: memoryview


class Head(NamedTuple):
    """Class, flags, sizes and name of an array."""

    kind: int
    flags: int
    sizes: tuple[int, ...]
    name: str


def read_matlab(
    path: Path, wanted: Collection[str], budget: Budget
) -> tuple[dict[str, Array], list[str]]:
    """The arrays of these names, and the names of all variables.

    Read are the head of each variable and those that are wanted, never a memory map: that ends the
    process if another one shortens the file.
    """
    with path.open("rb") as file:
        order = {b"IM": "<", b"MI": ">"}.get(file.read(128)[126:])
        if order is None:
            raise ArgumentError(
                f"{path} is not a MATLAB file of version 5 to 7.3; save it in MATLAB with "
                "save('scan.mat', 'kspace', '-v7.3')"
            )
        arrays: dict[str, Array] = {}
        names = []
        for k, place in enumerate(_places(file, order)):
            if k == VARIABLES:
                raise ValueError(f"more than {VARIABLES} variables")
            if place.kind not in (MATRIX, COMPRESSED):
                continue
            start = memoryview(_body(file, place, HEAD, order))
            if len(start) == 0 or _kind(start, order) > max(CLASSES):
                continue  # objects and function handles, which have other parts
            head = _head(start, order)
            names.append(head.name)
            if head.name not in wanted or head.name in arrays:
                continue
            if head.kind not in CLASSES:
                raise ArgumentError(
                    f"{head.name} of {path} is not an array of numbers; save it as one"
                )
            budget.check(path, head.sizes, "numbers")
            most = 2 * 8 * math.prod(head.sizes) + HEAD  # two parts, at most 8 bytes per number
            arrays[head.name] = _array(memoryview(_body(file, place, most, order)), order)
    return arrays, names


class Place(NamedTuple):
    """An element of the file: its type, and where its content is."""

    kind: int
    start: int
    size: int


def _places(file: BinaryIO, order: str) -> Iterator[Place]:
    """The elements of the file, up to zeros behind the last one."""
    at, length = 128, file.seek(0, os.SEEK_END)
    while at + 8 <= length:
        file.seek(at)
        kind, start, size, step = _tag(file.read(8), 0, order)
        if kind == 0:
            return
        if at + start + size > length:
            raise ValueError(f"element of {size} bytes, of which {length - at - start} are there")
        yield Place(kind, at + start, size)
        at += step


def _body(file: BinaryIO, place: Place, most: int, order: str) -> bytes:
    """At most ``most`` bytes of the body of an array; inflated, if it is compressed."""
    file.seek(place.start)
    if place.kind == MATRIX:
        return file.read(min(place.size, most))
    packed = file.read(min(place.size, most + most // 1000 + HEAD))  # zlib adds less than 0.1 %
    return _matrix(zlib.decompressobj().decompress(packed, most), order)


def _matrix(content: bytes, order: str) -> bytes:
    """The body of the array in inflated bytes, of which the end may be missing."""
    kind, _ = struct.unpack_from(order + "II", content)
    if kind != MATRIX:
        raise ValueError(f"element of type {kind}, expected an array")
    return content[8:]


def _elements(content: memoryview, order: str) -> Iterator[Element]:
    """The elements, each inside ``content``; between them is padding to 8 bytes."""
    at = 0
    while at + 8 <= len(content):
        kind, start, size, step = _tag(content, at, order)
        left = len(content) - at - start
        if size > left:
            raise ValueError(f"element of {size} bytes, of which {left} are there")
        yield Element(kind, content[at + start : at + start + size])
        at += step


def _tag(content: bytes | memoryview, at: int, order: str) -> tuple[int, int, int, int]:
    """Type, start and size of an element, and where the next one starts; both from ``at`` on."""
    kind, size = struct.unpack_from(order + "II", content, at)
    if kind >> 16:  # up to four bytes of content in the place of their number
        kind, size = kind & 0xFFFF, kind >> 16
        if size > 4:
            raise ValueError(f"small element of {size} bytes")
        return kind, 4, size, 8
    return kind, 8, size, 8 + size + (-size % 8 if kind != COMPRESSED else 0)


def _kind(body: memoryview, order: str) -> int:
    return int(_parts(body, order, 1)[0][0]) & 0xFF


def _head(body: memoryview, order: str) -> Head:
    parts = _parts(body, order, 3)
    flags = int(parts[0][0])
    sizes = tuple(int(n) for n in parts[1])
    if len(sizes) < 2 or min(sizes) < 0:
        raise ValueError(f"array of sizes {sizes}")
    return Head(_kind(body, order), flags, sizes, bytes(parts[2].view(np.uint8)).decode("latin-1"))


def _array(body: memoryview, order: str) -> Array:
    """An array in MATLAB's order of axes, in the type of its class."""
    head = _head(body, order)
    complex_ = bool(head.flags & IMAGINARY)
    parts = _parts(body, order, 5 if complex_ else 4)[3:]
    count = math.prod(head.sizes)
    if any(len(part) != count for part in parts):
        raise ValueError(f"{head.name} of sizes {head.sizes} has {len(parts[0])} numbers")
    values = [part.astype(CLASSES[head.kind]) for part in parts]
    joined = values[0] + 1j * values[1] if complex_ else values[0]
    return joined.reshape(head.sizes, order="F")


def _parts(body: memoryview, order: str, count: int) -> list[Array]:
    """The first ``count`` elements of an array, as numbers of their type."""
    found = []
    for kind, content in _elements(body, order):
        if kind not in TYPES:
            raise ValueError(f"element of type {kind}, expected numbers")
        found.append(np.frombuffer(content, order + TYPES[kind]))
        if len(found) == count:
            return found
    raise ValueError(f"array of {len(found)} parts, expected {count}")
