"""Distance of two sets of images: the kernel distance KID on features of LPIPS's VGG."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.metrics.lpips import LPIPS

LEAST = 20
"""Images of a set below which the estimate is mostly noise."""
SUBSETS = 100


@dataclass(frozen=True)
class Kid:
    """Mean and standard deviation over ``subsets`` of ``size`` images each."""

    mean: float
    std: float
    subsets: int
    size: int


@torch.no_grad()
def vgg_features(x: Tensor) -> Tensor:
    """Means over the pixels of LPIPS's five VGG features, ``(B, 1472)``; images in [-1, 1]."""
    return LPIPS.cached("vgg").means(x.clamp(-1, 1))


def kid(x: Tensor, x_true: Tensor, *, generator: torch.Generator, subsets: int = SUBSETS) -> Kid:
    r"""KID of features ``(n, d)`` and ``(m, d)``: the squared MMD with a cubic kernel, unbiased.

    .. math::
        \widehat{MMD}^2 = \frac{1}{s(s-1)} \sum_{i \ne j} \big(k(a_i, a_j) + k(b_i, b_j)\big)
            - \frac{2}{s^2} \sum_{i,j} k(a_i, b_j), \qquad k(a, b) = (a^T b / d + 1)^3

    averaged over ``subsets`` of s images of each set, drawn without replacement; s is half of the
    smaller set. Around 0 for sets of one distribution, where it can be negative. Bińkowski et al.
    (2018) with the features of Inception; its numbers are not comparable with these.
    """
    if x.ndim != 2 or x_true.ndim != 2 or x.shape[1] != x_true.shape[1]:
        raise ShapeError(
            f"x has shape {tuple(x.shape)} and x_true {tuple(x_true.shape)}, expected features "
            "(n, d) and (m, d)"
        )
    least = min(len(x), len(x_true))
    if least < LEAST:
        raise ArgumentError(f"x and x_true have {least} images, expected {LEAST} or more")
    size = least // 2
    values = []
    for _ in range(subsets):
        a, b = (t[torch.randperm(len(t), generator=generator)[:size]].double() for t in (x, x_true))
        values.append(_mmd2(a, b))
    found = torch.stack(values)
    return Kid(float(found.mean()), float(found.std()), subsets, size)


def _mmd2(a: Tensor, b: Tensor) -> Tensor:
    """The unbiased estimate of the squared MMD of s images each."""
    s = len(a)
    within = sum(_kernel(t, t).sum() - _kernel(t, t).diagonal().sum() for t in (a, b))
    return within / (s * (s - 1)) - 2 * _kernel(a, b).mean()


def _kernel(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T / a.shape[1] + 1) ** 3
