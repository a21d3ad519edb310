"""Crop: the measurement is the centre of a larger image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.arguments import check_image_shape
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators.base import DecomposableOperator
from pnpcm.transforms import fast_length

Margins = tuple[int, int, int, int]


class Crop(DecomposableOperator):
    """Remove ``margins`` (left, right, top, bottom) from an image ``(C, H, W)``.

    After a blur the borders are then unknown instead of assumed, as in a photograph;
    :func:`canvas_for` gives the size of the larger image:

    >>> canvas, margins = canvas_for(kernel, (3, 480, 640))
    >>> operator = Compose(Crop(canvas, margins), Blur(kernel, canvas, boundary="circular"))
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


def canvas_for(
    kernel: Tensor, image_shape: tuple[int, int, int]
) -> tuple[tuple[int, int, int], Margins]:
    """Shape of the padded image of a blurred photograph of ``image_shape``, and its margins.

    It contains every pixel that the photograph depends on, so that no side wraps around to the
    other; right and bottom margins are increased to fast lengths of the FFT.
    """
    if kernel.ndim != 2 or kernel.numel() == 0:
        raise ShapeError(f"kernel has shape {tuple(kernel.shape)}, expected (height, width)")
    channels, height, width = check_image_shape(image_shape)
    top, left = (side - 1 - side // 2 for side in kernel.shape)  # convolution: centre side // 2
    rows, columns = (
        fast_length(n + side - 1) for n, side in zip((height, width), kernel.shape, strict=True)
    )
    margins = (left, columns - width - left, top, rows - height - top)
    return (channels, rows, columns), margins
