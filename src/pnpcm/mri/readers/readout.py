"""One-dimensional centred FFTs of raw data: readout oversampling off, partitions to slices."""

from __future__ import annotations

import torch
from torch import Tensor


def fft1c(x: Tensor, dim: int) -> Tensor:
    """Centred orthonormal FFT of one axis: the origin is index n//2 on both sides."""
    x = torch.fft.ifftshift(x, dim=dim)
    k: Tensor = torch.fft.fftshift(torch.fft.fft(x, dim=dim, norm="ortho"), dim=dim)
    return k


def ifft1c(k: Tensor, dim: int) -> Tensor:
    """Inverse of :func:`fft1c`."""
    k = torch.fft.ifftshift(k, dim=dim)
    x: Tensor = torch.fft.fftshift(torch.fft.ifft(k, dim=dim, norm="ortho"), dim=dim)
    return x


def centre(x: Tensor, keep: int, dim: int) -> Tensor:
    """The central ``keep`` samples of an axis: index n//2 becomes keep//2."""
    return x.narrow(dim, x.shape[dim] // 2 - keep // 2, keep)


def remove_oversampling(kspace: Tensor, keep: int) -> Tensor:
    """K-space ``(…, readout, phase)`` of the central ``keep`` image rows.

    F P F⁻¹ along the readout, F the orthonormal FFT and P the crop: white noise keeps its
    standard deviation, and columns of zeros stay exact zeros.
    """
    if keep >= kspace.shape[-2]:
        return kspace
    return fft1c(centre(ifft1c(kspace, -2), keep, -2), -2)
