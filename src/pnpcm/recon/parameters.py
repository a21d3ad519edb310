"""Which numbers a restoration runs with: an exact preset, else the rule; the user always wins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pnpcm.core import DataStep
from pnpcm.errors import ArgumentError
from pnpcm.presets import PRESETS, Preset, load_preset
from pnpcm.problems import Problem, Task
from pnpcm.recon.rule import rule
from pnpcm.recon.settings import apply_settings
from pnpcm.solvers import CGStep, GradientStep, PnPCMConfig, ProjectStep, ProxStep

BLURS = ("blur", "gaussian-blur")
LEAST_INJECTION = 0.5
"""Noise scale below which samples say nothing of how sure a result is."""
LINEAR = ("inpainting", "superresolution", *BLURS)


@dataclass(frozen=True)
class Choice:
    """A configuration and, in words, where it comes from."""

    config: PnPCMConfig
    source: str
    start_scale: float | None = None
    """Start at this times Aᵀy: for an operator without its own start, where the family has one."""


def choose(
    task: Task,
    problem: Problem,
    prior: str,
    sigma_y: float,
    *,
    steps: int | None = None,
    preset: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Choice:
    """The numbers for a task: ``preset`` where given, else an exact one, else the rule.

    ``prior``: name of the prior; one without presets borrows those of ``natural`` (or ``mri``).
    """
    if steps is not None and steps < 1:
        raise ArgumentError(f"steps must be at least 1, got {steps}")
    if preset is not None:
        choice = _given(preset, steps)
    else:
        choice = _exact(task, prior, sigma_y, steps) or _ruled(task, problem, prior, sigma_y, steps)
    if not settings:
        return choice
    words = ", ".join(f"{k}={v}" for k, v in settings.items())
    config = apply_settings(choice.config, settings)
    return replace(choice, config=config, source=f"{choice.source}; set {words}")


def _given(preset: str | Path, steps: int | None) -> Choice:
    if isinstance(preset, str) and preset in PRESETS:
        row, name = PRESETS[preset], f"preset {preset}"
    elif Path(preset).suffix == ".json":
        row, name = load_preset(Path(preset)), f"preset file {preset}"
    else:
        row, name = PRESETS[str(preset)], ""  # raises, with the nearest name
    return Choice(row.solver if steps is None else row.solver.with_steps(steps), name)


def _exact(task: Task, prior: str, sigma_y: float, steps: int | None) -> Choice | None:
    for name, row in PRESETS.items():
        same = row.prior == prior and row.operator == task.operator_name
        if (
            same
            and dict(row.options) == task.options
            and math.isclose(row.sigma_y, sigma_y, rel_tol=0.05)
            and row.solver.n_steps == (steps or usual_steps(task))
        ):
            return Choice(row.solver, f"preset {name}")
    return None


def _ruled(task: Task, problem: Problem, prior: str, sigma_y: float, steps: int | None) -> Choice:
    conditions = task.conditions(problem, 2 * sigma_y)
    rows, family = _family(task, prior, conditions)
    frame = frame_for(task, problem, sigma_y)
    alike = [p for p in rows if type(p.solver.data_step) is type(frame["data_step"])]
    rows = alike or rows
    config = rule(rows, conditions, steps or usual_steps(task), **frame)
    borrowed = family == "inpainting" and task.operator_name == "custom"
    scale = conditions["gain"] ** -2 if borrowed and conditions["gain"] > 0 else None
    return Choice(config, f"rule from {len(rows)} presets of {rows[0].prior}/{family}", scale)


def _family(task: Task, prior: str, conditions: Mapping[str, float]) -> tuple[list[Preset], str]:
    """The presets to learn from, and what they are called."""
    tuned = [p for p in PRESETS.values() if p.conditions]
    own = [p for p in tuned if p.prior == prior]
    if not own:
        other = "mri" if task.operator_name == "mri" else "natural"
        own = [p for p in tuned if p.prior == other]
    name = task.operator_name
    kinds = BLURS if name in BLURS else (name,)
    rows = [p for p in own if p.operator in kinds]
    if rows:
        return rows, kinds[-1]
    # an operator of the user's: the linear family that sees as much of the image
    linear = {k: [p for p in own if p.operator == k] for k in LINEAR}
    near = {
        k: abs(
            sum(math.log(p.conditions["seen"]) for p in rows) / len(rows)
            - math.log(conditions["seen"])
        )
        for k, rows in linear.items()
        if rows
    }
    if not near:
        raise ArgumentError(
            f"there is no preset to derive parameters from for the prior {prior!r}; "
            "run pnpcm tune and give its file as preset"
        )
    nearest = min(near, key=lambda k: near[k])
    return linear[nearest], nearest


def frame_for(task: Task, problem: Problem, sigma_y: float) -> dict[str, Any]:
    """What is not searched: data step, start, clamping.

    JPEG starts at the picture: from grey, it would find the flattest image in the cells. An MR
    image has no largest value that is known beforehand, so it is not clamped.
    """
    return {
        "data_step": data_step_for(task, problem, sigma_y),
        "init": "z_start" if task.operator_name == "jpeg" else "auto",
        "clamp": task.operator_name != "mri",
    }


def data_step_for(task: Task, problem: Problem, sigma_y: float) -> DataStep:
    """How the inner problem of a task is solved: in closed form or by CG where A is linear."""
    if task.operator_name == "mri":
        return CGStep(10, start="warm")
    if task.operator_name == "jpeg" and sigma_y == 0:
        return ProjectStep()
    if getattr(problem.operator, "linear", hasattr(problem.operator, "A_adjoint")):
        return ProxStep()
    return GradientStep("lbfgs", n_iter=40 if task.operator_name == "phase-retrieval" else 10)


def usual_steps(task: Task) -> int:
    """Network evaluations where the user does not say: 8 for phase retrieval, else 4."""
    return 8 if task.operator_name == "phase-retrieval" else 4


def with_injection(choice: Choice, settings: Mapping[str, Any] | None = None) -> Choice:
    """For independent samples: with little or no injected noise they would be one image K times.

    A ``noise_scale`` that the user set stays.
    """
    if choice.config.noise_scale >= LEAST_INJECTION or "noise_scale" in (settings or {}):
        return choice
    config = replace(choice.config, noise_scale=1.0)
    source = f"{choice.source}; noise_scale=1 so that samples differ"
    return replace(choice, config=config, source=source)
