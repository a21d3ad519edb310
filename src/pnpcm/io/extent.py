"""Size and end of the picture in a file, from its headers: nothing behind the picture is read."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pnpcm.errors import ArgumentError

CODED = 16
"""Bytes per pixel that a file can need: floats in four channels, or the worst JPEG."""
BESIDE = 2**26
"""Bytes of a picture for other data than pixels: profiles, EXIF, previews."""
BEHIND = 2**30
"""Bytes behind a picture above which a file is refused; phones write short films there."""
PARTS = 1000
"""Chunks of a PNG, and one more for every 256 bytes; segments of a JPEG before its size."""


class Extent(NamedTuple):
    """``size``: (width, height); ``end``: bytes of the file that the picture can have at most."""

    size: tuple[int, int]
    end: int


def checked_extent(path: Path, kind: str) -> Extent:
    """The extent of the picture in a file; a file that is far longer than its picture is refused.

    ``kind``: PNG, JPEG, WEBP or TIFF.
    """
    with path.open("rb") as file:
        extent = _EXTENTS[kind](file)
    length = path.stat().st_size
    if length > extent.end + BEHIND:
        raise ArgumentError(
            f"{path} has {length} bytes, but its picture ends before byte {extent.end + 1}; save "
            "the picture alone"
        )
    return extent._replace(end=min(extent.end, length))  # reading allocates what it is asked for


def _bytes_of(size: tuple[int, int]) -> int:
    return CODED * math.prod(size) + BESIDE


def _png(file: BinaryIO) -> Extent:
    width, height = struct.unpack(">II", file.read(24)[16:])
    at, parts, most = 8, 0, _bytes_of((width, height))
    while at < most and parts < PARTS + at // 256:
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:  # it is incomplete, which the decoder judges
            return Extent((width, height), at + len(head))
        length, name = struct.unpack(">I4s", head)
        at, parts = at + 12 + length, parts + 1
        if name == b"IEND":
            return Extent((width, height), min(at, most))
        if not name.isalpha():
            raise ValueError(f"a chunk with the name {name!r}")
    raise ValueError(f"its first {at} bytes have {parts} chunks without an end")


def _jpeg(file: BinaryIO) -> Extent:
    at = 2
    for _ in range(PARTS):
        file.seek(at)
        head = file.read(9)
        if len(head) < 9 or at > BESIDE:
            break
        if head[0] != 0xFF or head[1] in (0x00, 0xFF):  # between segments; decoders skip it
            at += 1
            continue
        if head[1] in (0x01, *range(0xD0, 0xD9)):  # marks alone
            at += 2
            continue
        if 0xC0 <= head[1] <= 0xCF and head[1] not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[5:])
            return Extent((width, height), at + _bytes_of((width, height)))
        if head[1] in (0xD9, 0xDA):
            break
        at += 2 + struct.unpack(">H", head[2:4])[0]
    raise ValueError("it has no size")


def _webp(file: BinaryIO) -> Extent:
    head = file.read(30).ljust(30, b"\0")
    if head[12:16] == b"VP8X":
        width, height = (1 + int.from_bytes(head[at : at + 3], "little") for at in (24, 27))
    elif head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        width, height = 1 + bits % 2**14, 1 + (bits >> 14) % 2**14
    else:
        width, height = (int.from_bytes(head[at : at + 2], "little") % 2**14 for at in (26, 28))
    end = 8 + int.from_bytes(head[4:8], "little")
    return Extent((width, height), min(end + end % 2, _bytes_of((width, height))))


def _tiff(file: BinaryIO) -> Extent:
    """The size in the first directory of a TIFF or BigTIFF; its pixels can be anywhere."""
    head = file.read(16)
    order, big = "<" if head[:2] == b"II" else ">", 43 in head[2:4]
    place, count, entry = ("8xQ", "Q", "HHQQ") if big else ("4xI", "H", "HHII")
    file.seek(struct.unpack_from(order + place, head)[0])
    (parts,) = struct.unpack(order + count, file.read(struct.calcsize(order + count)))
    sides = {256: 0, 257: 0}
    for _ in range(min(parts, PARTS)):
        tag, kind, *_, value = struct.unpack(order + entry, read := file.read(20 if big else 12))
        if tag in sides:
            at, form = (12 if big else 8), {3: "H", 4: "I"}.get(kind)
            sides[tag] = struct.unpack_from(order + form, read, at)[0] if form else value
    size = sides[256], sides[257]
    return Extent(size, _bytes_of(size) + BEHIND)


_EXTENTS: dict[str, Callable[[BinaryIO], Extent]] = {
    "PNG": _png,
    "JPEG": _jpeg,
    "WEBP": _webp,
    "TIFF": _tiff,
}
