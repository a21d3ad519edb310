"""Cells of the comparison: the scores of a method with given parameters on a prior and a task.

A run writes one file per cell to its folder; `contest_table.py --keep` collects them in
`contest.jsonl` in this folder, which is committed and not computed again. A cell is valid as long
as its parameters and weights are those of the package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from contest_problems import TASKS, prior_for
from pnpcm import PRESETS
from pnpcm.baselines import BASELINES
from pnpcm.core import Config
from pnpcm.io.files import write_text
from pnpcm.priors.controlled import fingerprint

Cell = dict[str, Any]
REFERENCE = "pnp-cm"
KEPT = Path(__file__).parent / "contest.jsonl"
SLOW = {"dps", "dpnp", "pnp-dm"}
FULL_LENGTH = {("faces", "superres-4")}
"""Where slow methods also run with all their published steps: elsewhere it would take a day."""


def entries(domain: str, task: str) -> Iterator[tuple[str, str, Config]]:
    """(method, origin of its parameters, configuration) of every row of a task."""
    ours = PRESETS.get(f"{domain}/{task}")
    if ours is not None:
        yield REFERENCE, "shipped", ours.solver
    for row in BASELINES.values():
        if row.task != task or row.tuned_on not in (domain, None):
            continue
        if row.tuned_on is None:
            if row.method in SLOW and (domain, task) not in FULL_LENGTH:
                continue
            if row.origin == "lsun":  # the same method with other numbers, meant for bedrooms
                continue
        origin = row.origin if row.tuned_on is None else row.origin.replace(domain, "fair")
        yield row.method, origin, row.solver


def made_of(domain: str, task: str, method: str, config: Config) -> dict[str, Any]:
    """Parameters and weights that a cell depends on, as values read from JSON."""
    parts = {"config": config.to_dict(), "weights": _weights(domain, task, method)}
    plain: dict[str, Any] = json.loads(json.dumps(parts))
    return plain


@cache
def _weights(domain: str, task: str, method: str) -> str | None:
    prior = prior_for(method, domain, task)
    return fingerprint(prior) if isinstance(prior, nn.Module) else None


def name_of(cell: Cell) -> str:
    return "__".join(cell[part] for part in ("prior", "task", "method", "origin"))


def stored(out: Path) -> dict[str, Cell]:
    """The committed cells, replaced by those of the folder, which are newer."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    texts = lines + [p.read_text() for p in sorted((out / "cells").glob("*.json"))]
    return {name_of(cell): cell for cell in map(json.loads, texts)}


def current(out: Path) -> dict[str, Cell]:
    """Stored cells whose parameters and weights are those of the package."""
    cells = stored(out)
    found: dict[str, Cell] = {}
    for domain, tasks in TASKS.items():
        for task in tasks:
            for method, origin, config in entries(domain, task):
                name = f"{domain}__{task}__{method}__{origin}"
                if name in cells and is_current(cells[name], made_of(domain, task, method, config)):
                    found[name] = cells[name]
    return found


def is_current(cell: Cell | None, wanted: dict[str, Any]) -> bool:
    return cell is not None and wanted.items() <= cell.items()


def keep(cells: dict[str, Cell]) -> None:
    write_text(KEPT, "".join(f"{json.dumps(cells[name])}\n" for name in sorted(cells)))
