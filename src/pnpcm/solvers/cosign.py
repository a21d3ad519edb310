"""CoSIGN: a consistency model conditioned on the measurement by a ControlNet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor

from pnpcm.core import Config, Operator, Prior
from pnpcm.errors import ArgumentError
from pnpcm.schedules import SIGMA_MIN, karras
from pnpcm.solvers.base import CONSISTENCY, Run, SolverBase, back_projection, pinv, unless_linear
from pnpcm.solvers.cm_iterative import multistep

GRID = karras(40)
PUBLISHED = (0, 10, 17, 26)
"""Indices of the 40-point grid: 80, 16.8, 4.37, 0.47. One step: 0; two steps: 0, 17."""


@dataclass(frozen=True)
class CoSIGNConfig(Config):
    """``sigmas``: decreasing levels of the evaluations; the final noise-free level is implied.

    ``hard``: each estimate is projected towards the measurement with strength ``kappa`` (None: 1
    while the level is above ``noise_std``, then proportional to it).
    """

    sigmas: tuple[float, ...] = tuple(GRID[i] for i in PUBLISHED)
    hard: bool = False
    noise_std: float = 0.1
    kappa: float | None = None
    clamp: bool = True

    def __post_init__(self) -> None:
        falling = all(a > b for a, b in pairwise((*self.sigmas, SIGMA_MIN)))
        if not self.sigmas or not falling or not math.isfinite(self.sigmas[0]):
            raise ArgumentError(
                f"sigmas must decrease and end above {SIGMA_MIN}, got {self.sigmas}"
            )
        if not (math.isfinite(self.noise_std) and self.noise_std >= 0):
            raise ArgumentError(f"noise_std must be ≥ 0 and finite, got {self.noise_std}")
        if self.kappa is not None and not 0 <= self.kappa <= 1:
            raise ArgumentError(f"kappa must lie in [0, 1] or be None, got {self.kappa}")

    @property
    def nfe(self) -> int:
        return len(self.sigmas)

    @classmethod
    def example(cls) -> CoSIGNConfig:
        """A short run for the laws."""
        return cls(sigmas=(80.0, 4.0))

    def strength(self, sigma: float) -> float:
        """λ(σ′) of the hard constraint before level σ′."""
        if self.kappa is not None:
            return self.kappa
        return 1.0 if sigma >= self.noise_std else sigma / self.noise_std


class CoSIGN(SolverBase[CoSIGNConfig]):
    r"""Multistep sampling of a consistency model with the hint h, the measurement as an image.

    .. math::
        x_0 &= \operatorname{clamp} f_\theta(x, \sigma_k, h), \qquad x \sim N(0, \sigma_1^2 I) \\
        x_0 &\leftarrow \operatorname{clamp}\big(x_0 + \lambda A^+ (y - A x_0)\big), \qquad
               \lambda = \min(1, \sigma_{k+1} / \sigma_y) \qquad (\text{``hard`` only}) \\
        x &= x_0 + \sqrt{\max(\gamma, \sigma_{min})^2 - \sigma_{min}^2}\; n, \qquad
             \gamma^2 = \sigma_{k+1}^2 - \sigma_y^2 \ (\text{hard}),\ \sigma_{k+1}^2 \ (\text{soft})

    h is y if it has the image's shape, else A⁺y, as in training. After the last level
    σ_{k+1} = σ_min: no noise, and λ is so small that the result is almost that of the network.

    Costs one prior call per level; the ControlNet, about a third of a call more, is not counted.
    Takes a prior with a ControlNet trained for the task: ``pnpcm train cosign``. Source:
    Zhao et al., CoSIGN (ECCV 2024). The official code back-projects with nearest-neighbour
    upsampling; its four-step levels are unpublished, these are ours.
    """

    name = "cosign"
    config_type = CoSIGNConfig
    kinds = CONSISTENCY

    def __init__(self, prior: Prior, config: CoSIGNConfig) -> None:
        super().__init__(prior, config)
        if not getattr(prior, "takes_hint", False):
            raise ArgumentError(
                f"prior is a {type(prior).__name__} that takes no hint, {self.name} needs one "
                "with a ControlNet; use load_prior(name, control=PATH) after pnpcm train cosign"
            )

    def _solve(self, run: Run) -> Tensor:
        config = self.config
        hint = back_projection(run.operator, run.y)

        def clamp(x: Tensor) -> Tensor:
            return run.clamp(x) if config.clamp else x

        def estimate(x: Tensor, sigma: float) -> Tensor:
            return clamp(run.prior(x, sigma, hint=hint))

        def correct(x0: Tensor, sigma: float) -> Tensor:
            if not config.hard:
                return x0
            return clamp(x0 + config.strength(sigma) * pinv(run.operator, run.residual(x0)))

        carried = config.noise_std if config.hard else 0.0
        return multistep(run, config.sigmas, estimate, correct, carried=carried)

    def refusal(self, operator: Operator) -> str | None:
        task = getattr(self.prior, "info", {}).get("control", {}).get("task", {})
        return unless_linear(operator, "A⁺ or y as an image") or _unfit(task, operator)


def _unfit(task: Mapping[str, Any], operator: Operator) -> str | None:
    """The reason why a ControlNet trained for ``task`` does not fit ``operator``, or None."""
    trained = str(task.get("operator", ""))
    move = "train one for this operator: pnpcm train cosign"
    if trained and trained.replace("-", "") != type(operator).__name__.lower():
        return f"the ControlNet was trained for {trained!r}; {move}"
    for option, value in task.get("options", {}).items():
        ours = getattr(operator, option, value)
        if ours != value:
            return f"the ControlNet was trained for {option} {value}, this has {ours}; {move}"
    return None
