"""Image files and atomic writes."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError

Picture = Image.Image


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a temporary file and rename it, so that readers see the old or the new file."""
    if not path.parent.is_dir():
        raise ArgumentError(f"path is {path}, but {path.parent} is not a folder; create it first")
    temporary = temporary_name(path)
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """A temporary path in the same folder, which :func:`remove_leftovers` recognises."""
    return path.with_name(f".pnpcm-{os.getpid()}-{secrets.token_hex(4)}.{path.name}")


def remove_leftovers(folder: Path) -> None:
    """Delete temporary files of killed processes; those of running processes are kept."""
    for path in folder.glob(".pnpcm-*-*"):
        number = path.name.split("-")[1]
        if number.isdigit() and not _is_running(int(number)):
            remove(path)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return process != os.getpid()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_image(path: str | Path) -> Tensor:
    """An 8-bit RGB image file as ``(1, 3, H, W)`` in [-1, 1]."""
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except UnidentifiedImageError as error:
        raise ArgumentError(f"{path} is not an image that Pillow can read") from error
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1


def read_array(name: str, path: Path) -> Any:
    """The array of a ``.npy`` file, or the first of an ``.npz``, given as option ``name``."""
    try:  # mapped: a header that states more values than the file has is refused, not allocated
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        return np.array(loaded) if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
    except (OSError, ValueError, EOFError, IndexError) as error:
        raise ArgumentError(f"--{name} {path} is not a readable .npy file ({error})") from error


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
