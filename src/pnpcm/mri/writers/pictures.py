"""Slices for the eye: montages of magnitudes and standard deviations, without a plot library."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pnpcm.io.files import Picture
from pnpcm.mri.writers.volume import Array, Volume, to_array, upright

PERCENTILE = 99.8
MOST_SLICES = 36
_GAP, _HEAD = 3, 24
_ANCHORS = (
    (0, 0, 4), (11, 7, 36), (33, 12, 74), (60, 9, 101), (87, 16, 109), (112, 25, 110),
    (137, 34, 106), (163, 43, 97), (187, 55, 85), (209, 70, 68), (227, 89, 50), (241, 113, 30),
    (249, 141, 10), (252, 171, 15), (249, 202, 50), (242, 232, 101), (252, 255, 164),
)  # fmt: skip
"""matplotlib's inferno at 17 equal steps; straight lines between them are off by 7/255 at most."""


def write_png(volume: Volume, folder: Path) -> list[Path]:
    """``NAME.png``: montage of the magnitudes; ``NAME_std.png``: of the standard deviations."""
    volume = upright(volume)
    paths = [folder / f"{volume.name}.png"]
    magnitude_montage(volume).save(paths[0])
    if volume.std is not None:
        paths.append(folder / f"{volume.name}_std.png")
        std_montage(volume).save(paths[1])
    return paths


def magnitude_montage(volume: Volume, *, side: int = 256) -> Picture:
    """At most 36 slices in grey; white is the 99.8th percentile of the whole volume."""
    return montage(volume.magnitude(), volume, "magnitude", colour=False, side=side)


def std_montage(volume: Volume, *, side: int = 256) -> Picture:
    """The same slices of the standard deviation, in colour on a scale of their own."""
    assert volume.std is not None
    return montage(to_array(volume.std), volume, "standard deviation", colour=True, side=side)


def montage(values: Array, volume: Volume, label: str, *, colour: bool, side: int) -> Picture:
    """Slices in reading order, each with its index (from 0), under a head with the scale."""
    chosen, top = evenly(len(values), MOST_SLICES), window(values)
    tiles = [tile(values[k], top, volume, side=side, colour=colour) for k in chosen]
    w, h = tiles[0].size
    columns = min(len(tiles), max(1, round(math.sqrt(len(tiles) * h / w))))
    rows = math.ceil(len(tiles) / columns)
    width = max(columns * (w + _GAP) - _GAP, 340)
    sheet = Image.new("RGB", (width, _HEAD + rows * (h + _GAP) - _GAP), "black")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    count = f"{len(chosen)} of {len(values)} slices" if len(chosen) < len(values) else ""
    text = ", ".join(filter(None, (label, count)))
    draw.text((4, 4), text, fill="white", font=font)
    _scale_bar(sheet, draw, font, top, colour)
    for n, (k, picture) in enumerate(zip(chosen, tiles, strict=True)):
        row, column = divmod(n, columns)
        left, upper = column * (w + _GAP), _HEAD + row * (h + _GAP)
        sheet.paste(picture.convert("RGB"), (left, upper))
        draw.text((left + 3, upper + 1), str(k), fill="#ffd75e", font=ImageFont.load_default(11),
                  stroke_width=1, stroke_fill="black")  # fmt: skip
    return sheet


def _scale_bar(sheet: Picture, draw: Any, font: Any, top: float, colour: bool) -> None:
    """0, a bar of the scale and its end, at the right of the head."""
    end, length = f"{top:.3g}", 60
    right = sheet.width - 4 - round(draw.textlength(end, font=font))
    draw.text((right, 4), end, fill="white", font=font)
    ramp = np.tile(np.linspace(0, 1, length, dtype=np.float32), (10, 1))
    sheet.paste(shade(ramp, 1.0, colour=colour).convert("RGB"), (right - length - 5, 7))
    draw.text((right - length - 15, 4), "0", fill="white", font=font)


def evenly(n: int, most: int) -> list[int]:
    """At most ``most`` of the indices 0 … n − 1, evenly spaced, both ends among them."""
    if n <= most:
        return list(range(n))
    return [int(k) for k in np.linspace(0, n - 1, most).round()]


def window(values: Array) -> float:
    """The 99.8th percentile of what is finite; 1 where that is not above 0."""
    finite = values[np.isfinite(values)]
    top = float(np.percentile(finite, PERCENTILE)) if finite.size else 0.0
    if top <= 0 and finite.size:
        top = float(finite.max())
    return top if top > 0 else 1.0


def shade(values: Array, top: float, *, colour: bool = False) -> Picture:
    """``(h, w)`` from 0 to ``top`` as 256 greys or colours; what is not finite is the darkest."""
    share = np.nan_to_num(values / top, nan=0.0, posinf=0.0, neginf=0.0).clip(0, 1)
    return _coloured(Image.fromarray((share * 255).round().astype(np.uint8)), colour)


def _coloured(levels: Picture, colour: bool) -> Picture:
    if colour:
        levels.putpalette(palette().tobytes())
    return levels


def palette() -> NDArray[np.uint8]:
    """256 colours from black over red to light yellow."""
    at, anchors = np.linspace(0, 16, 256), np.array(_ANCHORS)
    channels = [np.interp(at, range(17), anchors[:, c]) for c in range(3)]
    return np.stack(channels, axis=1).round().astype(np.uint8)


def tile(values: Array, top: float, volume: Volume, *, side: int, colour: bool = False) -> Picture:
    """One slice, its longer edge about ``side``, in the proportions of its voxels.

    Small images of square voxels are enlarged by a whole factor, so that pixels stay pixels.
    """
    levels, (v, u, _) = shade(values, top), volume.geometry.voxel
    longest = max(levels.size)
    if math.isclose(v, u, rel_tol=0.01) and longest <= side:
        scale = side // longest
        size, method = (levels.width * scale, levels.height * scale), Image.Resampling.NEAREST
    else:
        h, w = levels.height * v, levels.width * u
        size = (max(1, round(w * side / max(h, w))), max(1, round(h * side / max(h, w))))
        method = Image.Resampling.LANCZOS
    return _coloured(levels.resize(size, method), colour)
