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
from pnpcm.arguments import check_float
from pnpcm.core import Config, Operator, Prior, Result, Step, name_of
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.files import save_picture, side_by_side, to_picture, write_atomically
from pnpcm.io.photos import Photo, check_photo, read_photo, upright, write_photo
from pnpcm.io.reading import Budget
from pnpcm.io.staging import staging
from pnpcm.names import count_of
from pnpcm.operators.traits import misfit_of, traits_of
from pnpcm.problems import Custom, Problem, Task, TaskChoice, resolve_signs
from pnpcm.problems.measurement import SUFFIX, Measurement, read_measurement
from pnpcm.recon.check import Check, check
from pnpcm.recon.options import Options
from pnpcm.recon.plan import Plan, Priors, measured_noise, plan, prior_words
from pnpcm.recon.record import (
    Request,
    Watch,
    publish_result,
    read_record,
    record_path,
    unwatched,
)
from pnpcm.recon.run import rounded, run, timed

DEFAULT_PRIOR = "natural"
NEED = 200
"""Bytes of memory per pixel of a restored image (``benchmarks/speed/big_restore.py``)."""
OTHER_RANGE = "the result explains y as it was given, but y seems to have another range"
SAMPLE = 36
"""Bytes per pixel of every further sample: three colours in float32, in up to three copies."""


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
    return restore_with(
        y, operator, chosen, priors, reference=reference, callback=callback, from_file=False
    )


def restore_with(
    y: Tensor,
    operator: Operator | Task,
    options: Options,
    priors: Priors,
    *,
    reference: Tensor | None = None,
    callback: Callable[[Step], None] | None = None,
    watch: Callable[[float, int], None] | None = None,
    from_file: bool = True,
) -> Restoration:
    """:func:`restore` with loaded priors, for many images; ``watch``: see :func:`run`.

    ``from_file``: y was read from a file, so that its range is known to be [-1, 1].
    """
    seconds: dict[str, float] = {}
    before = priors.seconds
    with timed(seconds, "plan"):
        planned, problem = plan_photo(y, operator, options, priors, from_file=from_file)
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
            warnings=planned.warnings,
        )
        if planned.warnings and judged.ratio <= judged.tolerance:
            judged = replace(judged, verdict=OTHER_RANGE)
    several = options.samples > 1
    x = pictures.mean(0, keepdim=True) if several else pictures
    return Restoration(
        result=replace(result, x=keep(x, problem.y) if exact and several else x),
        sample=pictures[:1],
        std=pictures.std(0, keepdim=True) if several else None,
        check=judged,
        plan=planned,
        operator=name_of(problem.operator),
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
    y: Tensor,
    operator: Operator | Task,
    options: Options,
    priors: Priors,
    *,
    from_file: bool = True,
) -> tuple[Plan, Problem]:
    """The plan and the problem of :func:`restore` with these arguments."""
    check_float("y", y)
    if y.requires_grad:
        raise ArgumentError("y requires a gradient, which restore cannot compute; give y.detach()")
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
    warning = None if from_file else range_warning(problem, options.given_sigma_y)
    planned = plan(task, problem, options, priors)
    return planned if warning is None else replace(planned, warnings=(warning,)), problem


def range_warning(problem: Problem, sigma_y: float | None) -> str | None:
    """A sentence if y seems to be in [0, 1] instead of [-1, 1]; an error if it must be.

    Judged are measurements that are images: A maps white (1) to about 1. The mean of an image in
    [-1, 1] is not changed by noise, and noise that exceeds 3 has negative values too.
    """
    y, operator = problem.y, problem.operator
    if y.is_complex() or y.ndim != 4 or not hasattr(operator, "x_shape"):
        return None
    white = operator.A(torch.ones(operator.x_shape(y), dtype=y.dtype, device=y.device))
    if white.shape != y.shape or abs(float(white.max()) - 1) > 0.05:
        return None
    known = y if problem.known is None else y[problem.known.expand_as(y) > 0]
    low, high, mean = float(known.min()), float(known.max()), float(known.mean())
    spread = math.inf if sigma_y is None else 1.5 + 12 * sigma_y
    if abs(mean) > 1.5 or max(-low, high) > spread or (low >= 0 and high > 3):
        is_8_bit = high > 3 and (1.5 < mean <= 256 or (low >= 0 and high <= 256))
        raise ArgumentError(
            f"y has values from {low:.3g} to {high:.3g}, expected an image in [-1, 1]"
            + ("; give y / 127.5 - 1" if is_8_bit else "; rescale it")
        )
    inside = float(((known >= -0.05) & (known <= 1.05)).float().mean())
    if inside < 0.98 or high - low < 0.2:
        return None
    return (
        f"y has values from {low:.2g} to {high:.2g}: if black is 0 and white is 1, give 2 * y - 1, "
        "since images are in [-1, 1] here"
    )


