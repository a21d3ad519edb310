"""Smooth extension of known pixels into the missing ones: biharmonic with tension."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.linalg import TENSION, cg, laplacian

MAX_ITER = 300
"""Largest number of iterations of CG; wide holes may end before the tolerance."""


def extension(y: Tensor, mask: Tensor, *, tension: float = TENSION, tol: float = 1e-5) -> Tensor:
    """``y`` ``(B, C, H, W)`` with missing pixels replaced by the extension of the known ones.

    ``mask`` (1 = known): ``(1|B, 1|C, H, W)``. Computed in float64 on the CPU; a plane
    without a known pixel becomes 0. ``tol``: relative residual at which CG stops.
    """
    known, values = mask.cpu().bool(), y.detach().cpu().double()  # MPS has no float64
    x = torch.empty_like(values)
    for b in range(known.shape[0]):
        for c in range(known.shape[1]):
            part = (
                slice(None) if known.shape[0] == 1 else slice(b, b + 1),
                slice(None) if known.shape[1] == 1 else slice(c, c + 1),
            )
            planes = values[part].flatten(0, 1)
            x[part] = _extended(planes, known[b, c], tension, tol).reshape(values[part].shape)
    return torch.where(known.to(y.device), y, x.to(y))


def _extended(y: Tensor, known: Tensor, tension: float, tol: float) -> Tensor:
    r"""The extension of planes ``(P, H, W)`` into the pixels U that are not ``known`` ``(H, W)``.

    .. math:: (L^2 x + \tau L x)_U = 0, \quad x = y \text{ on known pixels,}

    with L the Laplacian of the pixel grid (5 points, mirrored borders) and τ the ``tension``:
    nearly biharmonic in holes narrower than 1/√τ pixels, harmonic in wide ones. Values are limited
    to the range of the known pixels of the plane. CG starts at the extension of the image of half
    the size, which determines the low frequencies of wide holes.
    """
    y = torch.where(known, y, 0)
    if bool(known.all()) or not bool(known.any()):
        return y
    hole = ~known
    start = _doubled(_extended(*_halved(y, known), 4 * tension, tol), known.shape)
    near = F.max_pool2d(hole[None].double(), 3, stride=1, padding=1)[0] > 0
    missing = hole[near]
    inner = _Laplacian(near)

    def normal(p: Tensor) -> Tensor:
        return missing * inner(inner(p) + tension * p)

    right = missing * -laplacian(laplacian(y) + tension * y)[:, near]
    found = cg(normal, right, x_init=missing * start[:, near], max_iter=MAX_ITER, tol=tol)
    seen = y[:, known]
    limits = seen.amin(1, keepdim=True), seen.amax(1, keepdim=True)
    y[:, hole] = found[:, missing].clamp(*limits)
    return y


class _Laplacian:
    """L of images that are 0 outside the pixels ``near`` ``(H, W)``, as vectors of these pixels."""

    def __init__(self, near: Tensor) -> None:
        count = int(near.sum())
        number = torch.full(near.shape, count, device=near.device)  # count: a pixel with value 0
        number[near] = torch.arange(count, device=near.device)
        around = F.pad(number, (1, 1, 1, 1), value=-1).unfold(0, 3, 1).unfold(1, 3, 1)
        four = around[near][:, [0, 1, 1, 2], [1, 0, 2, 1]]
        self.degree = (four >= 0).sum(1).double()
        self.neighbours = four.masked_fill(four < 0, count).unbind(1)

    def __call__(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 1))
        out = self.degree * x
        for index in self.neighbours:
            out -= padded.index_select(1, index)
        return out


def _halved(y: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Means of the known pixels of 2×2 blocks, and the blocks that have one."""
    size = {"kernel_size": 2, "ceil_mode": True, "count_include_pad": False}
    share = F.avg_pool2d(known[None].double(), **size)[0]  # type: ignore[arg-type]
    total = F.avg_pool2d(y, **size)  # type: ignore[arg-type]
    return torch.where(share > 0, total / share, 0), share > 0


def _doubled(x: Tensor, size: torch.Size) -> Tensor:
    """Planes enlarged by 2 (bilinear), cut to ``size``."""
    large = F.interpolate(x[None], scale_factor=2, mode="bilinear", align_corners=False)[0]
    return large[:, : size[0], : size[1]]
