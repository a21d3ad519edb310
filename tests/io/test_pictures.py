"""Pictures that end early are refused in every format, and large ones before they are decoded."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pnpcm.errors import ArgumentError
from pnpcm.io.photos import read_photo
from pnpcm.training.sources import decode

ROWS, WIDTH = 200, 96
PIXELS = np.random.default_rng(0).integers(0, 256, (ROWS, WIDTH, 3), dtype=np.uint8)


def encoded(kind: str, rows: int = ROWS, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS[:rows]).save(buffer, kind, **options)
    return buffer.getvalue()


def png(width: int, height: int, data: bytes, *, bits: int = 8, interlaced: int = 0) -> bytes:
    """An RGB file written chunk by chunk, with compressed ``data``."""
    head = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, interlaced)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(c)) + n + c + struct.pack(">I", zlib.crc32(n + c))
             for n, c in chunks]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def rows_of(bits: int, rows: int) -> bytes:
    row = b"\0" + PIXELS[0].tobytes() * (bits // 8)
    return row * rows


def taller(content: bytes, marker: bytes, form: str, skip: int) -> bytes:
    """``content`` with its height replaced by ``ROWS``, ``skip`` bytes after ``marker``."""
    data = bytearray(content)
    struct.pack_into(form, data, data.index(marker) + skip, ROWS)
    return bytes(data)


def tiff(rows: int, **options: Any) -> bytes:
    """A file of ``rows`` rows that claims ``ROWS``: tag 257 of type 3 or 4."""
    data = bytearray(encoded("TIFF", rows, **options))
    (start,) = struct.unpack_from("<I", data, 4)
    for i in range(struct.unpack_from("<H", data, start)[0]):
        at = start + 2 + 12 * i
        tag, kind = struct.unpack_from("<HH", data, at)
        if tag == 257:
            struct.pack_into("<H" if kind == 3 else "<I", data, at + 8, ROWS)
    return bytes(data)


SHORT: dict[str, Callable[[int], bytes]] = {
    "png": lambda rows: png(WIDTH, ROWS, rows_of(8, rows)),
    "png, 16 bits": lambda rows: png(WIDTH, ROWS, rows_of(16, rows), bits=16),
    "jpeg": lambda rows: taller(encoded("JPEG", rows), b"\xff\xc0", ">H", 5),
    "jpeg, grey": lambda rows: taller(grey_jpeg(rows), b"\xff\xc0", ">H", 5),
    "tiff": lambda rows: tiff(rows),
    "tiff, deflate": lambda rows: tiff(rows, compression="tiff_adobe_deflate"),
    "tiff, lzw": lambda rows: tiff(rows, compression="tiff_lzw"),
    "tiff, packbits": lambda rows: tiff(rows, compression="packbits"),
    "webp": lambda rows: taller(encoded("WEBP", rows), b"\x9d\x01\x2a", "<H", 5),
}


def grey_jpeg(rows: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS[:rows, :, 0]).save(buffer, "JPEG", restart_marker_rows=1)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", SHORT)
def test_ten_of_two_hundred_rows_are_not_filled_in(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.img"
    path.write_bytes(SHORT[kind](ROWS))
    assert read_photo(path).x.shape[-2:] == (ROWS, WIDTH)
    path.write_bytes(SHORT[kind](10))
    with pytest.raises(ArgumentError, match=r"a\.img cannot be read as .*incomplete"):
        read_photo(path)


FORMATS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "JPEG": {},
    "progressive JPEG": {"progressive": True},
    "TIFF": {},
    "compressed TIFF": {"compression": "tiff_lzw"},
    "WEBP": {},
    "lossless WEBP": {"lossless": True},
    "BMP": {},
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_training_refuses_cut_off_images_too(kind: str, share: float) -> None:
    content = encoded(kind.rpartition(" ")[2], **FORMATS[kind])
    assert decode(content, "a").shape == (3, ROWS, WIDTH)
    with pytest.raises(ArgumentError, match=r"^a cannot be read as .*incomplete"):
        decode(content[: int(share * len(content))], "a")


def test_a_progressive_jpeg_without_its_last_scans_is_refused(tmp_path: Path) -> None:
    content = encoded("JPEG", progressive=True)
    starts = [i for i in range(len(content)) if content[i : i + 2] == b"\xff\xda"]
    assert len(starts) > 4
    path = tmp_path / "a.jpg"
    path.write_bytes(content[: starts[-2]] + b"\xff\xd9")  # in good order, as Pillow sees it
    Image.open(path).load()
    with pytest.raises(ArgumentError, match=r"coefficients of component \d miss"):
        read_photo(path)


@pytest.mark.parametrize("scan", [0, -2, -1])
@pytest.mark.parametrize("share", [0.2, 0.95])
def test_a_progressive_jpeg_cut_inside_a_scan_is_refused(
    tmp_path: Path, scan: int, share: float
) -> None:
    """The mark after the scan is there, so that the file is in good order for Pillow."""
    content = encoded("JPEG", progressive=True)
    marks = [i for i in range(len(content) - 1) if content[i] == 255 and content[i + 1] in MARKS]
    start = [i for i in marks if content[i + 1] == 0xDA][scan]
    stop = next(i for i in marks if i > start)
    path = tmp_path / "a.jpg"
    path.write_bytes(content[: start + int(share * (stop - start))] + content[stop:])
    Image.open(path).load()
    with pytest.raises(ArgumentError, match="the data of a scan end early"):
        read_photo(path)


MARKS = (0xC4, 0xD9, 0xDA)
"""Tables, end of the file, start of a scan."""


def test_complete_files_are_read_as_pillow_reads_them(tmp_path: Path) -> None:
    """The end mark of a JPEG is replaced before it is decoded; pixels must not change."""
    for options in ({}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 1}):
        for side in (1, 7, 8, 16, 17, 33):
            content = encoded("JPEG", side, quality=70, **options)
            expected = np.asarray(Image.open(io.BytesIO(content)))
            assert np.array_equal(decode(content, "a").permute(1, 2, 0).numpy(), expected)
    with_rest = encoded("JPEG") + encoded("JPEG", 20) + b"maker's data"  # as phones write them
    expected = np.asarray(Image.open(io.BytesIO(encoded("JPEG"))))
    assert np.array_equal(decode(with_rest, "a").permute(1, 2, 0).numpy(), expected)


def claims(side: int) -> dict[str, bytes]:
    """Small files of ``side`` × ``side`` pixels by their headers."""
    jpeg = bytearray(encoded("JPEG", 8))
    struct.pack_into(">HH", jpeg, jpeg.index(b"\xff\xc0") + 5, side, side)
    bmp = bytearray(encoded("BMP", 8))
    struct.pack_into("<ii", bmp, 18, side, side)
    return {"png": png(side, side, bytes(100)), "jpeg": bytes(jpeg), "bmp": bytes(bmp)}


BOMB = """
import resource, sys
from pathlib import Path
import torch
from pnpcm.errors import ArgumentError
from pnpcm.training.sources import decode
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 2**28
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
from pnpcm.io import reading
reading.memory = lambda: 2**40
for path in sys.argv[1:]:
    try:
        decode(Path(path).read_bytes(), path)
    except ArgumentError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_few_bytes_that_claim_400_megapixels_take_no_memory(tmp_path: Path) -> None:
    """In a process with 256 MiB, and a budget that allows the number of pixels."""
    paths = []
    for name, content in claims(20000).items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", BOMB, *paths], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [Path(line.split()[0]).name for line in lines] == ["png", "jpeg", "bmp"]
    assert all("cannot be read as" in line for line in lines)


def test_the_number_of_pixels_is_checked_before_the_pixels(tmp_path: Path) -> None:
    for name, content in claims(20000).items():
        if name == "bmp":
            continue
        (tmp_path / name).write_bytes(content)
        words = r"has 20000×20000 = 400000000 pixels, more than the 1000000 .*max_pixels=400000000"
        with pytest.raises(ArgumentError, match=words):
            read_photo(tmp_path / name, max_pixels=10**6)
