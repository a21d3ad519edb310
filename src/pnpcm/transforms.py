"""Cosine transform, centred FFT, small correlations, padding and its adjoint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError

DENSE_SIDE = 512
"""Up to this length a matrix product is faster than an FFT-based cosine transform on a CPU."""

BOUNDARIES = ("zero", "circular", "reflect")
"""Outside the image: zeros; the opposite side; the half-sample mirror image (d c b a | a b c d)."""

Pads = tuple[int, int, int, int]
"""Padding (left, right, top, bottom), in the order of ``torch.nn.functional.pad``."""

Taps = Sequence[Sequence[float]]
"""A small kernel, row by row."""


@lru_cache(maxsize=32)
def dct_matrix(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Orthonormal DCT-II: C[k, p] = √(2/n) cos(πk(p + ½)/n), row 0 divided by √2."""
    with torch.inference_mode(False):  # cached: must also be usable with autograd
        k = torch.arange(n, dtype=torch.float64)
        matrix = torch.cos(math.pi / n * k[:, None] * (k[None, :] + 0.5)) * math.sqrt(2 / n)
        matrix[0] /= math.sqrt(2)
        return matrix.to(device, dtype)


def dct(x: Tensor, dim: int = -1) -> Tensor:
    """Orthonormal cosine transform (DCT-II) along ``dim``."""
    n = x.shape[dim]
    x = x.movedim(dim, -1)
    if n <= DENSE_SIDE:
        return (x @ dct_matrix(n, x.dtype, x.device).T).movedim(-1, dim)
    # Makhoul (1980): one real FFT of the even samples followed by the odd ones reversed
    v = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1)
    w = torch.fft.rfft(v) * _twiddle(n, x)
    tail = -w.imag[..., 1 : (n + 1) // 2].flip(-1)
    y = torch.cat([w.real, tail], dim=-1) * math.sqrt(2 / n)
    y[..., 0] /= math.sqrt(2)
    return y.movedim(-1, dim)


def idct(y: Tensor, dim: int = -1) -> Tensor:
    """Inverse, and adjoint, of :func:`dct`."""
    n = y.shape[dim]
    y = y.movedim(dim, -1)
    if n <= DENSE_SIDE:
        return (y @ dct_matrix(n, y.dtype, y.device)).movedim(-1, dim)
    y = y * math.sqrt(n / 2)
    y[..., 0] *= math.sqrt(2)
    half = n // 2 + 1
    mirrored = F.pad(y[..., 1:].flip(-1), (1, 0))[..., :half]
    w = torch.complex(y[..., :half], -mirrored) * _twiddle(n, y).conj()
    v = torch.fft.irfft(w, n)
    x = torch.empty_like(y)
    x[..., ::2] = v[..., : (n + 1) // 2]
    x[..., 1::2] = v[..., (n + 1) // 2 :].flip(-1)
    return x.movedim(-1, dim)


def _twiddle(n: int, like: Tensor) -> Tensor:
    angle = -math.pi / (2 * n) * torch.arange(n // 2 + 1, dtype=torch.float64)
    return torch.polar(torch.ones_like(angle), angle).to(like.device, like.dtype.to_complex())


def dct2(x: Tensor) -> Tensor:
    """Orthonormal cosine transform of the last two axes."""
    return dct(dct(x, -1), -2)


def idct2(y: Tensor) -> Tensor:
    """Inverse of :func:`dct2`."""
    return idct(idct(y, -1), -2)


def fft2c(x: Tensor) -> Tensor:
    """Centred orthonormal FFT of the last two axes: the origin is index n//2 on both sides."""
    x = torch.fft.ifftshift(x, dim=(-2, -1))
    k: Tensor = torch.fft.fftshift(torch.fft.fft2(x, norm="ortho"), dim=(-2, -1))
    return k


def ifft2c(k: Tensor) -> Tensor:
    """Inverse, and adjoint, of :func:`fft2c`."""
    k = torch.fft.ifftshift(k, dim=(-2, -1))
    x: Tensor = torch.fft.fftshift(torch.fft.ifft2(k, norm="ortho"), dim=(-2, -1))
    return x


def fast_length(n: int) -> int:
    """Smallest even 2·2^a·3^b·5^c ≥ n, a fast length of the FFT."""
    best = int(2 ** math.ceil(math.log2(max(n, 2))))
    for p5 in range(8):
        for p3 in range(12):
            odd = 5**p5 * 3**p3
            if 2 * odd < best:
                best = min(best, int(odd * 2 ** max(1, math.ceil(math.log2(n / odd)))))
    return best


def correlate(x: Tensor, taps: Taps, stride: tuple[int, int] = (1, 1)) -> Tensor:
    """y[o, p] = Σ_ij taps[i][j] x[s_h o + i, s_w p + j], where all taps are inside ``x``.

    Computed as shifted sums: on a CPU ``conv2d`` is slow for images of one channel.
    """
    size = [
        (n - k) // s + 1
        for n, k, s in zip(x.shape[-2:], (len(taps), len(taps[0])), stride, strict=True)
    ]
    (tap, view), *others = _shifts(x, taps, size, stride)
    y = tap * view
    for tap, view in others:
        y.add_(view, alpha=tap)
    return y


def correlate_adjoint(y: Tensor, taps: Taps, stride: tuple[int, int] = (1, 1)) -> Tensor:
    """Adjoint of :func:`correlate`."""
    (height, width), (s_h, s_w) = y.shape[-2:], stride
    sides = s_h * (height - 1) + len(taps), s_w * (width - 1) + len(taps[0])
    x = y.new_zeros(*y.shape[:-2], *sides)
    for tap, view in _shifts(x, taps, y.shape[-2:], stride):
        view.add_(y, alpha=tap)
    return x


def _shifts(
    x: Tensor, taps: Taps, size: Sequence[int], stride: tuple[int, int]
) -> Iterator[tuple[float, Tensor]]:
    """Each nonzero tap with the part of ``x``, of size ``size``, that it multiplies."""
    (height, width), (s_h, s_w) = size, stride
    for i, row in enumerate(taps):
        for j, tap in enumerate(row):
            if tap:
                yield tap, x[..., i : i + s_h * height : s_h, j : j + s_w * width : s_w]


def pad(x: Tensor, pads: Pads, boundary: str) -> Tensor:
    """``x`` padded by less than its own size."""
    left, right, top, bottom = pads
    height, width = x.shape[-2:]
    if boundary == "zero":
        return F.pad(x, pads)
    if boundary == "circular":
        x = torch.cat([x[..., width - left :], x, x[..., :right]], dim=-1)
        return torch.cat([x[..., height - top :, :], x, x[..., :bottom, :]], dim=-2)
    if boundary == "reflect":
        x = torch.cat([x[..., :left].flip(-1), x, x[..., width - right :].flip(-1)], dim=-1)
        above, below = x[..., :top, :].flip(-2), x[..., height - bottom :, :].flip(-2)
        return torch.cat([above, x, below], dim=-2)
    raise ArgumentError(f"boundary must be one of {', '.join(BOUNDARIES)}, got {boundary!r}")


def pad_adjoint(g: Tensor, pads: Pads, boundary: str) -> Tensor:
    """Adjoint of :func:`pad`: padded values are added to the pixels that they were copied from."""
    g = _fold(g, pads[0], pads[1], boundary)
    return _fold(g.transpose(-1, -2), pads[2], pads[3], boundary).transpose(-1, -2)


def _fold(g: Tensor, before: int, after: int, boundary: str) -> Tensor:
    n = g.shape[-1] - before - after
    core = g[..., before : before + n]
    if boundary == "zero":
        return core
    core = core.clone()
    head, tail = g[..., :before], g[..., before + n :]
    if boundary == "circular":
        core[..., n - before :] += head
        core[..., :after] += tail
    else:
        core[..., :before] += head.flip(-1)
        core[..., n - after :] += tail.flip(-1)
    return core
