"""Plan of a reconstruction: prior, method, noise level and parameters, chosen before the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pnpcm import __version__, catalogue
from pnpcm.core import Config, Prior
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.metrics.noise_level import estimate_noise_std, noise_profile
from pnpcm.operators.traits import traits_of
from pnpcm.priors import BlendedPrior, GreyPrior, TiledPrior
from pnpcm.problems import Problem, Task
from pnpcm.recon.options import Options
from pnpcm.recon.parameters import (
    blends,
    choose_kinds,
    choose_method,
    choose_numbers,
    notes_on_preset,
)
from pnpcm.solvers import SOLVERS, GradientStep, StripStep

ESTIMATOR = "estimated: smallest eigenvalue of weakly textured patches (Liu, Tanaka & Okutomi)"
VISIBLE = 0.01
"""sigma_y below which texture and rounding are as large as the noise: no notes on its kind."""
UNEVEN = 1.5
"""Ratio of the levels in highlights and shadows above which noise depends on brightness."""
CORRELATED = 0.3
"""Correlation of neighbours above which noise is not white (averages of 2×2 pixels: 0.5)."""
SPREAD = 3.0
"""Energy of the median patch relative to the flattest above which it is texture, not noise."""
ANY_KIND = ("consistency", "edm", "vp")
KIND_WORDS = {
    "consistency": "consistency model",
    "edm": "denoiser",
    "vp": "noise predictor",
    "blend": "denoiser and consistency model",
}


class Priors:
    """The priors of one name; each kind is loaded at its first use.

    ``seconds``: time spent on loading so far. ``loading`` is called with the name before it. In
    another process it is :func:`shared_priors` of the same source: a worker loads a prior once.
    """

    def __init__(
        self,
        prior: str | Path | Prior,
        device: str | torch.device = "cpu",
        loading: Callable[[str], None] | None = None,
    ) -> None:
        self.device, self.seconds, self.loading = device, 0.0, loading
        self._source = prior
        self._loaded: dict[str | None, Prior] = {}
        if isinstance(prior, str | Path):
            self._source = catalogue.pinned(prior)
            self.name = str(self._source)
            known = catalogue.kinds(prior)
            self.kinds = known if known else (self._load(None),)
        else:
            prior = catalogue.load_prior(prior)  # a denoiser of another library becomes a prior
            self.name = getattr(prior, "info", {}).get("name", type(prior).__name__)
            self.name = self.name.removesuffix("-cm").removesuffix("-edm")
            kind = getattr(prior, "kind", None)
            self.kinds = ANY_KIND if kind is None else (str(kind),)
            self._loaded = dict.fromkeys(self.kinds, prior)

    def __reduce__(self) -> tuple[Any, ...]:
        source = self._source
        if not isinstance(source, str | Path):
            raise ArgumentError(f"prior {self.name!r} is an object; workers need a name or a file")
        if not catalogue.is_name(source) and Path(source).exists():
            source = Path(source).absolute()  # workers may run in another folder
        return shared_priors, (self.name, source, self.device)

    def __call__(self, kinds: tuple[str, ...]) -> Prior:
        """The prior of the first available kind of ``kinds``; of any kind if ``kinds`` is empty."""
        there = [kind for kind in kinds or ANY_KIND if kind in self.kinds]
        if not there:
            raise ArgumentError(
                f"prior {self.name!r} has the kinds {', '.join(self.kinds)}, but this method needs "
                f"{' or '.join(kinds)}; choose another prior or another method"
            )
        if there[0] not in self._loaded:
            self._load(there[0])
        return self._loaded[there[0]]

    def _load(self, kind: str | None) -> str:
        if self.loading is not None:
            self.loading(self.name)
        start = time.perf_counter()
        prior = catalogue.load_prior(self._source, kind=kind)
        kind = str(getattr(prior, "kind", "consistency"))
        if isinstance(prior, torch.nn.Module):
            prior = prior.to(self.device)
        self._loaded[kind] = prior
        self.seconds += time.perf_counter() - start
        return kind


@cache
def shared_priors(name: str, source: str | Path, device: str | torch.device) -> Priors:
    """The priors of a name or file, the same object for all jobs of a process."""
    found = Priors(source, device)
    found.name = name
    return found


@dataclass(frozen=True)
class Plan:
    """Method, prior, noise level and parameters, each with its origin."""

    method: str
    method_from: str
    prior: Prior | None
    prior_name: str
    config: Config
    parameters_from: str
    sigma_y: float
    sigma_y_from: str
    options: Options
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Sentences about y for the self-check."""

    def to_dict(self) -> dict[str, Any]:
        """The part of the record that is known before the run."""
        return {
            "versions": {"pnpcm": __version__, "torch": torch.__version__},
            "method": self.method,
            "method_from": self.method_from,
            "aim": self.options.aim,
            "prior": self.prior_name,
            "prior_kind": getattr(self.prior, "kind", None),
            "sigma_y": self.sigma_y,
            "sigma_y_from": self.sigma_y_from,
            "parameters_from": self.parameters_from,
            "solver": self.config.to_dict(),
            "samples": self.options.samples,
            "seed": self.options.seed,
        }


