"""Common parts of all formats: suffixes, size limit, format detection, raw pixels."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pnpcm.errors import ArgumentError

Array = NDArray[Any]

SUFFIXES = (".png", ".jpg", ".jpeg", ".mpo", ".tif", ".tiff", ".webp")
"""Suffixes of image files in a folder, in lower case."""
MAX_PIXELS = 400_000_000
"""Larger files are refused, as a protection against decompression bombs."""

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# exceptions of Pillow, tifffile, zlib and this package for damaged files
DAMAGE: tuple[type[Exception], ...] = (OSError, SyntaxError, ValueError, EOFError, LookupError)
DAMAGE += (TypeError, ArithmeticError, RuntimeError, struct.error, zlib.error)


class Raw(NamedTuple):
    pixels: Array  # (H, W, 1 to 4), uint8, uint16 or floats in [0, 1]; with 2 or 4: last is alpha
    icc: bytes | None
    exif: bytes | None


def kind_of_file(path: Path) -> str:
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder, expected an image")
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except FileNotFoundError as error:
        raise ArgumentError(f"{path} does not exist, expected an image") from error
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise ArgumentError(f"{path} is empty, expected an image")
    if head.startswith(SIGNATURE):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return "WEBP"
    raise ArgumentError(
        f"{path} is not a PNG, JPEG, TIFF or WebP file, judged by its content; convert it to one"
    )


def check_size(path: Path, width: int, height: int, frames: int) -> None:
    if width < 1 or height < 1:
        raise ArgumentError(f"{path} is {width}×{height}, an image without pixels")
    if width * height > MAX_PIXELS:
        raise ArgumentError(
            f"{path} is {width}×{height}, {width * height / 1e6:.0f} megapixels; "
            f"the limit is {MAX_PIXELS / 1e6:.0f}, cut it into parts"
        )
    if frames > 1:
        raise ArgumentError(f"{path} has {frames} frames or pages; save one of them as a file")
