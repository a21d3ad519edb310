"""``pnpcm reproduce``: a table of the paper, our numbers beside the published ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pnpcm.cli import shared
from pnpcm.cli.bench import INTERRUPTED, progress_bar, write_report
from pnpcm.cli.display import starting


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="main, ablation, momentum, nfe-noise, sensitivity, figures, theorem or all."
        ),
    ],
    *,
    prior: Annotated[
        str | None, typer.Option(help="Your checkpoint of a consistency model; needs --data.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Your folder of images of at least 256×256 pixels.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Number of images per data set.")] = 2,
    workers: shared.Workers = None,
    scheduler: shared.Scheduler = None,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("out/reproduce"),
) -> None:
    """Compute a table of the paper and print the published numbers beside ours.

    With nothing given: shipped priors on images of PNPCM_DATA or on the bundled photographs. The
    same command continues a run that was stopped.
    """
    with starting():
        from pnpcm.bench.cluster import connect
        from pnpcm.bench.reproduce import TABLES, beside, markdown, merged, specs
        from pnpcm.bench.run import bench
        from pnpcm.bench.store import Store
        from pnpcm.bench.theorem import write_theorem
        from pnpcm.io.files import write_text

        wanted = specs(table, prior=prior, data=data)
    if table in ("theorem", "all"):
        print(write_theorem(out, prior=prior, data=data))
    if table == "theorem":
        print(f"results: {out}")
        return
    try:
        with connect(workers, scheduler) as client:
            for number, spec in enumerate(wanted):
                print(f"{spec.name} ({number + 1} of {len(wanted)})", file=sys.stderr, flush=True)
                with progress_bar() as watch:
                    bench(spec, out, limit=limit, client=client, watch=watch)
    except KeyboardInterrupt:
        print(f"pnpcm: stopped; rows are in {out}, the same command continues", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    store = Store(out)
    rows = list(store.rows())
    words = "; ".join(dict.fromkeys(spec.words.partition(": ")[2] for spec in wanted))
    for name in TABLES if table == "all" else (table,):
        cells = beside(name, rows)
        if cells:
            head = f"Ours / paper, {limit} image(s) per data set. Ours: {words}.\n\n"
            text = head + markdown(name, cells)
            write_text(out / f"{name}.md", text)
            print(text)
    if rows:
        write_report(store, out, merged(table, wanted))
    print(f"results: {out}")
