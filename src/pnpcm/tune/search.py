"""tune: search of PnP-CM's hyperparameters for a task on clean images (extra ``tune``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, MissingExtraError, UnknownNameError
from pnpcm.io.files import write_atomically
from pnpcm.metrics.lpips import available
from pnpcm.operators.traits import traits_of
from pnpcm.presets import Preset
from pnpcm.problems import Problem, Task
from pnpcm.problems.measurement import simulate
from pnpcm.recon.options import Options
from pnpcm.recon.parameters import choose_numbers, frame_for
from pnpcm.recon.rule import Numbers
from pnpcm.solvers import PnPCM, PnPCMConfig
from pnpcm.tune.study import Range, check_metric, judge, open_study, scores, search, tried

if TYPE_CHECKING:
    import optuna

SPACE: dict[str, Range] = {
    # in the paper's symbols: σ_start is i_N, fall is γ
    "sigma_start": (0.03, 2.0, True),
    "fall": (0.05, 1.0, True),  # σ_end / σ_start
    "delta_start": (-0.2, 2.5, False),
    "delta_end": (-0.2, 2.5, False),
    "weight_start": (0.03, 30.0, True),
    "weight_end": (0.03, 30.0, True),
    "mu": (0.0, 0.8, False),
    "noise_scale": (-0.5, 1.0, False),  # below 0: no injection, often the best
}

DENOISER = {"delta_start": 0.0, "delta_end": 0.0, "noise_scale": -0.25}
"""Fixed parameters of the search with a denoiser."""


@dataclass(frozen=True)
class Tuned:
    """The best preset of a study, its score, and the score of the previous parameters."""

    preset: Preset
    score: float
    score_before: float | None
    trials: int
    study: optuna.Study


def tune(
    task: Task,
    x: Tensor,
    prior: Prior,
    *,
    prior_name: str,
    sigma_y: float = 0.05,
    steps: int | None = None,
    trials: int = 60,
    metric: str = "psnr",
    storage: Path | None = None,
    seed: int = 0,
    source: str = "",
    fixed: Mapping[str, float] | None = None,
    callback: Callable[[optuna.Study, Any], None] | None = None,
) -> Tuned:
    """Search on the clean images ``x`` ``(B, C, H, W)``, degraded once by ``task``.

    The first trial has the parameters of the presets or the rule, so that the best is never worse;
    four more are fixed (parameters of the default number of steps; three simple schedules), the
    others are random steps from the best, which become shorter. Trials are pruned by the median on
    half of the images. ``storage``: file of the study; a further call continues it until
    ``trials`` are done.
    ``fixed``: parameters of ``SPACE`` that are not searched, e.g. ``mu`` 0. With a denoiser (prior
    of kind "edm") noise is not injected and δ is 0: only the levels it is given matter.
    """
    check_metric(metric)
    kind = str(getattr(prior, "kind", "consistency"))
    given = (DENOISER if kind == "edm" else {}) | dict(fixed or {})
    for name in given:
        if name not in SPACE:
            raise UnknownNameError("hyperparameter", name, SPACE)
    measured = simulate(x, task, sigma_y, seed=seed)
    problem = measured.task.problem(measured.y)
    conditions = measured.task.conditions(problem, 2 * sigma_y)
    usual = traits_of(problem.operator, 0.0).steps
    n = steps or usual
    frame = frame_for(problem, 2 * sigma_y)

    def configure(values: dict[str, float]) -> PnPCMConfig:
        return numbers(values).config(n, conditions["error_std"], **frame)

    def objective(trial: Any, k: int) -> float:
        values = {
            name: trial.suggest_float(name, low, high, log=log)
            for name, (low, high, log) in SPACE.items()
            if name not in given
        } | given
        return judge(trial, PnPCM(prior, configure(values)), problem, x, metric, seed)

    starts = _starts(conditions["error_std"])
    for steps_before in (usual, n):  # the last one added is tried first
        before = _known(measured.task, problem, prior_name, sigma_y, steps_before, kind)
        if before is not None:
            told = replace(before, sigmas=before.told, deltas=(0.0,) * before.n_steps)
            known = told if kind == "edm" else before
            starts.insert(0, Numbers.of(known, conditions["error_std"]))
    study = open_study(storage, patience=8)
    search(
        study,
        objective,
        trials,
        starts=[{k: v for k, v in _values(s).items() if k not in given} for s in starts],
        seed=seed,
        space={k: v for k, v in SPACE.items() if k not in given},
        callback=callback,
    )
    best = _rounded(configure(study.best_params | given))
    expected = {}
    for name in ("psnr", "lpips") if available() and x.shape[1] == 3 else ("psnr",):
        all_of = scores(PnPCM(prior, best), problem, x, range(len(x)), name, seed)
        expected[{"psnr": "psnr", "lpips": "lpips_vgg"}[name]] = round(
            abs(sum(all_of) / len(all_of)), 4
        )
    preset = Preset(
        prior_name,
        measured.task.operator_name,
        measured.task.options,
        sigma_y,
        best,
        expected,
        source or f"pnpcm tune, {len(tried(study))} trials, {metric}",
        {k: round(v, 6) for k, v in conditions.items()},
        aim="perception" if metric != "psnr" else "fidelity",
        kind="edm" if kind == "edm" else "consistency",
    )
    points = tried(study)
    return Tuned(preset, study.best_value, points[0].value, len(points), study)


def numbers(values: dict[str, float]) -> Numbers:
    """A point of the search space as the numbers of a run."""
    rest = {k: v for k, v in values.items() if k not in ("fall", "noise_scale")}
    end, scale = values["sigma_start"] * values["fall"], max(0.0, values["noise_scale"])
    return Numbers(sigma_end=end, noise_scale=scale, **rest)


def _values(n: Numbers) -> dict[str, float]:
    """The inverse of :func:`numbers`, clamped to the search space."""
    raw = vars(n) | {"fall": n.sigma_end / n.sigma_start}
    return {k: min(max(raw[k], low), high) for k, (low, high, _) in SPACE.items()}


def _rounded(config: PnPCMConfig) -> PnPCMConfig:
    """``config`` rounded to four significant digits, for readable presets."""

    def short(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(float(f"{v:.4g}") for v in values)

    mu, scale = short((config.momentum[0], config.noise_scale))
    return replace(
        config,
        sigmas=short(config.sigmas),
        deltas=short(config.deltas),
        rhos=short(config.rhos),
        mu=mu,
        noise_scale=scale,
    )


def _starts(error_std: float) -> list[Numbers]:
    """Simple schedules: one denoising with decreasing weight, slow decay at the MAP weight, and a
    fast decay to the noise at three times that weight."""
    level = max(1.5 * error_std, 0.05)
    return [
        Numbers(level, 0.06 * level, 0.0, 0.0, 1.0, 1.0, 0.0, -0.25),
        Numbers(3 * level, level, 0.0, 0.0, 1.0, 1.0, 0.2, -0.25),
        Numbers(max(0.3, 2 * error_std), max(0.02, error_std), 0.0, 0.0, 3.0, 3.0, 0.2, -0.25),
    ]


def _known(
    task: Task, problem: Problem, prior: str, sigma_y: float, steps: int, kind: str
) -> PnPCMConfig | None:
    try:
        options = Options(method="pnp-cm", steps=steps)
        found = choose_numbers(task, problem, "pnp-cm", prior, sigma_y, options, kind=kind).config
    except ArgumentError:
        return None
    return found if isinstance(found, PnPCMConfig) else None


def picture_of_search(study: optuna.Study, path: Path) -> None:
    """Write plots of the score over trials and over each hyperparameter as one PNG."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib; pip install 'pnpcm[tune]'") from error
    done = [t for t in study.trials if t.value is not None]
    figure = Figure(figsize=(12, 9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, 3).flatten()
    scores = [t.value for t in done]
    best = [max(scores[: i + 1]) for i in range(len(scores))]
    axes[0].plot([t.number for t in done], scores, ".", [t.number for t in done], best, "-")
    axes[0].set(title="score", xlabel="trial")
    floor = sorted(scores)[len(scores) // 4]
    for axis, (name, (low, high, log)) in zip(axes[1:], SPACE.items(), strict=True):
        axis.set(xscale="log" if log else "linear", xlim=(low, high))  # one trial has no range
        axis.set(title=name, ylim=(floor - 0.1, max(scores) + 0.1))
        axis.plot([t.params[name] for t in done], scores, ".")
        axis.axvline(study.best_params[name], color="0.7")
    write_atomically(path, lambda p: figure.savefig(p, dpi=100))
