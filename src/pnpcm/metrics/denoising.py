"""Denoising PSNR of a prior per noise level."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.metrics import psnr
from pnpcm.rng import generators, randn_like


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
