"""``pnpcm priors list`` and ``info``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pnpcm.cli.display import json_text, say
from pnpcm.cli.priors.shared import File, Kind, console, file_of
from pnpcm.names import printable

COLUMNS = ("name", "kind", "parameters", "MB", "channels", "size", "minutes", "licence", "from")
GAUSSIAN = ("gaussian", "both", "0", "0.0", "any", "any", "0", "–", "built in")


def list_priors() -> None:
    """List the shipped priors and those in the cache folder."""
    from rich.markup import escape
    from rich.table import Table

    from pnpcm.catalogue import cache_folder, entries, find

    table, damaged = Table(*COLUMNS), []
    table.columns[0].no_wrap = True
    for entry in entries():
        origin = "shipped" if entry.shipped else "cached"
        if entry.config is None:
            damaged.append(f"damaged: {entry.damage}")
            table.add_row(
                escape(printable(entry.name)), entry.kind or "?", *["–"] * 6, f"{origin}, damaged"
            )
            continue
        if find(entry.name, entry.kind).path != entry.path:
            origin += ", hidden"  # another file of the same name and kind comes first
        table.add_row(
            escape(printable(entry.name)),
            entry.kind,
            f"{entry.parameters:,}",
            f"{entry.bytes / 1e6:.1f}",
            str(entry.config.in_channels),
            str(entry.image_size or "any"),
            "–" if entry.minutes is None else f"{entry.minutes:.0f}",
            escape(printable(str(entry.info.get("licence", "–")))),
            origin,
        )
    table.add_row(*GAUSSIAN)
    console().print(table)
    for line in damaged:
        say(line)
    say(f"your own: NAME-cm.safetensors, NAME-edm.safetensors in {cache_folder()}")


def info(
    name: File,
    kind: Kind = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Print the header of a prior's file and its model card."""
    entry = file_of(name, kind)
    card = entry.card_text()
    facts: dict[str, Any] = {
        "name": entry.name,
        "kind": entry.kind,
        "path": str(entry.path),
        "shipped": entry.shipped,
        "bytes": entry.bytes,
        "parameters": entry.parameters,
        "image_size": entry.image_size,
    }
    if as_json:
        content = facts | {"header": dict(entry.header), "card": card}
        say(json_text(content, indent=2))
        return
    _print_rows(facts | {"image_size": entry.image_size or "any"})
    for part in ("options", "network", "info"):
        say(f"\n{part}")
        _print_rows(entry.header[part])
    if card is not None:
        say(f"\nmodel card: {entry.card}\n\n{card.rstrip()}")


def _print_rows(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        say(f"  {key:22} {text}")
