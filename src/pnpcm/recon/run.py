"""Run of a plan's solver on a measurement, for one or several samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from pnpcm.core import LinearOperator, Operator, Result, Step
from pnpcm.recon.plan import Plan
from pnpcm.rng import generators
from pnpcm.solvers import SOLVERS


def run(
    plan: Plan,
    y: Tensor,
    operator: Operator,
    seeds: Sequence[Sequence[int]],
    *,
    at_once: int = 1,
    callback: Callable[[Step], None] | None = None,
) -> tuple[Result, Tensor]:
    """The last result, and all samples ``(K, B, …)``; ``seeds[k][b]``: seed of sample k, image b.

    ``at_once``: number of samples of a single image that the solver computes as one batch. The
    notes of the result are those of all samples, each once.
    """
    solver, found = SOLVERS[plan.method](plan.prior, plan.config), []
    notes: dict[str, None] = {}
    together = at_once if len(y) == 1 else 1
    for first in range(0, len(seeds), together):
        some = [seed for row in seeds[first : first + together] for seed in row]
        each = y if len(some) == len(y) else y.expand(len(some), *y.shape[1:]).contiguous()
        start = None  # the solver's own
        if plan.start_scale is not None:
            start = plan.start_scale * cast(LinearOperator, operator).A_adjoint(each)
        result = solver(each, operator, generator=generators(some), x_init=start, callback=callback)
        found.append(result.x.reshape(-1, len(y), *result.x.shape[1:]))
        notes |= dict.fromkeys(result.notes)
    return replace(result, notes=tuple(notes)), torch.cat(found)


@contextmanager
def timed(stages: dict[str, float], name: str) -> Iterator[None]:
    """Add the time of the block to ``stages[name]``."""
    start = time.perf_counter()
    yield
    stages[name] = stages.get(name, 0.0) + time.perf_counter() - start
