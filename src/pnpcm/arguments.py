"""Checks of arguments: numbers, counts, choices, dtypes, image shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError, UnknownNameError
from pnpcm.linalg import expand

MOST_STEPS = 100_000
"""Largest number of steps of a solver or a sampler."""
Gamma = float | Tensor
"""Weight of a prox: one number, or one per image ``(B,)``."""


def check_positive(name: str, value: Gamma, x: Tensor) -> Gamma:
    """``value`` if positive; one number per image is returned in a shape that multiplies ``x``."""
    if isinstance(value, Tensor):
        if value.numel() not in (1, x.shape[0]):
            raise ShapeError(
                f"{name} has shape {tuple(value.shape)}, expected one number or one per image "
                f"({x.shape[0]},)"
            )
        if not bool((value > 0).all()):
            raise ArgumentError(f"{name} must be positive, got a tensor with min {value.min():g}")
        return expand(value.to(x.dtype), x) if value.numel() > 1 else float(value)
    if not 0 < value < math.inf:
        raise ArgumentError(f"{name} must be positive and finite, got {value}")
    return value


def check_float(name: str, x: Tensor) -> None:
    """Raise an error unless ``x`` is a tensor of floats (not an array or an 8-bit image)."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name} is a {type(x).__name__}, expected a torch.Tensor")
    if not (x.is_floating_point() or x.is_complex()):
        raise ArgumentError(
            f"{name} has dtype {x.dtype}; operators work on floats in [-1, 1], "
            "e.g. x.float() / 127.5 - 1 for 8-bit images"
        )


def check_image_shape(image_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """``image_shape`` as three positive integers (C, H, W); an error if it is not."""
    try:
        sides = tuple(int(n) for n in image_shape)
    except (TypeError, ValueError):
        sides = ()
    if len(sides) != 3 or min(sides) < 1:
        raise ShapeError(
            f"image_shape is {image_shape!r}, expected three positive numbers (channels, height, "
            "width) without the batch"
        )
    return sides[0], sides[1], sides[2]


def check_number(
    name: str, value: float, low: float, high: float = math.inf, *, open_low: bool = False
) -> None:
    """Raise an error unless ``value`` is finite and in [low, high], or (low, high] if open."""
    above = value > low if open_low else value >= low
    if above and value <= high and math.isfinite(value):
        return
    what = f"lie in {'(' if open_low else '['}{low:g}, {high:g}]"
    if high == math.inf:
        what = f"be finite and {'>' if open_low else '≥'} {low:g}"
    raise ArgumentError(f"{name} must {what}, got {value}")


def check_count(name: str, value: int, low: int = 1, high: int | None = None) -> None:
    """Raise an error unless ``value`` is an integer from ``low`` to ``high``."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and low <= value and (high is None or value <= high):
        return
    what = f"at least {low}" if high is None else f"in [{low}, {high}]"
    raise ArgumentError(f"{name} must be a whole number, {what}, got {value!r}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise an error unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_name(kind: str, name: str, known: Sequence[str]) -> None:
    """Refuse a ``name`` that is not ``known``, with the nearest one."""
    if name not in known:
        raise UnknownNameError(kind, str(name), known)
