"""Priors that call others: on tiles, for grey images, for sets of channels, a mean of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pnpcm.core import Prior, ValueRange
from pnpcm.counted import check_prior
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.priors.base import check_image, levels, pad_to_multiple, padding_of
from pnpcm.priors.consistency import ConsistencyModel


class WrappedPrior(nn.Module):
    """A prior that calls ``prior`` and has its members; a module, so that ``.to`` moves both."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        check_prior(prior)
        self.prior = prior

    @property
    def value_range(self) -> ValueRange:
        return self.prior.value_range

    @property
    def sigma_min(self) -> float:
        return self.prior.sigma_min

    @property
    def sigma_max(self) -> float:
        return self.prior.sigma_max

    @property
    def nfe_per_call(self) -> int:
        return self.prior.nfe_per_call

    @property
    def kind(self) -> str:
        """Kind of the inner prior; an AttributeError if it has none, as for ``network``."""
        kind: str = getattr(self.prior, "kind")  # noqa: B009  # no member of the protocol
        return kind

    @property
    def network(self) -> Any:
        """The network of the inner prior."""
        return getattr(self.prior, "network")  # noqa: B009

    @property
    def info(self) -> dict[str, Any]:
        """The metadata of the inner prior."""
        info: dict[str, Any] = getattr(self.prior, "info", {})
        return info


HALO = 128
"""Largest default halo in pixels; what it changes is in the docstring of ``TiledPrior``."""


class Window(NamedTuple):
    """One axis of a tile: the prior is evaluated on ``seen``; ``kept`` of its result is used."""

    seen: slice
    kept: slice


