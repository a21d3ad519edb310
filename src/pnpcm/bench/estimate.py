"""estimate: number of rows of a benchmark, those in the store, and the time of the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pnpcm.bench.run import measured_of, options_of, planned, prior_of, priors_of, shard_of
from pnpcm.bench.spec import BEFORE, Row, Spec
from pnpcm.bench.store import Store
from pnpcm.errors import PnPCMError
from pnpcm.recon.photo import plan_photo


@dataclass(frozen=True)
class Estimate:
    """``rows`` of the spec, of which ``stored`` are finished; ``seconds`` of the others.

    ``from_rows``: rows whose time is the mean of stored rows of the same method. ``from_prior``:
    rows whose time is that of one evaluation of the prior times their number. ``unknown``: rows
    without an estimate, e.g. of methods without a prior. Gradients through the prior, the data
    step and the scores are not part of ``from_prior``.
    """

    rows: int
    stored: int
    seconds: float
    from_rows: int = 0
    from_prior: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        text = f"{self.rows} rows, {self.stored} in the store, {self.rows - self.stored} to compute"
        origins = (
            (self.from_rows, "by the mean time of stored rows of the same method"),
            (self.from_prior, "by one evaluation of the prior times their number"),
            (self.unknown, "without an estimate"),
        )
        said = "; ".join(f"{count} {words}" for count, words in origins if count)
        if not said:
            return text
        return f"{text}\nexpected time: {duration(self.seconds)} of one process ({said})"


def estimate(
    spec: Spec,
    out: Path,
    *,
    limit: int | None = None,
    only: Sequence[str] = (),
    shard: str | None = None,
) -> Estimate:
    """Rows and expected time of ``bench`` with the same arguments; writes nothing."""
    store, part = Store(out), shard_of(shard)
    keys, known = store.keys(), _mean_seconds(store)
    rows = list(planned(spec, limit=limit, only=only, part=part))
    seconds, counts = 0.0, {"from_rows": 0, "from_prior": 0, "unknown": 0}
    evaluated: dict[tuple[Any, ...], float | None] = {}
    for row, key in rows:
        if key in keys:
            continue
        found, origin = known.get(_kind(vars(row))), "from_rows"
        if found is None:
            cell, origin = (row.data, *_kind(vars(row)), row.sigma_y), "from_prior"
            if cell not in evaluated:
                evaluated[cell] = _evaluated(spec, row)
            found = evaluated[cell]
        counts[origin if found is not None else "unknown"] += 1
        seconds += found or 0.0
    stored = sum(key in keys for _, key in rows)
    return Estimate(len(rows), stored, seconds, **counts)


def _kind(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Rows of the same kind take about the same time."""
    return (row["task"], row["prior"], row["method"], row["steps"])


def _mean_seconds(store: Store) -> dict[tuple[Any, ...], float]:
    times: dict[tuple[Any, ...], list[float]] = {}
    for row in store.rows(("task", "prior", "method", "steps", "seconds")):
        if row["seconds"]:
            spent = sum(s for stage, s in row["seconds"].items() if stage != "prior")
            times.setdefault(_kind(row), []).append(spent)
    return {kind: sum(found) / len(found) for kind, found in times.items()}


@torch.no_grad()
def _evaluated(spec: Spec, row: Row) -> float | None:
    """Seconds of one evaluation of the prior times their number; None if that is not known."""
    x, method = spec.images(row.data)[row.image], spec.methods[row.method]
    if method.method == BEFORE:
        return 0.0
    try:
        scan = spec.images(row.data).measured(row.image)
        measured = measured_of(row, x, spec.tasks[row.task], scan)
        options = options_of(row, method, spec.device)
        priors = priors_of(prior_of(spec, row))
        plan, _ = plan_photo(measured.y, measured.task, options, priors)
    except PnPCMError:  # the row will state the reason, at once
        return 0.0
    nfe = getattr(plan.config, "nfe", 0)
    if plan.prior is None or not nfe:
        return None
    start = time.perf_counter()
    plan.prior(x.to(spec.device), plan.prior.sigma_max)
    return float(nfe) * method.samples * (time.perf_counter() - start)


def duration(seconds: float) -> str:
    """Seconds in words: 40 s, 3 min, 2.5 h."""
    if seconds != seconds:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
