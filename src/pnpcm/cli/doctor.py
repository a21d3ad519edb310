"""``pnpcm doctor``: examines the installation."""

from __future__ import annotations

from typing import Annotated

import typer

from pnpcm.cli.display import json_text, say


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Examine the installation: versions, devices, packages, priors, and a short self-test.

    One line per finding: ok, missing (optional) or broken, and what to do. Exit code 0: nothing is
    broken, 1: something is.
    """
    from pnpcm.doctor import BROKEN, examine, summary

    if as_json:
        content = summary(examine())
        say(json_text(content, indent=2))
        raise typer.Exit(0 if content["ok"] else 1)
    broken = 0
    for finding in examine():
        say(finding)
        broken += finding.status == BROKEN
    say("nothing is broken" if not broken else f"{broken} broken: see above")
    raise typer.Exit(1 if broken else 0)
