"""Folders of data sets and training runs, given by environment variables.

A path that starts with ``$PNPCM_DATA`` or ``$PNPCM_RUNS`` is in such a folder; recipes, benchmarks
and tests write their paths this way.
"""

from __future__ import annotations

import os
from pathlib import Path

from pnpcm.errors import ArgumentError

PLACES = {"PNPCM_DATA": "../shared/data", "PNPCM_RUNS": "../runs"}
"""Variable → default, relative to the current folder (the root of the repository)."""

REMEDIES = {
    "PNPCM_DATA": "set it to the folder that holds the data sets",
    "PNPCM_RUNS": "train the recipe that writes it, or set the variable to the folder of runs",
}
"""Variable → remedy if something is missing in its folder."""


def place(variable: str) -> Path:
    """The absolute path of the folder of ``variable``."""
    return Path(os.environ.get(variable) or PLACES[variable]).resolve()


def resolve(path: str | Path, folder: str | Path = ".") -> Path:
    """``path`` with a leading ``$PNPCM_DATA`` or ``$PNPCM_RUNS`` replaced; else from ``folder``."""
    variable, rest = _split(path)
    return Path(folder) / path if variable is None else place(variable) / rest


def existing(path: str | Path, folder: str | Path = ".") -> Path:
    """``resolve(path, folder)``; an error if it is missing in the folder of a variable.

    Paths without a variable are returned unchecked.
    """
    found, (variable, _) = resolve(path, folder), _split(path)
    if variable is None or found.exists():
        return found
    by_default = "" if os.environ.get(variable) else " by default"
    raise ArgumentError(
        f"{path} is missing: {variable} is {place(variable)}{by_default}; {REMEDIES[variable]}"
    )


def _split(path: str | Path) -> tuple[str | None, Path]:
    """The variable that a path starts with, or None, and the rest of the path."""
    first, *rest = Path(path).parts or (".",)
    variable = first.removeprefix("$")
    if first.startswith("$") and variable in PLACES:
        return variable, Path(*rest)
    return None, Path(path)
