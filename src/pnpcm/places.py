"""Folders outside the repository: data sets and training runs, named by environment variables."""

from __future__ import annotations

import os
from pathlib import Path

PLACES = {"PNPCM_DATA": "../shared/data", "PNPCM_RUNS": "../runs"}
"""Variable → default, relative to the current folder (the root of the repository)."""


def place(variable: str) -> Path:
    """The folder that ``variable`` names, absolute."""
    return Path(os.environ.get(variable) or PLACES[variable]).resolve()


def resolve(path: str | Path, folder: Path) -> Path:
    """``path`` with a leading ``$PNPCM_DATA`` or ``$PNPCM_RUNS`` replaced; else from ``folder``."""
    first, *rest = Path(path).parts or (".",)
    if first.removeprefix("$") in PLACES and first.startswith("$"):
        return place(first[1:]).joinpath(*rest)
    return folder / path
