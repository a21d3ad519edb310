"""What is behind a picture is not read, and a file cannot claim more than its size."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pnpcm.errors import ArgumentError
from pnpcm.io import extent
from pnpcm.io.extent import BEHIND, BESIDE, CODED, checked_extent
from pnpcm.io.photos import check_photo, read_photo
from pnpcm.io.photos.photo import write_photo
from pnpcm.io.pictures import SCANS, kind_of, read_picture
from pnpcm.io.reading import Budget

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 24, 3), dtype=np.uint8)
KINDS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "JPEG": {},
    "progressive JPEG": {"progressive": True, "exif": b"Exif\0\0" + bytes(60_000)},
    "WEBP": {},
    "lossless WEBP": {"lossless": True},
    "extended WEBP": {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"},
    "TIFF": {},
    "compressed TIFF": {"compression": "tiff_lzw"},
    "big TIFF": {"big_tiff": True},
}


def encoded(kind: str, pixels: Any = PIXELS, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_in_the_header_and_the_end_near_the_pixels(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    content = encoded(kind.rpartition(" ")[2], **KINDS[kind])
    path.write_bytes(content)
    found = checked_extent(path, kind_of(content) or "")
    assert found.size == (24, 40)
    assert found.end == len(content)
    with path.open("ab") as file:
        file.truncate(2**30)
    found = checked_extent(path, kind_of(content) or "")
    assert len(content) <= found.end <= len(content) + CODED * 24 * 40 + BESIDE + BEHIND
    if kind in ("PNG", "WEBP"):
        assert found.end == len(content)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_behind_a_picture_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(extent, "BESIDE", 2**17)
    monkeypatch.setattr(extent, "BEHIND", 2**21)
    path = tmp_path / "a"
    path.write_bytes(encoded(kind.rpartition(" ")[2], **KINDS[kind]))
    expected = read_photo(path).x
    with path.open("ab") as file:
        file.truncate(2**20)  # zeros that take no place on the disk
    assert read_photo(path).x.equal(expected)
    check_photo(path)
    name = kind.rpartition(" ")[2]
    if name != "TIFF":
        assert len(read_picture(path, name, Budget(1))) < 2**18
    with path.open("ab") as file:
        file.truncate(2**40)
    for read in (check_photo, read_photo):
        with pytest.raises(ArgumentError, match=r"has 1099511627776 bytes, but its picture ends"):
            read(path)


def test_sides_are_read_in_both_orders_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for order, mark in (("<", b"II"), (">", b"MM")):
        for kind, form in ((3, "H2x"), (4, "I")):
            entries = [struct.pack(f"{order}HHI{form}", 256 + k, kind, 1, 24 + k) for k in (0, 1)]
            path.write_bytes(mark + struct.pack(order + "HIH", 42, 8, 2) + b"".join(entries))
            assert checked_extent(path, "TIFF").size == (24, 25)
            entries = [struct.pack(f"{order}HHQ{form}4x", 256 + k, kind, 1, 24 + k) for k in (0, 1)]
            head = mark + struct.pack(order + "HHHQQ", 43, 8, 0, 16, 2)
            path.write_bytes(head + b"".join(entries))
            assert checked_extent(path, "TIFF").size == (24, 25)


def test_bytes_between_the_segments_of_a_jpeg_are_skipped(tmp_path: Path) -> None:
    content, path = encoded("JPEG"), tmp_path / "a.jpg"
    path.write_bytes(content[:2] + b"\xff\xff\0\0" + content[2:])
    assert checked_extent(path, "JPEG").size == (24, 40)


def test_16_bits_are_read_to_their_end_too(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded("PNG"))
    photo = read_photo(path)
    wide = tmp_path / "b.png"
    object.__setattr__(photo, "bits", 16)
    write_photo(wide, photo.x, photo)
    expected = read_photo(wide).x
    length = wide.stat().st_size
    with wide.open("ab") as file:
        file.truncate(2**20)
    assert checked_extent(wide, "PNG").end == length
    assert read_photo(wide).x.equal(expected)


def chunk(name: bytes, content: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


@pytest.mark.parametrize("name", [b"IDAT", b"teXt", b"\0\0\0\0"])
def test_a_png_has_no_more_chunks_than_it_needs(tmp_path: Path, name: bytes) -> None:
    path, content = tmp_path / "a.png", encoded("PNG")
    at = content.index(b"IDAT") - 4
    path.write_bytes(content[:at] + chunk(name) * 2000 + content[at:])
    with pytest.raises(ArgumentError, match=r"a\.png cannot be read as PNG .*chunk"):
        read_photo(path)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_the_budget_is_checked_before_the_content_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(encoded(kind))
    monkeypatch.setattr("pnpcm.io.photos.base.opened_picture", None)
    with pytest.raises(ArgumentError, match=r"has 24×40 = 960 pixels, more than the 959"):
        read_photo(path, max_pixels=959)


def test_a_jpeg_of_many_scans_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, path = encoded("JPEG", progressive=True), tmp_path / "a.jpg"
    starts = [i for i in range(len(content)) if content[i : i + 2] == b"\xff\xda"]
    scan = content[starts[-1] : -2]

    def write(more: int) -> None:
        path.write_bytes(content[:-2] + scan * more + b"\xff\xd9")

    write(SCANS - len(starts))
    assert read_photo(path).x.shape[-2:] == (40, 24)
    monkeypatch.setattr("PIL.JpegImagePlugin.JpegImageFile.load", None)
    write(1000)
    words = rf"a\.jpg has {1000 + len(starts)} scans, expected at most 100, since each"
    with pytest.raises(ArgumentError, match=words):
        read_photo(path)


def test_a_tiff_of_many_pages_is_refused(tmp_path: Path) -> None:
    pages = [Image.fromarray(PIXELS[:8, :8]) for _ in range(101)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ArgumentError, match="has 101 frames or pages; save one of them as a file"):
        read_photo(tmp_path / "a.tif")
