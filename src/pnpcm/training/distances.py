"""DISTANCES: differentiable distances of two images, one number per image."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pnpcm.tables import Table

Distance = Callable[[Tensor, Tensor], Tensor]
HUBER = 0.00054
"""c/√P of the pseudo-Huber distance for images of P values: Song & Dhariwal (2024), sec. 3.3."""


def l2(a: Tensor, b: Tensor) -> Tensor:
    """‖a − b‖²/P, the mean square."""
    return (a - b).square().flatten(1).mean(1)


def l1(a: Tensor, b: Tensor) -> Tensor:
    """‖a − b‖₁/P, the mean absolute value."""
    return (a - b).abs().flatten(1).mean(1)


def huber(a: Tensor, b: Tensor) -> Tensor:
    """√(‖a − b‖² + c²) − c with c = 0.00054 √P: quadratic near zero, then linear."""
    c = HUBER * math.sqrt(a[0].numel())
    squares = (a - b).square().flatten(1).sum(1)
    return squares / (torch.sqrt(squares + c**2) + c)


def lpips(a: Tensor, b: Tensor) -> Tensor:
    """VGG16-LPIPS with average pooling; images below 256 px are resized to 224 first."""
    from pnpcm.metrics.lpips import LPIPS

    network = LPIPS.cached("vgg", pooling="avg", device=a.device)
    resize = 224 if min(a.shape[-2:]) < 256 else None
    distance: Tensor = network(a, b, resize=resize)
    return distance


def lpips_native(a: Tensor, b: Tensor) -> Tensor:
    """The same at the images' own size, as in scores: twelve times faster at 64 px."""
    from pnpcm.metrics.lpips import LPIPS

    distance: Tensor = LPIPS.cached("vgg", pooling="avg", device=a.device)(a, b)
    return distance


DISTANCES: Table[Distance] = Table(
    "distance",
    {"l2": l2, "l1": l1, "huber": huber, "lpips": lpips, "lpips-native": lpips_native},
)
