"""Schedules of noise levels and penalties: plain functions that return tuples of floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from pnpcm.errors import ArgumentError

SIGMA_MIN, SIGMA_MAX = 0.002, 80.0


@cache
def alpha_bar(n: int = 1000, beta_start: float = 1e-4, beta_end: float = 0.02) -> tuple[float, ...]:
    """ᾱ_0 … ᾱ_n of the linear DDPM schedule, ᾱ_0 = 1, ᾱ_i = Π_{j≤i} (1 − β_j)."""
    bars = [1.0]
    for j in range(n):
        beta = beta_start + (beta_end - beta_start) * j / (n - 1)
        bars.append(bars[-1] * (1 - beta))
    return tuple(bars)


@cache
def vp_levels() -> tuple[float, ...]:
    """σ_t = √((1 − ᾱ_t)/ᾱ_t) of the 1000 DDPM indices t = 0 … 999: 0.0100 … 157.4."""
    return tuple(math.sqrt((1 - bar) / bar) for bar in alpha_bar()[1:])


def vp_level(t: float, slope: float = 19.9, start: float = 0.1) -> float:
    """Level of the continuous VP schedule: σ(t)² + 1 = exp(½ slope t² + start t), t in [0, 1]."""
    return math.sqrt(math.expm1(0.5 * slope * t**2 + start * t))


def vp_time(sigma: float, slope: float = 19.9, start: float = 0.1) -> float:
    """The time t with ``vp_level(t) = sigma``."""
    return (math.sqrt(start**2 + 2 * slope * math.log1p(sigma**2)) - start) / slope


def ddpm_levels(indices: Sequence[int], sigma_max: float = math.inf) -> tuple[float, ...]:
    """Levels of DDPM indices (0 … 999), for samplers that are published with indices.

    A prior with ``sigma_max`` below 157 uses the same relative positions, rescaled to its
    ``sigma_max``: index i becomes the continuous VP time between t(0.01) for 0 and
    t(``sigma_max``) for 999, so that the number of evaluations stays the same.
    """
    table = vp_levels()
    if not all(0 <= i < len(table) for i in indices):
        raise ArgumentError(f"indices must lie in [0, {len(table) - 1}], got {list(indices)}")
    if sigma_max >= table[-1]:
        return tuple(table[i] for i in indices)
    low, high = vp_time(table[0]), vp_time(sigma_max)
    # the largest level may exceed sigma_max by rounding
    return tuple(
        min(vp_level(low + (high - low) * i / (len(table) - 1)), sigma_max) for i in indices
    )


def even_indices(n: int) -> tuple[int, ...]:
    """``n`` DDPM indices from 1000 − ⌊1000/n⌋ (or less) down to 0 with stride ⌊1000/n⌋."""
    _check_indices(n)
    return tuple((1000 // n) * i for i in reversed(range(n)))


def spread_indices(n: int) -> tuple[int, ...]:
    """``n`` DDPM indices from 999 down to 0, evenly spaced up to rounding."""
    _check_indices(n)
    return tuple(round(v) for v in linspace(999.0, 0.0, n))


def quadratic_indices(n: int) -> tuple[int, ...]:
    """DiffPIR's ``n`` DDPM indices: few at high noise, dense at the end, 999, 899, … 5, 0."""
    _check_indices(n)
    counted = [math.floor(math.sqrt(v) + 1e-9) for v in linspace(0.0, 1000.0**2, n)]
    return tuple(999 - min(c, 999) for c in counted)


def ddpm_decay(
    i_N: int, decay: float, n: int, *, index_offset: int = 2, ceiling: float = 0.9999
) -> tuple[float, ...]:
    """Injection levels of PnP-CM: σ_k = √(1 − a_k), a_{k+1} = min((1 + decay) a_k, ceiling).

    a_0 = ᾱ_{i_N + index_offset}. The paper's text has offset 0; its released code, to which all
    tuned numbers belong, uses 2. Without the ceiling most tuned levels would be imaginary.
    """
    bars = alpha_bar()
    if not 0 <= i_N + index_offset < len(bars):
        raise ArgumentError(
            f"i_N + index_offset must lie in [0, {len(bars) - 1}], got {i_N} + {index_offset}"
        )
    return _decayed(bars[i_N + index_offset], decay, n, ceiling)


def decay_from(sigma: float, decay: float, n: int, *, ceiling: float = 0.9999) -> tuple[float, ...]:
    """The same recursion from a first level σ_0 = ``sigma`` below 1."""
    if not 0 < sigma < 1:
        raise ArgumentError(f"sigma must lie in (0, 1), got {sigma}; the recursion is in 1 − σ²")
    return (sigma, *_decayed(1 - sigma**2, decay, n, ceiling)[1:])


def _decayed(a: float, decay: float, n: int, ceiling: float) -> tuple[float, ...]:
    _check_count(n)
    if decay < 0:
        raise ArgumentError(f"decay must be ≥ 0, got {decay}; noise levels cannot grow")
    sigmas = []
    for _ in range(n):
        sigmas.append(min(max(math.sqrt(1 - a), SIGMA_MIN), SIGMA_MAX))
        a = min((1 + decay) * a, ceiling)
    return tuple(sigmas)


def karras(
    n: int, sigma_min: float = SIGMA_MIN, sigma_max: float = SIGMA_MAX, exponent: float = 7.0
) -> tuple[float, ...]:
    """σ_i = (σ_max^{1/e} + i/(n−1) (σ_min^{1/e} − σ_max^{1/e}))^e, Karras et al. (2022) eq. 5."""
    _check_count(n)
    if not 0 < sigma_min < sigma_max:
        raise ArgumentError(f"expected 0 < sigma_min < sigma_max, got {sigma_min}, {sigma_max}")
    low, high = sigma_min ** (1 / exponent), sigma_max ** (1 / exponent)
    return tuple((high + t * (low - high)) ** exponent for t in linspace(0.0, 1.0, n))


def softplus_ramp(start: float, end: float, n: int) -> tuple[float, ...]:
    """ρ_k = ln(1 + exp(v_k)) with v_k evenly spaced from ``start`` to ``end``.

    The paper's table lists the ends before the softplus.
    """
    _check_count(n)
    return tuple(softplus(v) for v in linspace(start, end, n))


def softplus(v: float) -> float:
    """ln(1 + e^v), without overflow."""
    return max(v, 0.0) + math.log1p(math.exp(-abs(v)))


def inverse_softplus(rho: float) -> float:
    """ln(e^ρ − 1), without overflow."""
    return rho + math.log(-math.expm1(-rho))


def linspace(start: float, end: float, n: int) -> tuple[float, ...]:
    """``n`` evenly spaced values, ends included; a single value is the start."""
    return tuple(start + (end - start) * i / max(n - 1, 1) for i in range(n))


def _check_indices(n: int) -> None:
    if not 1 <= n <= 1000:
        raise ArgumentError(f"n must lie in [1, 1000], the DDPM table's length, got {n}")


def _check_count(n: int) -> None:
    if n < 1:
        raise ArgumentError(f"n must be at least 1, got {n}")
