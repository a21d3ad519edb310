"""Images of the studies: training images for searches, crops of any folder, tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.bench.reproduce import HELD_OUT
from pnpcm.io.files import read_image
from pnpcm.places import existing
from pnpcm.training.sources import PICTURES, Magnitude

NOT_TRAINED_ON = (526, 527, *HELD_OUT)
"""Subjects of IXI that validated the training of `mri`, and those of the tests."""
TEST_FACES = 50
"""The last files of `faces`, which are not used in training."""


def pictures(folder: Path) -> list[Path]:
    """Image files of a folder and its subfolders, sorted by path."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in PICTURES)


def crops(paths: Sequence[Path], count: int, side: int) -> list[Tensor]:
    """Centre crops ``(1, 3, side, side)`` of ``count`` of the files, evenly spaced."""
    chosen = paths[:: max(1, len(paths) // count)][:count]
    return [centre(read_image(p), side) for p in chosen]


def centre(x: Tensor, side: int) -> Tensor:
    """The central square of an image."""
    top, left = ((n - side) // 2 for n in x.shape[-2:])
    return x[..., top : top + side, left : left + side].contiguous()


def training_crops(domain: str, count: int = 4, side: int = 64) -> Tensor:
    """Training images of a shipped prior: crops, faces of 64×64, or crops of slices."""
    if domain == "mri":
        return centre(training_slices(count), side)
    paths = sorted(existing(f"$PNPCM_DATA/{domain}").rglob("*.jpg"))
    if domain == "faces":
        paths = paths[:-TEST_FACES]
        chosen = paths[:: len(paths) // count][:count]
        return torch.cat([F.avg_pool2d(read_image(p), 2) for p in chosen])
    return torch.cat(crops(paths, count, side))


def training_slices(count: int, *, ends: bool = False) -> Tensor:
    """Slices of training subjects of `mri`, evenly spaced, with a random phase as in training.

    ``ends``: the first and the last slice are two of them.
    """
    file = existing("$PNPCM_DATA/mri/ixi_t1_axial_128.npz")
    source = Magnitude(file, jitter=0.0, exclude={"subject": NOT_TRAINED_ON})
    last = len(source) - 1
    places = np.linspace(0, last, count) if ends else np.linspace(0, last, count + 2)[1:-1]
    numbers = places.astype(int).tolist()
    return torch.stack([source.image(i, torch.Generator().manual_seed(i)) for i in numbers])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
