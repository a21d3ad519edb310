"""Training images in an order that depends only on the seed.

Sample number n of a run is a pure function of (seed, n): image, crop, flip and, through
:func:`generator_of`, noise. A run can therefore resume from its step number, and several processes
split a batch by its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pnpcm.core import Config
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.metrics.domain import LEAST_SIDE, Domain, fit_domain
from pnpcm.names import Table
from pnpcm.places import existing
from pnpcm.training.sources import FastMRI, Folder, Lmdb, Magnitude, Npz, Source

SOURCES: Table[type[Source]] = Table(
    "source",
    {"folder": Folder, "npz": Npz, "lmdb": Lmdb, "fastmri": FastMRI, "magnitude": Magnitude},
)
DOMAIN_IMAGES = 800
"""Training images whose statistics are stored with a prior."""
FLIPS = ("none", "horizontal", "dihedral")


@dataclass(frozen=True)
class SourceConfig(Config):
    """One row of a recipe's ``sources``. ``repeat``: uses of each image per epoch."""

    kind: str
    path: str
    repeat: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def open(self, folder: Path) -> Source:
        """The source; relative paths start from the recipe's ``folder``."""
        try:
            return SOURCES[self.kind](existing(self.path, folder), **self.options)  # type: ignore[call-arg]
        except TypeError as error:
            raise ArgumentError(f"source {self.kind!r} cannot be opened: {error}") from error


def generator_of(seed: int, stream: str, n: int) -> torch.Generator:
    """The generator of sample ``n``, one for each purpose (``stream``)."""
    digest = hashlib.blake2b(f"{seed}/{stream}/{n}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


class Samples(Dataset[tuple[Tensor, int]]):
    """``samples[n]``: the n-th training image of the run in [-1, 1], and n itself.

    An epoch is a random permutation of all sources concatenated, ``repeat`` times each.
    ``crop``: side of a random square; None: the whole image.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Source, int]],
        *,
        seed: int,
        crop: int | None = None,
        flip: str = "horizontal",
    ) -> None:
        if flip not in FLIPS:
            raise ArgumentError(f"flip must be one of {', '.join(FLIPS)}, got {flip!r}")
        if not sources or any(repeat < 1 for _, repeat in sources):
            raise ArgumentError("sources must hold at least one source, each with repeat ≥ 1")
        self.seed, self.crop, self.flip = seed, crop, flip
        self._table = [
            (source, i)
            for source, repeat in sources
            for _ in range(repeat)
            for i in range(len(source))
        ]
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.long)

    def __len__(self) -> int:
        """Samples per epoch; larger numbers belong to later epochs."""
        return len(self._table)

    def __getitem__(self, n: int) -> tuple[Tensor, int]:
        epoch, position = divmod(n, len(self._table))
        if epoch != self._epoch:
            shuffle = generator_of(self.seed, "order", epoch)
            self._order = torch.randperm(len(self._table), generator=shuffle)
            self._epoch = epoch
        source, i = self._table[int(self._order[position])]
        generator = generator_of(self.seed, "image", n)
        x = self._flip(self._crop(source.image(i, generator), generator), generator)
        return (x.float() / 127.5 - 1 if x.dtype == torch.uint8 else x.float()).contiguous(), n

    def _crop(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if self.crop is None:
            return x
        height, width = x.shape[-2:]
        if min(height, width) < self.crop:
            raise ShapeError(f"an image is {height}×{width}, too small for crop {self.crop}")
        u, v = torch.rand(2, generator=generator).tolist()
        top, left = int(u * (height - self.crop + 1)), int(v * (width - self.crop + 1))
        return x[:, top : top + self.crop, left : left + self.crop]

    def _flip(self, x: Tensor, generator: torch.Generator) -> Tensor:
        heads = (torch.rand(3, generator=generator) < 0.5).tolist()
        if self.flip != "none" and heads[0]:
            x = x.flip(-1)
        if self.flip == "dihedral":
            x = x.flip(-2) if heads[1] else x
            x = x.transpose(-1, -2) if heads[2] else x
        return x


def domain_of(sources: Sequence[SourceConfig], folder: Path) -> Domain | None:
    """The domain of whole training images; None if they are too few or too small."""
    samples = Samples([(s.open(folder), s.repeat) for s in sources], seed=0, flip="none")
    count = min(DOMAIN_IMAGES, len(samples))
    images = [x for x, _ in (samples[n] for n in range(count)) if min(x.shape[-2:]) >= LEAST_SIDE]
    return fit_domain(images) if len(images) >= DOMAIN_IMAGES // 8 else None


class SampleNumbers:
    """Batches of consecutive sample numbers from ``start`` to ``stop``, in order."""

    def __init__(self, start: int, stop: int, batch: int) -> None:
        self.start, self.stop, self.batch_size, self.drop_last = start, stop, batch, True

    def __len__(self) -> int:
        return (self.stop - self.start) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for first in range(self.start, self.stop - self.batch_size + 1, self.batch_size):
            yield list(range(first, first + self.batch_size))


def loader(
    samples: Samples, *, start: int, stop: int, batch: int, workers: int = 0
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Batches ``(x, n)`` of samples ``start`` … ``stop`` − 1, which accelerate distributes."""
    return DataLoader(
        samples,  # type: ignore[arg-type]  # collated: numbers become a tensor
        batch_sampler=SampleNumbers(start, stop, batch),
        num_workers=workers,
        persistent_workers=workers > 0,
    )
