"""Recipes: the configuration of a training run, in one YAML file.

Paths in a recipe start from its own folder, or from ``$PNPCM_DATA`` (data sets) and
``$PNPCM_RUNS`` (training runs), see :mod:`pnpcm.places`. Overrides are ``section.field=value``,
the value in YAML, and take precedence over the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pnpcm.arguments import check_count
from pnpcm.core import Config
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.io.yaml_files import build, parse, read_mapping
from pnpcm.networks import UNetConfig
from pnpcm.priors.base import check_c_noise
from pnpcm.training.data import SourceConfig
from pnpcm.training.losses import LOSSES
from pnpcm.training.step import Loss

PRECISIONS = {"fp32": "no", "fp16": "fp16", "bf16": "bf16"}
"""Names of mixed precision → those of accelerate; YAML reads a bare no as False."""


@dataclass(frozen=True)
class DataConfig(Config):
    """The training images. ``crop=None``: whole images."""

    sources: tuple[SourceConfig, ...] = ()
    crop: int | None = None
    flip: str = "horizontal"
    workers: int = 0


@dataclass(frozen=True)
class OptimizerConfig(Config):
    """``schedule``: "constant", "cosine" to zero, or "trapezoid" (linear to zero in the last
    ``decay`` of the run), each after a linear warm-up. ``clip``: largest gradient norm."""

    kind: str = "radam"
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    warmup: int = 0
    schedule: str = "constant"
    decay: float = 0.2
    clip: float | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("kind", ("radam", "adamw", "muon")),
            ("schedule", ("constant", "cosine", "trapezoid")),
        ):
            if getattr(self, name) not in known:
                raise UnknownNameError(f"optimizer {name}", str(getattr(self, name)), known)
        if self.lr <= 0 or self.warmup < 0 or not 0 < self.decay <= 1:
            raise ArgumentError(
                f"optimizer needs lr > 0, warmup ≥ 0 and decay in (0, 1], "
                f"got {self.lr}, {self.warmup}, {self.decay}"
            )


@dataclass(frozen=True)
class PriorConfig(Config):
    """Scalings and range of the trained prior. ``c_noise``: noise input of its network."""

    sigma_data: float = 0.5
    sigma_min: float = 0.002
    sigma_max: float = 80.0
    value_range: tuple[float, float] = (-1.0, 1.0)
    any_size: bool = False
    c_noise: str = "openai"

    def __post_init__(self) -> None:
        check_c_noise(self.c_noise)


@dataclass(frozen=True)
class ReportConfig(Config):
    """Intervals of the outputs. ``validation``: sources whose first ``images`` are denoised."""

    log_every: int = 50
    checkpoint_minutes: float = 5.0
    evaluate_every: int = 1000
    validation: tuple[SourceConfig, ...] = ()
    images: int = 32
    sigmas: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0, 20.0, 80.0)
    sample_size: int | None = None
    sample_steps: int = 18

    def __post_init__(self) -> None:
        for name in ("log_every", "evaluate_every", "images", "sample_steps"):
            check_count(f"report.{name}", getattr(self, name))


@dataclass(frozen=True)
class Recipe(Config):
    """A training run. ``batch`` is the global batch of an optimiser step, over all processes."""

    name: str
    method: str
    out: str
    network: UNetConfig
    data: DataConfig
    loss: Any = None
    prior: PriorConfig = field(default_factory=PriorConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    steps: int = 10_000
    batch: int = 32
    accumulate: int = 1
    ema: tuple[float, ...] = (0.9999,)
    ema_warmup: bool = False
    seed: int = 0
    precision: str = "fp32"
    trackers: tuple[str, ...] = ()
    init_from: str | None = None
    teacher: str | None = None
    control_from: str | None = None
    card: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.loss is None:
            object.__setattr__(self, "loss", LOSSES[self.method]())
        if self.steps < 1 or self.batch < 1 or self.accumulate < 1:
            raise ArgumentError(
                f"steps, batch and accumulate must be ≥ 1, got {self.steps}, {self.batch}, "
                f"{self.accumulate}"
            )
        if self.batch % self.accumulate:
            raise ArgumentError(
                f"batch {self.batch} must be a multiple of accumulate {self.accumulate}"
            )
        if self.precision not in PRECISIONS:
            raise UnknownNameError("precision", self.precision, PRECISIONS)
        if not self.ema or any(not 0 <= rate < 1 for rate in self.ema):
            raise ArgumentError(f"ema must hold rates in [0, 1), got {self.ema}")
        if self.loss.needs_teacher and self.teacher is None:
            raise ArgumentError(
                f"teacher is missing, but method {self.method!r} needs one; "
                "give the file of an EDM prior: teacher=PATH"
            )
        if self.loss.kind == "control" and self.init_from is None:
            raise ArgumentError(
                f"init_from is missing, but method {self.method!r} needs a consistency model; "
                "give its file: init_from=PATH"
            )
        if self.control_from is not None and self.loss.kind != "control":
            raise ArgumentError(
                f"control_from is given, but method {self.method!r} trains no control; remove it"
            )

    @property
    def objective(self) -> Loss:
        """The loss of the recipe."""
        loss: Loss = self.loss
        return loss


def read_recipe(
    path: str | Path, method: str | None = None, overrides: Sequence[str] = ()
) -> Recipe:
    """The recipe in a YAML file, with ``key.field=value`` overrides applied."""
    values = read_mapping(path, "recipe", "recipes/")
    for override in overrides:
        _override(values, override)
    named = values.setdefault("method", method)
    if method not in (None, named):
        raise ArgumentError(
            f"recipe {path} is for 'pnpcm train {named}', not for {method!r}; "
            "use that command, or a recipe of this method"
        )
    recipe: Recipe = build(Recipe, values, loss=LOSSES[str(named)])
    return recipe


def _override(values: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ArgumentError(f"override {override!r} must look like optimizer.lr=1e-4")
    *sections, last = name.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ArgumentError(f"override {override!r}: {section!r} has no fields")
    values[last] = parse(text)
