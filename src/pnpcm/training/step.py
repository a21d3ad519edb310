"""Interface of losses: Nets and Batch, the inputs of a loss, and the protocol Loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

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
