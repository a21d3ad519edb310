"""PSNR and SSIM against a reference, one value per image; denoising PSNR of a prior."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.core import Prior, ValueRange
from pnpcm.errors import ShapeError
from pnpcm.rng import generators, randn_like


def psnr(
    x: Tensor, x_true: Tensor, *, value_range: ValueRange = (-1.0, 1.0), clamp: bool = True
) -> Tensor:
    """10 log₁₀(1/MSE) of each image ``(B,)``, both mapped to [0, 1] and (``clamp``) clamped."""
    a, b = _unit(x, x_true, value_range, clamp)
    return -10 * torch.log10((a - b).square().flatten(1).mean(1))


def ssim(
    x: Tensor,
    x_true: Tensor,
    *,
    value_range: ValueRange = (-1.0, 1.0),
    window: int = 7,
    clamp: bool = True,
) -> Tensor:
    """Structural similarity of each image ``(B,)``, mean over channels and the valid region.

    scikit-image's convention: uniform 7×7 window, sample covariance, K₁ = 0.01, K₂ = 0.03, data
    range 1 after mapping to [0, 1]. Wang et al. (2004), eq. 13.
    """
    a, b = _unit(x, x_true, value_range, clamp)
    taps = torch.full((window,), 1 / window, dtype=torch.float64, device=x.device)
    return _ssim(a, b, taps, window**2 / (window**2 - 1)).to(x.dtype)


def ssim_gaussian(
    x: Tensor, x_true: Tensor, *, value_range: ValueRange = (-1.0, 1.0), clamp: bool = True
) -> Tensor:
    """Structural similarity with the weights of Wang et al. (2004), one value per image ``(B,)``.

    Gaussian window of 11×11 with σ = 1.5, covariance of the population, K₁ = 0.01, K₂ = 0.03, data
    range 1 after mapping to [0, 1], mean over channels and the valid region.
    """
    a, b = _unit(x, x_true, value_range, clamp)
    taps = torch.exp(-0.5 * (torch.arange(-5, 6, device=x.device).double() / 1.5) ** 2)
    return _ssim(a, b, taps / taps.sum(), 1.0).to(x.dtype)


def _ssim(a: Tensor, b: Tensor, taps: Tensor, unbias: float) -> Tensor:
    """Wang et al. (2004), eq. 13, with the separable window ``taps``."""
    window = len(taps)
    if min(a.shape[-2:]) < window:
        raise ShapeError(f"x is {a.shape[-2]}×{a.shape[-1]}, SSIM needs sides of {window} or more")
    channels = a.shape[1]
    row = taps.expand(channels, 1, 1, window)

    def mean(x: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(x, row, groups=channels), row.mT, groups=channels)

    a, b = a.double(), b.double()  # variances are differences of nearly equal values
    c1, c2 = 0.01**2, 0.03**2
    mean_a, mean_b = mean(a), mean(b)
    var_a = unbias * (mean(a * a) - mean_a**2)
    var_b = unbias * (mean(b * b) - mean_b**2)
    cov = unbias * (mean(a * b) - mean_a * mean_b)
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * cov + c2) / (var_a + var_b + c2)
    return (luminance * structure).flatten(1).mean(1)


def _unit(x: Tensor, x_true: Tensor, value_range: ValueRange, clamp: bool) -> tuple[Tensor, Tensor]:
    if x.shape != x_true.shape or x.ndim != 4:
        raise ShapeError(
            f"x has shape {tuple(x.shape)} and x_true {tuple(x_true.shape)}, "
            "expected two equal (B, C, H, W)"
        )
    low, high = value_range
    a, b = ((t - low) / (high - low) for t in (x, x_true))
    return (a.clamp(0, 1), b.clamp(0, 1)) if clamp else (a, b)


@torch.no_grad()
def denoising_psnr(
    prior: Prior, x: Tensor, sigma: float, *, batch: int = 16, **beside: Tensor
) -> float:
    """Mean PSNR of prior(x + σn, σ) over images ``(B, C, H, W)``; noise of image i from seed i.

    ``beside``: additional inputs of the prior per image, e.g. ``hint``.
    """
    scores = []
    for first in range(0, len(x), batch):
        clean = x[first : first + batch]
        noise = randn_like(clean, generators(range(first, first + len(clean))))
        shown: dict[str, Any] = {k: v[first : first + batch] for k, v in beside.items()}
        denoised = prior(clean + sigma * noise, sigma, **shown)
        scores.append(psnr(denoised, clean, value_range=prior.value_range))
    return float(torch.cat(scores).mean())
