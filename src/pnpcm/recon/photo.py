"""Restore: from a measurement to an image, with every number chosen unless the user gave it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from pnpcm.catalogue import named_prior
from pnpcm.core import LinearOperator, Operator, Prior, Result, Step
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.metrics.noise_level import estimate_noise_std
from pnpcm.operators import JPEG, PhaseRetrieval
from pnpcm.priors import GreyPrior, TiledPrior
from pnpcm.problems import Custom, Problem, Task
from pnpcm.recon.check import check
from pnpcm.recon.parameters import Choice, choose, with_injection
from pnpcm.recon.record import Restoration
from pnpcm.recon.signs import resolve_signs
from pnpcm.recon.timing import timed
from pnpcm.rng import generators
from pnpcm.solvers import GradientStep, PnPCM, StripStep

TILE = 768
ESTIMATOR = "estimated: median absolute deviation of Daubechies-2 details (Donoho & Johnstone)"


def restore(
    y: Tensor,
    operator: Operator | Task,
    prior: str | Path | Prior = "natural",
    *,
    sigma_y: float | None = None,
    steps: int | None = None,
    preset: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    samples: int = 1,
    seed: int = 0,
    tile: int = TILE,
    halo: int | None = None,
    reference: Tensor | None = None,
    device: str | torch.device = "cpu",
    callback: Callable[[Step], None] | None = None,
) -> Restoration:
    """Restore the image that ``y`` was measured from.

    >>> pnpcm.restore(y, SuperResolution((3, 256, 256), 4), sigma_y=0.02).x

    ``y``: ``(B, C, H, W)`` or ``(C, H, W)``, images in [-1, 1]. ``operator``: a forward model, or
    a task of ``pnpcm.problems``. ``sigma_y``: noise on the [0, 1] scale; None: estimated.
    ``steps``, ``preset``, ``settings``: the solver's numbers; what is left open comes from a preset
    or the rule. ``samples``: independent reconstructions of a single ``y``. ``tile``: side of the
    squares that the prior works on in large images, ``halo`` what it sees around them (None: all
    that its network looks at, so that tiles change nothing; 64 halves the time of the prior and
    changed a photograph by 1e-6). ``reference``: image that resolves the signs of phase retrieval.
    """
    planned = plan(
        y,
        operator,
        prior,
        sigma_y=sigma_y,
        steps=steps,
        preset=preset,
        settings=settings,
        samples=samples,
        tile=tile,
        halo=halo,
        device=device,
    )
    problem, stages, notes = planned.problem, dict(planned.seconds), list(planned.notes)
    with timed(stages, "solve"):
        result, drawn = _solve(planned, samples, seed, tile, callback)
    with timed(stages, "check"):
        if isinstance(problem.operator, PhaseRetrieval):
            drawn, note = resolve_signs(problem.operator, drawn, reference, planned.prior)
            notes.append(note)
        noise_std = 2 * planned.sigma_y
        judged = check(drawn[:1], problem.y[:1], problem.operator, noise_std, planned.prior)
    several = samples > 1
    pictures = problem.picture(drawn)
    x = pictures.mean(0, keepdim=True) if several else pictures
    return Restoration(
        result=replace(result, x=x),
        sample=pictures[:1],
        std=pictures.std(0, keepdim=True) if several else None,
        check=judged,
        config=planned.chosen.config,
        source=planned.chosen.source,
        sigma_y=planned.sigma_y,
        sigma_source=planned.sigma_source,
        samples=samples,
        seed=seed,
        prior=planned.name,
        operator=repr(problem.operator),
        notes=tuple(notes),
        seconds=stages,
    )


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the solver starts."""

    problem: Problem
    prior: Prior
    name: str
    sigma_y: float
    sigma_source: str
    chosen: Choice
    notes: tuple[str, ...]
    seconds: dict[str, float]


def plan(
    y: Tensor,
    operator: Operator | Task,
    prior: str | Path | Prior = "natural",
    *,
    sigma_y: float | None = None,
    steps: int | None = None,
    preset: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    samples: int = 1,
    tile: int = TILE,
    halo: int | None = None,
    device: str | torch.device = "cpu",
) -> Plan:
    """What :func:`restore` would do with these arguments."""
    stages: dict[str, float] = {}
    notes: list[str] = []
    with timed(stages, "prior"):
        loaded, name = named_prior(prior)
        if isinstance(prior, str | Path) and isinstance(loaded, torch.nn.Module):
            loaded = loaded.to(device)
    with timed(stages, "problem"):
        task = operator if isinstance(operator, Task) else Custom(operator)
        problem = task.problem(_batch(y).to(device))
        if samples < 1 or (samples > 1 and len(problem.y) > 1):
            raise ArgumentError(f"samples is {samples}; give 1, or more for a single y")
        loaded = _fitted(loaded, problem, tile, halo, notes)
    with timed(stages, "noise"):
        sigma_y, source = _noise(problem, sigma_y)
    with timed(stages, "parameters"):
        chosen = choose(task, problem, name, sigma_y, steps=steps, preset=preset, settings=settings)
        chosen = with_injection(chosen, settings) if samples > 1 else chosen
        chosen = _in_strips(chosen, problem, tile)
    return Plan(problem, loaded, name, sigma_y, source, chosen, tuple(notes), stages)


