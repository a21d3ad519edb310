"""Options: all choices of the user about a reconstruction of photographs or scans.

The Python interface, the command line and the app build the same object.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from pnpcm.arguments import MOST_STEPS, check_name
from pnpcm.baselines import BASELINES
from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.operators.measure import check_sigma_y
from pnpcm.solvers import SOLVERS
from pnpcm.solvers.config import RULES

AIMS = {"fidelity": 0.0, "perception": 1.0}
TILE = 640
LIMITS = {
    "steps": (1, MOST_STEPS),
    "samples": (1, 100_000),
    "tile": (1, math.inf),
    "halo": (0, math.inf),
    "batch": (1, math.inf),
    "seed": (-(2**62), 2**62),
}
"""Smallest and largest value of each number."""


def check_device(device: str | torch.device) -> None:
    """Raise an error unless torch can compute on ``device`` here."""
    try:
        there = torch.device(device).type != "meta"
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            f"device is {str(device)!r}, on which torch cannot compute here ({reason}); use cpu"
        ) from error
    if not there:
        raise ArgumentError("device is 'meta', which holds no numbers; use cpu")


@dataclass(frozen=True)
class Options:
    """The choices of the user; None leaves the choice to the plan.

    ``prior``: name, file, folder, repository of the Hub ("hf:owner/name@revision") or object; None:
    "natural" for photographs, "mri" for scans. ``method``: row of ``SOLVERS``; None: the default of
    the task. ``aim``: "fidelity", the image closest to the truth on average (no injected noise, the
    denoiser where it is better), "perception", an image with more detail (the consistency model;
    with injected noise where that is better), or a number from 0 to 1 between them: the weight of
    the consistency model in a mean with the denoiser, and the factor of the injected noise.
    ``sigma_y``: noise of y on the [0, 1] scale, or "auto", estimated from y; None: 0 for
    inpainting, whose known pixels are then kept bit for bit, the value in a measurement file, else
    estimated.
    ``steps``, ``preset``, ``settings``: parameters of the solver; the others come from a preset, a
    tuned row or the rule. ``preset``: row of ``PRESETS``, file of ``pnpcm tune``, or row of
    ``BASELINES`` (e.g. "dpir/official/superres-4"), whose numbers are used unchanged.
    ``step_rule``: how a preset is changed to ``steps``, "ends" (default: its first and last levels
    stay) or "released" (the paper's presets: as in the released code, see
    ``PnPCMConfig.with_steps``). ``samples``: number of independent reconstructions, of which mean
    and standard deviation are computed. ``tile``: largest side of the tiles on which the prior is
    evaluated in large images, ``halo``: pixels around a tile that are evaluated too (None: the
    receptive radius of the network, at most 128). ``batch``: number of slices of a scan solved at
    once.
    """

    prior: str | Path | Prior | None = None
    method: str | None = None
    aim: str | float = "fidelity"
    sigma_y: float | str | None = None
    steps: int | None = None
    step_rule: str | None = None
    preset: str | Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 1
    seed: int = 0
    tile: int = TILE
    halo: int | None = None
    batch: int = 4
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.aim, str) and self.aim not in AIMS:
            raise UnknownNameError("aim", self.aim, AIMS)
        if not 0 <= self.perception <= 1:
            raise ArgumentError(
                f"aim must be 'fidelity', 'perception' or a number from 0 to 1, got {self.aim!r}"
            )
        if self.method is not None:
            _ = SOLVERS[self.method]  # raises, with the nearest name
        if isinstance(self.sigma_y, str) and self.sigma_y != "auto":
            raise ArgumentError(f"sigma_y must be a number or 'auto', got {self.sigma_y!r}")
        if self.given_sigma_y is not None:
            check_sigma_y(self.given_sigma_y)
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if value is not None and not (least <= value <= most and value == int(value)):
                bound = "" if most == math.inf else f" and ≤ {most}"
                raise ArgumentError(f"{name} must be a whole number ≥ {least}{bound}, got {value}")
        check_device(self.device)
        if self.step_rule is not None:
            check_name("step_rule", self.step_rule, RULES)
            if self.steps is None or self.preset is None:
                raise ArgumentError(
                    f"step_rule is {self.step_rule!r}, but it changes the number of steps of a "
                    "preset; give preset and give steps"
                )
        if self.preset is not None and self.method not in (None, self.preset_method):
            raise ArgumentError(
                f"preset is {str(self.preset)!r}, but it belongs to the method "
                f"{self.preset_method}, not to {self.method!r}; leave one of them out"
            )

    @property
    def perception(self) -> float:
        """The aim as a number: 0 for fidelity, 1 for perception."""
        return AIMS[self.aim] if isinstance(self.aim, str) else float(self.aim)

    @property
    def preset_method(self) -> str:
        """The method that ``preset`` belongs to."""
        row = BASELINES.get(str(self.preset))
        return "pnp-cm" if row is None else row.method

    @property
    def given_sigma_y(self) -> float | None:
        """``sigma_y`` if it is a number, else None."""
        return None if self.sigma_y is None or isinstance(self.sigma_y, str) else self.sigma_y

    @classmethod
    def of(cls, options: Options | None, choices: Mapping[str, Any]) -> Options:
        """``options``, or the options made of keyword arguments."""
        known = [f.name for f in fields(cls)]
        for name in choices:
            if name not in known:
                raise UnknownNameError("option", name, known)
        if options is None:
            return cls(**choices)
        if choices:
            raise ArgumentError(
                f"options are given, and {', '.join(choices)} as well; use "
                "dataclasses.replace(options, …) to change some of them"
            )
        return options

    def to_dict(self) -> dict[str, Any]:
        """The choices as plain values for records, without those that are None."""
        found: dict[str, Any] = {}
        for name, value in ((f.name, getattr(self, f.name)) for f in fields(self)):
            if name == "prior" and not isinstance(value, str | Path | None):
                found[name] = getattr(value, "info", {}).get("name", type(value).__name__)
            elif isinstance(value, Path | torch.device):
                found[name] = str(value)
            elif value is not None:
                found[name] = value
        return found | {"settings": {k: str(v) for k, v in self.settings.items()}}
