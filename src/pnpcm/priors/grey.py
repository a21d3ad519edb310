"""Grey images through a prior for colour images."""

from __future__ import annotations

import math

from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.priors.base import check_image
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.wrapped import WrappedPrior

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