@dataclass(frozen=True)
class PhotoJob:
    """Restoration of the files of a run: task, options and loaded priors.

    ``compare``: also write a picture of the image before and after restoration. ``max_pixels``:
    larger images are refused; None: what the memory allows.
    """

    choice: TaskChoice
    options: Options
    priors: Priors
    format: str | None = None
    reference: Path | None = None
    compare: bool = False
    max_pixels: int | None = None
    watch: Watch = unwatched

    def task(self, path: Path) -> str:
        """The name of the task of one file."""
        if path.suffix.lower() != SUFFIX:
            return self.choice.name
        try:
            return self._measurement(path).task.name
        except Exception:  # of any kind; reported when the file is restored
            return self.choice.name

    def files(self, target: Path) -> list[str]:
        """Names of all files of a result, without its record."""
        several = self.options.samples > 1
        return [p.name for p in result_files(target, several=several, compare=self.compare)]

    def check(self, path: Path) -> None:
        """Refuse a file that is far longer than its picture."""
        if path.suffix.lower() != SUFFIX:
            check_photo(path)

    def unwatched(self) -> PhotoJob:
        """The same job for another process."""
        return replace(self, watch=unwatched)

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
            reference = None
            if self.reference is not None:
                try:
                    reference = read_photo(self.reference, max_pixels=self.max_pixels).x
                except ArgumentError as error:
                    raise ArgumentError(f"reference {error}") from error
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
        found = planned.to_dict() | more | {"operator": name_of(problem.operator)}
        return found | {"notes": [*notes, *planned.notes]}

    def _read(self, path: Path) -> tuple[Tensor, Task, Options, Photo | None, tuple[str, ...]]:
        if path.suffix.lower() != SUFFIX:
            need = NEED * self.choice.growth
            photo = read_photo(path, max_pixels=self.max_pixels, need=need)
            self._check_samples(path, photo.x, need, self.choice.growth)
            task, notes = self.choice.of(photo, max_pixels=self.max_pixels)
            return photo.x, task, self.options, photo, notes
        measured = self._measurement(path)
        if len(measured.y) != 1:
            raise ArgumentError(
                f"{path} has {len(measured.y)} measurements, but a result is one image; write each "
                "y[i : i + 1] to a file of its own"
            )
        growth = measured.task.growth
        self._check_samples(path, measured.y, NEED * growth, growth)
        options = self.options
        if options.sigma_y is None:
            options = replace(options, sigma_y=measured.sigma_y)
        return measured.y, measured.task, options, None, ()

    def _check_samples(self, path: Path, y: Tensor, need: int, growth: int) -> None:
        """Refuse more samples than the memory holds; ``need``: bytes per pixel of y for one."""
        more = self.options.samples - 1
        if more and self.max_pixels is None:
            budget = Budget(need + more * SAMPLE * growth, move="use fewer samples")
            budget.check(path, (y.shape[-1], y.shape[-2]), f"pixels for {more + 1} samples")

    def _measurement(self, path: Path) -> Measurement:
        return read_measurement(path, max_pixels=self.max_pixels, need=NEED)


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
            "seconds": rounded(self.seconds),
        }

    def report(self) -> str:
        """A summary of a few lines."""
        p = self.plan
        prior = prior_words(p.prior_name, getattr(p.prior, "kind", None))
        lines = [
            f"{self.operator}, prior {prior}, " + count_of(self.result.nfe, "network evaluation"),
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
        """Write the image and the record, for several samples also one sample and the std.

        ``like``: the photo whose bit depth, alpha, profile and EXIF are kept. ``record``: more
        values for ``NAME.result.json``, which marks a finished result. ``before``: label and image
        for the left half of ``NAME.compare.png``. All files appear together. Returns their paths.
        """
        path = Path(path)
        if len(self.x) != 1:
            raise ArgumentError(
                f"x has {len(self.x)} images, but {path} is one; restore and save y[i : i + 1]"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with staging(path.parent) as inside:
            with timed(self.seconds, "write"):
                written = self._write(inside / path.name, like, format, before)
            content = self.to_dict() | dict(record or {})
            publish_result(path.parent, path.stem, content, written)
        files = [path.with_name(file.name) for file in written]
        return [*files, record_path(path.parent, path.stem)]

    def _write(
        self,
        path: Path,
        like: Photo | None,
        format: str | None,
        before: tuple[str, Tensor] | None,
    ) -> list[Path]:
        """Write all files but the record, and return their paths."""
        written = result_files(path, several=self.std is not None, compare=before is not None)
        _write(path, self.x[0], like, format)
        if self.std is not None:
            sample, array, picture = written[1:4]
            _write(sample, self.sample[0], like, format)
            write_atomically(array, lambda p: _save_array(p, self.std))
            save_picture(picture, to_picture(heat(self.std[0].mean(0))))
        if before is not None:
            panels = (before[0], before[1][0]), ("after", self.x[0])
            pictures = [(label, upright(to_picture(x), like)) for label, x in panels]
            save_picture(written[-1], side_by_side(pictures))
        return written


def result_files(path: Path, *, several: bool, compare: bool) -> list[Path]:
    """The files of a result at ``path``: the image; of several samples one of them and their std as
    array and picture; the comparison."""
    endings = [f"sample{path.suffix}", "std.npy", "std.png"] if several else []
    endings += ["compare.png"] if compare else []
    return [path, *(path.with_name(f"{path.stem}.{ending}") for ending in endings)]


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
