"""Photographs keep bit depth, alpha, profile and camera tags when read and written.

Files are made by Pillow, by tifffile or by hand here, and never by the code under test; what that
writes is read back by Pillow, tifffile or the plain decoder of :func:`plain_png`.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray
from PIL import Image, ImageCms

from pnpcm.errors import ArgumentError, ShapeError, UnknownNameError
from pnpcm.io.files import side_by_side
from pnpcm.io.photos import SUFFIXES, UNREADABLE, Photo, read_photo, upright, write_photo

Array = NDArray[Any]
ICC = bytes(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}
ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2)]


def pixels(channels: int, bits: int, height: int = 13, width: int = 9, seed: int = 0) -> Array:
    """(H, W, C): half smooth, half noise, both ends of the range present."""
    random = np.random.default_rng(seed)
    top = 2**bits - 1
    out = random.integers(0, top + 1, (height, width, channels))
    out[: height // 2] = np.linspace(0, top, width).astype(int)[None, :, None]
    out[0, 0], out[-1, -1] = 0, top
    if channels in (2, 4):
        out[-3:-1, :, -1] = 0  # colours below full transparency are kept, too
    return out.astype(np.uint8 if bits == 8 else np.uint16)


def exif(order: str = "<", width: int = 9, height: int = 13, kind: int = 3) -> bytes:
    """Make, orientation 6, and a camera directory with sizes and a MakerNote, written by hand."""
    note = bytes(range(256)) * 2
    main, camera = 8, 8 + 2 + 3 * 12 + 4 + 6
    data = camera + 2 + 3 * 12 + 4

    def number(value: int) -> bytes:
        return struct.pack(order + ("H" if kind == 3 else "I"), value).ljust(4, b"\0")

    def pack(form: str, *values: Any) -> bytes:
        return struct.pack(order + form, *values)

    return b"".join(
        [
            pack("2sHI", b"II" if order == "<" else b"MM", 42, main),
            pack("H", 3),
            pack("HHII", 0x10F, 2, 6, main + 2 + 3 * 12 + 4),
            pack("HHI4s", 0x112, 3, 1, pack("H", 6).ljust(4, b"\0")),
            pack("HHII", 0x8769, 4, 1, camera),
            pack("I", 0) + b"Canon\0",
            pack("H", 3),
            pack("HHII", 0x927C, 7, len(note), data),
            pack("HHI4s", 0xA002, kind, 1, number(width)),
            pack("HHI4s", 0xA003, kind, 1, number(height)),
            pack("I", 0) + note,
        ]
    )


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def predict(kind: int, a: int, b: int, c: int) -> int:
    if kind == 4:
        p = a + b - c
        return min((abs(p - v), i, v) for i, v in enumerate((a, b, c)))[2]
    return (0, a, b, (a + b) // 2)[kind]


def filtered(image: Array) -> bytes:
    """Rows of 16-bit pixels, filtered by the kinds 0 to 4 in turn, one byte after the other."""
    lines = image.astype(">u2").reshape(len(image), -1).view(np.uint8).tolist()
    bpp, out = 2 * image.shape[2], bytearray()
    above = [0] * len(lines[0])
    for row, line in enumerate(lines):
        kind = (4 - row) % 5
        out.append(kind)
        for i, byte in enumerate(line):
            left, corner = (line[i - bpp], above[i - bpp]) if i >= bpp else (0, 0)
            out.append((byte - predict(kind, left, above[i], corner)) % 256)
        above = line
    return bytes(out)


def write_png16(
    path: Path, image: Array, *, adam7: bool = False, before: bytes = b"", after: bytes = b""
) -> None:
    height, width, channels = image.shape
    parts = [image]
    if adam7:
        parts = [image[r::dr, c::dc] for r, c, dr, dc in [*ADAM7, (1, 0, 2, 1)]]
    data = zlib.compress(b"".join(filtered(part) for part in parts if part.size))
    head = struct.pack(">IIBBBBB", width, height, 16, COLOURS[channels], 0, 0, adam7)
    middle = len(data) // 2
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + before
        + chunk(b"IDAT", data[:middle])
        + chunk(b"IDAT", data[middle:])
        + after
        + chunk(b"IEND", b"")
    )


def plain_png(path: Path) -> tuple[Array, dict[bytes, bytes]]:
    """Pixels and chunks of a 16-bit PNG, decoded byte by byte, with all checksums verified."""
    content, at, chunks = path.read_bytes(), 8, {}
    while at < len(content):
        (size,) = struct.unpack_from(">I", content, at)
        name, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", content, at + 8 + size)[0] == zlib.crc32(name + body)
        chunks[name] = body
        at += size + 12
    width, height, depth, colour = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert depth == 16
    channels = {v: k for k, v in COLOURS.items()}[colour]
    raw, bpp, stride = zlib.decompress(chunks[b"IDAT"]), 2 * channels, 2 * channels * width
    above, out = [0] * stride, []
    for row in range(height):
        kind, *line = raw[row * (stride + 1) : (row + 1) * (stride + 1)]
        for i in range(stride):
            left, corner = (line[i - bpp], above[i - bpp]) if i >= bpp else (0, 0)
            line[i] = (line[i] + predict(kind, left, above[i], corner)) % 256
        out.append(line)
        above = line
    return np.array(out, np.uint8).view(">u2").reshape(height, width, channels), chunks


def scaled(image: Array, top: float) -> torch.Tensor:
    return torch.from_numpy(image / top * 2 - 1).permute(2, 0, 1)[None]


def check(photo: Photo, image: Array, bits: int, kind: str) -> None:
    """``image`` (H, W, C) is what the photo holds, to a hundredth of its smallest step."""
    channels, top = image.shape[2], 2**bits - 1
    colours = 1 if channels < 3 else 3
    assert (photo.bits, photo.format) == (bits, kind)
    assert photo.x.dtype == torch.float32
    assert photo.x.shape == (1, colours, *image.shape[:2])
    assert (photo.x - scaled(image[..., :colours], top)).abs().max() < 0.02 / top
    assert (photo.alpha is None) == (channels == colours)
    if photo.alpha is not None:
        assert photo.alpha.dtype == image.dtype
        assert np.array_equal(photo.alpha, image[..., -1])


def squeeze(image: Array) -> Array:
    return image[..., 0] if image.shape[2] == 1 else image


# --- every bit there and back ---------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_eight_bits_come_back(tmp_path: Path, suffix: str, channels: int) -> None:
    image = pixels(channels, 8)
    path, out = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    if suffix == "webp" and channels < 3:
        pytest.skip("WebP knows no grey")
    Image.fromarray(squeeze(image)).save(path, lossless=True, exact=True, icc_profile=ICC)
    photo = read_photo(path)
    check(photo, image, 8, {"png": "PNG", "tif": "TIFF", "webp": "WEBP"}[suffix])
    assert photo.icc == ICC
    write_photo(out, photo.x, photo)
    with Image.open(out) as picture:
        assert picture.format == photo.format
        assert picture.info["icc_profile"] == ICC
        assert np.array_equal(np.asarray(picture), squeeze(image))
    assert [p.name for p in sorted(tmp_path.iterdir())] == [path.name, out.name]


@pytest.mark.parametrize("adam7", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bits_of_png_come_back(tmp_path: Path, channels: int, adam7: bool) -> None:
    image, tags = pixels(channels, 16), exif()
    profile = chunk(b"iCCP", b"any\0\0" + zlib.compress(ICC))
    path, out = tmp_path / "a.png", tmp_path / "b.png"
    write_png16(path, image, adam7=adam7, before=profile, after=chunk(b"eXIf", tags))
    photo = read_photo(path)
    check(photo, image, 16, "PNG")
    assert (photo.icc, photo.exif) == (ICC, tags)
    write_photo(out, photo.x[0], photo)
    found, chunks = plain_png(out)
    assert np.array_equal(found, image)
    assert chunks[b"eXIf"] == tags
    assert zlib.decompress(chunks[b"iCCP"].partition(b"\0")[2][1:]) == ICC
    with Image.open(out) as picture:  # and others can read it
        assert picture.size == (9, 13)
        picture.load()
    check(read_photo(out), image, 16, "PNG")


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (3, 2)])
@pytest.mark.parametrize("adam7", [False, True])
def test_smallest_png_of_sixteen_bits(tmp_path: Path, size: tuple[int, int], adam7: bool) -> None:
    image = np.random.default_rng(0).integers(0, 65536, (*size, 3)).astype(np.uint16)
    write_png16(tmp_path / "a.png", image, adam7=adam7)
    check(read_photo(tmp_path / "a.png"), image, 16, "PNG")


@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "predictor": True}])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bits_of_tiff_come_back(
    tmp_path: Path, channels: int, order: str, options: dict[str, Any]
) -> None:
    image = pixels(channels, 16)
    path, out = tmp_path / "a.tiff", tmp_path / "b.tif"
    with tifffile.TiffWriter(path, byteorder=order) as file:  # type: ignore[arg-type]
        file.write(
            squeeze(image),
            photometric="rgb" if channels > 2 else "minisblack",
            planarconfig="contig" if channels > 1 else None,
            extrasamples=["unassalpha"] if channels in (2, 4) else None,
            iccprofile=ICC,
            extratags=[(0x112, "H", 1, 6, True), (0x10F, "s", 0, "Canon", True)],
            metadata=None,
            **options,
        )
    photo = read_photo(path)
    check(photo, image, 16, "TIFF")
    assert photo.icc == ICC
    write_photo(out, photo.x, photo)
    with tifffile.TiffFile(out) as file:
        page = file.pages.first
        assert np.array_equal(page.asarray(), squeeze(image))
        assert page.tags.valueof(34675) == ICC
        assert page.tags.valueof(0x112) == 6
        assert page.tags.valueof(0x10F) == "Canon"
    check(read_photo(out), image, 16, "TIFF")


def test_a_tall_tiff_has_many_strips(tmp_path: Path) -> None:
    image = pixels(3, 16, height=900, width=300)
    write_photo(tmp_path / "a.tif", scaled(image, 65535), blank(bits=16))
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert len(file.pages.first.dataoffsets) > 1
        assert np.array_equal(file.asarray(), image)


def test_a_damaged_tiff_is_one_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """tifffile logs what it finds, which would be printed beside our error."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((200, 200, 3), np.uint8), photometric="rgb")
    content = path.read_bytes()
    for tag in (256, 257):  # width and height
        at = next(i for i in range(len(content)) if content[i : i + 2] == struct.pack("<H", tag))
        content = content[: at + 8] + struct.pack("<I", 900) + content[at + 12 :]
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"a\.tif"):
        read_photo(path)
    assert caplog.records == []


