"""What a fair tuning is told about a method and about a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pnpcm.baselines import SCANS
from pnpcm.core import Config, DataStep
from pnpcm.solvers import ProxStep

Values = dict[str, Any]
Axis = tuple[float, float, bool] | tuple[bool, bool]
"""Lowest, highest, logarithmic; or two choices."""


@dataclass(frozen=True)
class Setting:
    """What a configuration must know of the problem: its name, its noise, how it is solved."""

    task: str
    noise_std: float
    linear: bool = True
    data_step: DataStep = field(default_factory=ProxStep)
    frame: Mapping[str, Any] = field(default_factory=dict)
    """What PnP-CM does not search: data step, start, clamping."""

    @property
    def clamps(self) -> bool:
        """Whether images end at ±1: an MR image has no largest value known beforehand."""
        return self.task not in SCANS


@dataclass(frozen=True)
class Method:
    """``space`` of numbers, the published ``first`` ones, and ``build``, which makes a run.

    ``fraction``: the share of its published evaluations at which a slow method is tuned.
    ``published``: the published run itself, where ``space`` only has something near it.
    """

    build: Callable[[Values, Setting], Config]
    space: Mapping[str, Axis]
    first: Callable[[Setting], Values]
    fraction: float = 1.0
    published: Callable[[Setting], Config] | None = None


FIFTH = 0.2
"""Share of their published evaluations at which slow methods are tuned."""
TEMPERATURE = (0.3, 3.0, True)
"""Axis of a factor on the noise that a method is told."""


def fixed(**values: Any) -> Callable[[Setting], Values]:
    """Published numbers that are the same for every problem."""
    return lambda s: values
