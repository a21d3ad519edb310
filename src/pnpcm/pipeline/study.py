"""What searches share: a resumable study, and scores of a solver on images it has measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pnpcm.core import Solver
from pnpcm.errors import ArgumentError, MissingExtraError
from pnpcm.lpips import available, lpips
from pnpcm.metrics import psnr
from pnpcm.operators import PhaseRetrieval
from pnpcm.pipeline.signs import squared_distance
from pnpcm.rng import generators
from pnpcm.tasks import Problem

if TYPE_CHECKING:
    import optuna

METRICS = ("psnr", "lpips", "mix")
"""``mix`` is PSNR − 20 LPIPS: 0.05 of LPIPS are worth 1 dB."""


def check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise ArgumentError(f"metric is {metric!r}, expected one of {', '.join(METRICS)}")
    if metric != "psnr" and not available():
        raise ArgumentError("metric needs LPIPS, whose weights are missing; use metric='psnr'")


def scores(
    solver: Solver, problem: Problem, x: Tensor, part: range, metric: str, seed: int
) -> list[float]:
    """One number per image, larger is better; the same noise in every trial.

    Phase retrieval is scored with the signs of the true image.
    """
    index = list(part)
    seeds = generators([seed + 1000 + i for i in index])
    result = solver(problem.y[index], problem.operator, generator=seeds)
    found, truth = problem.picture(result.x), x[index]
    if isinstance(problem.operator, PhaseRetrieval):
        found = problem.operator.resolve_signs(found, truth, squared_distance)
    values = torch.zeros(len(index))
    if metric != "lpips":
        values = values + psnr(found, truth)
    if metric != "psnr":
        values = values - (1 if metric == "lpips" else 20) * lpips(found, truth)
    return [float(v) for v in values]


def judge(trial: Any, solver: Solver, problem: Problem, x: Tensor, metric: str, seed: int) -> float:
    """Mean score over the images; half of them decide whether the trial goes on."""
    found: list[float] = []
    for part in halves(len(x)):
        found += scores(solver, problem, x, part, metric, seed)
        trial.report(sum(found) / len(found), len(found))
        if len(found) < len(x) and trial.should_prune():
            raise load_optuna().TrialPruned
    return sum(found) / len(found)


def halves(count: int) -> list[range]:
    """The first half of the images, by which a trial may be given up, and the rest."""
    middle = max(1, count // 2)
    return [range(middle), range(middle, count)] if count > 1 else [range(1)]


def open_study(storage: Path | None, seed: int, *, startup: int, patience: int) -> optuna.Study:
    """A study in ``storage`` that goes on where it stopped.

    After ``startup`` trials a tree-structured Parzen estimator proposes, after ``patience`` ones a
    trial below the median of the others is given up.
    """
    library = load_optuna()
    place = None
    if storage is not None:
        backend = library.storages.journal.JournalFileBackend(str(storage))
        place = library.storages.JournalStorage(backend)
    study: optuna.Study = library.create_study(
        study_name="pnpcm",
        storage=place,
        load_if_exists=True,
        direction="maximize",
        sampler=library.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=startup),
        pruner=library.pruners.MedianPruner(n_startup_trials=patience),
    )
    return study


def trials_left(study: optuna.Study, trials: int) -> int:
    return trials - len([t for t in study.trials if t.state.is_finished()])


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("pnpcm tune needs optuna; pip install 'pnpcm[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