def test_planar_tiff_and_white_is_zero(tmp_path: Path) -> None:
    image = pixels(3, 16)
    tifffile.imwrite(
        tmp_path / "a.tif", image.transpose(2, 0, 1), photometric="rgb", planarconfig="separate"
    )
    check(read_photo(tmp_path / "a.tif"), image, 16, "TIFF")
    grey = pixels(1, 16)
    tifffile.imwrite(tmp_path / "b.tif", 65535 - grey[..., 0], photometric="miniswhite")
    check(read_photo(tmp_path / "b.tif"), grey, 16, "TIFF")


def test_multiplied_alpha_is_divided_out(tmp_path: Path) -> None:
    image = np.full((2, 2, 4), 40000, np.uint16)
    image[..., 3] = [[65535, 32768], [40000, 0]]
    stored = image.copy()
    stored[..., :3] = np.rint(image[..., :3] * (image[..., 3:] / 65535.0))
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="rgb", extrasamples=["assocalpha"])
    x = (read_photo(tmp_path / "a.tif").x[0] + 1) * 32767.5
    assert (x[:, 0, :] - 40000).abs().max() <= 2
    assert (x[:, 1, 0] - 40000).abs().max() <= 2
    assert x[:, 1, 1].abs().max() < 0.1


def test_float_tiff(tmp_path: Path) -> None:
    image = np.linspace(0, 1, 63, dtype=np.float32).reshape(7, 9)
    tifffile.imwrite(tmp_path / "a.tif", image)
    photo = read_photo(tmp_path / "a.tif")
    assert (photo.bits, photo.x.shape) == (16, (1, 1, 7, 9))
    assert torch.allclose(photo.x[0, 0], torch.from_numpy(2 * image - 1), atol=1e-6)
    for wrong in (image * 255, image - 0.5):
        tifffile.imwrite(tmp_path / "b.tif", wrong)
        with pytest.raises(ArgumentError, match=r"b\.tif has floats from .* expected \[0, 1\]"):
            read_photo(tmp_path / "b.tif")


