"""Image files and atomic writes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors import SafetensorError
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.pictures import NEED, decoded
from pnpcm.io.reading import Budget, reading
from pnpcm.io.staging import staging, writing

Picture = Image.Image


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a temporary file and rename it, so that readers see the old or the new file."""
    if not path.parent.is_dir():
        raise ArgumentError(f"path is {path}, but {path.parent} is not a folder; create it first")
    with staging(path.parent) as folder:
        temporary = folder / path.name
        with writing(path):
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())  # else a rename can reach the disk before the content
        os.replace(temporary, path)


def save_tensors(path: Path, save: Callable[[Path], object]) -> None:
    """Write a file of weights atomically, with a function of torch or safetensors.

    Both report a full disk as an error of their own, which becomes an ``OSError``.
    """

    def write(temporary: Path) -> None:
        try:
            save(temporary)
        except (RuntimeError, SafetensorError) as error:
            raise OSError(
                errno.EIO, f"the weights cannot be written, is the disk full? ({error})", str(path)
            ) from error

    write_atomically(path, write)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_image(path: str | Path) -> Tensor:
    """An 8-bit RGB image file as ``(1, 3, H, W)`` in [-1, 1]."""
    with reading(path, "an image"):
        content = Path(path).read_bytes()
    pixels = np.asarray(decoded(path, content, "RGB", Budget(NEED)))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1


def to_picture(x: Tensor) -> Picture:
    """An image ``(C, H, W)`` in [-1, 1], grey or RGB, as an 8-bit Pillow image."""
    if x.ndim != 3 or x.shape[0] not in (1, 3):
        raise ShapeError(f"x has shape {tuple(x.shape)}, expected (1 or 3, H, W)")
    pixels = ((x.detach().cpu().float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    array = pixels.permute(1, 2, 0).numpy()
    return Image.fromarray(array[..., 0] if x.shape[0] == 1 else array)


def strip(panels: Sequence[tuple[str, Tensor]], *, side: int = 256) -> Picture:
    """Images ``(C, H, W)`` side by side, each resized to height ``side``, with its label above."""
    pictures = []
    for _, x in panels:
        picture = to_picture(x).convert("RGB")
        width = max(1, round(picture.width * side / picture.height))
        pictures.append(picture.resize((width, side), Image.Resampling.NEAREST))
    gap, head = 6, 20
    width = sum(p.width for p in pictures) + gap * (len(pictures) - 1)
    sheet = Image.new("RGB", (width, side + head), "white")
    draw, font, left = ImageDraw.Draw(sheet), ImageFont.load_default(13), 0
    for (label, _), picture in zip(panels, pictures, strict=True):
        draw.text((left + 2, 2), label, fill="black", font=font)
        sheet.paste(picture, (left, head))
        left += picture.width + gap
    return sheet


def side_by_side(panels: Sequence[tuple[str, Picture]]) -> Picture:
    """Images with labels above and thin lines between, in the size of the last one.

    Small images are enlarged by a whole factor, so that the labels have room.
    """
    last = panels[-1][1]
    factor = max(1, 256 // max(last.size))
    width, height = (factor * n for n in last.size)
    size = max(13, height // 50)
    gap, head = 6, 3 * size // 2
    sheet = Image.new("RGB", (len(panels) * (width + gap) - gap, head + height), "white")
    font = ImageFont.load_default(size)
    for i, (label, picture) in enumerate(panels):
        cell = Image.new("RGB", (width, head + height), "white")
        ImageDraw.Draw(cell).text((2, size // 8), label, fill="black", font=font)
        cell.paste(picture.resize((width, height), Image.Resampling.NEAREST), (0, head))
        sheet.paste(cell, (i * (width + gap), 0))
        if i:
            middle = i * (width + gap) - gap // 2
            sheet.paste("black", (middle - 1, 0, middle + 1, head + height))
    if "icc_profile" in last.info and last.mode == "RGB":
        sheet.info["icc_profile"] = last.info["icc_profile"]
    return sheet


def stack(pictures: Sequence[Picture]) -> Picture:
    """Images stacked vertically on a white background."""
    width = max(p.width for p in pictures)
    sheet, top = Image.new("RGB", (width, sum(p.height for p in pictures)), "white"), 0
    for picture in pictures:
        sheet.paste(picture, (0, top))
        top += picture.height
    return sheet


def save_picture(path: Path, picture: Picture) -> None:
    """Write a Pillow image atomically."""
    write_atomically(path, lambda temporary: picture.save(temporary))
