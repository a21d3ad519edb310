"""Common parts of all formats: detection, raw pixels, EXIF tags, reading by Pillow."""

from __future__ import annotations

import io
import shlex
import struct
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from pnpcm.errors import ArgumentError
from pnpcm.io.pictures import kind_of, opened_picture, read_picture
from pnpcm.io.reading import Budget, check_regular

Array = NDArray[Any]

SUFFIXES = (".png", ".jpg", ".jpeg", ".mpo", ".tif", ".tiff", ".webp")
"""Suffixes of image files in a folder, in lower case."""

_RAW = "3fr arw cr2 cr3 crw dcr dng erf iiq kdc mrw nef nrw orf pef raf raw rw2 sr2 srf srw x3f"
UNREADABLE = {".gif": "GIF", ".bmp": "BMP", ".heic": "HEIC", ".heif": "HEIC", ".avif": "AVIF"}
UNREADABLE |= {f".{name}": "camera raw" for name in _RAW.split()}
"""Formats of pictures that are not read, by suffix in lower case."""
ONLY_IMAGES = {*SUFFIXES, *UNREADABLE} - {".raw"}
"""Suffixes of files that cannot be raw scans; ``.raw`` is one of cameras and of scanners."""
_CONVERTERS = {  # tool, words of its command, suffix of the result
    "GIF": ("ImageMagick 7", "magick {}[0] {}", ".png"),
    "BMP": ("ImageMagick 7", "magick {} {}", ".png"),
    "HEIC": ("libheif", "heif-convert {} {}", ".png"),
    "AVIF": ("libavif", "avifdec {} {}", ".png"),
    "camera raw": ("darktable", "darktable-cli {} {}", ".tif"),
}
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"crx ": "camera raw"}
_BRANDS |= dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"), "HEIC")


class Raw(NamedTuple):
    pixels: Array  # (H, W, 1 to 4), uint8, uint16 or floats in [0, 1]; with 2 or 4: last is alpha
    icc: bytes | None
    exif: bytes | None


def unreadable(path: Path, kind: str) -> str:
    """The sentence for a picture of a format that is not read, with a command that converts it."""
    tool, words, suffix = _CONVERTERS[kind]
    free = (path.with_name(f"{path.stem}{-k or ''}{suffix}") for k in count())
    names = iter((path, next(name for name in free if not name.exists())))
    command = shlex.join(w.format(next(names)) if "{}" in w else w for w in words.split())
    target = {"GIF": "PNG (one frame)", "camera raw": "TIFF"}.get(kind, "PNG")
    return (
        f"{path} is a {kind} file, which pnpcm does not read; convert it to {target}, for example "
        f"with {tool}: {command}"
    )


def kind_of_file(path: Path) -> str:
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder, expected an image; give one of the files in it")
    check_regular(path)
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except FileNotFoundError as error:
        raise ArgumentError(f"{path} does not exist, expected an image; check the path") from error
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise ArgumentError(
            f"{path} is empty (0 bytes), expected an image; copy or download it again"
        )
    # most camera raw files begin like TIFF files, of which the first page is a small preview
    raw = UNREADABLE.get(path.suffix.lower()) == "camera raw"
    found = kind_of(head)
    if found not in (None, "BMP") and not (found == "TIFF" and raw):
        return found
    kind = UNREADABLE.get(path.suffix.lower())
    if head[4:8] == b"ftyp":
        kind = _BRANDS.get(head[8:], kind)
    elif head[:4] == b"GIF8":
        kind = "GIF"
    if kind is not None:
        raise ArgumentError(unreadable(path, kind))
    raise ArgumentError(
        f"{path} is not a PNG, JPEG, TIFF or WebP file, judged by its content; convert it to one"
    )


# EXIF tags: copied to another file, adapted to another image size --------------------------------
EXIF = b"Exif\0\0"
# tags about storage and position of the pixels, their profile, and Photoshop's layers
_LAYOUT = {254, 255, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 280, 281, 284, 292, 293}
_LAYOUT |= {*range(317, 326), 330, 338, 339, 340, 341, 347, *range(512, 522), *range(529, 533)}
_LAYOUT |= {32781, 34377, 34675, 37724}


