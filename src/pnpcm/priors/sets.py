"""SetsPrior: evaluation of a prior on several images in the channels of one."""

from __future__ import annotations

from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.priors.base import check_image, levels
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.wrapped import WrappedPrior


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


def with_sets(prior: Prior, sets: int) -> Prior:
    """``prior`` for images of ``sets`` sets: itself for one."""
    return prior if sets == 1 else SetsPrior(prior, sets)