def _solve(
    planned: Plan,
    samples: int,
    seed: int,
    tile: int,
    callback: Callable[[Step], None] | None,
) -> tuple[Result, Tensor]:
    """One run, or several samples in batches that fit in the memory of one tile or image."""
    problem = planned.problem
    solver, y = PnPCM(planned.prior, planned.chosen.config), problem.y
    if samples == 1:
        seeds = generators([seed + i for i in range(len(y))])
        start = _start(planned, y)
        result = solver(y, problem.operator, generator=seeds, x_init=start, callback=callback)
        return result, result.x
    at_once = max(1, tile**2 // max(1, math.prod(y.shape[-2:])))
    drawn = []
    for first in range(0, samples, at_once):
        seeds = generators([seed + i for i in range(first, min(first + at_once, samples))])
        each = y.expand(len(seeds), *y.shape[1:]).contiguous()
        start = _start(planned, each)
        result = solver(each, problem.operator, generator=seeds, x_init=start, callback=callback)
        drawn.append(result.x)
    return result, torch.cat(drawn)


def _start(planned: Plan, y: Tensor) -> Tensor | None:
    """Aᵀy in the size of an image, where the choice asks for it; None: the solver's own start."""
    scale = planned.chosen.start_scale
    if scale is None:
        return None
    return scale * cast(LinearOperator, planned.problem.operator).A_adjoint(y)


def _fitted(prior: Prior, problem: Problem, tile: int, halo: int | None, notes: list[str]) -> Prior:
    """The prior for images of this kind: grey through RGB, large ones in tiles."""
    network = getattr(prior, "network", None)
    wanted = getattr(network, "in_channels", None)
    shape = (
        tuple(problem.operator.x_shape(problem.y)) if hasattr(problem.operator, "x_shape") else ()
    )
    channels, size = (shape[1], shape[-2:]) if len(shape) == 4 else (None, (0, 0))
    if channels == 1 and wanted == 3:
        prior = GreyPrior(prior)
        notes.append("grey image: replicated to RGB for the prior, its answer averaged")
    if max(size) > tile and getattr(network, "image_size", None) is None and network is not None:
        prior = TiledPrior(prior, tile=tile, halo=halo)
        if not prior.exact:
            notes.append(f"tiles of the prior are approximate: a halo of {prior.halo} pixels")
    return prior


def _noise(problem: Problem, sigma_y: float | None) -> tuple[float, str]:
    if sigma_y is not None:
        if not 0 <= sigma_y < math.inf:
            raise ArgumentError(f"sigma_y must be ≥ 0 ([0, 1] scale), got {sigma_y}")
        return float(sigma_y), "given"
    if isinstance(problem.operator, JPEG):
        return 0.0, "JPEG: 0, rounding is the error"
    y = problem.y
    if isinstance(problem.operator, PhaseRetrieval) or y.is_complex() or y.ndim != 4:
        raise ArgumentError(
            f"sigma_y cannot be estimated from a measurement of {problem.operator!r}; give it"
        )
    return estimate_noise_std(y, problem.known) / 2, ESTIMATOR


def _in_strips(chosen: Choice, problem: Problem, tile: int) -> Choice:
    """Large JPEG images: the data step goes through strips of block rows."""
    iterates = isinstance(chosen.config.data_step, GradientStep)
    large = isinstance(problem.operator, JPEG) and max(problem.y.shape[-2:]) > 2 * tile
    if not (large and iterates):
        return chosen
    strips = StripStep(chosen.config.data_step, rows=tile)
    return replace(chosen, config=replace(chosen.config, data_step=strips))


def _batch(y: Tensor) -> Tensor:
    if not isinstance(y, Tensor):
        raise ArgumentError(f"y is a {type(y).__name__}, expected a torch.Tensor (B, C, H, W)")
    if y.ndim == 3 and not y.is_complex():
        y = y[None]
    if y.ndim < 4:
        raise ShapeError(f"y has shape {tuple(y.shape)}, expected (B, C, H, W) or (C, H, W)")
    return y
