"""The loss of CoSIGN: a ControlNet of a frozen consistency model, for one task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.linalg import expand
from pnpcm.operators import OPERATORS, Inpainting, OperatorBase, measure
from pnpcm.solvers.base import back_projection
from pnpcm.training.step import DISTANCES, Batch, Nets, neighbours


@dataclass(frozen=True)
class CosignLoss(Config):
    r"""Reconstruction with a ControlNet and a frozen consistency model: d(f(x_t, t, h), x).

    h = back(A(x) + noise) with A the ``operator`` (its name and ``options``) and noise of
    noise_std = 2 ``sigma_y``; noise and the masks of "inpainting" are drawn for each sample; t is
    any level but the last of the ``points``-point Karras grid. d is the sum of ``distances``,
    name → weight. ``scaled_hint``: see ``ControlledModel``; False for short runs. Zhao et al.,
    CoSIGN (ECCV 2024), whose d is LPIPS only.
    """

    operator: str = "superresolution"
    options: dict[str, Any] = field(default_factory=dict)
    sigma_y: float = 0.05
    points: int = 40
    distances: dict[str, float] = field(default_factory=lambda: {"lpips": 1.0})
    scaled_hint: bool = True
    kind: ClassVar[str] = "control"
    needs_teacher: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = OPERATORS[self.operator]
        weights = {name: float(weight) for name, weight in self.distances.items()}
        object.__setattr__(self, "distances", weights)
        _ = [DISTANCES[name] for name in weights]
        if not weights or min(weights.values()) <= 0:
            raise ArgumentError(
                f"distances must map names to weights > 0, got {self.distances}; "
                f"known: {', '.join(DISTANCES)}"
            )
        if self.points < 2 or self.sigma_y < 0:
            raise ArgumentError(
                f"points must be ≥ 2 and sigma_y ≥ 0, got {self.points} and {self.sigma_y}"
            )

    @property
    def task(self) -> dict[str, Any]:
        """The task of the ControlNet, as stored in its file."""
        return {
            "operator": self.operator, "options": dict(self.options), "sigma_y": self.sigma_y
        }  # fmt: skip

    def __call__(self, nets: Nets, batch: Batch) -> Tensor:
        u, _, n = batch.draw()
        t, _ = neighbours(u, nets.grid(self.points))
        hint = self.hint(batch.x, batch.generators)
        x_0 = nets.student(batch.x + expand(t, n) * n, t, hint=hint)
        parts = [weight * DISTANCES[d](x_0, batch.x) for d, weight in self.distances.items()]
        return torch.stack(parts).sum(0)

    def hint(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        """A new measurement of each image, as an image."""
        operator = operator_for(self.operator, self.options, x, generators)
        return back_projection(operator, measure(operator, x, self.sigma_y, generator=generators))

    def target_rate(self, step: int, steps: int) -> float | None:
        return None


def operator_for(
    name: str, options: Mapping[str, Any], x: Tensor, generators: list[torch.Generator]
) -> OperatorBase:
    """The operator ``name`` for images like ``x``; inpainting draws one mask per image."""
    channels, height, width = x.shape[1:]
    try:
        if OPERATORS[name] is Inpainting:
            return Inpainting.random((height, width), generator=generators, **options)
        return _fixed(name, json.dumps(dict(options)), (channels, height, width))
    except TypeError as error:
        raise ArgumentError(
            f"operator {name!r} cannot be built for training from options {dict(options)}: {error}"
        ) from error


@lru_cache(maxsize=4)
def _fixed(name: str, options: str, image_shape: tuple[int, int, int]) -> OperatorBase:
    """The operator, cached: operators are stateless, and some take long to build."""
    return OPERATORS[name](image_shape, **json.loads(options))  # type: ignore[call-arg]
