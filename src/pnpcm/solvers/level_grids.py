"""Noise-level grids of the prior samplers of DPnP and PnP-DM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from pnpcm.errors import ArgumentError
from pnpcm.schedules import SIGMA_MAX, SIGMA_MIN, karras, linspace, vp_level, vp_levels

VP_START = 1e-3
"""Smallest time of the continuous VP schedule, where its level is 0.0105."""

GRIDS = ("edm", "edm-full", "vp", "ve", "iddpm")


def thinned(values: Sequence[float], density: float) -> tuple[float, ...]:
    """A share ``density`` of ``values``, evenly spaced, including the ends."""
    n = math.ceil(len(values) * density)
    return tuple(values[round(i)] for i in linspace(0.0, len(values) - 1.0, n))


def log_falling(start: float, end: float, n: int) -> tuple[float, ...]:
    """``n`` logarithmically spaced decreasing values."""
    return tuple(math.exp(v) for v in linspace(math.log(start), math.log(end), n))


# DPnP --------------------------------------------------------------------------------------------
@cache
def official_kappas(eta: float) -> tuple[float, ...]:
    """DPnP's κ for coupling ``eta``, decreasing from about 100; matches the published counts.

    DDPM levels s < η become κ = ηs/√(η² − s²). Above η = 0.3 only every second one is used, from
    index 0 on, above 0.75 every eighth, except for the last 14, which are all used. Where
    1/(1 + κ²) decreases by more than a factor 1.1 the gap is split evenly in its logarithm, and
    beyond the noisy end it continues by factors of 1.1 down to 1e-4. The 14 and the roundings were
    chosen to match the published counts, not taken from the official code; a few other choices
    match them too.
    """
    levels = [s for s in vp_levels() if s < eta]
    if not levels:
        raise ArgumentError(
            f"etas must be above {vp_levels()[0]:.4f}, the lowest DDPM level, got {eta}; "
            "kappas='log' has no such limit"
        )
    stride = 8 if eta > 0.75 else 2 if eta > 0.3 else 1
    kept = [s for i, s in enumerate(levels) if i % stride == 0 or i >= len(levels) - 14]
    # ln(1 + κ²)
    logs = [math.log1p((eta * s) ** 2 / (eta**2 - s**2)) for s in kept]
    ratio = math.log(1.1)
    chain = [logs[0]]
    for low, high in pairwise(logs):
        n = max(math.ceil((high - low) / ratio), 1)
        chain += [low + (high - low) * i / n for i in range(1, n + 1)]
    n = max(math.floor((math.log(1e4) - chain[-1]) / ratio), 0)
    chain += [chain[-1] + ratio * i for i in range(1, n + 1)]
    return tuple(math.sqrt(math.expm1(v)) for v in reversed(chain))


def dpnp_grid(eta: float, sampler: str, kind: str, n: int) -> tuple[float, ...]:
    """Grid of a prior draw at coupling η: κ (ode), or levels from η on (sde)."""
    if kind == "official":
        below = (s for s in reversed(vp_levels()) if s < eta)
        return official_kappas(eta) if sampler == "ode" else (eta, *below)
    ends = (100.0, 0.003) if sampler == "ode" else (eta, min(0.003, eta / 2))
    return log_falling(*ends, n)


# PnP-DM ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class EulerStep:
    """One Euler step of a reverse diffusion, in variance-exploding form.

    ``x ← gain (keep x + c ds (x − D(x, sigma))/sigma + noise z)``, c = 2 with noise, 1 without.
    ``keep`` and ``gain`` are 1 unless the step is taken on scaled (VP) images.
    """

    sigma: float
    ds: float
    noise: float
    keep: float = 1.0
    gain: float = 1.0

    @classmethod
    def row(cls, levels: Sequence[float], *, exact_noise: bool = False) -> tuple[EulerStep, ...]:
        """Steps along decreasing ``levels`` and to 0, with noise √(2s(s−s′)) or √(s²−s′²)."""
        return tuple(
            cls(s, after - s, math.sqrt((s - after) * (s + after if exact_noise else 2 * s)))
            for s, after in pairwise((*levels, 0.0))
        )


@cache
def euler_steps(grid: str, n: int, slope: float = 19.9) -> tuple[EulerStep, ...]:
    """The ``n`` steps of a whole grid down to 0; levels as in Karras et al. (2022), Table 1."""
    if grid == "vp":
        return _vp_steps(n, slope)
    lowest = vp_level(VP_START)  # smallest training level of a VP network
    if grid == "edm":
        levels = karras(n, lowest)
    elif grid == "edm-full":
        levels = karras(n, SIGMA_MIN, SIGMA_MAX)
    elif grid == "ve":
        levels = log_falling(100.0, 0.02, n)
    else:
        levels = _iddpm_levels(n, lowest)
    return EulerStep.row(levels)


def _vp_steps(n: int, slope: float) -> tuple[EulerStep, ...]:
    """Steps even in VP time 1 … 0.001, 0, on images scaled by a = 1/√(1 + s²)."""
    # EDM's sampler sets the level at time 0.001 to the network's and refits the schedule
    top, bottom = math.log1p(vp_level(1.0, slope) ** 2), math.log1p(vp_level(VP_START) ** 2)
    slope = 2 * (bottom / VP_START - top) / (VP_START - 1)
    start = top - slope / 2
    steps = []
    for t, after in pairwise((*linspace(1.0, VP_START, n), 0.0)):
        s, s_after = vp_level(t, slope, start), vp_level(after, slope, start)
        half_beta = (slope * t + start) / 2  # −a′/a, and s′ = half_beta (1 + s²)/s
        ds = half_beta * (1 + s**2) / s * (after - t)
        gain = math.sqrt((1 + s_after**2) / (1 + s**2))
        steps.append(EulerStep(s, ds, math.sqrt(-2 * s * ds), 1 - half_beta * (after - t), gain))
    return tuple(steps)


def _iddpm_levels(n: int, lowest: float, highest: float = 81.0) -> tuple[float, ...]:
    """``n`` of the 1000 levels of the cosine schedule, even in their index."""
    m, least_ratio, offset = 1000, 0.001, 0.008
    bars = [math.sin(math.pi / 2 * j / (m * (1 + offset))) ** 2 for j in range(m + 1)]
    rising = [0.0]
    for j in range(m, 0, -1):
        ratio = max(bars[j - 1] / bars[j], least_ratio)
        rising.append(math.sqrt((rising[-1] ** 2 + 1) / ratio - 1))
    kept = [s for s in reversed(rising) if lowest <= s <= highest]
    return tuple(kept[round(i)] for i in linspace(0.0, len(kept) - 1.0, n))