def exif_of_tiff(path: Path) -> bytes | None:
    """The tags of a TIFF file that do not describe its layout; None if they cannot be read."""
    exif = Image.Exif()
    try:
        with path.open("rb") as file:
            exif.load_from_fp(file)
            for tag in list(exif):
                if tag in _LAYOUT:
                    del exif[tag]
            return exif.tobytes().removeprefix(EXIF) if len(exif) else None
    except Exception:  # damaged tags are left out
        return None


def tags(payload: bytes | None) -> Image.Exif:
    """The EXIF tags that do not describe the layout; none if the payload is not valid EXIF."""
    exif = Image.Exif()
    if payload:
        try:
            exif.load(EXIF + payload)
            for tag in _LAYOUT & set(exif):
                del exif[tag]
            exif.tobytes()
        except Exception:  # damaged tags are left out
            return Image.Exif()
    return exif


def resize_exif(exif: bytes, width: int, height: int) -> bytes:
    """``exif`` with new width and height; no other byte moves, since MakerNotes hold offsets."""
    out = bytearray(exif)
    order = "<" if exif[:2] == b"II" else ">"
    sides = {0x100: width, 0x101: height, 0xA002: width, 0xA003: height}
    try:
        main = struct.unpack_from(f"{order}I", out, 4)[0]
        camera = [value for tag, _, value, _ in _entries(out, main, order) if tag == 0x8769]
        for start in (main, *camera[:1]):
            for tag, kind, value, at in _entries(out, start, order):
                if tag in sides and kind in (3, 4) and value != sides[tag]:
                    kind = 3 if kind == 3 and sides[tag] < 2**16 else 4
                    number = struct.pack(f"{order}{'HI'[kind - 3]}", sides[tag]).ljust(4, b"\0")
                    struct.pack_into(f"{order}HHI4s", out, at, tag, kind, 1, number)
    except struct.error:  # not valid EXIF: unchanged
        return exif
    return bytes(out)


def _entries(exif: bytearray, start: int, order: str) -> list[tuple[int, int, int, int]]:
    """Tag, type, value (or offset) and position of each entry of one directory."""
    found = []
    for i in range(struct.unpack_from(f"{order}H", exif, start)[0]):
        at = start + 2 + 12 * i
        tag, kind = struct.unpack_from(f"{order}HH", exif, at)
        found.append((tag, kind, struct.unpack_from(order + "IH"[kind == 3], exif, at + 8)[0], at))
    return found


# 8-bit files, by Pillow; all pixel modes are converted to grey or RGB ----------------------------
def read_pillow(path: Path, kind: str, budget: Budget, *, frames: int | None = None) -> Raw:
    content = read_picture(path, kind, budget)
    with opened_picture(path, content, kind, budget, frames=frames) as picture:
        info = picture.info  # complete only after loading: PNG has chunks behind the pixels
        icc, exif = info.get("icc_profile"), info.get("exif")
        mode = picture.mode
        if mode == "CMYK":
            flat, icc = _rgb_of_cmyk(picture, icc), None
        elif mode in ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "YCbCr"):
            grey = mode in ("1", "L", "LA", "La")
            clear = mode[-1] in "Aa" or "transparency" in info
            flat = picture.convert("L") if mode == "1" else picture
            flat = flat.convert(("LA" if clear else "L") if grey else "RGBA" if clear else "RGB")
        else:
            raise ArgumentError(f"{path} has pixels of mode {mode}; convert it to RGB or grey")
        pixels = np.atleast_3d(np.array(flat))
    return Raw(pixels, icc, exif.removeprefix(EXIF) if exif else None)


def _rgb_of_cmyk(picture: Image.Image, icc: bytes | None) -> Image.Image:
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(icc or b""))
        target = ImageCms.createProfile("sRGB")
        converted = ImageCms.profileToProfile(picture, source, target, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):  # no profile, or not one for CMYK
        converted = None
    return converted or picture.convert("RGB")


def save(path: Path, raw: Raw, kind: str) -> None:
    options: dict[str, Any] = {}
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0}
    elif kind == "WEBP":
        options = {"lossless": True, "exact": True}  # exact: keep colours where alpha is 0
    if raw.icc:
        options["icc_profile"] = raw.icc
    if raw.exif:
        options["exif"] = EXIF + raw.exif
    pixels = raw.pixels[..., 0] if raw.pixels.shape[2] == 1 else raw.pixels
    Image.fromarray(pixels).save(path, kind, **options)
