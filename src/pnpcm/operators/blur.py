"""Blur: convolution with any kernel and three boundaries; exact prox by FFT, DCT, SVD or CG.

Kernels sum to 1; the centre is at size // 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pnpcm.arguments import Gamma, check_image_shape
from pnpcm.errors import ArgumentError, OperatorError, ShapeError
from pnpcm.operators.base import DecomposableOperator
from pnpcm.operators.bases import (
    Basis,
    CosineBasis,
    FourierBasis,
    SeparableBasis,
    toeplitz,
)
from pnpcm.transforms import (
    BOUNDARIES,
    correlate,
    correlate_adjoint,
    fast_length,
    pad,
    pad_adjoint,
)

# kernels -----------------------------------------------------------------------------------------
WIDEST_KERNEL = 1024
"""Pixels of the longest blur. A choice: no image has a longer one, and a number such as 1e9 is
refused before the memory of its kernel is asked for."""


def check_gaussian(size: float, sigma: float) -> None:
    """Refuse a size that is not a whole number of taps, and a sigma that is not positive."""
    if not (0 < size <= WIDEST_KERNEL and int(size) == size):
        raise ArgumentError(f"size must be a whole number of 1 to {WIDEST_KERNEL} taps, got {size}")
    if not 0 < sigma < math.inf:
        raise ArgumentError(f"sigma must be positive, in pixels, got {sigma}")


def check_motion(length: float, angle: float) -> None:
    """Refuse a motion that is not finite, shorter than a pixel or longer than any blur."""
    if not 1 <= length <= WIDEST_KERNEL:
        raise ArgumentError(f"length is {length}, expected 1 (no blur) to {WIDEST_KERNEL} pixels")
    if not math.isfinite(angle):
        raise ArgumentError(f"angle is {angle}, expected degrees, for example 30")


def gaussian_kernel(size: int, sigma: float) -> Tensor:
    """Gaussian of ``size`` × ``size`` taps and ``sigma`` pixels: the outer product of its taps."""
    check_gaussian(size, sigma)
    taps = gaussian_taps(int(size), sigma)
    return taps[:, None] * taps[None, :]


def gaussian_taps(size: int, sigma: float) -> Tensor:
    """exp(−i²/2σ²) for i centred on ``size // 2``, divided by the sum."""
    i = torch.arange(size, dtype=torch.float64) - size // 2
    taps = torch.exp(-(i**2) / (2 * sigma**2))
    return taps / taps.sum()


def motion_kernel(length: float, angle: float) -> Tensor:
    """Anti-aliased line: weight max(0, 1 − d) at distance d from a segment, sum 1.

    ``length`` in pixels (1: no blur; odd lengths along an axis are that many equal taps),
    ``angle`` in degrees, counter-clockwise from the horizontal.
    """
    check_motion(length, angle)
    half = math.ceil((length - 1) / 2)
    offsets = torch.arange(-half, half + 1, dtype=torch.float64)
    row, column = offsets[:, None], offsets[None, :]
    across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    along = (across * column - up * row).clamp(-(length - 1) / 2, (length - 1) / 2)
    distance = torch.hypot(column - along * across, row + along * up)
    weights = (1 - distance).clamp_min(0)
    return weights / weights.sum()


# operator ----------------------------------------------------------------------------------------
DIRECT_TAPS = 32
"""Kernels of more taps (height + width if separable) are applied by FFT, which is then faster."""

SEPARABLE_SIDE = 2048
"""Up to this side separable kernels are solved by their singular vectors. A choice: at 1500² that
was about six times as fast as CG, and the decomposition took as long as two planes by CG, on one
machine with one kernel. Its time grows with the cube of the side, so that CG wins at some larger
side, which was not measured."""

PLANES_AT_ONCE = 1 << 22
"""Number of values solved together; larger images are solved channel by channel."""