def prior_words(name: str, kind: str | None) -> str:
    """Name and kind of a prior, e.g. "natural (denoiser)"."""
    return f"{name} ({KIND_WORDS[kind]})" if kind in KIND_WORDS else name


def plan(
    task: Task, problem: Problem, options: Options, priors: Priors, *, noise: float | None = None
) -> Plan:
    """The plan for ``problem``. ``noise``: sigma_y if the caller has estimated it."""
    notes: list[str] = []
    sigma_y, sigma_from = _noise(problem, options, noise)
    if task.name == "denoise" and sigma_from == ESTIMATOR:
        sigma_y = _not_white(problem, sigma_y, notes)
    method, method_from = choose_method(problem, options, priors.kinds)
    solver = SOLVERS[method]
    prior = _prior(method, problem, options, priors) if solver.takes_prior else None
    kind = getattr(prior, "kind", None)
    chosen = choose_numbers(task, problem, method, priors.name, sigma_y, options, kind=kind)
    notes += notes_on_preset(task, options)
    config = _in_strips(chosen.config, problem, options.tile)
    reason = solver(prior, config).refusal(problem.operator)
    if reason is not None:
        raise ArgumentError(
            f"method {method} cannot serve {type(problem.operator).__name__}: {reason}"
        )
    if prior is not None:
        prior = _fitted(prior, priors.name, problem, options, notes)
    return Plan(
        method=method,
        method_from=method_from,
        prior=prior,
        prior_name=priors.name if solver.takes_prior else "none",
        config=config,
        parameters_from=chosen.source,
        sigma_y=sigma_y,
        sigma_y_from=sigma_from,
        options=options,
        notes=tuple(notes),
    )


def _prior(method: str, problem: Problem, options: Options, priors: Priors) -> Prior:
    both = {"edm", "consistency"} <= set(priors.kinds)
    if both and blends(method, priors.name, problem, options):
        return BlendedPrior(priors(("edm",)), priors(("consistency",)), options.perception)
    return priors(choose_kinds(method, priors.name, options))


def _noise(problem: Problem, options: Options, estimated: float | None) -> tuple[float, str]:
    if options.given_sigma_y is not None:
        return float(options.given_sigma_y), "given"
    if estimated is not None:
        return estimated, "estimated from the measurement"
    how = traits_of(problem.operator, 0.0).noise
    if how == "none":
        return 0.0, "0: the only error is rounding"
    if how == "exact" and options.sigma_y is None:
        return 0.0, "0: known pixels are exact unless sigma_y is given or auto"
    return measured_noise(problem), ESTIMATOR


