"""Decoder and encoder of 16-bit PNG (PNG specification, third edition)."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL.PngImagePlugin import PngImageFile

from pnpcm.io.photos.base import Array, Raw, read_pillow
from pnpcm.io.pictures import CHANNELS, SIGNATURE, check_size, png_chunks, png_passes, read_picture
from pnpcm.io.reading import Budget

_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # colour type by channels


def read_png(path: Path, budget: Budget) -> Raw:
    with path.open("rb") as file:
        head = file.read(26)
    if len(head) < 26 or head[24] != 16:
        return read_pillow(path, "PNG", budget)
    content = read_picture(path, "PNG", budget)
    with PngImageFile(io.BytesIO(content)) as picture:  # metadata only, pixels are not loaded
        check_size(path, picture.size, getattr(picture, "n_frames", 1), budget)
        (width, height), icc = picture.size, picture.info.get("icc_profile")
    chunks = png_chunks(content)
    channels = CHANNELS[head[25]]
    passes = png_passes(width, height, chunks[b"IHDR"][12])
    sizes = [(-(-(height - r) // dr), -(-(width - c) // dc)) for r, c, dr, dc in passes]
    total = sum(h * (1 + 2 * channels * w) for h, w in sizes)
    data = zlib.decompressobj().decompress(chunks[b"IDAT"], total)
    if len(data) < total:
        raise ValueError(f"it has {len(data)} of {total} bytes of pixels")
    pixels, start = np.empty((height, width, channels), np.uint16), 0
    for (r, c, dr, dc), (h, w) in zip(passes, sizes, strict=True):
        size = h * (1 + 2 * channels * w)
        rows = _unfiltered(np.frombuffer(data, np.uint8, size, start), h, 2 * channels)
        pixels[r::dr, c::dc] = rows.view(">u2").reshape(h, w, channels)
        start += size
    if b"tRNS" in chunks and channels in (1, 3):  # one colour means "transparent"
        key = np.frombuffer(chunks[b"tRNS"], ">u2", channels)
        clear = (pixels == key).all(-1, keepdims=True)
        pixels = np.dstack([pixels, np.where(clear, 0, 65535).astype(np.uint16)])
    return Raw(pixels, icc, chunks.get(b"eXIf"))


def _unfiltered(rows: Array, height: int, bpp: int) -> Array:
    """Undo the filter of each row: byte = filtered byte + prediction from left, up and upper left.

    A pixel needs its left, upper and upper left neighbours, so all pixels on one diagonal
    (row + column = d) are done at once: height + width steps instead of one per pixel.
    """
    rows = rows.reshape(height, -1)
    kinds, stride = rows[:, :1], rows.shape[1] - 1
    if kinds.max() > 4:
        raise ValueError(f"row filter {kinds.max()}, expected 0 to 4")
    width = stride // bpp
    line = stride + bpp  # one pixel more, so that one row down and one to the left is ``stride``
    flat = np.zeros((height + 1) * line, np.uint8)
    image = flat[:-line].reshape(height, line)[:, :stride]
    image[...] = rows[:, 1:]
    masks = [np.where(kinds == kind, 255, 0).astype(np.int16) for kind in range(5)]
    used = [kind for kind in range(1, 5) if masks[kind].any()]
    # pixels of this diagonal and the two before it, by row, below a row of zeros
    now, last, second = np.zeros((3, height + 1, bpp), np.int16)
    for d in range(height + width - 1):
        top, end = max(0, d - width + 1), min(height, d + 1)
        start = top * line + (d - top) * bpp
        here = flat[start : start + (end - top) * stride].reshape(-1, stride)[:, :bpp]
        a, b, c = last[top + 1 : end + 1], last[top:end], second[top:end]
        value = now[top + 1 : end + 1]
        value[...] = here
        for kind in used:
            value += masks[kind][top:end] & _GUESSES[kind](a, b, c)
        value &= 255
        here[...] = value
        now, last, second = second, now, last
    return np.ascontiguousarray(image)


def _paeth(a: Array, b: Array, c: Array) -> Array:
    """The value of a (left), b (up), c (upper left) nearest to a + b − c; ties: the first."""
    pa, pb, pc = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    return np.where((pa <= pb) & (pa <= pc), a, np.where(pb <= pc, b, c))


_GUESSES: dict[int, Callable[[Array, Array, Array], Array]] = {
    1: lambda a, b, c: a,
    2: lambda a, b, c: b,
    3: lambda a, b, c: (a + b) >> 1,
    4: _paeth,
}


def png_bytes(raw: Raw) -> bytes:
    """A 16-bit PNG file as bytes, every row with the Paeth filter."""
    height, width, channels = raw.pixels.shape
    bpp, packer, body = 2 * channels, zlib.compressobj(3), []
    image = np.zeros((height + 1, (width + 1) * bpp), np.uint8)
    image[1:, bpp:] = raw.pixels.astype(">u2", order="C").view(np.uint8).reshape(height, -1)
    for top in range(0, height, 64):
        band = image[top : top + 65].astype(np.int16)
        guess = _paeth(band[1:, :-bpp], band[:-1, bpp:], band[:-1, :-bpp])
        rows = (band[1:, bpp:] - guess).astype(np.uint8)
        body.append(packer.compress(np.insert(rows, 0, 4, axis=1).tobytes()))
    colour = _COLOURS[channels]
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0))]
    if raw.icc:
        chunks.append((b"iCCP", b"ICC profile\0\0" + zlib.compress(raw.icc)))
    if raw.exif:
        chunks.append((b"eXIf", raw.exif))
    chunks += [(b"IDAT", b"".join([*body, packer.flush()])), (b"IEND", b"")]
    out = [SIGNATURE]
    for name, content in chunks:
        crc = struct.pack(">I", zlib.crc32(name + content))
        out += [struct.pack(">I", len(content)), name, content, crc]
    return b"".join(out)