class Blur(DecomposableOperator):
    r"""Convolution ``y = k ∗ x`` of each channel, cropped to the size of the image.

    .. math:: y[i] = \sum_j k[j]\, x[i + c - j], \qquad c = \text{side} \,//\, 2

    as ``scipy.ndimage.convolve``; the kernel need not sum to 1. The image is continued by zeros
    (``"zero"``), the opposite side (``"circular"``) or the half-sample mirror (``"reflect"``).

    ``prox_l2`` is closed if a basis is known: Fourier for circular; cosines for reflect with
    a kernel even in both axes; singular vectors of the 1-D factors for separable kernels on
    sides up to 2048. Otherwise it is CG, preconditioned by the circular blur. Channels are solved
    separately.
    """

    image_shape: tuple[int, int, int]

    def __init__(
        self,
        kernel: Tensor | np.ndarray[tuple[int, ...], np.dtype[np.float64]],
        image_shape: tuple[int, int, int],
        boundary: str = "zero",
    ) -> None:
        super().__init__()
        self.image_shape = check_image_shape(image_shape)
        self.kernel = _check_kernel(torch.as_tensor(kernel), self.image_shape)
        if boundary not in BOUNDARIES:
            raise ArgumentError(
                f"boundary must be one of {', '.join(BOUNDARIES)}, got {boundary!r}"
            )
        self.boundary = boundary
        kh, kw = self.kernel.shape
        self.pads = (kw - 1 - kw // 2, kw // 2, kh - 1 - kh // 2, kh // 2)
        self.fast_size = (
            fast_length(self.image_shape[1] + kh - 1),
            fast_length(self.image_shape[2] + kw - 1),
        )
        passes = [self.kernel]
        factors = _factors(self.kernel)
        self.separable = factors is not None
        if factors is not None:
            self.column, self.row = factors
            passes = [self.column[:, None], self.row[None, :]]
        self.passes = [taps.flip(0, 1).tolist() for taps in passes]  # flipped for correlation
        self.direct = sum(int(taps.count_nonzero()) for taps in passes) <= DIRECT_TAPS
        self.planar = True
        """Whether all channels have the same blur, so that each can be solved alone."""
        self._basis: Basis | None = None

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[Blur, Tensor]:
        kernel = torch.rand((4, 5), generator=generator, dtype=torch.float64)
        x = torch.rand((batch, 3, *size), generator=generator) * 2 - 1
        return Blur(kernel / kernel.sum(), (3, *size)), x

    # the convolution ---------------------------------------------------------------------------
    def _A(self, x: Tensor) -> Tensor:
        grown = pad(x, self.pads, self.boundary)
        if not self.direct:
            return self._filter(grown, self._like("_spectrum", x), x.shape[-2:])
        for taps in self.passes:
            grown = correlate(grown, taps)
        return grown

    def _A_adjoint(self, y: Tensor) -> Tensor:
        if self.direct:
            grown = y
            for taps in reversed(self.passes):
                grown = correlate_adjoint(grown, taps)
        else:
            (height, width), (kh, kw) = y.shape[-2:], self.kernel.shape
            size = (height + kh - 1, width + kw - 1)
            grown = self._filter(y, self._like("_spectrum", y).conj(), size)
        return pad_adjoint(grown, self.pads, self.boundary).contiguous()

    @property
    def _spectrum(self) -> Tensor:
        """Spectrum of the kernel with its last tap at the origin: valid values begin at index 0."""
        canvas = self.kernel.new_zeros(self.fast_size)
        canvas[: self.kernel.shape[0], : self.kernel.shape[1]] = self.kernel
        shift = [1 - side for side in self.kernel.shape]
        spectrum: Tensor = torch.fft.rfft2(canvas.roll(shift, (0, 1)))
        return spectrum

    def _filter(self, x: Tensor, spectrum: Tensor, size: Sequence[int]) -> Tensor:
        """``x`` multiplied by ``spectrum``; the first ``size`` values have no wrap-around."""
        c = torch.fft.rfft2(x, s=self.fast_size).mul_(spectrum)
        full: Tensor = torch.fft.irfft2(c, s=self.fast_size)
        return full[..., : size[0], : size[1]].contiguous()

    # the decomposition -------------------------------------------------------------------------
    @property
    def decomposed(self) -> bool:
        """Whether a basis is known in which this blur is diagonal."""
        small = max(self.image_shape[1:]) <= SEPARABLE_SIDE
        return (
            self.boundary == "circular"
            or (self.boundary == "reflect" and _is_even(self.kernel))
            or (self.separable and small)
        )

    @property
    def basis(self) -> Basis:
        """The basis, built at the first use and cached."""
        if self._basis is None:
            with torch.inference_mode(False):  # cached: must also be usable with autograd
                self._basis = self._build_basis()
        return self._basis

    def _build_basis(self) -> Basis:
        _, height, width = self.image_shape
        if self.boundary == "circular":
            return FourierBasis(self.kernel, (height, width))
        if self.boundary == "reflect" and _is_even(self.kernel):
            return CosineBasis(self.kernel, (height, width))
        if self.separable:
            return SeparableBasis(
                toeplitz(self.column, height, self.boundary),
                toeplitz(self.row, width, self.boundary),
            )
        raise OperatorError(
            f"{self!r} with boundary {self.boundary!r} and this kernel has no known singular "
            "vectors; use prox_l2 and A_dagger, or boundary='circular'"
        )

    @property
    def singular_values(self) -> Tensor:
        return self.basis.singular_values

    def U(self, c: Tensor) -> Tensor:
        return self.basis.U(c)

    def U_adjoint(self, y: Tensor) -> Tensor:
        return self.basis.U_adjoint(y)

    def V(self, c: Tensor) -> Tensor:
        return self.basis.V(c)

    def V_adjoint(self, x: Tensor) -> Tensor:
        return self.basis.V_adjoint(x)

    def _residual_coefficients(self, z: Tensor, y: Tensor) -> Tensor:
        """Uᵀ(y − Az), as Uᵀy − S Vᵀz if A itself needs transforms."""
        if self.direct:
            return super()._residual_coefficients(z, y)
        return self.U_adjoint(y) - self._like("singular_values", z) * self.V_adjoint(z)

    def _prox_l2(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        if not self.planar:
            return super()._prox_l2(z, y, gamma)
        return each_plane(super()._prox_l2, z, y, gamma)

    @property
    def _power(self) -> Tensor:
        """|K̂|² of the circular blur."""
        _, height, width = self.image_shape
        power: Tensor = FourierBasis(self.kernel, (height, width)).singular_values.square()
        return power

    def _precondition(self, r: Tensor, gamma: Gamma) -> Tensor:
        c = torch.fft.rfft2(r).div_(1 + gamma * self._like("_power", r))
        d: Tensor = torch.fft.irfft2(c, s=r.shape[-2:])
        return d

    def _check_y(self, y: Tensor) -> None:
        if tuple(y.shape[1:]) != self.image_shape:
            raise ShapeError(
                f"y has shape {tuple(y.shape)}, {self!r} makes (B, "
                f"{', '.join(map(str, self.image_shape))}): "
                "was y measured with another operator?"
            )


def each_plane(
    prox: Callable[[Tensor, Tensor, Gamma], Tensor], z: Tensor, y: Tensor, gamma: Gamma
) -> Tensor:
    """``prox(z, y, gamma)`` with each channel as an image ``(1, H, W)``, a few at a time."""
    z_planes, y_planes = z.reshape(-1, 1, *z.shape[2:]), y.reshape(-1, 1, *y.shape[2:])
    x = torch.empty_like(z_planes)
    at_once = max(1, PLANES_AT_ONCE // z[0, 0].numel())
    for start in range(0, len(x), at_once):
        part = slice(start, start + at_once)
        weight = gamma
        if isinstance(gamma, Tensor):  # one number per image, repeated for its planes
            weight = gamma.repeat_interleave(z.shape[1], 0)[part]
        x[part] = prox(z_planes[part], y_planes[part], weight)
    return x.reshape(z.shape)


def _check_kernel(kernel: Tensor, image_shape: tuple[int, int, int]) -> Tensor:
    if kernel.ndim != 2 or kernel.numel() == 0:
        raise ShapeError(f"kernel has shape {tuple(kernel.shape)}, expected (height, width)")
    if kernel.is_complex() or not bool(torch.isfinite(kernel).all()):
        raise ArgumentError("kernel must hold finite real numbers, got complex, NaN or infinity")
    if not bool(kernel.any()):
        raise ArgumentError("kernel is zero everywhere; a blur needs at least one tap")
    if kernel.shape[0] > image_shape[1] or kernel.shape[1] > image_shape[2]:
        raise ShapeError(
            f"kernel is {kernel.shape[0]}×{kernel.shape[1]}, larger than the image "
            f"{image_shape[1]}×{image_shape[2]}; crop the kernel or pad the image"
        )
    return kernel.detach().cpu().double().clone()


def _factors(kernel: Tensor) -> tuple[Tensor, Tensor] | None:
    """Column and row with kernel = column · rowᵀ, or None if the rank is above one."""
    U, s, Vh = torch.linalg.svd(kernel)
    if s.numel() > 1 and float(s[1]) > 1e-7 * float(s[0]):
        return None
    column, row = U[:, 0] * s[0], Vh[0]
    scale = row.sum() if abs(float(row.sum())) > 1e-3 * float(row.abs().sum()) else row.norm()
    return column * scale, row / scale


def _is_even(kernel: Tensor) -> bool:
    odd_sides = all(side % 2 for side in kernel.shape)
    return odd_sides and all(
        torch.allclose(kernel, kernel.flip(axis), rtol=1e-9, atol=0) for axis in (0, 1)
    )