def measured_noise(problem: Problem) -> float:
    """sigma_y, estimated from y; refused if y is not an image with noise."""
    how = traits_of(problem.operator, 0.0).noise
    if how not in ("image", "exact") or problem.y.is_complex() or problem.y.ndim != 4:
        raise ArgumentError(
            f"sigma_y cannot be estimated from a measurement of {problem.operator!r}; give sigma_y"
        )
    return estimate_noise_std(problem.y, problem.known) / 2


def _not_white(problem: Problem, sigma_y: float, notes: list[str]) -> float:
    """sigma_y for noise that is perhaps not white, with notes on what one level leaves out.

    Correlated noise has almost no smallest eigenvalue; its standard deviation is the better level:
    30.6 instead of 26.9 dB for means of 2×2 pixels, sigma_y 0.05, on a training photograph.
    """
    found = noise_profile(problem.y, problem.known)
    if found is None:
        return sigma_y
    flat = found.flat_std / 2
    if found.correlation >= CORRELATED and found.spread <= SPREAD and flat >= VISIBLE:
        notes.append(
            f"the noise is not white (correlation of neighbours {found.correlation:.1f}), as after "
            f"resizing or demosaicing: sigma_y is its standard deviation, {flat:.3f}; part of it "
            "will remain"
        )
        return flat
    std = [s / 2 for s in found.std]
    if sigma_y >= VISIBLE and max(std) > UNEVEN * min(std) and sorted(std) in (std, std[::-1]):
        notes.append(
            f"the noise depends on brightness: sigma_y {std[0]:.3f} in shadows, {std[-1]:.3f} in "
            f"highlights; one level, {sigma_y:.3f}, is used"
        )
    return sigma_y


def _fitted(prior: Prior, name: str, problem: Problem, options: Options, notes: list[str]) -> Prior:
    """The prior adapted to the problem: grey images through RGB, large images in tiles."""
    network = getattr(prior, "network", None)
    wanted = getattr(network, "in_channels", None)
    operator = problem.operator
    shape = tuple(operator.x_shape(problem.y)) if hasattr(operator, "x_shape") else ()
    channels, size = (shape[1], shape[-2:]) if len(shape) == 4 else (None, (0, 0))
    _check_size(prior, name, size)
    if channels == 1 and wanted == 3:
        prior = GreyPrior(prior)
        notes.append("grey image: replicated to RGB for the prior, its result averaged")
    any_size = network is not None and getattr(network, "image_size", None) is None
    if max(size) > options.tile and any_size:
        prior = TiledPrior(prior, tile=options.tile, halo=options.halo)
        if not prior.close:
            notes.append(f"tiles of the prior are approximate: halo of {prior.halo} pixels")
    return prior


def _check_size(prior: Prior, name: str, size: tuple[int, ...]) -> None:
    """Refuse an image of another size than that of a prior for one size."""
    trained = getattr(getattr(prior, "network", None), "image_size", None)
    inner = prior.prior if isinstance(prior, BlendedPrior) else prior
    any_size = getattr(inner, "any_size", True)  # others take any, e.g. in tiles
    if trained is None or any_size or size in ((0, 0), (trained, trained)):
        return
    raise ShapeError(
        f"prior {name!r} is for images of {trained}×{trained}, but the image to be restored is "
        f"{size[0]}×{size[1]}; crop or resize it, or use a prior for any size, e.g. natural"
    )


def _in_strips(config: Config, problem: Problem, tile: int) -> Config:
    """``config`` with the data step in strips of rows, for large images and suitable operators."""
    step = getattr(config, "data_step", None)
    large = max(problem.y.shape[-2:]) > 2 * tile
    if not (large and isinstance(step, GradientStep) and traits_of(problem.operator, 0.0).strips):
        return config
    changes: Mapping[str, Any] = {"data_step": StripStep(step, rows=tile)}
    return replace(config, **changes)
