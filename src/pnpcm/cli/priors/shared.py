"""What the commands of ``pnpcm priors`` share: arguments, a console, folders, files of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnpcm.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from pnpcm.catalogue import Entry
    from pnpcm.core import Prior

Name = Annotated[str, typer.Argument(help="Name (see pnpcm priors list), file, folder or Hub id.")]
File = Annotated[str, typer.Argument(help="Name, .safetensors file of ours, or exported folder.")]
Kind = Annotated[str | None, typer.Option(help="consistency, edm or vp; default: as it is.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Seed = Annotated[int, typer.Option(help="Image i draws its noise from seed + i.")]


def console() -> Console:
    """The terminal; where there is none, lines are wide enough for our tables."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal else Console(width=140)


def make_folder(path: Path) -> None:
    """Create a folder for outputs before anything is computed for it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"out needs the folder {path}, but {error}; choose another") from error


def file_of(name: str, kind: str | None = None) -> Entry:
    """The file of ours behind a name or path."""
    from pnpcm.catalogue import PRIOR_NAMES, locate

    if name in PRIOR_NAMES:
        raise ArgumentError(
            f"the prior {name!r} is a formula without a file; it can be sampled and evaluated only"
        )
    return locate(name, kind)


def label_of(name: str, prior: Prior) -> str:
    """What to call a prior in tables and pictures: a path is no good name."""
    from pnpcm.catalogue import is_name

    said = getattr(prior, "info", {}).get("name")
    return name if is_name(name) else str(said or Path(name).stem)
