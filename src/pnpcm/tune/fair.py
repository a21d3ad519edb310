"""Fair tuning: the same images, trials, metric and search for every method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pnpcm.core import Config, Prior
from pnpcm.errors import ArgumentError
from pnpcm.problems import Problem
from pnpcm.solvers import SOLVERS
from pnpcm.tune.methods import METHODS, Setting, Values
from pnpcm.tune.study import check_metric, judge, open_study, search, tried


@dataclass(frozen=True)
class Fair:
    """The best configuration of a study, its score, and the score of the published parameters."""

    config: Config
    values: Values
    score: float
    score_published: float | None
    trials: int


def fair_tune(
    method: str,
    problem: Problem,
    x: Tensor,
    prior: Prior | None,
    setting: Setting,
    *,
    trials: int = 12,
    metric: str = "mix",
    storage: Path | None = None,
    seed: int = 0,
) -> Fair:
    """Search the parameters of ``method`` on the clean images ``x`` measured in ``problem``.

    The first trial has the published parameters; the next are random, up to a quarter of all and
    at least six, the others by a tree-structured Parzen estimator. A trial is pruned by its score
    on half of the images. A trial that diverges counts. ``storage``: file of the study, which is
    continued if it exists.
    """
    check_metric(metric)
    row = METHODS[method]

    def configure(k: int, values: Values) -> Config:
        if k == 0 and row.published is not None:
            return row.published(setting)
        return row.build({name: _short(values[name]) for name in row.space}, setting)

    def objective(trial: Any, k: int) -> float:
        values = {
            name: trial.suggest_categorical(name, axis)
            if len(axis) == 2
            else trial.suggest_float(name, axis[0], axis[1], log=axis[2])
            for name, axis in row.space.items()
        }
        solver = SOLVERS[method](prior, configure(k, values))
        return judge(trial, solver, problem, x, metric, seed)

    study = open_study(storage, patience=4)
    startup = max(6, trials // 4)
    search(study, objective, trials, starts=[row.first(setting)], startup=startup, seed=seed)
    points = tried(study)
    try:
        best = study.best_trial
    except ValueError as error:
        raise ArgumentError(
            f"none of {trials} trials of {method} on {setting.task} has a finite image"
        ) from error
    k = [t.number for t in points].index(best.number)
    config = configure(k, best.params)
    return Fair(config, best.params, study.best_value, points[0].value, len(points))


def _short(value: Any) -> Any:
    """``value`` rounded to three significant digits, for readable presets."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
