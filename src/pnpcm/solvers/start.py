"""Where a solver begins."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from pnpcm.solvers.base import Run


def start(run: Run, otherwise: Callable[[], Tensor]) -> Tensor:
    """The caller's x_init, or the operator's own start (inpainting: medians), or ``otherwise``."""
    if run.x_init is not None:
        return run.x_init
    if hasattr(run.operator, "x_start"):
        x: Tensor = run.operator.x_start(run.y)
        return x
    return otherwise()


def z_start(run: Run) -> Tensor | None:
    """Where an iterative data step begins: the operator's own start, else None."""
    offered = getattr(run.operator, "z_start", None)
    return None if offered is None else offered(run.y, run.generators)
