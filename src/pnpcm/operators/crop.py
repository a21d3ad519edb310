"""Crop: the camera sees the middle of a larger scene."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators.base import DecomposableOperator
from pnpcm.operators.checks import check_image_shape

Margins = tuple[int, int, int, int]


class Crop(DecomposableOperator):
    """Cut ``margins`` (left, right, top, bottom) off an image ``(C, H, W)``.

    ``Compose(Crop(…), Blur(…))`` is a blur whose borders are unknown rather than assumed.
    """

    image_shape: tuple[int, int, int]

    def __init__(self, image_shape: tuple[int, int, int], margins: int | Margins) -> None:
        super().__init__()
        if isinstance(margins, int):
            margins = (margins, margins, margins, margins)
        left, right, top, bottom = margins
        self.image_shape = check_image_shape(image_shape)
        _, height, width = self.image_shape
        if min(margins) < 0 or left + right >= width or top + bottom >= height:
            raise ArgumentError(
                f"margins (left, right, top, bottom) = {margins} must be ≥ 0 and leave a pixel of "
                f"the {height}×{width} image"
            )
        self.margins: Margins = (left, right, top, bottom)

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[Crop, Tensor]:
        x = torch.rand((batch, 3, *size), generator=generator) * 2 - 1
        return cls((3, *size), (1, 2, 3, 0)), x

    @property
    def singular_values(self) -> Tensor:
        return torch.ones(1)

    def _A(self, x: Tensor) -> Tensor:
        left, right, top, bottom = self.margins
        return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right].clone()

    def _A_adjoint(self, y: Tensor) -> Tensor:
        return F.pad(y, self.margins)

    def U(self, c: Tensor) -> Tensor:
        return c

    def U_adjoint(self, y: Tensor) -> Tensor:
        return y

    def V(self, c: Tensor) -> Tensor:
        return self._A_adjoint(c)

    def V_adjoint(self, x: Tensor) -> Tensor:
        return self._A(x)

    def _check_y(self, y: Tensor) -> None:
        left, right, top, bottom = self.margins
        channels, height, width = self.image_shape
        expected = (channels, height - top - bottom, width - left - right)
        if tuple(y.shape[1:]) != expected:
            raise ShapeError(
                f"y has shape {tuple(y.shape)}, {self!r} makes (B, "
                f"{', '.join(map(str, expected))}): was y measured with another operator?"
            )
