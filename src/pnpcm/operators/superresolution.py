"""Super-resolution: reduction by an integer factor, antialiased bicubic or by cell means."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pnpcm.arguments import check_image_shape
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators.base import DecomposableOperator
from pnpcm.transforms import (
    DENSE_SIDE,
    correlate,
    correlate_adjoint,
    dct2,
    idct2,
    pad,
    pad_adjoint,
)


class SuperResolution(DecomposableOperator):
    r"""Reduction by ``factor`` with mirrored borders: ``A(x) = D_H x D_Wᵀ`` per channel.

    .. math:: D[o, p] \propto h\big((p - fo - (f-1)/2) / f\big), \quad \text{rows sum to 1}

    and half-sample symmetric borders. ``downsampler``: ``"bicubic"``, h the Keys kernel with
    a = −½ (as in image software), or ``"area"``, h = 1 on [−½, ½]: the mean of each cell of
    factor × factor pixels (a sensor with larger pixels). With these borders D Dᵀ is diagonal in
    the cosine basis of the small image (1/f for area), in which all systems are solved:

    .. math:: \operatorname{prox}(z) = z + A^T C^T \frac{\gamma}{1 + \gamma s^2} C\,(y - A z)

    Large images are filtered, small ones multiplied by D: equal up to rounding.
    """

    image_shape: tuple[int, int, int]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        factor: int = 4,
        *,
        downsampler: str = "bicubic",
    ) -> None:
        super().__init__()
        self.image_shape = check_image_shape(image_shape)
        _, height, width = self.image_shape
        if not isinstance(factor, int) or factor < 1:
            raise ArgumentError(f"factor must be a positive whole number, got {factor!r}")
        if height % factor or width % factor:
            raise ShapeError(
                f"image_shape {tuple(image_shape)} has sides not divisible by factor {factor}; "
                "pad or crop the image first"
            )
        if downsampler not in DOWNSAMPLERS:
            raise ArgumentError(
                f"downsampler is {downsampler!r}, expected one of {', '.join(DOWNSAMPLERS)}; "
                "for other filters use Compose of Blur and SuperResolution"
            )
        self.factor, self.downsampler = factor, downsampler
        self.offset, taps = DOWNSAMPLERS[downsampler](factor)
        self.taps = taps.tolist()
        s_h, s_w = (singular_values(n, factor, downsampler) for n in (height, width))
        self.values = s_h[:, None] * s_w[None, :]
        self.dense = tuple(n <= 2 * DENSE_SIDE or n < 4 * factor for n in (height, width))
        self.D_h, self.D_w = (
            reduction_matrix(n, factor, downsampler) if dense else torch.empty(0)
            for n, dense in zip((height, width), self.dense, strict=True)
        )

    def __repr__(self) -> str:
        size = "×".join(map(str, self.image_shape))
        return f"SuperResolution({size}, factor {self.factor}, {self.downsampler})"

    @property
    def preset_options(self) -> dict[str, Any]:
        named = {} if self.downsampler == "bicubic" else {"downsampler": self.downsampler}
        return {"factor": self.factor} | named

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[SuperResolution, Tensor]:
        factor = next((f for f in (4, 3, 2, 5) if not (size[0] % f or size[1] % f)), 1)
        x = torch.rand((batch, 3, *size), generator=generator) * 2 - 1
        return cls((3, *size), factor), x

    def _A(self, x: Tensor) -> Tensor:
        before, after = self._borders()
        if self.dense[0]:
            x = self._like("D_h", x) @ x
        else:
            x = pad(x, (0, 0, before, after), "reflect")
            x = correlate(x, [[tap] for tap in self.taps], (self.factor, 1))
        if self.dense[1]:
            return x @ self._like("D_w", x).T
        x = pad(x, (before, after, 0, 0), "reflect")
        return correlate(x, [self.taps], (1, self.factor))

    def _A_adjoint(self, y: Tensor) -> Tensor:
        before, after = self._borders()
        if self.dense[1]:
            x = y @ self._like("D_w", y)
        else:
            x = correlate_adjoint(y, [self.taps], (1, self.factor))
            x = pad_adjoint(x, (before, after, 0, 0), "reflect")
        if self.dense[0]:
            return self._like("D_h", x).T @ x
        x = correlate_adjoint(x, [[tap] for tap in self.taps], (self.factor, 1))
        return pad_adjoint(x, (0, 0, before, after), "reflect")

    def _borders(self) -> tuple[int, int]:
        """Pixels that the first and the last output look at beyond the image."""
        return -self.offset, self.offset + len(self.taps) - self.factor

    @property
    def singular_values(self) -> Tensor:
        return self.values

    def U(self, c: Tensor) -> Tensor:
        return idct2(c)

    def U_adjoint(self, y: Tensor) -> Tensor:
        return dct2(y)

    def V(self, c: Tensor) -> Tensor:
        return self._A_adjoint(idct2(c / self._like("singular_values", c)))

    def V_adjoint(self, x: Tensor) -> Tensor:
        return dct2(self._A(x)) / self._like("singular_values", x)

    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        self._check_y(y)
        return (y.shape[0], *self.image_shape)

    def _check_y(self, y: Tensor) -> None:
        channels, height, width = self.image_shape
        expected = (channels, height // self.factor, width // self.factor)
        if tuple(y.shape[1:]) != expected:
            raise ShapeError(
                f"y has shape {tuple(y.shape)}, {self!r} makes "
                f"(B, {', '.join(map(str, expected))}): was y measured with another operator?"
            )


def bicubic_taps(factor: int) -> tuple[int, Tensor]:
    """Position of the first tap relative to ``factor·o``, and the taps, which sum to 1."""
    centre = (factor - 1) / 2
    first = math.ceil(centre - 2 * factor + 1e-9)
    last = math.floor(centre + 2 * factor - 1e-9)
    positions = torch.arange(first, last + 1, dtype=torch.float64)
    taps = keys_kernel((positions - centre) / factor)
    return first, taps / taps.sum()


def area_taps(factor: int) -> tuple[int, Tensor]:
    """The mean of a cell: ``factor`` taps of 1/factor, from the cell's first pixel on."""
    return 0, torch.full((factor,), 1 / factor, dtype=torch.float64)


