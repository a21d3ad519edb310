"""TiledPrior: evaluation of a prior on overlapping tiles, with the memory of one tile."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError
from pnpcm.priors.base import check_image, levels, pad_to_multiple, padding_of
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.wrapped import WrappedPrior


class Window(NamedTuple):
    """One axis of a tile: the prior is evaluated on ``seen``; ``kept`` of its result is used."""

    seen: slice
    kept: slice


class TiledPrior(WrappedPrior):
    """``prior`` evaluated on overlapping square tiles, of which the centres are used.

    ``tile``: side of the centre; ``prior`` is evaluated on squares of ``tile + 2 halo``, and on the
    whole image if it fits into one. Both are rounded up to multiples of the network's stride. Tiles
    are inside the image, at multiples of the stride, so that they have the image's own borders.
    With a halo of at least the network's receptive radius (None: that radius) the result is that of
    the whole image up to rounding, and ``exact`` is True. A network with GroupNorm or attention has
    no such radius: a halo must be given, and tiling is approximate.

    Costs one evaluation per image in ``nfe``, but (1 + 2 halo / tile)² times the work. One tile of
    one image is evaluated at a time.

    >>> prior = TiledPrior(load_prior("natural"), tile=512)
    """

    def __init__(self, prior: Prior, *, tile: int = 512, halo: int | None = None) -> None:
        super().__init__(prior)
        network = getattr(prior, "network", None)
        config = getattr(network, "config", None)
        radius: int | None = getattr(config, "receptive_radius", None)
        if halo is None and radius is None:
            why = (
                "its network depends on the whole image, through GroupNorm or attention"
                if hasattr(config, "receptive_radius")
                else "the receptive radius of its network is unknown"
            )
            raise ArgumentError(
                f"halo must be given for this {type(prior).__name__}: {why}; "
                "with halo=64 tiling is usually close"
            )
        _check_whole("tile", tile, 1)
        _check_whole("halo", halo if halo is not None else 0, 0)
        stride = getattr(network, "stride", 1)
        self.stride: int = stride if isinstance(stride, int) else 1
        self.padding = padding_of(network)
        # at least two strides: padding of a narrower rest would mirror other pixels
        self.tile = max(_round_up(tile, self.stride), 2 * self.stride)
        self.halo = _round_up(halo if halo is not None else radius or 0, self.stride)
        self.radius = radius

    @property
    def exact(self) -> bool:
        """Whether the result is that of the whole image up to rounding."""
        return self.radius is not None and self.halo >= self.radius

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        check_image(x)
        level = levels(sigma, x)
        if max(x.shape[-2:]) <= self.tile + 2 * self.halo:
            return self.prior(x, sigma)
        out = torch.empty_like(x)
        rows, columns = (self._windows(n) for n in x.shape[-2:])
        for i in range(len(x)):
            one = sigma if isinstance(sigma, int | float) else level[i : i + 1]
            for row in rows:
                for column in columns:
                    seen = x[i : i + 1, :, row.seen, column.seen]
                    made = self.prior(pad_to_multiple(seen, self.stride, self.padding), one)
                    out[i, :, row.kept, column.kept] = made[0][
                        :, _within(row.kept, row.seen), _within(column.kept, column.seen)
                    ]
        return out

    def _windows(self, n: int) -> list[Window]:
        """Windows that cover ``n`` pixels, all of one size once the last one is padded."""
        padded = _round_up(n, self.stride)
        side = min(self.tile + 2 * self.halo, padded)
        count = 1 + -(-(padded - side) // self.tile)
        starts = [min(k * self.tile, padded - side) for k in range(count)]
        cuts = [0, *(start + self.halo for start in starts[1:]), n]
        return [
            Window(slice(start, min(start + side, n)), slice(first, last))
            for start, first, last in zip(starts, cuts[:-1], cuts[1:], strict=True)
        ]

    @classmethod
    def example(cls) -> TiledPrior:
        """Tiles of nine pixels for a network that acts per pixel, for the laws."""
        return cls(ConsistencyModel.example(), tile=9, halo=0)


def _within(kept: slice, seen: slice) -> slice:
    return slice(kept.start - seen.start, kept.stop - seen.start)


def _round_up(n: int, stride: int) -> int:
    return -(-n // stride) * stride


def _check_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ArgumentError(
            f"{name} must be a whole number of pixels, at least {least}, got {value!r}"
        )
