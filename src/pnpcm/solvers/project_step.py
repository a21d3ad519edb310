"""ProjectStep: the nearest image that would have given exactly the same measurement."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pnpcm.core import Config, Operator
from pnpcm.errors import OperatorError


@dataclass(frozen=True)
class ProjectStep(Config):
    """argmin_z ‖z − v‖² over all z that A takes to ``y``: ``operator.project(v, y)``.

    The data step of a measurement without noise, where ρ says nothing: rounded coefficients of a
    JPEG file tell in which cell the true ones lie, and no more.
    """

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        project = getattr(operator, "project", None)
        if project is None:
            raise OperatorError(
                f"{type(operator).__name__} has no project(v, y); use ProxStep or GradientStep"
            )
        z: Tensor = project(v, y)
        return z
