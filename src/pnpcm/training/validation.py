"""How well a prior denoises, and how consistent it is: one number per noise level."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.metrics import psnr
from pnpcm.rng import generators, randn_like


@torch.no_grad()
def denoising_psnr(prior: Prior, x: Tensor, sigma: float, *, batch: int = 16) -> float:
    """Mean PSNR of prior(x + σn, σ) over images ``(B, C, H, W)``; noise of image i from seed i."""
    scores = [
        psnr(prior(noisy, sigma), clean, value_range=prior.value_range)
        for clean, noisy in _noisy(x, sigma, batch)
    ]
    return float(torch.cat(scores).mean())


@torch.no_grad()
def consistency_error(prior: Prior, x: Tensor, t: float, s: float, *, batch: int = 16) -> float:
    """Root mean square of f(x + tn, t) − f(x + sn, s) with the same noise, over all images.

    Zero would mean that both levels lead to the same image, which only the points of one
    trajectory do; x + sn is its straight line, exact as t − s → 0.
    """
    pairs = zip(_noisy(x, t, batch), _noisy(x, s, batch), strict=True)
    squares = [(prior(a, t) - prior(b, s)).square().flatten(1).mean(1) for (_, a), (_, b) in pairs]
    return float(torch.cat(squares).mean().sqrt())


def _noisy(x: Tensor, sigma: float, batch: int) -> list[tuple[Tensor, Tensor]]:
    numbers = range(len(x))
    return [
        (part, part + sigma * randn_like(part, generators(numbers[first : first + batch])))
        for first in range(0, len(x), batch)
        for part in [x[first : first + batch]]
    ]
