"""TIFF files: more than 8 bits read by ``tifffile``, others by Pillow; written here."""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from pnpcm.errors import ArgumentError
from pnpcm.io.extent import checked_extent
from pnpcm.io.photos.base import EXIF, Array, Raw, exif_of_tiff, read_pillow, tags
from pnpcm.io.pictures import check_parts, check_size
from pnpcm.io.reading import Budget
from pnpcm.names import count_of

PAGES = 100
"""Most directories of a file, of which all but one are previews."""


def read_tiff(path: Path, budget: Budget) -> Raw:
    import tifffile

    checked_extent(path, "TIFF")
    with _unlogged(), tifffile.TiffFile(path) as file:
        if len(file.pages) > PAGES:
            raise ArgumentError(
                f"{path} has {len(file.pages)} frames or pages; save one of them as a file"
            )
        pages = [file.pages[i].aspage() for i in range(len(file.pages))]
        page = pages[0]
        full = [p for p in pages if not p.subfiletype & 1]  # the others are previews
        check_size(path, (page.imagewidth, page.imagelength), len(full), budget)
        if page.bitspersample <= 8:
            try:
                raw = read_pillow(path, "TIFF", budget, frames=1)
            except SyntaxError as error:
                if "unknown pixel mode" not in str(error):
                    raise
                raise ArgumentError(
                    f"{path} has {count_of(page.samplesperpixel, 'channel')} of "
                    f"{count_of(page.bitspersample, 'bit')}; convert it to RGB or grey of 8 bits"
                ) from error
            return raw._replace(exif=exif_of_tiff(path))
        if page.photometric not in (0, 1, 2) or page.dtype is None or page.dtype.kind not in "uf":
            raise ArgumentError(
                f"{path} has {page.bitspersample}-bit pixels of type {_name(page.photometric)}; "
                "convert it to RGB or grey of 8 or 16 bits"
            )
        places = list(zip(page.dataoffsets, page.databytecounts, strict=True))
        check_parts(places, math.prod(page.chunked), path.stat().st_size)
        try:
            pixels = page.asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            raise ArgumentError(
                f"{path} is compressed with {_name(page.compression)}; pip install imagecodecs, "
                "or save it without compression"
            ) from error
        icc = page.tags.valueof(34675)
        extra = page.extrasamples
    pixels = np.moveaxis(pixels, 0, 2) if page.axes == "SYX" else np.atleast_3d(pixels)
    pixels = _checked(path, pixels.astype(pixels.dtype.newbyteorder("="), copy=False))
    if pixels.shape[2] - len(extra) not in (1, 3) or len(extra) > 1:
        raise ArgumentError(f"{path} has {pixels.shape[2]} channels; convert it to RGB or grey")
    top = 65535 if pixels.dtype.kind == "u" else 1
    if page.photometric == 0:  # white is zero
        pixels[..., 0] = top - pixels[..., 0]
    if extra and extra[0] == 1:  # colours are multiplied by alpha
        share = np.maximum(pixels[..., -1:] / top, 1 / 65535)
        colours = np.minimum(pixels[..., :-1] / share, top)
        pixels[..., :-1] = np.rint(colours) if top > 1 else colours
    return Raw(pixels, icc, exif_of_tiff(path))


@contextmanager
def _unlogged() -> Iterator[None]:
    """Nothing that tifffile logs about a damaged file is printed beside our error."""
    logger = logging.getLogger("tifffile")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _name(code: int) -> str:
    return str(getattr(code, "name", code))  # tifffile has names for most codes


def _checked(path: Path, pixels: Array) -> Array:
    if pixels.dtype == np.uint16:
        return pixels
    if pixels.dtype.kind == "u":
        raise ArgumentError(f"{path} has {pixels.dtype} pixels; convert it to 8 or 16 bits")
    if not np.isfinite(pixels).all():
        raise ArgumentError(f"{path} has values that are NaN or infinite; replace them first")
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 1):
        raise ArgumentError(
            f"{path} has floats from {low:g} to {high:g}, expected [0, 1]; scale it first"
        )
    return pixels.astype(np.float32)


def tiff_bytes(raw: Raw) -> bytes:
    """A TIFF file as bytes: strips of one megabyte, Deflate with horizontal differencing."""
    height, width, channels = raw.pixels.shape
    exif = tags(raw.exif)
    exif.endian = exif.endian or "<"
    order: Literal["<", ">"] = "<" if exif.endian == "<" else ">"
    colours = 1 if channels < 3 else 3
    rows = max(1, min(height, 2**20 // raw.pixels[0].nbytes))
    strips, at, offsets = [], 0, []  # from the end of the directory, where Pillow counts from
    for top in range(0, height, rows):
        part = raw.pixels[top : top + rows].copy()
        part[:, 1:] -= raw.pixels[top : top + rows, :-1]  # modulo 2^bits
        strip = zlib.compress(part.astype(part.dtype.newbyteorder(order)).tobytes())
        strips.append(strip + b"\0" * (len(strip) % 2))
        offsets.append(at)
        at += len(strips[-1])
    exif.update({256: width, 257: height, 258: (8 * raw.pixels.itemsize,) * channels, 259: 8})
    exif.update({262: 1 if colours == 1 else 2, 273: tuple(offsets), 277: channels, 278: rows})
    exif.update({279: tuple(map(len, strips)), 284: 1, 317: 2, 339: (1,) * channels})
    if channels > colours:
        exif[338] = 2  # alpha, not premultiplied
    if raw.icc:
        exif[34675] = raw.icc
    return b"".join([exif.tobytes().removeprefix(EXIF), *strips])
