"""8-bit files, read and written by Pillow; all pixel modes are converted to grey or RGB."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image, ImageCms, ImageFile

from pnpcm.errors import ArgumentError
from pnpcm.io.photos.base import Raw, check_size
from pnpcm.io.photos.exif import EXIF

_LOCK = Lock()


def read_pillow(
    path: Path, opener: Callable[[Path], ImageFile.ImageFile], *, frames: int | None = None
) -> Raw:
    with _no_pillow_limit(), opener(path) as picture:
        check_size(path, *picture.size, frames or int(getattr(picture, "n_frames", 1)))
        picture.load()
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


@contextmanager
def _no_pillow_limit() -> Iterator[None]:
    """Disable Pillow's global limit of 179 megapixels; ours is checked before reading pixels."""
    with _LOCK:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit


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
