"""Photo: an image tensor with alpha, profile and EXIF; reading and writing of files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError, UnknownNameError
from pnpcm.io.extent import checked_extent
from pnpcm.io.files import write_atomically
from pnpcm.io.photos.base import Array, Raw, kind_of_file, read_pillow, resize_exif, save, tags
from pnpcm.io.photos.png16 import png_bytes, read_png
from pnpcm.io.photos.tiff import read_tiff, tiff_bytes
from pnpcm.io.pictures import NEED
from pnpcm.io.reading import Budget, reading

_FORMATS = {"png": "PNG", "jpeg": "JPEG", "tiff": "TIFF", "webp": "WEBP"}
_BY_SUFFIX = {".jpg": "JPEG", ".mpo": "JPEG", ".tif": "TIFF"}
_BY_SUFFIX |= {f".{name}": kind for name, kind in _FORMATS.items()}
_ORIENTATION = 0x112
_LONGEST = {"JPEG": 65500, "WEBP": 16383}
_READERS: dict[str, Callable[[Path, Budget], Raw]] = {
    "PNG": read_png,
    "JPEG": lambda path, budget: read_pillow(path, "JPEG", budget),
    "TIFF": read_tiff,
    "WEBP": lambda path, budget: read_pillow(path, "WEBP", budget),
}


@dataclass(frozen=True, eq=False)
class Photo:
    """An image with alpha, bit depth, colour profile and EXIF."""

    x: Tensor  # (1, 1 or 3, H, W) in [-1, 1], float32
    alpha: Array | None  # (H, W), uint8 or uint16 according to bits
    bits: int  # 8 or 16; floats count as 16
    icc: bytes | None  # colour profile
    exif: bytes | None  # from the byte order mark (II or MM) on, without the prefix Exif
    format: str  # PNG, JPEG, TIFF or WEBP
    path: Path


DAMAGED = "it is damaged or incomplete, use another copy"


def check_photo(path: Path) -> None:
    """Refuse a file that is far longer than its picture; only headers are read."""
    kind = kind_of_file(path)
    with reading(path, kind, move=DAMAGED):
        checked_extent(path, kind)


def read_photo(path: str | Path, *, max_pixels: int | None = None, need: int = NEED) -> Photo:
    """Read a PNG, JPEG, TIFF or WebP file in its own bit depth.

    Palettes become RGB, 1-bit becomes grey, CMYK becomes sRGB through its profile. Animations,
    several pages, damaged and incomplete files are refused, and images of more than ``max_pixels``;
    default: as many as the memory allows if each needs ``need`` bytes.
    """
    path = Path(path)
    kind = kind_of_file(path)
    with reading(path, kind, move=DAMAGED):
        pixels, icc, exif = _READERS[kind](path, Budget(need, max_pixels))
    bits = 8 if pixels.dtype == np.uint8 else 16
    colours = 1 if pixels.shape[2] < 3 else 3
    alpha = pixels[..., -1].copy() if pixels.shape[2] > colours else None
    top = 1.0
    if pixels.dtype.kind == "u":
        top = float(np.iinfo(pixels.dtype).max)
    elif alpha is not None:
        alpha = np.rint(alpha * 65535).astype(np.uint16)
    planes = np.ascontiguousarray(pixels[..., :colours].transpose(2, 0, 1), np.float32)
    x = torch.from_numpy(planes)[None].mul_(2 / top).sub_(1)
    return Photo(x, alpha, bits, icc or None, exif or None, kind, path)


def write_photo(path: str | Path, x: Tensor, like: Photo, *, format: str | None = None) -> None:
    """Write an image ``(C, H, W)`` or ``(1, C, H, W)`` in [-1, 1] as ``like``, atomically.

    ``x`` may have another size: alpha is resized (bicubic), EXIF gets the new size. The profile is
    kept unless grey became colour or the reverse. ``format``: png, jpeg, tiff or webp; default:
    by the suffix of ``path``, else as ``like``. PNG and TIFF keep 16 bits, the others have 8.
    JPEG is written with quality 95, 4:4:4, without alpha; the others are lossless. x is clamped.
    """
    path = Path(path)
    if format is not None and format.lower() not in _FORMATS:
        raise UnknownNameError("picture format", format, _FORMATS)
    kind = _FORMATS[format.lower()] if format else _BY_SUFFIX.get(path.suffix.lower(), like.format)
    x = x[0] if x.ndim == 4 and x.shape[0] == 1 else x
    if x.ndim != 3 or x.shape[0] not in (1, 3) or x.numel() == 0:
        raise ShapeError(f"x has shape {tuple(x.shape)}, a photo is (1 or 3, H, W)")
    if not bool(torch.isfinite(x).all()):
        raise ArgumentError("x has values that are not finite (nan or inf) and cannot be written")
    channels, height, width = x.shape
    if max(height, width) > _LONGEST.get(kind, 2**31):
        raise ArgumentError(
            f"x is {height}×{width}, the sides of a {kind} file are at most {_LONGEST[kind]}; "
            "write png or tiff"
        )
    bits = like.bits if kind in ("PNG", "TIFF") else 8
    pixels = _quantized(x, bits)
    if like.alpha is not None and kind != "JPEG":
        pixels = np.dstack([pixels, _resized(like.alpha, height, width, bits)])
    icc = like.icc if channels == like.x.shape[1] else None
    raw = Raw(pixels, icc, like.exif and resize_exif(like.exif, width, height))
    if kind == "JPEG" and len(raw.exif or b"") > 65000:
        raise ArgumentError(
            f"the EXIF of {like.path} has {len(raw.exif or b'')} bytes, a JPEG at most 65000; "
            "write png, tiff or webp"
        )
    if kind == "TIFF" or (kind == "PNG" and bits == 16):
        content = tiff_bytes(raw) if kind == "TIFF" else png_bytes(raw)
        write_atomically(path, lambda temporary: temporary.write_bytes(content))
    else:
        write_atomically(path, lambda temporary: save(temporary, raw, kind))


def upright(picture: Image.Image, like: Photo | None) -> Image.Image:
    """``picture`` rotated as the EXIF orientation of ``like`` says, with its colour profile."""
    if like is None:
        return picture
    found = _turned(picture, _orientation(like))
    if like.icc and found.mode == "RGB" and like.x.shape[1] == 3:
        found.info["icc_profile"] = like.icc
    return found


def as_stored(picture: Image.Image, like: Photo) -> Image.Image:
    """The inverse of the rotation by :func:`upright`."""
    orientation = _orientation(like)
    return _turned(picture, {6: 8, 8: 6}.get(orientation, orientation))  # others: own inverse


def _orientation(photo: Photo) -> int:
    found = tags(photo.exif).get(_ORIENTATION)
    return found if isinstance(found, int) and found in range(1, 9) else 1


def _turned(picture: Image.Image, orientation: int) -> Image.Image:
    picture.getexif()[_ORIENTATION] = orientation
    return ImageOps.exif_transpose(picture)


def _quantized(x: Tensor, bits: int) -> Array:
    """``x`` as integers (H, W, C), the inverse of the scaling in :func:`read_photo`."""
    top = 2**bits - 1
    values = ((x.detach().cpu().double().clamp(-1, 1) + 1) * (top / 2)).round().permute(1, 2, 0)
    return np.asarray(values, f"uint{bits}")


def _resized(alpha: Array, height: int, width: int, bits: int) -> Array:
    tops = np.iinfo(alpha.dtype).max, 2**bits - 1
    if alpha.shape == (height, width) and tops[0] == tops[1]:
        return alpha
    plane = Image.fromarray(alpha.astype(np.float32))
    plane = plane.resize((width, height), Image.Resampling.BICUBIC)
    values = np.rint(np.asarray(plane, np.float64) * (tops[1] / tops[0])).clip(0, tops[1])
    return np.asarray(values, f"uint{bits}")
