"""Arguments, console and file lookup of the commands of ``pnpcm priors``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnpcm.cli.shared import LAST_SEED
from pnpcm.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from pnpcm.catalogue import Entry
    from pnpcm.core import Prior

Name = Annotated[
    str, typer.Argument(help="Prior: name (see pnpcm priors list), file, folder, hf:owner/name.")
]
File = Annotated[
    str, typer.Argument(help="Prior: name, pnpcm .safetensors file or exported folder.")
]
Kind = Annotated[
    str | None, typer.Option(help="Kind: consistency, edm or vp; default: the file's own.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Seed = Annotated[
    int,
    typer.Option(help="Seed; the noise of image i has seed + i.", min=-LAST_SEED, max=LAST_SEED),
]


def console() -> Console:
    """The console; 140 columns wide if the output is not a terminal."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal else Console(width=140)


def make_folder(path: Path) -> None:
    """Create an output folder, before the computation starts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"the output folder {path} cannot be created ({error}); choose another"
        ) from error


def file_of(name: str, kind: str | None = None) -> Entry:
    """The catalogue entry of a name or path."""
    from pnpcm.catalogue import PRIOR_NAMES, locate

    if name in PRIOR_NAMES:
        raise ArgumentError(
            f"the prior {name!r} is analytic and has no file; it can only be sampled and evaluated"
        )
    return locate(name, kind)


def label_of(name: str, prior: Prior) -> str:
    """The name of a prior in tables and figures: its own, or the stem of its path."""
    from pnpcm.catalogue import is_name

    said = getattr(prior, "info", {}).get("name")
    return name if is_name(name) else str(said or Path(name).stem)
