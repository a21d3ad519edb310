"""Interface of losses: Nets and Batch, their inputs, the protocol Loss, and DISTANCES."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from pnpcm.names import Table
from pnpcm.schedules import SIGMA_MAX, SIGMA_MIN, karras

Denoiser = Callable[..., Tensor]
"""(x, sigma) → clean image; the student of CoSIGN also takes a hint."""


@dataclass(frozen=True)
class Nets:
    """The networks of a training step as functions (x, sigma) → clean image, and their levels."""

    student: Denoiser
    target: Denoiser | None = None
    teacher: Denoiser | None = None
    sigma_data: float = 0.5
    sigma_min: float = SIGMA_MIN
    sigma_max: float = SIGMA_MAX

    def grid(self, points: int) -> Tensor:
        """The Karras grid σ_max … σ_min of ``points`` levels."""
        return torch.tensor(karras(points, self.sigma_min, self.sigma_max))


@dataclass(frozen=True)
class Batch:
    """Clean images ``(B, C, H, W)``, one generator each, and the current step."""

    x: Tensor
    generators: list[torch.Generator]
    step: int
    steps: int

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Per image: a uniform number and a normal one, ``(B,)``, and noise like ``x``."""
        u = torch.stack([torch.rand((), generator=g) for g in self.generators])
        g = torch.stack([torch.randn((), generator=g) for g in self.generators])
        shape = self.x.shape[1:]
        n = torch.stack([torch.randn(shape, generator=g) for g in self.generators])
        return u.to(self.x), g.to(self.x), n.to(self.x)


class Loss(Protocol):
    """Interface of a loss."""

    kind: ClassVar[str]
    needs_teacher: ClassVar[bool]

    def __call__(self, nets: Nets, batch: Batch) -> Tensor: ...

    def target_rate(self, step: int, steps: int) -> float | None:
        """EMA rate of the target network at this step; None: no target network."""
        ...


def neighbours(u: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """(σ_i, σ_{i+1}) of a grid of N levels, i = ⌊u (N − 1)⌋: uniform if u is."""
    i = (u * (len(grid) - 1)).long().clamp_max(len(grid) - 2)
    return grid.to(u)[i], grid.to(u)[i + 1]


# differentiable distances of two images, one number per image ------------------------------------
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


def lpips_l2(a: Tensor, b: Tensor) -> Tensor:
    """LPIPS at the images' own size plus ‖a − b‖²/P, which sees the patterns that LPIPS ignores."""
    return lpips_native(a, b) + l2(a, b)


DISTANCES: Table[Distance] = Table(
    "distance",
    {
        "l2": l2,
        "l1": l1,
        "huber": huber,
        "lpips": lpips,
        "lpips-native": lpips_native,
        "lpips-l2": lpips_l2,
    },
)
