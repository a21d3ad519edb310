"""Checks of single numbers that configurations share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pnpcm.errors import ArgumentError


def check_number(
    name: str, value: float, low: float, high: float = math.inf, *, open_low: bool = False
) -> None:
    """Refuse a ``value`` outside [low, high], or (low, high] if ``open_low``, or not finite."""
    above = value > low if open_low else value >= low
    if above and value <= high and math.isfinite(value):
        return
    what = f"lie in {'(' if open_low else '['}{low:g}, {high:g}]"
    if high == math.inf:
        what = f"be finite and {'>' if open_low else '≥'} {low:g}"
    raise ArgumentError(f"{name} must {what}, got {value}")


def check_count(name: str, value: int, low: int = 1, high: int | None = None) -> None:
    """Refuse what is not a whole number from ``low`` to ``high``."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and low <= value and (high is None or value <= high):
        return
    what = f"at least {low}" if high is None else f"in [{low}, {high}]"
    raise ArgumentError(f"{name} must be a whole number, {what}, got {value!r}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse what is none of ``choices``."""
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