DOWNSAMPLERS: dict[str, Callable[[int], tuple[int, Tensor]]] = {
    "bicubic": bicubic_taps,
    "area": area_taps,
}
"""First tap and taps of each downsampler, as a function of the factor."""


def keys_kernel(v: Tensor) -> Tensor:
    """Cubic convolution kernel with a = −½, support [−2, 2]. Keys (1981), eq. 15."""
    v = v.abs()
    inside = 1.5 * v**3 - 2.5 * v**2 + 1
    outside = -0.5 * v**3 + 2.5 * v**2 - 4 * v + 2
    return torch.where(v <= 1, inside, torch.where(v < 2, outside, 0))


def reduction_matrix(n: int, factor: int, downsampler: str = "bicubic") -> Tensor:
    """D ``(n/factor, n)`` with half-sample mirrored borders; contributions add up."""
    first, taps = DOWNSAMPLERS[downsampler](factor)
    outputs = torch.arange(n // factor)[:, None]
    p = (factor * outputs + first + torch.arange(taps.numel())) % (2 * n)
    p = torch.where(p < n, p, 2 * n - 1 - p)
    matrix = torch.zeros(n // factor, n, dtype=torch.float64)
    return matrix.scatter_add_(1, p, taps.expand_as(p))


def singular_values(n: int, factor: int, downsampler: str = "bicubic") -> Tensor:
    r"""Singular values of D in the cosine basis of the small signal, m = n/factor of them.

    D takes the cosine of index k to H(πk/n) times the one of index l that k aliases to, so
    s_l² = 1/f Σ_{k→l} H(πk/n)² w_k/w_l with w_0 = ½ and w_k = 1 otherwise; H is the frequency
    response of the taps. k = m, 3m, … fall on the zeros of the sampling and drop out.
    """
    first, taps = DOWNSAMPLERS[downsampler](factor)
    m, k = n // factor, torch.arange(n)
    distance = first + torch.arange(taps.numel(), dtype=torch.float64) - (factor - 1) / 2
    response = torch.cos(math.pi / n * k.double()[:, None] * distance) @ taps
    weight = torch.where(k == 0, 0.5, 1.0).double()
    alias = k % (2 * m)
    alias = torch.where(alias > m, 2 * m - alias, alias)
    seen = alias < m
    squares = torch.zeros(m, dtype=torch.float64)
    squares.index_add_(0, alias[seen], (response**2 * weight)[seen] / factor)
    return (squares / weight[:m]).sqrt()
