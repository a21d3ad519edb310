"""Whether an image is like those that a prior was trained on, by statistics of images.

The denoising error of a prior does not tell: a phantom of flat areas is easier to denoise than
the brains that the prior knows. Statistics f(x) of contrast, of four octaves of detail and of the
place of the bright parts do. The distance of an image from the training images is Mahalanobis',

    d² = (f(x) − μ)ᵀ C⁻¹ (f(x) − μ) / n,

with mean μ and covariance C of their n statistics; ``limit`` is what 1 % of them exceed, each
judged by μ and C of the others (four folds). The training images are blurred, zoomed and changed
in contrast at random before, since a reconstruction is smoother than the truth and its scale and
contrast vary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d, interpolate

from pnpcm.errors import ArgumentError, ShapeError

OCTAVES = 4
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
LAYOUT = 2
"""Fields per side whose mean brightness is a statistic."""
LEAST_SIDE = 48
"""Smaller images have no statistics."""
LARGEST_SIDE = 384
"""Of larger images the centre is used: an octave is a size in pixels."""
MOST = 1000
"""Most statistics that a file can have; ours have 27."""
LARGEST = 1e9
"""Largest number among the statistics and in the inverse of their covariance."""
SHARE = 0.99
FOLDS = 4


@dataclass(frozen=True)
class Domain:
    """Mean and inverse covariance of the statistics of training images, and the usual distance."""

    mean: tuple[float, ...]
    precision: tuple[tuple[float, ...], ...]
    limit: float

    def __post_init__(self) -> None:
        n = len(self.mean)
        if not 1 <= n <= MOST or [len(row) for row in self.precision] != [n] * n:
            raise ShapeError(
                f"precision has {len(self.precision)} rows for a mean of {n} numbers; expected as "
                f"many rows and columns as numbers, at most {MOST}"
            )
        rows = (self.mean, *self.precision, (self.limit,))
        bad = [v for row in rows for v in row if not abs(v) <= LARGEST]
        if bad or self.limit < 1 / LARGEST:
            raise ArgumentError(
                f"mean, precision and limit must be numbers up to {LARGEST:g} and limit positive, "
                f"got {[*bad, self.limit][0]:g}"
            )

    def distance(self, x: Tensor) -> float | None:
        """d of an image ``(C, H, W)``; None if it is too small to judge."""
        if min(x.shape[-2:]) < LEAST_SIDE:
            return None
        f = statistics(x)
        if len(f) != len(self.mean):
            return None
        return float(_distances(f[None], torch.tensor(self.mean), torch.tensor(self.precision)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Domain:
        rows = tuple(tuple(float(v) for v in row) for row in values["precision"])
        return cls(tuple(float(v) for v in values["mean"]), rows, float(values["limit"]))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def statistics(x: Tensor) -> Tensor:
    """Statistics of an image ``(C, H, W)``: grey or colour in [-1, 1], or (C = 2) complex.

    Of the magnitude or brightness b, relative to its root mean square: quantiles; of four octaves
    the energy, the mean and the median of the magnitude; centre and width of the bright part. Of
    colours their energy.
    """
    if x.ndim != 3 or x.shape[0] not in (1, 2, 3):
        raise ShapeError(f"x has shape {tuple(x.shape)}, expected (1, 2 or 3, H, W)")
    x = _centre(x.detach().cpu().double())
    colour = (x + 1) / 2
    b = x.square().sum(0).sqrt() if len(x) == 2 else colour.mean(0)
    rms = b.square().mean().sqrt().clamp_min(1e-6)
    b = b / rms
    found = [b.flatten().quantile(torch.tensor(QUANTILES, dtype=b.dtype))]
    level = b[None, None]
    for _ in range(OCTAVES):
        half = avg_pool2d(level, 2, ceil_mode=True)
        size = (level.shape[-2], level.shape[-1])
        detail = (level - interpolate(half, size, mode="bilinear", align_corners=False)).abs()
        energy = detail.square().mean().sqrt() + 1e-3
        ratios = torch.stack([detail.mean(), detail.median()]) / energy
        found += [energy.log()[None], (ratios + 1e-3).log()]
        level = half
    found += [_place(b), adaptive_avg_pool2d(b[None], LAYOUT).flatten()]
    if len(x) == 3:
        spread = (colour - colour.mean(0)).square().mean().sqrt() / rms
        found.append((spread + 1e-3).log()[None])
    return torch.cat(found).float()


def fit_domain(images: Iterable[Tensor], *, seed: int = 0) -> Domain:
    """The domain of training images ``(C, H, W)``, of which some hundreds are enough."""
    generator = torch.Generator().manual_seed(seed)
    rows = [statistics(_varied(x, generator)) for x in images if min(x.shape[-2:]) >= LEAST_SIDE]
    if len(rows) < 2 * FOLDS:
        raise ShapeError(
            f"images holds {len(rows)} of at least {LEAST_SIDE}×{LEAST_SIDE} pixels; give some "
            "hundreds"
        )
    f = torch.stack(rows).double()
    fold = torch.arange(len(f)) % FOLDS
    held_out = [_distances(f[fold == k], *_normal(f[fold != k])) for k in range(FOLDS)]
    limit = float(torch.cat(held_out).quantile(SHARE))
    mean, precision = _normal(f)
    return Domain(_rounded(mean), tuple(_rounded(row) for row in precision), round(limit, 4))


def _normal(f: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and inverse covariance of the rows of f, the covariance slightly regularised."""
    covariance = torch.cov(f.T) + 1e-2 * torch.diag(f.var(0).clamp_min(1e-4))
    return f.mean(0), torch.linalg.inv(covariance)


