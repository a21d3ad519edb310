"""``pnpcm doctor``: examines the installation."""

from __future__ import annotations

import json
from typing import Annotated

import typer


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
        print(json.dumps(content, indent=2, ensure_ascii=False))
        raise typer.Exit(0 if content["ok"] else 1)
    broken = 0
    for finding in examine():
        print(finding, flush=True)
        broken += finding.status == BROKEN
    print("nothing is broken" if not broken else f"{broken} broken: see above")
    raise typer.Exit(1 if broken else 0)
