"""Settings: hyperparameters that the user gives by name, on top of a configuration. They win."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.schedules import linspace
from pnpcm.solvers import PnPCMConfig

ENDS = {"sigma": "sigmas", "rho": "rhos", "delta": "deltas"}


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` words of the command line; lists are separated by commas."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals and text):
            raise ArgumentError(f"--set is {pair!r}, expected name=value, e.g. rho_start=0.1")
        found[name.strip()] = _value(text.strip())
    return found


def apply_settings(config: PnPCMConfig, settings: Mapping[str, Any]) -> PnPCMConfig:
    """``config`` with some numbers replaced.

    Fields of the configuration (``sigmas``, ``mu``, …), fields of its data step (``n_iter``, …),
    ``delta`` for all steps, and the ends ``sigma_start``, ``sigma_end``, ``rho_start``,
    ``rho_end``, ``delta_start``, ``delta_end``: what lies between is moved along, σ and ρ on a
    logarithmic scale.
    """
    own = {f.name for f in fields(config)} - {"data_step"}
    inner = {f.name for f in fields(config.data_step)}  # type: ignore[arg-type]
    ends = {f"{name}_{end}" for name in ENDS for end in ("start", "end")}
    for key in settings:
        if key not in own | inner | ends | {"delta"}:
            raise UnknownNameError("hyperparameter", key, own | inner | ends | {"delta"})
    changes: dict[str, Any] = {key: settings[key] for key in own & settings.keys()}
    for name in ("sigmas", "rhos", "deltas"):
        if name in changes and not isinstance(changes[name], tuple):
            changes[name] = (changes[name],)
    if "delta" in settings:
        changes["deltas"] = (settings["delta"],) * config.n_steps
    config = replace(config, **changes)
    for name, target in ENDS.items():
        given = [settings.get(f"{name}_{end}") for end in ("start", "end")]
        if given != [None, None]:
            ends_of: dict[str, Any] = {}
            ends_of[target] = _move(getattr(config, target), given, name, log=name != "delta")
            config = replace(config, **ends_of)
    steps = {key: settings[key] for key in inner & settings.keys()}
    if steps:
        config = replace(config, data_step=replace(config.data_step, **steps))  # type: ignore[type-var]
    return config


def _move(
    values: tuple[float, ...], given: list[Any], name: str, *, log: bool
) -> tuple[float, ...]:
    """``values`` with new ends; the change at the ends is spread linearly over the steps."""
    start, end = (
        values[i] if new is None else float(new) for i, new in zip((0, -1), given, strict=True)
    )
    if log and min(start, end) <= 0:
        raise ArgumentError(f"{name}_start and {name}_end must be positive, got {start}, {end}")
    to, back = (math.log, math.exp) if log else (float, float)
    if len(values) == 1:
        return (start if given[0] is not None else end,)
    shift = linspace(to(start) - to(values[0]), to(end) - to(values[-1]), len(values))
    return tuple(back(to(v) + s) for v, s in zip(values, shift, strict=True))


def _value(text: str) -> Any:
    if "," in text:
        return tuple(_value(part) for part in text.split(",") if part)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
