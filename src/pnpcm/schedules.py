"""Schedules of noise levels and penalties: plain functions that return tuples of floats."""

from __future__ import annotations

import math
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


def ddpm_decay(
    i_N: int, decay: float, n: int, *, index_offset: int = 2, ceiling: float = 0.9999
) -> tuple[float, ...]:
    """Injection levels of PnP-CM: σ_k = √(1 − a_k), a_{k+1} = min((1 + decay) a_k, ceiling).

    a_0 = ᾱ_{i_N + index_offset}. The paper's text says offset 0; its released code, to which all
    tuned numbers belong, uses 2. Without the ceiling most tuned rows would become imaginary.
    """
    bars = alpha_bar()
    if not 0 <= i_N + index_offset < len(bars):
        raise ArgumentError(
            f"i_N + index_offset must lie in [0, {len(bars) - 1}], got {i_N} + {index_offset}"
        )
    _check_count(n)
    if decay < 0:
        raise ArgumentError(f"decay must be ≥ 0, got {decay}; noise levels cannot grow")
    a, sigmas = bars[i_N + index_offset], []
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


def _check_count(n: int) -> None:
    if n < 1:
        raise ArgumentError(f"n must be at least 1, got {n}")
