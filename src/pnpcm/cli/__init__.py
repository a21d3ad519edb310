"""The commands of ``pnpcm``. Torch is imported only by the commands that compute."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pnpcm import __version__
from pnpcm.cli.app import app as app_command
from pnpcm.cli.bench import INTERRUPTED, bench
from pnpcm.cli.compare import compare
from pnpcm.cli.display import replace_unencodable, say
from pnpcm.cli.doctor import doctor
from pnpcm.cli.mri import mri, simulate_mri
from pnpcm.cli.photo import restore, simulate
from pnpcm.cli.priors import priors
from pnpcm.cli.reproduce import reproduce
from pnpcm.cli.shared import check_folder, has_fields, in_its_spelling
from pnpcm.cli.train import train
from pnpcm.cli.tune import tune
from pnpcm.errors import ArgumentError, PnPCMError, in_words
from pnpcm.names import OPERATOR_NAMES

NEED = 200
"""Bytes of memory per value of the images of ``pnpcm check``."""
app = typer.Typer(
    name="pnpcm",
    help="Reconstruct images from degraded measurements in 2 to 8 network evaluations (PnP-CM).\n\n"
    f"Operators: {', '.join(OPERATOR_NAMES)}.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.command()(restore)
app.command()(mri)
app.command()(simulate_mri)
app.command()(simulate)
app.command()(compare)
app.command()(app_command)
app.command()(train)
app.command()(tune)
app.command()(bench)
app.command()(reproduce)
app.command()(doctor)
app.add_typer(priors)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"pnpcm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Reconstruct images from degraded measurements."""


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Output folder for images, table and configurations.")
    ] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the masks and the noise.")] = 0,
) -> None:
    """Solve seven inverse problems on bundled images; write the images and a table of scores."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from pnpcm.demo import COLUMNS, RECORD, TASKS, cells, outputs, run_demo
    from pnpcm.metrics.lpips import PIP_LINE, available

    check_folder(out, outputs(), has_fields(out / RECORD, ("seed",)), "an output of pnpcm demo")
    console = Console()
    table = Table(COLUMNS[0], *COLUMNS[2:])
    table.columns[0].no_wrap = True
    quiet = not console.is_terminal
    for row in track(run_demo(out, seed=seed), "demo", len(TASKS), console=console, disable=quiet):
        task, note, *scores = cells(row)
        table.add_row(f"{task}\n[dim]{note}[/dim]", *scores)
    console.print(table)
    if not available():
        console.print(f"LPIPS: {PIP_LINE}")
    say(f"images: {out}/overview.png, table: {out}/table.md, all: {out}/results.json")


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(help="Preset to print as JSON.")] = None,
) -> None:
    """List the presets, or print the parameters of one."""
    from pnpcm.presets import PRESETS

    if name is not None:
        preset = PRESETS[name]
        content = {key: value for key, value in vars(preset).items() if key != "solver"}
        say(json.dumps(content | {"solver": preset.solver.to_dict()}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    metrics = ("psnr", "ssim", "lpips_vgg")
    table = Table(
        "preset",
        "operator",
        "NFE",
        *metrics,
        title="expected scores: as published; of shipped priors on the crops they were tuned on",
    )
    table.columns[0].no_wrap = True
    for key, row in PRESETS.items():
        scores = (f"{row.expected[m]:g}" if m in row.expected else "–" for m in metrics)
        table.add_row(key, row.operator, str(row.solver.n_steps), *scores)
    Console().print(table)


@app.command()
def check(
    operator: Annotated[str, typer.Argument(help="Operator or operator class, as module:name.")],
    shape: Annotated[
        str | None, typer.Option(help="Image shape CHANNELS,HEIGHT,WIDTH, e.g. 3,64,64.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random test images.")] = 0,
) -> None:
    """Check the laws of your own operator: adjoint, linearity, prox, batch, state.

    Exit code 0: all hold, 1: at least one is violated, 2: bad input.
    """
    import torch

    from pnpcm.io.reading import Budget
    from pnpcm.laws import check_operator
    from pnpcm.problems.choice import import_operator

    generator = torch.Generator().manual_seed(seed)
    x = None
    if shape is not None:
        sides = (2, *_sides(shape))
        budget = Budget(NEED, move="give a smaller shape", fixed=True)
        budget.check(f"shape is {shape!r}: a pair of images", sides, "values")
        x = torch.rand(sides, generator=generator) * 2 - 1
    report = check_operator(import_operator(operator), x, generator=generator)
    say(report)
    raise typer.Exit(0 if report.ok else 1)


def _sides(shape: str) -> tuple[int, ...]:
    try:
        sides = tuple(int(side) for side in shape.split(","))
    except ValueError:
        sides = ()
    if not sides or min(sides) < 1:
        raise ArgumentError(f"shape is {shape!r}, expected positive numbers like 3,64,64")
    return sides


def main() -> None:
    """Entry point: prints one sentence and exits with code 2 on errors that the user can fix.

    These include errors of the system (disk full, no permission). After Ctrl-C the code is 130,
    after SIGTERM 143; temporary files are removed in both cases.
    """
    # idle OpenMP threads sleep instead of spinning: four times faster beside another busy process
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    replace_unencodable()
    with _term_as_interrupt() as terminated:
        try:
            app()
        except SystemExit as ended:
            if ended.code != INTERRUPTED:
                raise
            # typer turns KeyboardInterrupt into this code; a command that caught it has told
            if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
                what = "SIGTERM" if terminated else "Ctrl-C"
                say(f"pnpcm: stopped by {what}; finished results are complete", error=True)
            sys.exit(128 + signal.SIGTERM if terminated else INTERRUPTED)
        except (PnPCMError, OSError, sqlite3.Error) as error:
            words = " ".join(in_words(error).split())
            say(f"pnpcm: {in_its_spelling(words, _called())}", error=True)
            sys.exit(2)


@contextmanager
def _term_as_interrupt() -> Iterator[list[int]]:
    """SIGTERM raises ``KeyboardInterrupt``, so that temporaries are removed; lists what came."""
    seen: list[int] = []

    def stop(number: int, _: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield seen  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGTERM, before)


def _called() -> Callable[..., None]:
    """The function of the command in ``sys.argv``."""
    commands = (*app.registered_commands, *priors.registered_commands)
    known = {c.name or getattr(c.callback, "__name__", ""): c for c in commands}
    for word in sys.argv[1:]:
        found = known.get(word) or known.get(word.replace("-", "_"))
        if found is not None and found.callback is not None:
            return found.callback
    return _options