class TiledPrior(WrappedPrior):
    """``prior`` evaluated on overlapping windows, of which the centres are used.

    ``tile``: largest side of a centre; windows have sides of at most ``tile + 2 halo``, and an
    image that fits into one is evaluated whole. Both are rounded up to multiples of the network's
    stride. The windows of an axis have equal sides, begin at multiples of the stride and are inside
    the image, so that they have the image's own borders.

    ``halo``: number of pixels around a centre that are evaluated too. With at least the network's
    receptive radius the result is that of the whole image up to rounding, and ``exact`` is True.
    None: that radius, but at most 128, since far pixels have almost no influence. Largest
    differences from the whole image at σ = 0.2 and at σ = 2, ``natural`` (radius 307), photographs
    of 640×1152: denoiser 2e-5 and 2e-4 for a halo of 96, 5e-7 (rounding) and 3e-6 for 128;
    consistency model 8e-6 and 2e-2 for 96, 4e-7 and 2e-5 for 128. A network with GroupNorm or
    attention has no such radius: a halo must be given, and tiling is approximate.

    Costs one evaluation per image in ``nfe``; k windows in an axis of n pixels evaluate
    about n + 2 (k − 1) halo. One window of one image is evaluated at a time.

    >>> prior = TiledPrior(load_prior("natural"))
    """

    def __init__(self, prior: Prior, *, tile: int = 640, halo: int | None = None) -> None:
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
        self.fixed = getattr(network, "image_size", None) is not None
        # at least two strides: padding of a narrower rest would mirror other pixels
        self.tile = max(_round_up(tile, self.stride), 2 * self.stride)
        self.halo = _round_up(min(radius or 0, HALO) if halo is None else halo, self.stride)
        self.radius = radius

    @property
    def exact(self) -> bool:
        """Whether the result is that of the whole image up to rounding."""
        return self.radius is not None and self.halo >= self.radius

    @property
    def close(self) -> bool:
        """Whether the halo is at least the default one."""
        return self.radius is not None and self.halo >= min(self.radius, HALO)

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        check_image(x)
        level = levels(sigma, x)
        rows, columns = (self.windows(n) for n in x.shape[-2:])
        if len(rows) == len(columns) == 1:
            return self.prior(x, sigma)
        out = torch.empty_like(x)
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

    def n_tiles(self, size: Sequence[int]) -> int:
        """Number of tiles of an image of height and width ``size``."""
        return math.prod(len(self.windows(n)) for n in size)

    def windows(self, n: int) -> list[Window]:
        """The windows of an axis of ``n`` pixels, of one size once the last one is padded.

        k windows that share 2 halo pixels with the next one see n + 2 (k − 1) halo in all: their
        size is a k-th of it, or the largest for a network of a fixed image size.
        """
        length, halo = _round_up(n, self.stride) // self.stride, self.halo // self.stride
        largest = self.tile // self.stride + 2 * halo
        count = max(1, -(-(length - 2 * halo) * self.stride // self.tile))
        side = largest if self.fixed else -(-(length + 2 * (count - 1) * halo) // count)
        side = min(side, length)
        starts = [k * (length - side) // max(1, count - 1) for k in range(count)]
        middles = [(a + side + b) // 2 for a, b in pairwise(starts)]  # of what two windows share
        units = [
            ((start, start + side), kept)
            for start, kept in zip(starts, pairwise([0, *middles, length]), strict=True)
        ]
        return [
            Window(*(slice(self.stride * a, min(self.stride * b, n)) for a, b in unit))
            for unit in units
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


CHANNELS = 3
SPREAD = math.sqrt(CHANNELS)


class GreyPrior(WrappedPrior):
    r"""One-channel images through an RGB ``prior``: replicate, evaluate at √3 σ, average.

    .. math:: f(x, \sigma) = \tfrac13 \textstyle\sum_c
              \text{prior}\big((x, x, x), \sqrt3\, \sigma\big)_c

    √3, because equal channels have equal noise. For independent noise of level s a prior expects
    noise s/√3 of their mean; at s = σ it would keep most of the noise as detail (a photograph
    at σ = 0.3, shipped ``natural``: 19.6 dB instead of 26.5). So ``sigma_min`` and ``sigma_max``
    are those of ``prior`` divided by √3, and f(x, sigma_min) = x still holds.

    Large images: ``TiledPrior(GreyPrior(prior))`` never holds three channels of more than a tile.
    """

    def __init__(self, prior: Prior) -> None:
        super().__init__(prior)
        channels = getattr(getattr(prior, "network", None), "in_channels", CHANNELS)
        if channels != CHANNELS:
            raise ArgumentError(
                f"prior works on images of {channels} channels, GreyPrior needs one for "
                f"{CHANNELS}; a prior for one channel needs no wrapper"
            )

    @property
    def sigma_min(self) -> float:
        return self.prior.sigma_min / SPREAD

    @property
    def sigma_max(self) -> float:
        return self.prior.sigma_max / SPREAD

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        check_image(x)
        if x.shape[1] != 1:
            raise ShapeError(
                f"x has {x.shape[1]} channels, GreyPrior takes one; "
                "give colour images to the prior inside"
            )
        return self.prior(x.expand(-1, CHANNELS, -1, -1), SPREAD * sigma).mean(1, keepdim=True)

    @classmethod
    def example(cls) -> GreyPrior:
        """GreyPrior of a tiny prior with a fixed smooth network, for the laws."""
        return cls(ConsistencyModel.example())


class SetsPrior(WrappedPrior):
    r"""A ``prior`` for C channels, evaluated on each of M images in the channels (B, M C, H, W).

    .. math:: f(x_1, \dots, x_M; \sigma) = \big(\text{prior}(x_1, \sigma), \dots,
              \text{prior}(x_M, \sigma)\big)

    For MRI with M > 1 sets of coil maps, where the operator has one complex image per set. All
    M B images are evaluated as one batch; ``nfe`` counts that as one evaluation.

    >>> PnPCM(with_sets(prior, operator.map_sets), config)(y, operator, generator=g)
    """

    def __init__(self, prior: Prior, sets: int) -> None:
        super().__init__(prior)
        if sets < 1:
            raise ArgumentError(f"sets is {sets}, expected the number of images, at least 1")
        self.sets = sets

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        check_image(x)
        batch, channels, height, width = x.shape
        if channels % self.sets:
            raise ShapeError(
                f"x has {channels} channels, which {self.sets} sets cannot share equally; "
                "give (B, sets · channels, H, W)"
            )
        if isinstance(sigma, Tensor) and sigma.numel() > 1:  # one level for all sets of an image
            sigma = levels(sigma, x).repeat_interleave(self.sets)
        parts = x.reshape(batch * self.sets, channels // self.sets, height, width)
        return self.prior(parts, sigma).reshape(x.shape)

    @classmethod
    def example(cls) -> SetsPrior:
        """Two sets through a tiny prior with a fixed smooth network."""
        return cls(ConsistencyModel.example(), 2)


class BlendedPrior(WrappedPrior):
    r"""A mean of two priors of the same images, with the weight ``share`` of the ``other``.

    .. math:: f(x, \sigma) = (1 - a)\,\text{prior}(x, \sigma) + a\,\text{other}(x, \sigma)

    From a denoiser (the mean of all images that x allows) to a consistency model (one with detail).
    Means of the best estimate and of one without loss of perception are optimal between them:
    Freirich, Michaeli & Meir, A Theory of the Distortion-Perception Tradeoff in Wasserstein Space
    (2021). Costs the evaluations of both.
    """

    kind = "blend"

    def __init__(self, prior: Prior, other: Prior, share: float) -> None:
        super().__init__(prior)
        check_prior(other)
        if prior.value_range != other.value_range:
            raise ArgumentError(
                f"other has value_range {other.value_range}, prior {prior.value_range}; "
                "both must have the same"
            )
        if not 0 <= share <= 1:
            raise ArgumentError(f"share is {share}, expected a number from 0 to 1")
        self.other, self.share = other, share

    @property
    def sigma_min(self) -> float:
        return max(self.prior.sigma_min, self.other.sigma_min)

    @property
    def sigma_max(self) -> float:
        return min(self.prior.sigma_max, self.other.sigma_max)

    @property
    def nfe_per_call(self) -> int:
        return self.prior.nfe_per_call + self.other.nfe_per_call

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return torch.lerp(self.prior(x, sigma), self.other(x, sigma), self.share)


def with_sets(prior: Prior, sets: int) -> Prior:
    """``prior`` for images of ``sets`` sets: itself for one."""
    return prior if sets == 1 else SetsPrior(prior, sets)
