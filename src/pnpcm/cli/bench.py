"""``pnpcm bench``: computes the rows of a spec, prints their means and compares them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm.cli import shared
from pnpcm.cli.display import say, starting
from pnpcm.errors import ArgumentError, MissingExtraError

if TYPE_CHECKING:
    from pnpcm.bench.run import Progress
    from pnpcm.bench.spec import Spec
    from pnpcm.bench.store import Store
    from pnpcm.bench.verify import Expected

SHOWN = ("psnr", "lpips-vgg", "lpips-alex")
"""Metrics of the table at the end; all are in the store."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells use it."""


def bench(
    spec: Annotated[Path, typer.Argument(help="YAML file, see docs/bench.md.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: out/bench/NAME.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Number of images per data set.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            "--filter",
            help="Compute only rows whose name DATA/IMAGE/TASK/sNOISE/PRIOR/METHOD/SEED contains "
            "this pattern (* and ? allowed); repeatable.",
        ),
    ] = None,
    workers: shared.Workers = None,
    scheduler: shared.Scheduler = None,
    shard: Annotated[
        str | None,
        typer.Option(help="i/n: every n-th measurement from the i-th on; auto: SLURM job array."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of rows and the expected time.")
    ] = False,
    verify: Annotated[
        Path | None,
        typer.Option(help="File of expected means; exit code 1 if one is outside its tolerance."),
    ] = None,
    expect: Annotated[
        Path | None, typer.Option(help="Write the means of this run as such a file.")
    ] = None,
) -> None:
    """Run a benchmark: methods × tasks × priors × noise levels × steps × images × seeds.

    Rows are stored in the folder as they finish; the same command continues a run that was
    stopped. Exit code 0: finished, 1: --verify failed, 2: bad input, 130: stopped by Ctrl-C.
    """
    with starting():
        from pnpcm.bench.estimate import estimate
        from pnpcm.bench.run import bench as run
        from pnpcm.bench.run import finished, planned
        from pnpcm.bench.spec import read_spec
        from pnpcm.bench.verify import expected_of, is_expected, read_expected, write_expected
        from pnpcm.cluster import connect

        wanted = read_spec(spec)
    out = out if out is not None else Path("out/bench") / wanted.name
    patterns = tuple(only or ())
    expected = None if verify is None else read_expected(verify)
    if expect is not None and not expect.parent.is_dir():
        raise ArgumentError(f"expect is {expect}, but {expect.parent} is not a folder")
    if dry_run:
        say(estimate(wanted, out, limit=limit, only=patterns, shard=shard))
        return
    check_bench(out, [wanted.name])
    if expect is not None:
        shared.check_output(expect, is_expected, "a file of --expect")
    try:
        with connect(workers, scheduler) as client, progress_bar() as watch:
            store = run(
                wanted, out, limit=limit, only=patterns, shard=shard, client=client, watch=watch
            )
    except KeyboardInterrupt:
        say(
            f"pnpcm: stopped; finished rows are in {out}, the same command continues",
            error=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    rows = finished(wanted, store, limit=limit, only=patterns)
    _print_table(wanted, rows)
    if rows and shard is None:  # shards would write the same files; afterwards run without it
        write_report(store, out, wanted.to_dict())
    if shard is not None:
        total = sum(1 for _ in planned(wanted, limit=limit, only=patterns))
        say(f"{len(rows)} of {total} rows of the spec are in the store")
    say(f"results: {out}")
    if expect is not None:
        words = ["pnpcm", "bench", str(spec), "--out", str(out), "--expect", str(expect)]
        words += ["--limit", str(limit)] if limit is not None else []
        words += [word for pattern in patterns for word in ("--only", pattern)]
        write_expected(expect, expected_of(wanted.name, rows), shlex.join(words))
        say(f"expected means: {expect}")
    if expected is not None:
        _compare(rows, expected)


def check_bench(out: Path, specs: Sequence[str], more: Sequence[str] = ()) -> None:
    """Refuse a folder whose files would be replaced, unless they are of a benchmark.

    ``specs``: their names. ``more``: names of files beside those of a report.
    """
    from pnpcm.bench.report import FILES
    from pnpcm.bench.store import Store

    def is_spec(path: Path) -> bool:
        return shared.has_fields(path, ("name", "data"))

    what = "a result of pnpcm bench or reproduce"
    for name in specs:
        shared.check_output(out / f"{name}.spec.json", is_spec, what)
    shared.check_folder(out, (*FILES, *more), Store(out).exists(), what)


def write_report(store: Store, out: Path, spec: dict[str, Any], **more: Any) -> None:
    """Write the page and the tables of the rows, or say what is missing for them.

    ``more``: see :func:`pnpcm.bench.report.report`.
    """
    from pnpcm.bench.report import report

    try:
        page, *_ = report(store, out, spec=spec, **more)
        say(f"report: {page}")
    except MissingExtraError as error:
        say(f"no report: {error}")


@contextmanager
def progress_bar() -> Iterator[Any]:
    """A function for ``watch``: a bar on a terminal, else a line per tenth of the rows."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    from pnpcm.bench.estimate import duration

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),  # rich forgets rows of more than 30 s
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("bench", total=None, left="")

        def show(progress: Progress) -> None:
            text = "bench" if progress.row is None else progress.row.name
            failed = f", {progress.failed} failed" if progress.failed else ""
            bar.update(
                task,
                description=text[-60:] + failed,
                completed=progress.done,
                total=progress.total,
                left=f"{duration(progress.remaining)} remain" if progress.done else "",
            )

        yield show


def _lines() -> Any:
    said = -1

    def show(progress: Progress) -> None:
        nonlocal said
        from pnpcm.bench.estimate import duration

        tenth = 10 * progress.done // progress.total if progress.total else 10
        if tenth == said:
            return
        said = tenth
        text = f"bench: {progress.done} of {progress.total} rows"
        if progress.failed:
            text += f", {progress.failed} failed"
        if 0 < progress.done < progress.total:
            text += f", {duration(progress.remaining)} remain"
        say(text, error=True)

    return show


def _print_table(spec: Spec, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from pnpcm.bench.scores import METRICS
    from pnpcm.bench.verify import CELL, cells_of

    metrics = [m for m in spec.metrics if m in SHOWN] or list(spec.metrics[:1])
    heads = [f"{m.upper()} {METRICS[m].unit}".strip() for m in metrics]
    table = Table("task", "method", *heads, "NFE", "seconds", "images")
    for column in table.columns[2:]:
        column.justify = "right"
    several = len(spec.data) > 1
    for cell in cells_of(rows):
        members = [row for row in rows if tuple(row[name] for name in CELL) == cell.place]
        done = [row for row in members if row["failed"] is None]
        where = f"{cell.data}: " if several else ""
        steps = "" if cell.steps is None else f", N = {cell.steps}"
        prior = f" ({cell.prior})" if len(spec.priors) > 1 else ""
        means = [f"{cell.mean[m]:.{METRICS[m].digits}f}" if m in cell.mean else "–"
                 for m in metrics]  # fmt: skip
        count = f"{len(done)}" if len(done) == len(members) else f"{len(done)} of {len(members)}"
        table.add_row(
            f"{where}{cell.task}, σ {cell.sigma_y:g}",
            f"{cell.method}{prior}{steps}",
            *means,
            _mean([row["nfe"] for row in done], 0),
            _mean([_seconds(row) for row in done], 2),
            count,
        )
    console = Console()
    if not console.is_terminal:  # a file has no width
        console = Console(width=160)
    console.print(table)
    for reason, names in _failures(rows).items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        say(f"failed: {', '.join(names[:3])}{more}: {reason}")


def _failures(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Reason → methods and tasks in which it occurred."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["failed"] is not None:
            found.setdefault(row["failed"], {})[f"{row['method']} on {row['task']}"] = None
    return {reason: list(names) for reason, names in found.items()}


def _seconds(row: dict[str, Any]) -> float:
    """Of the reconstruction, without loading of the prior."""
    return sum(float(s) for stage, s in row["seconds"].items() if stage != "prior")


def _mean(values: list[float], digits: int) -> str:
    return f"{sum(values) / len(values):.{digits}f}" if values else "–"


def _compare(rows: list[dict[str, Any]], expected: Expected) -> None:
    from pnpcm.bench.verify import verify

    compared = verify(rows, expected)
    for one in compared:
        if not one.ok or one.share is None:
            say(f"{'verify' if one.ok else 'outside'}: {one.message}")
    outside = sum(not one.ok for one in compared)
    largest = max((one.share for one in compared if one.share is not None and one.ok), default=0.0)
    say(
        f"verify: {len(compared) - outside} of {len(compared)} comparisons within their tolerance "
        f"(largest difference {100 * largest:.0f} % of it), {outside} outside"
    )
    if outside:
        raise typer.Exit(1)
