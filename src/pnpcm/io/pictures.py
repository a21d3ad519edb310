"""Decoding of 8-bit pictures by Pillow: kinds of files, size limit, refusal of incomplete ones.

Pillow fills in what is missing if a file ends early but in good order (a PNG whose compressed data
are too short, a JPEG with its end mark after a tenth of the rows). Such files are refused here.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from PIL import Image, ImageChops, ImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from pnpcm.errors import ArgumentError
from pnpcm.io.extent import checked_extent
from pnpcm.io.reading import Budget, reading

SIGNATURE = b"\x89PNG\r\n\x1a\n"
NEED = 40
"""Bytes per pixel to read a picture: decoded, converted, as an array and as a tensor."""
OPENERS: dict[str, Callable[[io.BytesIO], ImageFile.ImageFile]] = {
    "PNG": PngImageFile,
    "JPEG": JpegImageFile,
    "TIFF": TiffImageFile,
    "WEBP": WebPImageFile,
    "BMP": BmpImageFile,
}
DENSEST = {"JPEG": 512, "BMP": 128}
"""Most pixels per byte: a JPEG has at least one bit per 64 pixels, runs of a BMP have up to 255."""
SCANS = 100
"""Most scans of a JPEG, each of which takes the time of a whole picture (libtiff's limit, too)."""
_LOCK = Lock()


def kind_of(head: bytes) -> str | None:
    """The format of a file by its first 12 bytes: a key of ``OPENERS``, or None."""
    if head.startswith(SIGNATURE):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    return "BMP" if head[:2] == b"BM" else None


def read_picture(path: Path, kind: str, budget: Budget) -> bytes:
    """The content of a file up to the end of its picture, whose size is checked first."""
    extent = checked_extent(path, kind)
    check_size(path, extent.size, 1, budget)
    with path.open("rb") as file:
        return file.read(extent.end)


@contextmanager
def opened_picture(
    path: str | Path, content: bytes, kind: str, budget: Budget, *, frames: int | None = None
) -> Iterator[ImageFile.ImageFile]:
    """The decoded picture of a file with this content, after checks of its size.

    ``frames``: number of frames, if it is known.
    """
    if kind == "JPEG":
        _check_number_of_scans(path, content)
        content = _strict_jpeg(content)
    with _no_pillow_limit(), OPENERS[kind](io.BytesIO(content)) as picture:
        check_size(path, picture.size, frames or int(getattr(picture, "n_frames", 1)), budget)
        if math.prod(picture.size) > DENSEST.get(kind, math.inf) * len(content):
            raise ValueError(f"{len(content)} bytes are too few for its pixels")
        if kind == "PNG":
            _check_png(content)
        if kind == "TIFF":
            _check_tiff(picture, len(content))
        picture.load()
        if kind == "JPEG":
            _check_scans(picture, content)
        yield picture


def decoded(name: str | Path, content: bytes, mode: str, budget: Budget) -> Image.Image:
    """The picture of a file with this content, converted to the Pillow ``mode``; one frame."""
    kind = kind_of(content[:12])
    if kind is None:
        raise ArgumentError(f"{name} is not an image: expected {', '.join(OPENERS)}")
    with (
        reading(name, kind, move="it is damaged or incomplete, use another copy"),
        opened_picture(name, content, kind, budget) as picture,
    ):
        return picture.convert(mode)


def check_size(path: str | Path, size: tuple[int, int], frames: int, budget: Budget) -> None:
    """Refuse a picture of (width, height) without pixels, with too many, or with several frames."""
    if min(size) < 1:
        raise ArgumentError(f"{path} is {size[0]}×{size[1]}, an image without pixels")
    budget.check(path, size)
    if frames > 1:
        raise ArgumentError(f"{path} has {frames} frames or pages; save one of them as a file")


@contextmanager
def _no_pillow_limit() -> Iterator[None]:
    """Disable Pillow's global limit of 179 megapixels; ours is checked before reading pixels."""
    with _LOCK:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit


# PNG ---------------------------------------------------------------------------------------------
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels of a PNG by colour type; 3 is a palette."""
ADAM7: tuple[tuple[int, int, int, int], ...]  # first row, first column, steps of both
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2))
ADAM7 += ((1, 0, 2, 1),)


def png_chunks(content: bytes) -> dict[bytes, bytes]:
    """Chunks of a PNG file by name, with the chunks of pixels joined."""
    found: dict[bytes, bytes] = {}
    data, at = [], len(SIGNATURE)
    while at + 8 <= len(content):
        size, name = struct.unpack_from(">I4s", content, at)
        body = content[at + 8 : at + 8 + size]
        if name == b"IDAT":
            data.append(body)
        else:
            found.setdefault(name, body)
        if name == b"IEND":
            break
        at += 12 + size
    return found | {b"IDAT": b"".join(data)}


def png_passes(width: int, height: int, interlaced: int) -> list[tuple[int, int, int, int]]:
    """First row, first column and steps of the passes of a PNG that have pixels."""
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    return [p for p in passes if p[0] < height and p[1] < width]


def _check_png(content: bytes) -> None:
    """Refuse a PNG whose compressed data end before its last row."""
    chunks = png_chunks(content)
    width, height, bits, colour, *_, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"][:13])
    depth, total = bits * CHANNELS[colour], 0
    for top, left, down, right in png_passes(width, height, interlaced):
        rows, columns = -(-(height - top) // down), -(-(width - left) // right)
        total += rows * (1 + -(-columns * depth // 8))
    check_inflated(chunks[b"IDAT"], total)


def check_inflated(data: bytes, total: int) -> None:
    """Refuse compressed data of less than ``total`` bytes; they are inflated in parts."""
    inflate, found = zlib.decompressobj(), 0
    while found < total and not inflate.eof:
        part = inflate.decompress(data, min(2**20, total - found))
        if not part:
            break
        data, found = inflate.unconsumed_tail, found + len(part)
    if found < total:
        raise ValueError(f"it has {found} of {total} bytes of pixels")


# JPEG --------------------------------------------------------------------------------------------
_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # not a zero that follows 255, not a restart
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_SUSPENDABLE = (0xC0, 0xC1)
_HUFFMAN = (0xC0, 0xC1, 0xC2)
_PADDING = b"\0" * 16
"""libjpeg reads up to 8 bytes ahead."""
_NOISE = bytes(1 + (212 + 97 * i) % 254 for i in range(1024))
"""Bytes that are neither 0 nor 255, so that they are data of a scan and no marks."""


def _check_number_of_scans(path: str | Path, content: bytes) -> None:
    """Refuse a JPEG whose time of decoding is not that of its pixels."""
    _, scans, _, _ = _jpeg_scans(content)
    if len(scans) > SCANS:
        raise ArgumentError(
            f"{path} has {len(scans)} scans, expected at most {SCANS}, since each one takes the "
            "time of a whole picture; save it again, as a JPEG without progressive scans"
        )


def _strict_jpeg(content: bytes) -> bytes:
    """A JPEG file that Pillow refuses if its rows are incomplete.

    At the end mark libjpeg fills the missing rows with grey; without it, it asks for more bytes,
    which Pillow reports. Therefore the end mark of a file with one scan is replaced by a few zeros.
    Files of several scans are decoded as a whole at their end mark; for these the headers of the
    scans must bring every coefficient to its last bit, and :func:`_check_scans` sees the data.
    """
    frame, scans, end, _ = _jpeg_scans(content)
    if frame is None or end is None:
        return content
    kind, parts = frame
    if kind in _SUSPENDABLE and len(scans) == 1 and len(scans[0][0]) == len(parts):
        return content[:end] + _PADDING
    for part in parts if scans else ():
        missing = set(range(64))
        for components, first, last, low in scans:
            if part in components and low == 0:
                missing -= set(range(first, last + 1))
        if missing:
            raise ValueError(f"scans of {len(missing)} coefficients of component {part} miss")
    return content


def _check_scans(picture: Image.Image, content: bytes) -> None:
    """Refuse a JPEG of several scans if the data of one of them end early.

    libjpeg takes what is missing at the mark after a scan for zeros. Bytes before that mark are
    therefore skipped if the scan is complete, and change the picture if it is not. Arithmetic
    codes may end early in good order and are not judged.
    """
    frame, scans, end, stops = _jpeg_scans(content)
    if frame is None or frame[0] not in _HUFFMAN or end is None or len(scans) < 2:
        return
    starts = [0, *stops]
    parts = [content[a:b] for a, b in zip(starts, [*stops, len(content)], strict=True)]
    with JpegImageFile(io.BytesIO(_NOISE.join(parts))) as other:
        if ImageChops.difference(picture, other).getbbox() is not None:
            raise ValueError("the data of a scan end early")


Scan = tuple[bytes, int, int, int]  # components, first and last coefficient, lowest bit


def _jpeg_scans(
    content: bytes,
) -> tuple[tuple[int, bytes] | None, list[Scan], int | None, list[int]]:
    """Kind and components of the frame, its scans, the place of the end mark and of scans' ends."""
    frame: tuple[int, bytes] | None = None
    scans: list[Scan] = []
    stops: list[int] = []
    at = 2
    while (found := _MARK.search(content, at)) is not None:
        if len(stops) < len(scans):
            stops.append(found.start())
            while content[stops[-1] - 1] == 0xFF:  # bytes that fill up the mark
                stops[-1] -= 1
        at, mark = found.end(), content[found.start() + 1]
        if mark == 0xD9:
            return frame, scans, found.start(), stops
        if mark in (0x01, 0xD8) or at + 2 > len(content):
            continue
        body = content[at + 2 : at + struct.unpack_from(">H", content, at)[0]]
        if mark in _FRAMES and len(body) > 5 and frame is None:
            frame = mark, body[6 : 6 + 3 * body[5] : 3]
        if mark == 0xDA and body and len(body) >= 4 + 2 * body[0]:
            first, last, bits = body[1 + 2 * body[0] : 4 + 2 * body[0]]
            scans.append((body[1 : 1 + 2 * body[0] : 2], first, last, bits & 15))
        at += 2 + len(body)
    return frame, scans, None, stops


# TIFF --------------------------------------------------------------------------------------------
def _check_tiff(picture: ImageFile.ImageFile, size: int) -> None:
    """Refuse a TIFF whose strips or tiles do not cover the image, or lie outside the file."""
    tags = picture.tag_v2  # type: ignore[attr-defined]
    tiled = 324 in tags
    offsets, counts = (_numbers(tags.get(code)) for code in ((324, 325) if tiled else (273, 279)))
    columns, rows = (tags[322], tags[323]) if tiled else (picture.width, tags.get(278, 2**32 - 1))
    if min(columns, rows) < 1:
        raise ValueError(f"its parts are {columns}×{rows} pixels")
    parts = -(-picture.width // columns) * -(-picture.height // min(rows, picture.height))
    if tags.get(284, 1) == 2:  # planes one after the other
        parts *= tags.get(277, 1)
    check_parts(list(zip(offsets, counts, strict=False)), parts, size)


def check_parts(places: list[tuple[int, int]], parts: int, size: int) -> None:
    """Refuse fewer (offset, bytes) than ``parts``, and those outside a file of ``size`` bytes."""
    ends = [at + n for at, n in places if n > 0]
    if len(ends) < parts:
        raise ValueError(f"{len(ends)} of {parts} parts of the pixels are there")
    if max(ends) > size:
        raise ValueError(f"its pixels end at byte {max(ends)}, the file at byte {size}")


def _numbers(value: object) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value) if isinstance(value, tuple) else ()
