"""Rule: parameters for problems without a preset, by regression over the presets of a family.

Each preset is a point: the conditions of its problem (error of y relative to ‖A‖, share of the
image that A measures, number of steps N) and its parameters (ends of σ, δ and data weight,
μ, noise scale). A ridge regression over the points of a family gives the parameters for other
conditions; its slopes are regularised towards theoretical values. The rule never leaves its points:
a problem outside their convex hull has the parameters of the nearest place within, and every
parameter stays between the smallest and the largest of the points. The data weight is relative to
the error of y, so that ρ follows the noise everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pnpcm.errors import ArgumentError
from pnpcm.presets import Preset
from pnpcm.schedules import linspace
from pnpcm.solvers import PnPCMConfig

Features = tuple[float, float, float]
"""ln(error_std / gain), ln N, ln seen."""

# slopes that the regression is regularised to: a noisier y is denoised at a higher level
_LEANING = {"level_start": (0.5, 0.0, -0.1), "level_end": (0.7, -0.2, 0.0)}
_RIDGE = 0.1
_NEAR = np.array((1.5, 1.0, 0.6))  # points have weight exp(−½ distance²), distance in these units
# units of the distance to the hull: rather another N (the run is respaced) than another noise
_ASIDE = np.array((0.3, 3.0, 1.0))
_SAME = math.log(1.05)  # features that differ by less are the same, as noise levels of presets


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
) -> tuple[PnPCMConfig, str]:
    """The configuration that ``presets`` of one family suggest under ``conditions``, and a note.

    Near points have the largest weight. The regression is over the level passed to the prior,
    t = (1 + δ) σ, with δ and the data weight relative to it; all of them are geometric sequences.
    The note is empty for a problem within the hull of the presets.
    """
    rows = [p for p in presets if p.conditions]
    if not rows:
        raise ArgumentError("no preset of this family to derive parameters from; use pnpcm tune")
    points = np.array([features(p.conditions, p.solver.n_steps) for p in rows])
    wanted = np.array(features(conditions, n))
    place = nearest_in_hull(points, wanted)
    distance = np.square((points - place) / _NEAR).sum(1)
    weights = np.exp(-0.5 * (distance - distance.min()))
    weights /= weights.sum()
    middle = weights @ points
    each = [_coordinates(Numbers.of(p.solver, p.conditions["error_std"])) for p in rows]
    mean, found = {}, {}
    for name in each[0]:
        values = np.array([c[name] for c in each])
        leaning = np.array(_LEANING.get(name, (0.0, 0.0, 0.0)))
        slope = _slope(points - middle, values, weights, leaning)
        mean[name] = float(weights @ values)
        value = mean[name] + float((place - middle) @ slope)
        found[name] = min(max(value, float(values.min())), float(values.max()))
    numbers = _numbers(found)
    if numbers.sigma_end > numbers.sigma_start:  # never in a mean of points whose σ decreases
        numbers = _numbers(mean)
    config = numbers.config(n, conditions["error_std"], **frame)
    ends = (1 + numbers.delta_start, 1 + numbers.delta_end)
    told = [math.exp(v) for v in linspace(math.log(ends[0]), math.log(ends[1]), n)]
    config = replace(config, deltas=tuple(t - 1 for t in told))
    return config, _note(wanted, place, conditions["gain"], n)


def nearest_in_hull(points: Vector, wanted: Vector) -> Vector:
    """The nearest mean of the points to ``wanted``, which is first clipped to their range.

    Pᵀλ with argmin_λ ‖(Pᵀλ − wanted) / _ASIDE‖, λ ≥ 0, Σλ = 1.
    """
    heavy = 1e4  # weight of the condition Σλ = 1
    wanted = np.clip(wanted, points.min(0), points.max(0))  # far away every direction is alike
    away = ((points - wanted) / _ASIDE).T
    share = nnls(np.vstack([away, np.full(len(points), heavy)]), np.array([0.0, 0, 0, heavy]))
    place: Vector = share @ points / share.sum()
    return place


def nnls(a: Vector, b: Vector) -> Vector:
    """argmin ‖a x − b‖, x ≥ 0, by the active-set method of Lawson and Hanson (1974)."""
    x, active = np.zeros(a.shape[1]), np.zeros(a.shape[1], dtype=bool)
    for _ in range(3 * a.shape[1]):
        gradient = np.where(active, -np.inf, a.T @ (b - a @ x))
        if gradient.max() <= 1e-14 * np.abs(a).max() ** 2:
            break
        active[gradient.argmax()] = True
        while True:
            best = np.zeros_like(x)
            best[active] = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
            low = active & (best <= 0)
            if not low.any():
                break
            x = x + (x[low] / (x[low] - best[low])).min() * (best - x)
            active &= x > 1e-12
        x = best
    return x


def _note(wanted: Vector, place: Vector, gain: float, n: int) -> str:
    """For which problem the parameters are instead, if this one is outside the presets."""
    used, here = np.exp(place), np.exp(wanted)
    scale = max(gain, 1e-6) / 2
    pairs = (
        ("an error of y of {}", f"{used[0] * scale:.2g}", f"{here[0] * scale:.2g}"),
        ("about {} steps", f"{used[1]:.0f}", f"{n}"),
        ("{} % of the image measured", f"{100 * used[2]:.3g}", f"{100 * here[2]:.3g}"),
    )
    far = np.abs(place - wanted) > _SAME
    words = [
        f"{text.format(a)} (here {b})"
        for (text, a, b), moved in zip(pairs, far, strict=True)
        if moved and a != b
    ]
    if not words:
        return ""
    *others, last = words
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"this problem is outside their range, the parameters are for {listed}"


def _coordinates(n: Numbers) -> dict[str, float]:
    """Coordinates of the regression: ln of levels, 1 + δ and relative weights; others unchanged."""
    found = {"mu": n.mu, "noise_scale": n.noise_scale}
    for end in ("start", "end"):
        sigma, delta, weight = (getattr(n, f"{k}_{end}") for k in ("sigma", "delta", "weight"))
        found[f"level_{end}"] = math.log(sigma * (1 + delta))
        found[f"excess_{end}"] = math.log1p(delta)
        found[f"weight_{end}"] = math.log(weight * (1 + delta) ** 2)
    return found


def _numbers(c: Mapping[str, float]) -> Numbers:
    """The inverse of :func:`_coordinates`."""
    found = {"mu": c["mu"], "noise_scale": c["noise_scale"]}
    for end in ("start", "end"):
        told = math.exp(c[f"excess_{end}"])
        found[f"delta_{end}"] = told - 1
        found[f"sigma_{end}"] = math.exp(c[f"level_{end}"]) / told
        found[f"weight_{end}"] = math.exp(c[f"weight_{end}"]) / told**2
    return Numbers(**found)


def _slope(points: Vector, values: Vector, weights: Vector, leaning: Vector) -> Vector:
    """argmin_b Σ w (v − mean v − p·b)² + λ/m ‖b − leaning‖², m points, weighted mean."""
    rest = values - weights @ values - points @ leaning
    gram = (points.T * weights) @ points + _RIDGE / len(points) * np.eye(points.shape[1])
    slope: Vector = leaning + np.linalg.solve(gram, points.T @ (weights * rest))
    return slope