def test_lzw_is_read_in_eight_bits_and_explained_in_sixteen(tmp_path: Path) -> None:
    image = pixels(3, 8)
    Image.fromarray(image).save(tmp_path / "a.tif", compression="tiff_lzw")
    check(read_photo(tmp_path / "a.tif"), image, 8, "TIFF")
    deep = Image.fromarray(pixels(1, 16)[..., 0])
    deep.save(tmp_path / "b.tif", compression="tiff_lzw")
    try:
        import imagecodecs  # noqa: F401
    except ImportError:
        with pytest.raises(ArgumentError, match="compressed with LZW; pip install imagecodecs"):
            read_photo(tmp_path / "b.tif")


# --- modes ----------------------------------------------------------------------------------------


def test_palette_one_bit_and_transparent_colours(tmp_path: Path) -> None:
    image = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 0, 0]]], np.uint8)
    path = tmp_path / "a.png"
    palette = Image.fromarray(image).quantize(3)
    palette.save(path)
    check(read_photo(path), image, 8, "PNG")

    clear = palette.getpixel((0, 0))
    palette.save(path, transparency=clear)
    alpha = np.array([[0, 255], [255, 0]], np.uint8)[..., None]
    check(read_photo(path), np.dstack([image, alpha]), 8, "PNG")

    Image.fromarray(image).save(path, transparency=(0, 255, 0))
    alpha = np.array([[255, 0], [255, 255]], np.uint8)[..., None]
    check(read_photo(path), np.dstack([image, alpha]), 8, "PNG")

    bits = np.array([[True, False, True]])
    Image.fromarray(bits).save(path)
    check(read_photo(path), bits[..., None].astype(np.uint8) * 255, 8, "PNG")

    deep = pixels(3, 16)
    key = deep[-1, 0]
    write_png16(path, deep, before=chunk(b"tRNS", key.astype(">u2").tobytes()))
    alpha = np.where((deep == key).all(-1), 0, 65535).astype(np.uint16)
    assert (alpha == 0).any()
    check(read_photo(path), np.dstack([deep, alpha]), 16, "PNG")


