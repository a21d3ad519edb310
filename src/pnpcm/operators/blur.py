"""Blur: convolution with any kernel, under three boundaries, solved the fastest exact way."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError, OperatorError, ShapeError
from pnpcm.operators.base import DecomposableOperator, Gamma
from pnpcm.operators.bases import (
    Basis,
    CosineBasis,
    FourierBasis,
    SeparableBasis,
    toeplitz,
)
from pnpcm.transforms import BOUNDARIES, DENSE_SIDE, fast_length, pad, pad_adjoint

DIRECT_TAPS = 200
"""A kernel with more taps than this, unless separable, is applied by FFT."""


class Blur(DecomposableOperator):
    r"""Convolution ``y = k ∗ x`` of each channel, cropped to the size of the image.

    .. math:: y[i] = \sum_j k[j]\, x[i + c - j], \qquad c = \text{side} \,//\, 2

    as ``scipy.ndimage.convolve``; the kernel need not sum to 1. Beyond the image stand zeros
    (``"zero"``), the opposite side (``"circular"``) or the half-sample mirror (``"reflect"``).

    ``prox_l2`` is closed where a basis is known: Fourier for circular; cosines for reflect with
    a kernel even in both axes; singular vectors of the 1-D factors for separable kernels on
    sides up to 512. Otherwise it is CG, preconditioned by the circular blur.
    """

    image_shape: tuple[int, int, int]

    def __init__(
        self,
        kernel: Tensor | np.ndarray[tuple[int, ...], np.dtype[np.float64]],
        image_shape: tuple[int, int, int],
        boundary: str = "zero",
    ) -> None:
        super().__init__()
        self.image_shape = (int(image_shape[0]), int(image_shape[1]), int(image_shape[2]))
        self.kernel = _check_kernel(torch.as_tensor(kernel), self.image_shape)
        if boundary not in BOUNDARIES:
            raise ArgumentError(
                f"boundary must be one of {', '.join(BOUNDARIES)}, got {boundary!r}"
            )
        self.boundary = boundary
        kh, kw = self.kernel.shape
        self.pads = (kw - 1 - kw // 2, kw // 2, kh - 1 - kh // 2, kh // 2)
        factors = _factors(self.kernel)
        self.separable = factors is not None
        if factors is not None:
            self.column, self.row = factors
        self._basis: Basis | None = None
        self._circular: FourierBasis | None = None

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[Blur, Tensor]:
        kernel = torch.rand((4, 5), generator=generator, dtype=torch.float64)
        x = torch.rand((batch, 3, *size), generator=generator) * 2 - 1
        return Blur(kernel / kernel.sum(), (3, *size)), x

    # the convolution ---------------------------------------------------------------------------
    def _A(self, x: Tensor) -> Tensor:
        padded = pad(x, self.pads, self.boundary)
        if not self.separable and self.kernel.numel() > DIRECT_TAPS:
            size, spectrum = self._padded_spectrum(padded)
            full = torch.fft.irfft2(torch.fft.rfft2(padded, s=size) * spectrum, s=size)
            kh, kw = self.kernel.shape
            valid: Tensor = full[..., kh - 1 : padded.shape[-2], kw - 1 : padded.shape[-1]]
            return valid.contiguous()
        flat = padded.reshape(-1, 1, *padded.shape[-2:])
        for weight in self._weights(x):
            flat = F.conv2d(flat, weight)
        return flat.reshape(x.shape)

    def _A_adjoint(self, y: Tensor) -> Tensor:
        kh, kw = self.kernel.shape
        if not self.separable and self.kernel.numel() > DIRECT_TAPS:
            wide = F.pad(y, (kw - 1, 0, kh - 1, 0))
            size, spectrum = self._padded_spectrum(wide)
            full = torch.fft.irfft2(torch.fft.rfft2(wide, s=size) * spectrum.conj(), s=size)
            grown = full[..., : wide.shape[-2], : wide.shape[-1]]
            return pad_adjoint(grown, self.pads, self.boundary).contiguous()
        flat = y.reshape(-1, 1, *y.shape[-2:])
        for weight in self._weights(y):  # full correlation = padded convolution with the flip
            flat = F.conv2d(
                flat, weight.flip(-2, -1), padding=(weight.shape[-2] - 1, weight.shape[-1] - 1)
            )
        grown = flat.reshape(*y.shape[:2], *flat.shape[-2:])
        return pad_adjoint(grown, self.pads, self.boundary).contiguous()

    def _weights(self, x: Tensor) -> list[Tensor]:
        """Flipped kernel for ``conv2d``, which correlates; two 1-D ones where separable."""
        if not self.separable:
            return [self._like("kernel", x).flip(0, 1)[None, None]]
        column, row = self._like("column", x), self._like("row", x)
        return [column.flip(0)[None, None, :, None], row.flip(0)[None, None, None, :]]

    def _padded_spectrum(self, padded: Tensor) -> tuple[tuple[int, int], Tensor]:
        size = (fast_length(padded.shape[-2]), fast_length(padded.shape[-1]))
        return size, torch.fft.rfft2(self._like("kernel", padded), s=size)

    # the decomposition -------------------------------------------------------------------------
    @property
    def decomposed(self) -> bool:
        """Whether a basis is known in which this blur is diagonal."""
        small = max(self.image_shape[1:]) <= DENSE_SIDE
        return (
            self.boundary == "circular"
            or (self.boundary == "reflect" and _is_even(self.kernel))
            or (self.separable and small)
        )

    @property
    def basis(self) -> Basis:
        """The basis, built when first asked for and then kept."""
        if self._basis is None:
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

    def _precondition(self, r: Tensor, gamma: Gamma) -> Tensor:
        if self._circular is None:
            _, height, width = self.image_shape
            self._circular = FourierBasis(self.kernel, (height, width))
        s = self._circular._like("singular_values", r)
        return self._circular.V(self._circular.V_adjoint(r) / (1 + gamma * s**2))

    def _check_y(self, y: Tensor) -> None:
        if tuple(y.shape[1:]) != self.image_shape:
            raise ShapeError(
                f"y has shape {tuple(y.shape)}, {self!r} makes (B, "
                f"{', '.join(map(str, self.image_shape))}): "
                "was y measured with another operator?"
            )


class GaussianBlur(Blur):
    r"""Separable Gaussian blur with zero borders; the paper's default is 5×5 with σ = 10.

    ``reference=True`` is the operator of the authors' released code, inherited from DDRM: 1-D
    singular values below 0.03 are set to zero, and the sorted 2-D values are *tiled* over the
    channels instead of repeated, so that the component of rank r in channel c gets the value of
    rank (C r + c) mod HW. Published "Gaussian deblurring" numbers of PnP-CM and CM4IR belong to
    that operator; it is not a blur (12 % off on the test image). The default is the true one.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        size: int = 5,
        sigma: float = 10.0,
        *,
        reference: bool = False,
    ) -> None:
        if size < 1:
            raise ArgumentError(f"size must be at least 1, got {size}")
        if not sigma > 0:
            raise ArgumentError(f"sigma must be positive, got {sigma}")
        taps = gaussian_taps(size, sigma)
        super().__init__(taps[:, None] * taps[None, :], image_shape)
        self.size, self.sigma, self.reference = size, sigma, reference

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[GaussianBlur, Tensor]:
        x = torch.rand((batch, 3, *size), generator=generator) * 2 - 1
        return cls((3, *size)), x

    def _A(self, x: Tensor) -> Tensor:
        return DecomposableOperator._A(self, x) if self.reference else super()._A(x)

    def _A_adjoint(self, y: Tensor) -> Tensor:
        if self.reference:
            return DecomposableOperator._A_adjoint(self, y)
        return super()._A_adjoint(y)

    @property
    def decomposed(self) -> bool:
        return self.reference or super().decomposed

    def _build_basis(self) -> Basis:
        if not self.reference:
            return super()._build_basis()
        channels, height, width = self.image_shape
        B_h, B_w = toeplitz(self.column, height, "zero"), toeplitz(self.row, width, "zero")
        basis = SeparableBasis(B_h, B_w, cut=0.03)
        values, order = basis.singular_values.flatten().sort(descending=True, stable=True)
        rank, channel = torch.arange(height * width), torch.arange(channels)
        tiled = values[(channels * rank[None, :] + channel[:, None]) % values.numel()]
        scrambled = torch.empty_like(tiled).scatter_(1, order.expand_as(tiled), tiled)
        basis.singular_values = scrambled.reshape(channels, height, width)
        return basis


def gaussian_taps(size: int, sigma: float) -> Tensor:
    """exp(−i²/2σ²) for i centred on ``size // 2``, divided by the sum."""
    i = torch.arange(size, dtype=torch.float64) - size // 2
    taps = torch.exp(-(i**2) / (2 * sigma**2))
    return taps / taps.sum()


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
    return kernel.detach().cpu().double()


def _factors(kernel: Tensor) -> tuple[Tensor, Tensor] | None:
    """Column and row with kernel = column · rowᵀ, or None where the rank is above one."""
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
