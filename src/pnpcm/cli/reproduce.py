"""``pnpcm reproduce``: a table of the paper, our numbers beside the published ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pnpcm.cli import shared
from pnpcm.cli.bench import INTERRUPTED, check_bench, progress_bar, write_report
from pnpcm.cli.display import say, starting


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="main, ablation, momentum, nfe-noise, sensitivity, figures, theorem or all."
        ),
    ],
    *,
    domain: Annotated[
        str | None,
        typer.Option(
            help="Data set of the paper: celeba-hq, lsun-bedroom, fastmri-pd or fastmri-pdfs; "
            "default: all, with --prior celeba-hq."
        ),
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="Your checkpoint of a consistency model; needs --data.")
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(help="Your checkpoint of a diffusion model, for the methods that need one."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Your data: folder of images, of LSUN's LMDB, or of .h5 volumes."),
    ] = None,
    kernel_wizard: Annotated[
        str | None,
        typer.Option(help="File of the paper's blur network for nonlinear-deblur, GOPRO_wVAE.pth."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Number of images per data set; default: 2, with --data as in the paper (300 "
            "photographs, all slices of 10 volumes)."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device of the solver: cpu, cuda …")] = "cpu",
    workers: shared.Workers = None,
    scheduler: shared.Scheduler = None,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("out/reproduce"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of rows and the expected time.")
    ] = False,
) -> None:
    """Compute a table of the paper and print the published numbers beside ours.

    With nothing given: shipped priors on images of PNPCM_DATA or on the bundled photographs. With
    --prior and --data: the experiment of the paper, see docs/reproduce.md. The same command
    continues a run that was stopped.
    """
    with starting():
        from pnpcm.bench.beside import tables
        from pnpcm.bench.estimate import duration, estimate
        from pnpcm.bench.reproduce import FEW, REFERENCES, domains, merged, specs, table_of
        from pnpcm.bench.run import bench
        from pnpcm.bench.sections import Section, markdown
        from pnpcm.bench.store import Store
        from pnpcm.bench.theorem import FILES as THEOREM
        from pnpcm.bench.theorem import is_theorem, write_theorem
        from pnpcm.cluster import connect
        from pnpcm.io.files import write_text

        own = {"domain": domain, "teacher": teacher, "kernel_wizard": kernel_wizard}
        used = domains(prior, data, **own)
        found = specs(table, prior=prior, data=data, **own)
        wanted = [replace(spec, device=device) for spec in found]
    limit = FEW if limit is None and prior is None else limit
    if dry_run:
        seconds = 0.0
        for spec in wanted:
            expected = estimate(spec, out, limit=limit)
            seconds += expected.seconds
            say(f"{spec.name}: {expected}")
        say(f"{len(wanted)} parts, expected time together: {duration(seconds)} of one process")
        return
    if wanted:
        check_bench(out, [spec.name for spec in wanted], [f"{table_of(s)}.md" for s in wanted])
    if table in ("theorem", "all"):
        shared.check_folder(out, THEOREM, is_theorem(out), "a result of pnpcm reproduce theorem")
    study: list[Section] = []
    if table in ("theorem", "all"):
        study = write_theorem(out, prior=prior, data=data)
        say(markdown(study))
    if table == "theorem":
        say(f"results: {out}")
        return
    try:
        with connect(workers, scheduler) as client:
            for number, spec in enumerate(wanted):
                say(f"{spec.name} ({number + 1} of {len(wanted)})", error=True)
                with progress_bar() as watch:
                    bench(spec, out, limit=limit, client=client, watch=watch)
    except KeyboardInterrupt:
        say(f"pnpcm: stopped; rows are in {out}, the same command continues", error=True)
        raise typer.Exit(INTERRUPTED) from None
    store = Store(out)
    made = tables(wanted, used, store, limit=limit)
    for name, sections in made.items():
        if sections:
            text = markdown(sections)
            write_text(out / f"{name}.md", text)
            say(text)
    if wanted:
        write_report(
            store,
            out,
            merged(f"reproduce {table}", wanted),
            reference=REFERENCES,
            tables={spec.name: table_of(spec) for spec in wanted},
            sections=[*(s for sections in made.values() for s in sections), *study],
        )
    say(f"results: {out}")
