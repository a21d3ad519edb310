"""The user's own operator as a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from pnpcm.core import Operator
from pnpcm.operators import (
    JPEG,
    OPERATORS,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    NonlinearBlur,
    OperatorBase,
    PhaseRetrieval,
    SuperResolution,
)
from pnpcm.problems.task import Problem, Shape, Task


def _reference(operator: Any) -> dict[str, Any]:
    return {"reference": True} if operator.reference else {}


_OPTIONS: dict[type[OperatorBase], Callable[[Any], dict[str, Any]]] = {
    Inpainting: lambda o: {"missing": round(20 * (1 - float(o.mask.float().mean()))) / 20},
    SuperResolution: lambda o: (
        {"factor": o.factor}
        | ({} if o.downsampler == "bicubic" else {"downsampler": o.downsampler})
    ),
    GaussianBlur: lambda o: {"size": o.size, "sigma": o.sigma} | _reference(o),
    JPEG: lambda o: {} if o.quality is None else {"quality": int(o.quality)},
    NonlinearBlur: lambda o: {} if o.network is None else {"network": "kernel-wizard"},
    PhaseRetrieval: lambda o: {"oversampling": o.oversampling} | _reference(o),
    MultiCoilMRI: lambda o: {"acceleration": round(1 / float(o.mask.float().mean()))},
}


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
        describe = _OPTIONS.get(type(self.forward))  # type: ignore[arg-type]
        return {} if describe is None else describe(self.forward)

    def operator(self, image_shape: Shape) -> OperatorBase:
        return cast(OperatorBase, self.forward)

    def problem(self, y: Tensor) -> Problem:
        known = self.forward.mask.to(y) if isinstance(self.forward, Inpainting) else None
        return Problem(y, cast(OperatorBase, self.forward), known=known)
