"""Parameters where no preset fits exactly: a rule through the presets that are there.

Each preset is a point: how hard its problem is (error of y relative to ‖A‖, share of the image that
A sees, number of steps N) and what worked there (ends of σ, of δ and of the data weight, μ, noise
scale). A ridge regression through the points of a family gives every number for other conditions;
its slopes lean towards what theory suggests, so that one point already makes a rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from pnpcm.core import DataStep
from pnpcm.errors import ArgumentError
from pnpcm.presets import Preset
from pnpcm.solvers import PnPCMConfig

Features = tuple[float, float, float]
"""ln(error_std / gain), ln N, ln seen."""

# d ln σ / d ln error that the regression leans to: a noisier y is denoised at a higher level
_LEANING = {"sigma_start": (0.5, 0.0, -0.1), "sigma_end": (0.7, -0.2, 0.0)}
_RIDGE = 0.3
_REACH = math.log(4.0)  # how far beyond its points a rule is followed, per feature


@dataclass(frozen=True)
class Numbers:
    """A PnP-CM run in eight numbers; weight is ρ relative to (error_std / σ)²."""

    sigma_start: float
    sigma_end: float
    delta_start: float
    delta_end: float
    weight_start: float
    weight_end: float
    mu: float
    noise_scale: float

    def config(
        self, n: int, error_std: float, data_step: DataStep, init: str = "auto"
    ) -> PnPCMConfig:
        """σ and weight geometric, δ linear between their ends."""
        return PnPCMConfig.geometric(
            (self.sigma_start, self.sigma_end),
            n=n,
            noise_std=error_std,
            delta=(self.delta_start, self.delta_end),
            weight=(self.weight_start, self.weight_end),
            mu=self.mu,
            noise_scale=self.noise_scale,
            init=init,
            data_step=data_step,
        )

    @classmethod
    def of(cls, config: PnPCMConfig, error_std: float) -> Numbers:
        """The numbers of a configuration: its ends."""
        weights = [
            r * (s / error_std) ** 2 for r, s in zip(config.rhos, config.sigmas, strict=True)
        ]
        mu = config.momentum[0]
        ends = (
            (values[0], values[-1]) for values in (config.sigmas, config.deltas, tuple(weights))
        )
        (s0, s1), (d0, d1), (w0, w1) = ends
        return cls(s0, s1, d0, d1, w0, w1, mu, config.noise_scale)


_LOGARITHMIC = ("sigma_start", "sigma_end", "weight_start", "weight_end")
_BOUNDS = {
    "delta_start": (-0.5, 4.0),
    "delta_end": (-0.5, 4.0),
    "mu": (0, 1),
    "noise_scale": (0, 1),
}


def features(conditions: Mapping[str, float], n: int) -> Features:
    """The coordinates of a problem."""
    error = math.log(conditions["error_std"] / max(conditions["gain"], 1e-6))
    return error, math.log(n), math.log(max(conditions["seen"], 1e-4))


def rule(
    presets: Iterable[Preset],
    conditions: Mapping[str, float],
    n: int,
    data_step: DataStep,
    init: str = "auto",
) -> PnPCMConfig:
    """The configuration that ``presets`` of one family suggest under ``conditions``."""
    rows = [p for p in presets if p.conditions]
    if not rows:
        raise ArgumentError("no preset of this family to derive parameters from; use pnpcm tune")
    points = np.array([features(p.conditions, p.solver.n_steps) for p in rows])
    middle = points.mean(0)
    low, high = points.min(0) - _REACH, points.max(0) + _REACH
    place = np.clip(features(conditions, n), low, high) - middle
    known = [Numbers.of(p.solver, p.conditions["error_std"]) for p in rows]
    found = {}
    for field in fields(Numbers):
        name = field.name
        values = np.array([getattr(k, name) for k in known])
        if name in _LOGARITHMIC:
            values = np.log(values)
        slope = _slope(points - middle, values, np.array(_LEANING.get(name, (0.0, 0.0, 0.0))))
        value = float(values.mean() + place @ slope)
        if name in _LOGARITHMIC:
            value = math.exp(value)
        found[name] = (
            min(max(value, _BOUNDS[name][0]), _BOUNDS[name][1]) if name in _BOUNDS else value
        )
    found["sigma_end"] = min(found["sigma_end"], found["sigma_start"])
    return Numbers(**found).config(n, conditions["error_std"], data_step, init)


def _slope(
    points: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    leaning: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """argmin_b Σ (v − mean v − p·b)² + λ ‖b − leaning‖²"""
    rest = values - values.mean() - points @ leaning
    gram = points.T @ points + _RIDGE * np.eye(points.shape[1])
    slope: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = leaning + np.linalg.solve(
        gram, points.T @ rest
    )
    return slope
