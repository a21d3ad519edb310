"""Clean test images of a folder or an ``.npz`` file, one at a time in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.training.data import generator_of
from pnpcm.training.sources import Folder, Magnitude, Npz, Source


class Images:
    """Images ``(1, C, H, W)`` in [-1, 1] of a folder of image files or of an ``.npz`` file.

    For a prior of two channels (complex) the file holds magnitudes, which are scaled to a 99.5th
    percentile of 0.8 and given a random smooth phase, see ``training.sources.Magnitude``.
    ``size``: for priors of one size, see :func:`fit`. ``seed``: of the phases.
    """

    def __init__(
        self,
        path: Path,
        *,
        channels: int | None = None,
        size: int | None = None,
        limit: int | None = None,
        seed: int = 0,
    ) -> None:
        if limit is not None and limit < 1:
            raise ArgumentError(f"limit must be at least 1, got {limit}; leave it out for all")
        self.path, self.size, self.seed = path, size, seed
        self.source = _open(path, channels)
        self.total = len(self.source)
        self.count = self.total if limit is None else min(limit, self.total)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Tensor]:
        return (self.image(i) for i in range(self.count))

    def image(self, i: int) -> Tensor:
        """Image ``i``, independent of earlier calls."""
        x = self.source.image(i, generator_of(self.seed, "image", i))[None]
        x = x.float() / 127.5 - 1 if x.dtype == torch.uint8 else x.float()
        return x if self.size is None else fit(x, self.size)


def fit(x: Tensor, size: int) -> Tensor:
    """The centre square of ``x``, shorter side resized to ``size`` (bicubic, antialiased)."""
    if min(x.shape[-2:]) != size:
        sides = [max(size, round(n * size / min(x.shape[-2:]))) for n in x.shape[-2:]]
        x = F.interpolate(x, sides, mode="bicubic", antialias=True).clamp(-1, 1)
    top, left = ((n - size) // 2 for n in x.shape[-2:])
    return x[..., top : top + size, left : left + size].contiguous()


def _open(path: Path, channels: int | None) -> Source:
    if path.is_dir():
        if channels not in (None, 1, 3):
            raise ArgumentError(
                f"data is the folder {path}, but this prior has {channels} channels; "
                "give an .npz file, of magnitudes for a complex prior"
            )
        return Folder(path, channels=channels or 3)
    if path.suffix != ".npz":
        raise ArgumentError(f"data is {path}, expected a folder of images or an .npz file")
    return Magnitude(path, jitter=0.0) if channels == 2 else Npz(path)
