"""The user's own operator as a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from pnpcm.core import Operator
from pnpcm.operators import OPERATORS, Inpainting, OperatorBase
from pnpcm.problems.task import Problem, Shape, Task


@dataclass(frozen=True, eq=False)
class Custom(Task):
    """Any forward model; one of ours is recognised, so that its presets apply."""

    name = "custom"
    forward: Operator

    @property
    def operator_name(self) -> str:
        rows = [name for name, row in OPERATORS.items() if type(self.forward) is row]
        return rows[0] if rows else "custom"

    @property
    def options(self) -> dict[str, Any]:
        return dict(getattr(self.forward, "preset_options", {}))

    def operator(self, image_shape: Shape) -> OperatorBase:
        return cast(OperatorBase, self.forward)

    def problem(self, y: Tensor) -> Problem:
        known = self.forward.mask.to(y) if isinstance(self.forward, Inpainting) else None
        return Problem(y, cast(OperatorBase, self.forward), known=known)