def test_jpeg_grey_colour_and_two_in_one(tmp_path: Path) -> None:
    image = pixels(3, 8, height=32, width=40)
    picture = Image.fromarray(image)
    picture.save(tmp_path / "a.jpg", quality=90, exif=b"Exif\0\0" + exif(">"), icc_profile=ICC)
    photo = read_photo(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as opened:
        check(photo, np.asarray(opened), 8, "JPEG")
    assert (photo.icc, photo.exif) == (ICC, exif(">"))
    picture.save(tmp_path / "b.mpo", save_all=True, append_images=[picture], quality=90)
    with Image.open(tmp_path / "b.mpo") as opened:
        assert opened.n_frames == 2  # type: ignore[attr-defined]
        check(read_photo(tmp_path / "b.mpo"), np.asarray(opened), 8, "JPEG")
    picture.convert("L").save(tmp_path / "c.jpg")
    assert read_photo(tmp_path / "c.jpg").x.shape == (1, 1, 32, 40)


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    inks = np.zeros((16, 16, 4), np.uint8)
    inks[:, 8:, 0] = 255  # white, and cyan
    for name in ("a.jpg", "a.tif"):
        Image.fromarray(inks, "CMYK").save(tmp_path / name)
        photo = read_photo(tmp_path / name)
        assert (photo.x.shape, photo.icc) == ((1, 3, 16, 16), None)
        assert (photo.x[0, :, 4, 2] > 0.98).all()
        assert photo.x[0, 0, 4, 14] < -0.98
        assert (photo.x[0, 1:, 4, 14] > 0.98).all()
    Image.fromarray(inks, "CMYK").save(tmp_path / "b.jpg", icc_profile=ICC)  # no CMYK profile
    assert torch.equal(read_photo(tmp_path / "b.jpg").x, read_photo(tmp_path / "a.jpg").x)


# --- writing --------------------------------------------------------------------------------------


def blank(bits: int = 8, kind: str = "PNG", **more: Any) -> Photo:
    fields = {"alpha": None, "icc": None, "exif": None} | more
    return Photo(x=torch.zeros(1, 3, 13, 9), bits=bits, format=kind, path=Path("a"), **fields)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
@pytest.mark.parametrize("format", ["png", "jpeg", "tiff", "webp"])
def test_exif_is_kept_and_tells_the_new_size(
    tmp_path: Path, format: str, kind: int, order: str
) -> None:
    tags, path = exif(order, kind=kind), tmp_path / f"a.{format}"
    for width, height in ((9, 13), (18, 26)):
        write_photo(path, torch.zeros(3, height, width), blank(exif=tags))
        photo = read_photo(path)
        assert photo.exif is not None
        if format != "tiff":  # its directories are moved when data is inserted
            assert photo.exif == exif(order, width, height, kind)
        with Image.open(path) as picture:
            found = picture.getexif()
            camera = found.get_ifd(0x8769)
        assert (found[0x10F], found[0x112]) == ("Canon", 6)
        assert (camera[0xA002], camera[0xA003]) == (width, height)
        assert camera[0x927C] == bytes(range(256)) * 2


def test_a_side_that_is_too_long_for_its_tag_gets_a_longer_tag(tmp_path: Path) -> None:
    write_photo(tmp_path / "a.png", torch.zeros(1, 1, 70000), blank(exif=exif(), bits=16))
    with Image.open(tmp_path / "a.png") as picture:
        camera = picture.getexif().get_ifd(0x8769)
    assert (camera[0xA002], camera[0xA003]) == (70000, 1)


@pytest.mark.filterwarnings("ignore:(Corrupt EXIF|Truncated File):UserWarning")
def test_damaged_exif_is_left_as_it_came(tmp_path: Path) -> None:
    for tags in (b"II*\0", b"junk" * 9, b"II*\0\xff\xff\xff\x7f", exif()[:30]):
        write_photo(tmp_path / "a.png", torch.zeros(3, 4, 4), blank(exif=tags))
        assert read_photo(tmp_path / "a.png").exif == tags
        write_photo(
            tmp_path / "a.tif", torch.zeros(3, 4, 4), blank(exif=tags)
        )  # which must be true
        assert read_photo(tmp_path / "a.tif").x.shape == (1, 3, 4, 4)


def test_alpha_follows_the_size(tmp_path: Path) -> None:
    alpha = np.zeros((8, 8), np.uint16)
    alpha[:, 4:] = 65535
    like = blank(bits=16, alpha=alpha)
    write_photo(tmp_path / "a.png", torch.zeros(3, 32, 32), like)
    large = read_photo(tmp_path / "a.png").alpha
    assert large is not None
    assert large.dtype == np.uint16
    assert (large[:, :12] == 0).all()
    assert (large[:, 20:] == 65535).all()
    write_photo(tmp_path / "a.webp", torch.zeros(3, 8, 8), like)  # to 8 bits
    small = read_photo(tmp_path / "a.webp").alpha
    assert small is not None
    assert np.array_equal(small, (alpha // 257).astype(np.uint8))


def test_which_format(tmp_path: Path) -> None:
    x = scaled(pixels(3, 8, 32, 32), 255)
    cases = [("a.png", None, "PNG"), ("a.JPG", None, "JPEG"), ("a", None, "WEBP")]
    for name, format, kind in [*cases, ("b.png", "TIFF", "TIFF"), ("a.tif", "webp", "WEBP")]:
        write_photo(
            tmp_path / name, x, blank(kind="WEBP", alpha=pixels(1, 8)[..., 0]), format=format
        )
        photo = read_photo(tmp_path / name)
        assert photo.format == kind
        assert (photo.alpha is None) == (kind == "JPEG")
    with Image.open(tmp_path / "a.JPG") as picture:
        assert [layer[1:3] for layer in picture.layer] == [(1, 1)] * 3  # type: ignore[attr-defined]
        assert max(picture.quantization[0]) <= 12  # type: ignore[attr-defined]
    with pytest.raises(UnknownNameError, match="unknown picture format 'gif'"):
        write_photo(tmp_path / "c.gif", x, blank(), format="gif")


def test_values_are_rounded_and_clamped_and_the_profile_fits(tmp_path: Path) -> None:
    x = torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 7.0]).reshape(1, 1, 6)
    write_photo(tmp_path / "a.png", x, blank(icc=ICC))  # like is colour
    photo = read_photo(tmp_path / "a.png")
    assert photo.icc is None
    with Image.open(tmp_path / "a.png") as picture:
        assert np.asarray(picture)[0].tolist() == [0, 0, 128, 191, 255, 255]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    for shape in ((2, 4, 4), (2, 3, 4, 4), (4, 4), (3, 0, 4)):
        with pytest.raises(ShapeError, match="a photo is"):
            write_photo(path, torch.zeros(shape), blank())
    with pytest.raises(ArgumentError, match="not finite"):
        write_photo(path, torch.full((3, 4, 4), torch.nan), blank())
    with pytest.raises(ArgumentError, match="are at most 16383; write png or tiff"):
        write_photo(tmp_path / "a.webp", torch.zeros(1, 1, 17000), blank())
    with pytest.raises(ArgumentError, match="70000 bytes, a JPEG at most 65000"):
        write_photo(tmp_path / "a.jpg", torch.zeros(1, 4, 4), blank(exif=exif().ljust(70000)))
    with pytest.raises(ArgumentError, match="is not a folder"):
        write_photo(tmp_path / "none" / "a.png", torch.zeros(1, 4, 4), blank())
    assert list(tmp_path.iterdir()) == []


# --- refused --------------------------------------------------------------------------------------


def make_jpeg(path: Path) -> None:
    Image.fromarray(pixels(3, 8, 64, 64)).save(path, "JPEG")


def make_webp(path: Path) -> None:
    Image.fromarray(pixels(3, 8, 64, 64)).save(path, "WEBP", lossless=True)


def make_png(path: Path) -> None:
    Image.fromarray(pixels(3, 8, 64, 64)).save(path, "PNG")


def make_png16(path: Path) -> None:
    write_png16(path, pixels(3, 16, 64, 64))


def make_tiff(path: Path) -> None:
    tifffile.imwrite(path, pixels(3, 8, 64, 64), photometric="rgb")


def make_tiff16(path: Path) -> None:
    tifffile.imwrite(path, pixels(3, 16, 64, 64), photometric="rgb", compression="zlib")


def make_strips(path: Path) -> None:
    image = pixels(3, 16, 64, 64)
    tifffile.imwrite(path, image, photometric="rgb", rowsperstrip=8, metadata=None)


def make_tiles(path: Path) -> None:
    image = pixels(3, 16, 64, 64)
    tifffile.imwrite(path, image, photometric="rgb", tile=(16, 16), compression="zlib")


MAKERS = [make_jpeg, make_webp, make_png, make_png16]
MAKERS += [make_tiff, make_tiff16, make_strips, make_tiles]


@pytest.mark.filterwarnings("ignore:Truncated File Read:UserWarning")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("share", [0.004, 0.02, 0.5, 0.9])
def test_cut_off_files(tmp_path: Path, make: Callable[[Path], None], share: float) -> None:
    path = tmp_path / "cut.img"
    make(path)
    read_photo(path)
    content = path.read_bytes()
    path.write_bytes(content[: max(12, int(len(content) * share))])
    with pytest.raises(ArgumentError, match=r"cut\.img cannot be read as .*damaged or incomplete"):
        read_photo(path)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", MAKERS)
def test_damaged_bytes_raise_only_our_errors(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    random = np.random.default_rng(1)
    for _ in range(60):
        broken = bytearray(content)
        for at in random.integers(0, min(400, len(broken)), 4):
            broken[at] = random.integers(0, 256)
        (tmp_path / "broken").write_bytes(broken)
        with suppress(ArgumentError):
            read_photo(tmp_path / "broken")


def test_a_tiff_with_a_strip_that_was_never_written(tmp_path: Path) -> None:
    make_strips(tmp_path / "a.tif")
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as file:
        tag = file.pages.first.tags[279]
        tag.overwrite([0 if i == 3 else size for i, size in enumerate(tag.value)])
    with pytest.raises(ArgumentError, match="7 of 8 parts of the pixels are there"):
        read_photo(tmp_path / "a.tif")


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
def test_a_cut_tiff_says_how_much_is_there(tmp_path: Path, depth: type) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.full((40, 50, 3), 100, depth), photometric="rgb")
    content = path.read_bytes()
    path.write_bytes(content[:-1000])
    size = len(content) - 1000
    words = rf"\(ValueError: its pixels end at byte {len(content)}, the file at byte {size}\)"
    with pytest.raises(ArgumentError, match=words):
        read_photo(path)


def test_tiff_files_that_are_no_photographs_are_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for depth in (np.uint8, np.uint16):
        tifffile.imwrite(path, np.zeros((9, 8, 5), depth), photometric="minisblack",
                         planarconfig="contig")  # fmt: skip
        with pytest.raises(ArgumentError, match=r"a\.tif has 5 channels.*; convert it to RGB or"):
            read_photo(path)
    for bad in (np.nan, np.inf):
        values = np.full((9, 8, 3), 0.5, np.float32)
        values[1, 2, 0] = bad
        tifffile.imwrite(path, values, photometric="rgb")
        with pytest.raises(ArgumentError, match="has values that are NaN or infinite; replace"):
            read_photo(path)


def test_not_a_picture(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("a picture says more than a thousand words")
    (tmp_path / "empty.png").touch()
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    for name, words in {
        "text.png": "is not a PNG, JPEG, TIFF or WebP file",
        "empty.png": r"is empty \(0 bytes\), expected an image; copy or download it again",
        "folder.png": "is a folder, expected an image; give one of the files in it",
        "missing.png": "does not exist, expected an image; check the path",
        "pipe.png": "is a pipe or a device, expected a file; write its content to a file",
    }.items():
        with pytest.raises(ArgumentError, match=rf"{name} {words}"):
            read_photo(tmp_path / name)


def test_animations_and_pages(tmp_path: Path) -> None:
    frames = [Image.fromarray(pixels(3, 8, seed=i)) for i in range(3)]
    for name in ("a.png", "a.webp", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        with pytest.raises(ArgumentError, match=rf"{name} has 3 frames or pages; save one of"):
            read_photo(tmp_path / name)
    for image in (pixels(3, 8), pixels(3, 16)):
        with tifffile.TiffWriter(tmp_path / "b.tif") as file:
            file.write(image, photometric="rgb")
            file.write(image[::2, ::2], photometric="rgb", subfiletype=1)  # a preview
        check(read_photo(tmp_path / "b.tif"), image, 8 * image.itemsize, "TIFF")


def test_size_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    head = struct.pack(">IIBBBBB", 100000, 100000, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"0"))
    path.write_bytes(content + chunk(b"IEND", b""))
    words = r"a\.png has 100000×100000 = 10000000000 pixels, .* memory .* max_pixels=10000000000"
    with pytest.raises(ArgumentError, match=words):
        read_photo(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)  # Pillow's limit does not count, ours does
    for make in MAKERS:
        make(path)
        assert read_photo(path).x.shape == (1, 3, 64, 64)
    assert Image.MAX_IMAGE_PIXELS == 50
    for make in MAKERS:
        make(path)
        assert read_photo(path, max_pixels=64 * 64).x.shape == (1, 3, 64, 64)
        with pytest.raises(ArgumentError, match=r"4096 pixels, more than the 4095 that max_pixels"):
            read_photo(path, max_pixels=64 * 64 - 1)


def test_no_pixels(tmp_path: Path) -> None:
    write_png16(tmp_path / "a.png", np.zeros((1, 1, 3), np.uint16))
    content = bytearray((tmp_path / "a.png").read_bytes())
    content[16:20] = b"\0\0\0\0"
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ArgumentError, match=r"a\.png"):
        read_photo(tmp_path / "a.png")


def test_suffixes_and_lazy_import(tmp_path: Path) -> None:
    image = Image.fromarray(pixels(3, 8))
    for suffix in SUFFIXES:
        image.save(tmp_path / f"a{suffix}")
        photo = read_photo(tmp_path / f"a{suffix}")
        assert photo.path.suffix == suffix
        write_photo(tmp_path / f"b{suffix}", photo.x, photo)
        assert read_photo(tmp_path / f"b{suffix}").format == photo.format
    code = "import sys, pnpcm.io.photos; sys.exit('tifffile' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reading_does_not_share_memory(tmp_path: Path) -> None:
    Image.fromarray(pixels(4, 8)).save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png")
    photo.x.zero_()
    write_photo(tmp_path / "b.png", photo.x, replace(photo, exif=None))
    check(read_photo(tmp_path / "a.png"), pixels(4, 8), 8, "PNG")


@pytest.mark.parametrize(
    ("name", "content", "kind", "command"),
    [
        ("a.gif", b"GIF89a\0\0\0\0\0\0", "GIF", "magick '{}/a.gif[0]' {}/a.png"),
        ("b.png", b"GIF87a\0\0\0\0\0\0", "GIF", "magick '{}/b.png[0]' {}/b-1.png"),
        ("a.bmp", b"BM\0\0\0\0\0\0\0\0\0\0", "BMP", "magick {}/a.bmp {}/a.png"),
        ("IMG_1.HEIC", b"\0\0\0\x18ftypheic", "HEIC", "heif-convert {}/IMG_1.HEIC {}/IMG_1.png"),
        ("phone.jpg", b"\0\0\0\x18ftypmif1", "HEIC", "heif-convert {}/phone.jpg {}/phone.png"),
        ("x y.avif", b"\0\0\0\x18ftypavif", "AVIF", "avifdec '{}/x y.avif' '{}/x y.png'"),
        ("a.nef", b"II*\0\x08\0\0\0\0\0\0\0", "camera raw", "darktable-cli {}/a.nef {}/a.tif"),
        ("a.CR3", b"\0\0\0\x18ftypcrx ", "camera raw", "darktable-cli {}/a.CR3 {}/a.tif"),
        ("a.raf", b"FUJIFILMCCD-", "camera raw", "darktable-cli {}/a.raf {}/a.tif"),
    ],
)
def test_other_formats_get_one_sentence_with_a_command(
    tmp_path: Path, name: str, content: bytes, kind: str, command: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArgumentError, match=f"is a {kind} file") as caught:
        read_photo(tmp_path / name)
    assert str(caught.value).endswith(command.format(tmp_path, tmp_path))
    assert "\n" not in str(caught.value)


def test_a_command_that_converts_replaces_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(b"x" * 20)
    for taken in ("a.png", "a-1.png"):
        (tmp_path / taken).touch()
    with pytest.raises(ArgumentError, match=r"heif-convert .*a\.heic .*a-2\.png$"):
        read_photo(tmp_path / "a.heic")


def test_a_suffix_alone_refuses_nothing_that_can_be_read(tmp_path: Path) -> None:
    Image.fromarray(pixels(3, 8)).save(tmp_path / "a.gif", "PNG")
    assert read_photo(tmp_path / "a.gif").format == "PNG"
    assert not set(SUFFIXES) & set(UNREADABLE)


def test_upright_turns_as_the_camera_says(tmp_path: Path) -> None:
    """Orientation 6: the camera was turned, the picture is shown rotated clockwise by 90°."""
    image = Image.fromarray(pixels(3, 8))
    image.save(tmp_path / "a.png", exif=b"Exif\0\0" + exif(), icc_profile=ICC)
    image.save(tmp_path / "b.png")
    turned = upright(image.copy(), read_photo(tmp_path / "a.png"))
    assert np.array_equal(np.asarray(turned), np.rot90(pixels(3, 8), -1))
    assert turned.info["icc_profile"] == ICC
    assert np.array_equal(np.asarray(upright(image, read_photo(tmp_path / "b.png"))), pixels(3, 8))
    assert upright(image, None) is image


def test_side_by_side_has_the_size_of_the_last_image() -> None:
    small, large = (
        Image.new("L", size, value) for size, value in (((30, 20), 10), ((300, 200), 90))
    )
    sheet = np.asarray(side_by_side([("before", small), ("after", large)]))
    assert sheet.shape == (200 + 19, 2 * 300 + 6, 3)  # 19 = 13 · 3 / 2 rows of text
    assert (sheet[19:, :300] == 10).all()
    assert (sheet[19:, 306:] == 90).all()
    tiny = np.asarray(side_by_side([("a", small), ("b", small)]))
    assert tiny.shape == (8 * 20 + 19, 2 * 8 * 30 + 6, 3)  # 8 · 30 is the last multiple below 256
