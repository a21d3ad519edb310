"""Photographs: ``restore`` computes an image from a measurement and selects all parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm import __version__
from pnpcm.core import Config, Operator, Prior, Result, Step
from pnpcm.errors import ArgumentError, PnPCMError, ShapeError
from pnpcm.io.files import save_picture, side_by_side, to_picture, write_atomically
from pnpcm.io.photos import Photo, read_photo, upright, write_photo
from pnpcm.operators.traits import misfit_of, traits_of
from pnpcm.problems import Custom, Problem, Task, TaskChoice, resolve_signs
from pnpcm.problems.measurement import SUFFIX, read_measurement
from pnpcm.recon.check import Check, check
from pnpcm.recon.options import Options
from pnpcm.recon.plan import Plan, Priors, measured_noise, plan, prior_words
from pnpcm.recon.record import Request, Watch, read_record, record_path, write_record
from pnpcm.recon.run import run, timed

DEFAULT_PRIOR = "natural"


def restore(
    y: Tensor,
    operator: Operator | Task,
    prior: str | Path | Prior | None = None,
    *,
    options: Options | None = None,
    reference: Tensor | None = None,
    callback: Callable[[Step], None] | None = None,
    **choices: Any,
) -> Restoration:
    """Restore the image that ``y`` was measured from.

    >>> pnpcm.restore(y, SuperResolution((3, 256, 256), 4), sigma_y=0.02).x

    ``y``: ``(B, C, H, W)`` or ``(C, H, W)``, images in [-1, 1]. ``operator``: a forward model, or
    a task of ``pnpcm.problems``. ``choices``: fields of :class:`Options` (``sigma_y``, ``method``,
    ``aim``, ``steps``, …), or ``options`` as one object. ``reference``: image that decides the
    signs of phase retrieval.
    """
    if prior is not None:
        choices["prior"] = prior
    chosen = Options.of(options, choices)
    priors = Priors(DEFAULT_PRIOR if chosen.prior is None else chosen.prior, chosen.device)
    return restore_with(y, operator, chosen, priors, reference=reference, callback=callback)


def restore_with(
    y: Tensor,
    operator: Operator | Task,
    options: Options,
    priors: Priors,
    *,
    reference: Tensor | None = None,
    callback: Callable[[Step], None] | None = None,
    watch: Callable[[float, int], None] | None = None,
) -> Restoration:
    """:func:`restore` with loaded priors, for many images; ``watch``: see :func:`run`."""
    seconds: dict[str, float] = {}
    before = priors.seconds
    with timed(seconds, "plan"):
        planned, problem = plan_photo(y, operator, options, priors)
    seconds["prior"] = priors.seconds - before
    seconds["plan"] -= seconds["prior"]
    notes, noise_std = list(planned.notes), 2 * planned.sigma_y
    traits = traits_of(problem.operator, noise_std)
    with timed(seconds, "solve"):
        count = max(1, options.tile**2 // max(1, math.prod(problem.y.shape[-2:])))
        seeds = [
            [options.seed + k * len(problem.y) + b for b in range(len(problem.y))]
            for k in range(options.samples)
        ]
        result, drawn = run(
            planned,
            problem.y,
            problem.operator,
            seeds,
            at_once=count,
            callback=callback,
            watch=watch,
        )
        notes += result.notes
        keep: Any = getattr(problem.operator, "with_known", None)
        exact = planned.sigma_y == 0 and traits.noise == "exact"
        if exact:
            drawn = keep(drawn, problem.y)
    with timed(seconds, "check"):
        first = drawn[:, 0] if options.samples > 1 else drawn[0]
        if traits.signs:
            first, note = resolve_signs(problem.operator, first, reference, planned.prior)  # type: ignore[arg-type]
            notes.append(note)
        misfit = misfit_of(problem.operator, first[:1], problem.y[:1], noise_std)
        pictures = problem.picture(first)
        judged = check(
            pictures[:1],
            [misfit],
            planned.prior,
            clamped=traits.clamp,
            sigma_y=planned.sigma_y,
            noise_y=_noise_of_y(problem) if options.given_sigma_y else None,
        )
    several = options.samples > 1
    x = pictures.mean(0, keepdim=True) if several else pictures
    return Restoration(
        result=replace(result, x=keep(x, problem.y) if exact and several else x),
        sample=pictures[:1],
        std=pictures.std(0, keepdim=True) if several else None,
        check=judged,
        plan=planned,
        operator=repr(problem.operator),
        notes=tuple(notes),
        seconds=seconds,
    )


def _noise_of_y(problem: Problem) -> float | None:
    """The noise of y on [0, 1], estimated from it; None where that is not possible."""
    try:
        return measured_noise(problem)
    except ArgumentError:
        return None


def plan_photo(
    y: Tensor, operator: Operator | Task, options: Options, priors: Priors
) -> tuple[Plan, Problem]:
    """The plan and the problem of :func:`restore` with these arguments."""
    if not isinstance(y, Tensor):
        raise ArgumentError(f"y is a {type(y).__name__}, expected a torch.Tensor (B, C, H, W)")
    if y.ndim == 3 and not y.is_complex():
        y = y[None]
    if y.ndim < 4:
        raise ShapeError(f"y has shape {tuple(y.shape)}, expected (B, C, H, W) or (C, H, W)")
    task = operator if isinstance(operator, Task) else Custom(operator)
    problem = task.problem(y.to(options.device))
    if options.samples > 1 and len(problem.y) > 1:
        raise ArgumentError(
            f"samples is {options.samples} for {len(problem.y)} images; give 1, or a single y"
        )
    return plan(task, problem, options, priors), problem


@dataclass(frozen=True)
class PhotoJob:
    """Restoration of the files of a run: task, options and loaded priors.

    ``compare``: also write a picture of the image before and after restoration.
    """

    choice: TaskChoice
    options: Options
    priors: Priors
    format: str | None = None
    reference: Path | None = None
    compare: bool = False
    watch: Watch = field(default=lambda what, done, total: None)

    def task(self, path: Path) -> str:
        """The name of the task of one file."""
        if path.suffix.lower() != SUFFIX:
            return self.choice.name
        try:
            return read_measurement(path).task.name
        except PnPCMError:  # reported when the file is restored
            return self.choice.name

    def choices(self, path: Path) -> dict[str, Any]:
        """The request of the user; a result of another request is computed again."""
        choice = self.choice
        own = {
            "pnpcm": __version__,
            "format": self.format,
            "reference": self.reference,
            "task": choice.task,
            "operator": choice.operator,
            "mask": choice.mask_of(path),
            "mask_color": choice.mask_color,
            "compare": self.compare or None,
        }
        return own | dict(choice.options) | self.options.to_dict() | {"prior": self.priors.name}

    def __call__(self, path: Path, target: Path, request: Request) -> tuple[dict[str, Any], str]:
        """Restore one image or measurement file to ``target``; returns its record and a report."""
        solved = self.solve(path)
        return self.save(solved, target, request), solved.restoration.report()

    def solve(self, path: Path, callback: Callable[[Step], None] | None = None) -> Solved:
        """Read and restore one image or measurement file."""
        seconds: dict[str, float] = {}
        with timed(seconds, "read"):
            self.watch(f"{path.name}, reading", 0, 0)
            y, task, options, photo, notes = self._read(path)
            reference = None if self.reference is None else read_photo(self.reference).x
        self.watch(f"{path.name}, planning", 0, 0)
        done = restore_with(
            y,
            task,
            options,
            self.priors,
            reference=reference,
            callback=callback,
            watch=lambda done, total: self.watch(f"{path.name}, step", done, total),
        )
        done = replace(done, notes=(*notes, *done.notes), seconds=seconds | done.seconds)
        self.watch(f"{path.name}, writing", 0, 0)
        return Solved(y, task, photo, done)

    def save(self, solved: Solved, target: Path, request: Request) -> dict[str, Any]:
        """Write the files of a result, then its record, which is returned."""
        task = solved.task
        solved.restoration.save(
            target,
            like=solved.photo,
            format=self.format,
            record=request.to_dict() | {"task": task.name, "options": task.plain()},
            before=(f"before: {task.baseline_name}", solved.before()) if self.compare else None,
        )
        return read_record(target.parent, target.stem) or {}

    def plan(self, path: Path) -> dict[str, Any]:
        """The plan for one file, as plain values."""
        y, task, options, _, notes = self._read(path)
        planned, problem = plan_photo(y, task, options, self.priors)
        more = {"input": str(path), "task": task.name, "options": task.plain()}
        found = planned.to_dict() | more | {"operator": repr(problem.operator)}
        return found | {"notes": [*notes, *planned.notes]}

    def _read(self, path: Path) -> tuple[Tensor, Task, Options, Photo | None, tuple[str, ...]]:
        if path.suffix.lower() != SUFFIX:
            photo = read_photo(path)
            task, notes = self.choice.of(photo)
            return photo.x, task, self.options, photo, notes
        measured = read_measurement(path)
        options = self.options
        if options.sigma_y is None:
            options = replace(options, sigma_y=measured.sigma_y)
        return measured.y, measured.task, options, None, ()


@dataclass(frozen=True, eq=False)
class Solved:
    """A restored file: measurement, task, and the photo whose metadata the result keeps."""

    y: Tensor
    task: Task
    photo: Photo | None
    restoration: Restoration

    def before(self) -> Tensor:
        """The image before restoration ``(1, C, H, W)``, in the size of the result."""
        return self.task.baseline(self.task.problem(self.y))


@dataclass(frozen=True)
class Restoration:
    """A restored image, its plan, check and times.

    ``x``: ``(B, C, H, W)`` in [-1, 1], the mean of all samples. ``sample``: the first sample.
    ``std``: per-pixel standard deviation of the samples, None for one. ``check``: the self-check
    of the first image. ``seconds``: time of each stage.
    """

    result: Result
    sample: Tensor
    std: Tensor | None
    check: Check
    plan: Plan
    operator: str
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def x(self) -> Tensor:
        return self.result.x

    @property
    def config(self) -> Config:
        """The configuration of the solver."""
        return self.plan.config

    def to_dict(self) -> dict[str, Any]:
        """The record without pixels, as plain values."""
        return self.plan.to_dict() | {
            "operator": self.operator,
            "shape": list(self.x.shape),
            "nfe": self.result.nfe,
            "check": self.check.to_dict(),
            "notes": list(self.notes),
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
        }

    def report(self) -> str:
        """A summary of a few lines."""
        p = self.plan
        prior = prior_words(p.prior_name, getattr(p.prior, "kind", None))
        lines = [
            f"{self.operator}, prior {prior}, {self.result.nfe} network "
            + ("evaluation" if self.result.nfe == 1 else "evaluations"),
            f"method: {p.method} ({p.method_from}), aim {p.options.aim}",
            f"noise: sigma_y = {p.sigma_y:.4g} ({p.sigma_y_from})",
            f"parameters: {p.parameters_from}",
            *self.check.lines(),
            "seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in self.seconds.items()),
        ]
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])

    def save(
        self,
        path: str | Path,
        *,
        like: Photo | None = None,
        format: str | None = None,
        record: Mapping[str, Any] | None = None,
        before: tuple[str, Tensor] | None = None,
    ) -> list[Path]:
        """Write the image, for several samples also one sample and the std, then the record.

        ``like``: the photo whose bit depth, alpha, profile and EXIF are kept. ``record``: more
        values for ``NAME.result.json``, which is written last and marks a finished result.
        ``before``: label and image for the left half of ``NAME.compare.png``. Returns the paths of
        all files.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with timed(self.seconds, "write"):
            written = [path]
            _write(path, self.x[0], like, format)
            if self.std is not None:
                names = [path.with_name(f"{path.stem}.{part}") for part in ("std.npy", "std.png")]
                sample = path.with_name(f"{path.stem}.sample{path.suffix}")
                _write(sample, self.sample[0], like, format)
                write_atomically(names[0], lambda p: _save_array(p, self.std))
                save_picture(names[1], to_picture(heat(self.std[0].mean(0))))
                written += [sample, *names]
            if before is not None:
                written.append(path.with_name(f"{path.stem}.compare.png"))
                panels = (before[0], before[1][0]), ("after", self.x[0])
                pictures = [(label, upright(to_picture(x), like)) for label, x in panels]
                save_picture(written[-1], side_by_side(pictures))
        content = self.to_dict() | dict(record or {})
        write_record(path.parent, path.stem, content, written)
        return [*written, record_path(path.parent, path.stem)]


def heat(values: Tensor) -> Tensor:
    """``(H, W)`` ≥ 0 as a colour image ``(3, H, W)`` in [-1, 1]: black, red, yellow, white.

    White is the 99.5th percentile.
    """
    flat = values.flatten()
    top = flat.kthvalue(max(1, int(0.995 * flat.numel()))).values.clamp_min(1e-8)
    v = (values / top).clamp(0, 1)
    return torch.stack([(3 * v - k).clamp(0, 1) for k in range(3)]) * 2 - 1


def _write(path: Path, x: Tensor, like: Photo | None, format: str | None) -> None:
    if like is None:
        save_picture(path, to_picture(x))
    else:
        write_photo(path, x, like, format=format)


def _save_array(path: Path, values: Tensor | None) -> None:
    with path.open("wb") as file:
        np.save(file, np.asarray(values, dtype=np.float32))
