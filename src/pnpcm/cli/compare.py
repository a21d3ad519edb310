"""``pnpcm compare``: PSNR, SSIM and LPIPS of image files against their references."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm.cli import shared
from pnpcm.cli.display import json_text, say
from pnpcm.errors import ArgumentError
from pnpcm.names import printable

if TYPE_CHECKING:
    from pnpcm.metrics.compare import Comparison, Pairs

Pair = tuple[Path, Path]
COLUMNS = ("", "PSNR (dB)", "SSIM", "LPIPS VGG", "LPIPS Alex")


def compare(
    ref: Annotated[Path, typer.Argument(help="Reference image, or folder of reference images.")],
    out: Annotated[Path, typer.Argument(help="Image to score, or folder of images.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    perceptual: Annotated[
        bool,
        typer.Option(
            "--lpips/--no-lpips", help="Compute LPIPS, which takes most of the time and memory."
        ),
    ] = True,
    max_pixels: shared.MaxPixels = None,
) -> None:
    """Score images against their references: PSNR, SSIM, LPIPS.

    Images of two folders are matched by file name without suffix, or NAME.TASK with NAME; the last
    row is the mean. Reads PNG, JPEG, TIFF and WebP, 8 or 16 bits. Exit code 0: all done, 1: some
    pairs failed, 2: bad input.
    """
    from rich.console import Console
    from rich.progress import track

    from pnpcm.metrics.compare import compare_files, mean, pair
    from pnpcm.metrics.lpips import PIP_LINE, available
    from pnpcm.recon.record import check_input, sentence

    console, status = Console(), Console(stderr=True)
    pairs = pair(ref, out)
    quiet = as_json or not status.is_terminal
    folders = ref.is_dir()
    rows: dict[Pair, Comparison] = {}
    failed: dict[Pair, str] = {}
    for one, two in track(pairs.files, "compare", console=status, disable=quiet):
        try:
            check_input(one)
            check_input(two)
            row = compare_files(one, two, perceptual=perceptual, max_pixels=max_pixels)
            rows[one, two] = row
        except Exception as error:  # one bad pair must not end a run of thousands
            named = one if str(one) in str(error) else two
            message = sentence(named, error)
            if not folders:
                raise ArgumentError(message) from error
            failed[one, two] = shared.in_its_spelling(message, compare)
    means = mean(list(rows.values())) if folders and rows else None
    hint = None if not perceptual or available() else f"LPIPS: {PIP_LINE}"
    if as_json:
        say(json_text(_content(ref, out, pairs, rows, failed, means, hint), indent=2))
    elif rows:
        console.print(_table(list(rows.values()), means))
        for row in rows.values():
            for note in row.notes:
                say(f"{row.name}: {note}")
        for folder, files in ((ref, pairs.only_ref), (out, pairs.only_out)):
            if files:
                say(f"only in {folder}: {', '.join(path.name for path in files)}")
        if hint:
            say(hint)
    for message in failed.values():
        say(f"pnpcm: {message}", error=True)
    if failed:
        raise typer.Exit(1)


def _table(rows: list[Comparison], means: Comparison | None) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(COLUMNS[0])
    for column in COLUMNS[1:]:
        table.add_column(column, justify="right")
    for row in (*rows, *((means,) if means else ())):
        table.add_row(Text(printable(row.name)), *_cells(row))
        if row is rows[-1] and means:
            table.add_section()
    return table


def _cells(row: Comparison) -> list[str]:
    scores = ((row.psnr, 2), (row.ssim, 4), (row.lpips_vgg, 4), (row.lpips_alex, 4))
    return [
        "–" if score is None else "∞" if math.isinf(score) else f"{score:.{digits}f}"
        for score, digits in scores
    ]


def _content(
    ref: Path,
    out: Path,
    pairs: Pairs,
    rows: dict[Pair, Comparison],
    failed: dict[Pair, str],
    means: Comparison | None,
    hint: str | None,
) -> dict[str, Any]:
    images = [
        row.to_dict() | {"ref": str(one), "out": str(two)} for (one, two), row in rows.items()
    ]
    return {
        "ref": str(ref),
        "out": str(out),
        "images": images,
        "failed": [
            {"ref": printable(str(one)), "out": printable(str(two)), "error": message}
            for (one, two), message in failed.items()
        ],
        "mean": means.to_dict() if means else None,
        "only_ref": [str(path) for path in pairs.only_ref],
        "only_out": [str(path) for path in pairs.only_out],
        "hint": hint,
    }
