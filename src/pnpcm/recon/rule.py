"""Rule: parameters for problems without a preset, by regression over the presets of a family.

Each preset is a point: the conditions of its problem (error of y relative to ‖A‖, share of the
image that A measures, number of steps N) and its parameters (ends of σ, δ and data weight,
μ, noise scale). A ridge regression over the points of a family gives the parameters for other
conditions; its slopes are regularised towards theoretical values, so that one point is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pnpcm.errors import ArgumentError
from pnpcm.presets import Preset
from pnpcm.solvers import PnPCMConfig

Features = tuple[float, float, float]
"""ln(error_std / gain), ln N, ln seen."""

# slopes that the regression is regularised to: a noisier y is denoised at a higher level
_LEANING = {"level_start": (0.5, 0.0, -0.1), "level_end": (0.7, -0.2, 0.0)}
_RIDGE = 0.1
_REACH = math.log(4.0)  # largest extrapolation beyond the points, per feature
_NEAR = np.array((1.5, 1.0, 0.6))  # points have weight exp(−½ distance²), distance in these units


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

    def config(self, n: int, error_std: float, **frame: Any) -> PnPCMConfig:
        """σ and weight geometric, δ linear between their ends; ``frame``: the other fields."""
        return PnPCMConfig.geometric(
            (self.sigma_start, self.sigma_end),
            n=n,
            noise_std=error_std,
            delta=(self.delta_start, self.delta_end),
            weight=(self.weight_start, self.weight_end),
            mu=self.mu,
            noise_scale=self.noise_scale,
            **frame,
        )

    @classmethod
    def of(cls, config: PnPCMConfig, error_std: float) -> Numbers:
        """The numbers of a configuration, read at its ends."""
        weights = [
            r * (s / error_std) ** 2 for r, s in zip(config.rhos, config.sigmas, strict=True)
        ]
        mu = config.momentum[0]
        ends = (
            (values[0], values[-1]) for values in (config.sigmas, config.deltas, tuple(weights))
        )
        (s0, s1), (d0, d1), (w0, w1) = ends
        return cls(s0, s1, d0, d1, w0, w1, mu, config.noise_scale)


_BOUNDS = {
    "delta_start": (-0.5, 4.0),
    "delta_end": (-0.5, 4.0),
    "mu": (0, 1),
    "noise_scale": (0, 1),
}

Vector = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def features(conditions: Mapping[str, float], n: int) -> Features:
    """The coordinates of a problem."""
    error = math.log(conditions["error_std"] / max(conditions["gain"], 1e-6))
    return error, math.log(n), math.log(max(conditions["seen"], 1e-4))


def rule(
    presets: Iterable[Preset],
    conditions: Mapping[str, float],
    n: int,
    **frame: Any,
) -> PnPCMConfig:
    """The configuration that ``presets`` of one family suggest under ``conditions``.

    Near points have the largest weight. The regression is over the level passed to the prior,
    (1 + δ) σ, with δ and the data weight relative to it.
    """
    rows = [p for p in presets if p.conditions]
    if not rows:
        raise ArgumentError("no preset of this family to derive parameters from; use pnpcm tune")
    points = np.array([features(p.conditions, p.solver.n_steps) for p in rows])
    place = np.array(features(conditions, n))
    distance = np.square((points - place) / _NEAR).sum(1)
    weights = np.exp(-0.5 * (distance - distance.min()))
    weights /= weights.sum()
    middle = weights @ points
    low, high = points.min(0) - _REACH, points.max(0) + _REACH
    place = np.clip(place, low, high) - middle
    known = [_coordinates(Numbers.of(p.solver, p.conditions["error_std"])) for p in rows]
    found = {}
    for name in known[0]:
        values = np.array([k[name] for k in known])
        leaning = np.array(_LEANING.get(name, (0.0, 0.0, 0.0)))
        value = float(weights @ values + place @ _slope(points - middle, values, weights, leaning))
        low_, high_ = _BOUNDS.get(name, (-math.inf, math.inf))
        found[name] = min(max(value, low_), high_)
    return _numbers(found).config(n, conditions["error_std"], **frame)


def _coordinates(n: Numbers) -> dict[str, float]:
    """Coordinates of the regression: ln of levels and of relative weights; others unchanged."""
    found = {"mu": n.mu, "noise_scale": n.noise_scale}
    for end in ("start", "end"):
        sigma, delta, weight = (getattr(n, f"{k}_{end}") for k in ("sigma", "delta", "weight"))
        found[f"level_{end}"] = math.log(sigma * (1 + delta))
        found[f"delta_{end}"] = delta
        found[f"weight_{end}"] = math.log(weight * (1 + delta) ** 2)
    return found


def _numbers(c: Mapping[str, float]) -> Numbers:
    """The inverse of :func:`_coordinates`, with levels that do not increase."""
    found = {"mu": c["mu"], "noise_scale": c["noise_scale"]}
    for end in ("start", "end"):
        told = 1 + c[f"delta_{end}"]
        found[f"delta_{end}"] = c[f"delta_{end}"]
        found[f"sigma_{end}"] = math.exp(c[f"level_{end}"]) / told
        found[f"weight_{end}"] = math.exp(c[f"weight_{end}"]) / told**2
    found["sigma_end"] = min(found["sigma_end"], found["sigma_start"])
    return Numbers(**found)


def _slope(points: Vector, values: Vector, weights: Vector, leaning: Vector) -> Vector:
    """argmin_b Σ w (v − mean v − p·b)² + λ/m ‖b − leaning‖², m points, weighted mean."""
    rest = values - weights @ values - points @ leaning
    gram = (points.T * weights) @ points + _RIDGE / len(points) * np.eye(points.shape[1])
    slope: Vector = leaning + np.linalg.solve(gram, points.T @ (weights * rest))
    return slope