def _distances(f: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
    away = f.double() - mean.double()
    return ((away @ precision.double()) * away).sum(-1).div(len(mean)).clamp_min(0).sqrt()


def _place(b: Tensor) -> Tensor:
    """Centre (row, column) of the bright part and the logarithms of its widths, sides being 2."""
    weight = b / b.sum().clamp_min(1e-6)
    rows, columns = (torch.linspace(-1, 1, n, dtype=b.dtype) for n in b.shape)
    found: list[Tensor] = []
    for share, at in ((weight.sum(1), rows), (weight.sum(0), columns)):
        centre = (share * at).sum()
        found += [centre, (share * (at - centre).square()).sum().clamp_min(1e-4).log()]
    return torch.stack(found)


def _centre(x: Tensor) -> Tensor:
    top, left = (max(0, (n - LARGEST_SIDE) // 2) for n in x.shape[-2:])
    return x[:, top : top + LARGEST_SIDE, left : left + LARGEST_SIDE]


def _varied(x: Tensor, generator: torch.Generator) -> Tensor:
    """The image blurred by up to 2 pixels, zoomed by 0.8 … 1.25, with a contrast of its own."""
    blur, zoom, gamma = torch.rand(3, generator=generator).tolist()
    gamma = math.exp(0.35 * (2 * gamma - 1))
    if len(x) == 2:
        size = x.square().sum(0, keepdim=True).sqrt()
        x = x * size.clamp_min(1e-6) ** (gamma - 1)
    else:
        x = 2 * ((x + 1) / 2).clamp(0, 1) ** gamma - 1
    side = 0.8 * (1.25 / 0.8) ** zoom
    size_now = [max(LEAST_SIDE, round(n * side)) for n in x.shape[-2:]]
    coarse = [max(LEAST_SIDE // 4, round(n / (1 + blur))) for n in size_now]
    x = interpolate(x[None], coarse, mode="bilinear", align_corners=False, antialias=True)
    return interpolate(x, size_now, mode="bicubic", align_corners=False)[0]


def _rounded(values: Sequence[float] | Tensor) -> tuple[float, ...]:
    return tuple(float(f"{float(v):.6g}") for v in values)
