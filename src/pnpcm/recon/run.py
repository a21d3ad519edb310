"""Run of a plan's solver on a measurement, for one or several samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor, nn

from pnpcm.core import Operator, Result, Step
from pnpcm.priors import TiledPrior
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
    watch: Callable[[float, int], None] | None = None,
) -> tuple[Result, Tensor]:
    """The last result, and all samples ``(K, B, …)``; ``seeds[k][b]``: seed of sample k, image b.

    ``at_once``: number of samples of a single image that the solver computes as one batch. The cost
    of the result (``nfe``, ``vjps``, ``seconds``) is that of all samples, as are its notes, each
    once. ``watch`` is told the steps done (a
    tile of a large image is a part of one) and their number.
    """
    solver, found = SOLVERS[plan.method](plan.prior, plan.config), []
    nfe, vjps, seconds = 0, 0, 0.0
    notes: dict[str, None] = {}
    together = at_once if len(y) == 1 else 1
    starts = range(0, len(seeds), together)
    with _watched(plan, y, operator, len(seeds), len(starts), watch, callback) as told:
        for first in starts:
            some = [seed for row in seeds[first : first + together] for seed in row]
            each = y if len(some) == len(y) else y.expand(len(some), *y.shape[1:]).contiguous()
            result = solver(each, operator, generator=generators(some), callback=told)
            found.append(result.x.reshape(-1, len(y), *result.x.shape[1:]))
            notes |= dict.fromkeys(result.notes)
            drawn = len(seeds[first : first + together])  # nfe counts a batch once
            nfe, vjps = nfe + drawn * result.nfe, vjps + drawn * result.vjps
            seconds += result.seconds
    whole = replace(result, nfe=nfe, vjps=vjps, seconds=seconds, notes=tuple(notes))
    return whole, torch.cat(found)


@contextmanager
def _watched(
    plan: Plan,
    y: Tensor,
    operator: Operator,
    samples: int,
    runs: int,
    watch: Callable[[float, int], None] | None,
    callback: Callable[[Step], None] | None,
) -> Iterator[Callable[[Step], None] | None]:
    """The callback of ``runs`` runs of the solver, during which ``watch`` is told their progress.

    Calls of the network are counted, of which a step has one, or one per tile and image; without a
    network the steps are counted.
    """
    if watch is None:
        yield callback
        return
    prior, network = plan.prior, getattr(plan.prior, "network", None)
    nfe: int = getattr(plan.config, "nfe", 0)
    total = runs * (nfe or getattr(plan.config, "n_iter", 1))
    watch(0, total)
    done = count(1)
    if not isinstance(network, nn.Module) or nfe == 0:

        def step(one: Step) -> None:
            watch(min(next(done), total), total)
            if callback is not None:
                callback(one)

        yield step
        return
    calls = total
    if isinstance(prior, TiledPrior):
        tiles = prior.n_tiles(operator.x_shape(y)[-2:])  # type: ignore[attr-defined]
        calls = total if tiles == 1 else tiles * samples * len(y) * nfe

    def call(*_: object) -> None:
        watch(total * min(1.0, next(done) / calls), total)

    hook = network.register_forward_hook(call)
    try:
        yield callback
    finally:
        hook.remove()


@contextmanager
def timed(stages: dict[str, float], name: str) -> Iterator[None]:
    """Add the time of the block to ``stages[name]``."""
    start = time.perf_counter()
    yield
    stages[name] = stages.get(name, 0.0) + time.perf_counter() - start


def rounded(stages: Mapping[str, float]) -> dict[str, float]:
    """Seconds of the stages with three digits; a short stage does not become 0."""
    return {name: float(f"{seconds:.3g}") for name, seconds in stages.items()}
