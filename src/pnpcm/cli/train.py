"""``pnpcm train``: trains a prior as a recipe describes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pnpcm.cli.display import say
from pnpcm.errors import ArgumentError
from pnpcm.names import METHOD_NAMES

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def train(
    method: Annotated[str, typer.Argument(help=f"One of {', '.join(METHOD_NAMES)}.")],
    recipe: Annotated[Path, typer.Argument(help="YAML file, e.g. one of recipes/.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Changes to the recipe, section.field=value: optimizer.lr=1e-4"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; default: the recipe's.")
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(help="Prior file with the initial weights; cosign: the frozen prior."),
    ] = None,
    teacher: Annotated[
        Path | None, typer.Option(help="distill: file of the EDM prior that is distilled.")
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(help="Stop after this time, e.g. 90m, 2h, 1d.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print parameters, memory and steps, and stop.")
    ] = False,
) -> None:
    """Train a prior. Repeating the command continues a stopped or killed run.

    edm: a denoiser; distill, consistency, ect: a consistency model; cosign: a ControlNet for a
    consistency model and one task.

    Several processes: accelerate launch -m pnpcm train …
    """
    from pnpcm.training import estimate, read_recipe
    from pnpcm.training import train as run

    given = list(overrides or ())
    for name, path in (("out", out), ("init_from", init_from), ("teacher", teacher)):
        if path is not None:  # relative to the current folder, not to the recipe's
            given.append(f"{name}={path.resolve()}")
    seconds = _seconds(max_time)
    plan = read_recipe(recipe, method, given)
    if dry_run:
        say(estimate(plan))
        return
    say(f"done: {run(plan, recipe.parent, max_seconds=seconds)}")


def _seconds(text: str | None) -> float | None:
    """Seconds of a time such as "90m"; a number without unit is in minutes."""
    if text is None:
        return None
    unit = text[-1:] if text[-1:] in UNITS else "m"
    try:
        seconds = float(text.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        raise ArgumentError(f"max_time is {text!r}, expected a time such as 90m, 2h or 1d")
    return seconds
