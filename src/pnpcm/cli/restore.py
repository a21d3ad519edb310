"""``pnpcm restore``: what a person really has, restored."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm import __version__
from pnpcm.cli import shared
from pnpcm.errors import ArgumentError

if TYPE_CHECKING:
    from pnpcm.io.photos import Photo
    from pnpcm.problems import Task
    from pnpcm.recon.folder import Order, Outcome


def restore(
    inputs: Annotated[list[Path], typer.Argument(help="Pictures, folders or measurement files.")],
    task: shared.TaskName = None,
    mask: Annotated[Path | None, typer.Option(help="inpaint: white = to be filled.")] = None,
    mask_color: Annotated[
        str | None, typer.Option(help="inpaint: colour painted over the holes, e.g. #ff0000.")
    ] = None,
    factor: shared.Factor = None,
    downsampler: shared.Downsampler = None,
    kernel: shared.Kernel = None,
    gaussian: shared.Gaussian = None,
    motion: shared.Motion = None,
    boundary: shared.Boundary = None,
    linear_light: shared.LinearLight = False,
    quality: shared.Quality = None,
    length: shared.Length = None,
    angle: shared.Angle = None,
    reference_operator: shared.ReferenceOperator = False,
    kernel_wizard: shared.KernelWizard = None,
    operator: Annotated[
        str | None, typer.Option(help="Your own forward model: my_module:MyOperator.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="phase-retrieval: picture that decides the signs.")
    ] = None,
    sigma_y: Annotated[
        str, typer.Option(help="Noise of the input on the [0, 1] scale, or auto.")
    ] = "auto",
    prior: Annotated[
        str, typer.Option(help="natural, faces, a file, a folder, a Hub id.")
    ] = "natural",
    steps: Annotated[int | None, typer.Option(help="Network evaluations.")] = None,
    preset: Annotated[str | None, typer.Option(help="Name or file of a preset.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any hyperparameter, e.g. rho_start=0.1.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Independent results: mean and spread.")] = 1,
    seed: shared.Seed = 0,
    tile: Annotated[int, typer.Option(help="Side of the prior's tiles: bounds memory.")] = 768,
    halo: Annotated[
        int | None, typer.Option(help="Pixels seen around a tile; default: all that count.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps …")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/restored"),
    format: Annotated[str | None, typer.Option(help="png, jpeg, tiff or webp.")] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="One JSON object per file on stdout.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Print the resolved configuration only.")] = False,
) -> None:
    """Restore degraded pictures: no ground truth, any size, nothing to tune.

    Writes NAME.png and NAME.result.json (configuration, self-check, timings) for each input, one
    by one; a second run keeps what is finished. Exit code 0: all restored, 1: some failed, 2: bad
    input.
    """
    from pnpcm.io.photos import SUFFIXES
    from pnpcm.problems.measurement import SUFFIX, find_inputs
    from pnpcm.recon.folder import Order, restore_files
    from pnpcm.recon.settings import parse_settings

    options = {
        "factor": factor,
        "downsampler": downsampler,
        "kernel": kernel,
        "gaussian": gaussian,
        "motion": motion,
        "boundary": boundary,
        "linear_light": linear_light,
        "quality": quality,
        "length": length,
        "angle": angle,
        "reference_operator": reference_operator,
        "kernel_wizard": kernel_wizard,
    }
    files = find_inputs(inputs, (*SUFFIXES, SUFFIX))
    values = shared.given(**options)
    task_for = _task_for(task, operator, values, mask, mask_color)
    if format not in (None, "png", "jpeg", "tiff", "webp"):
        raise ArgumentError(f"format is {format!r}, expected png, jpeg, tiff or webp")
    order = Order(
        prior=prior,
        sigma_y=shared.noise(sigma_y),
        steps=steps,
        preset=preset,
        settings=parse_settings(set_ or []),
        samples=samples,
        seed=seed,
        tile=tile,
        halo=halo,
        format=format,
        device=device,
        reference=reference,
    )
    if dry_run:
        _print_resolved(files, task_for, order)
        return
    request = _request(order, task, operator, options, [mask, mask_color])
    loaded = _load(order)
    outcomes = restore_files(files, out, task_for, order, description=request, prior=loaded)
    failed = _show(outcomes, len(files), as_json=json_)
    if failed:
        raise typer.Exit(2 if failed == len(files) == 1 else 1)


def _task_for(
    task: str | None,
    operator: str | None,
    values: dict[str, Any],
    mask: Path | None,
    mask_color: str | None,
) -> Callable[[Path, Photo], tuple[Task, tuple[str, ...]]] | None:
    """How each picture becomes a task; what is wrong for all of them is said at once."""
    from pnpcm.problems import TASKS, Custom, Jpeg

    if operator is not None:
        if task is not None or values:
            raise ArgumentError("operator is given: leave --task and its options out")
        return lambda path, photo: (
            Custom(shared.import_operator(operator, tuple(photo.x.shape[1:]))),
            (),
        )
    if task is None:
        if values or mask or mask_color:
            raise ArgumentError("task is missing; give --task")
        return None
    TASKS[task]  # raises, with the nearest name
    if task == "phase-retrieval":
        raise ArgumentError(
            "phase-retrieval works on measurement files of `pnpcm simulate`; give NAME.npz and "
            "leave --task out"
        )
    if (mask or mask_color) and task != "inpaint":
        raise ArgumentError(f"task {task} does not take a mask; --task inpaint does")
    if task == "inpaint":
        if (mask is None) == (mask_color is None):
            raise ArgumentError("inpaint needs --mask FILE or --mask-color #rrggbb, one of them")
        if mask_color is not None:
            return lambda path, photo: (
                shared.build_task(task, values | {"mask": shared.colour_mask(photo, mask_color)}),
                (),
            )
        kept, notes = shared.hole_mask(Path(str(mask)))
        return lambda path, photo: (shared.build_task(task, values | {"mask": kept}), notes)
    if task == "jpeg" and not values:
        return lambda path, photo: (Jpeg.from_file(path), ())
    ready = shared.build_task(task, values)
    return lambda path, photo: (ready, ())


def _load(order: Order) -> Any:
    from pnpcm.catalogue import load_prior

    loaded = load_prior(order.prior)
    return loaded.to(order.device) if hasattr(loaded, "to") else loaded


def _request(
    order: Order, task: str | None, operator: str | None, options: dict[str, Any], marks: list[Any]
) -> dict[str, Any]:
    """What was asked for, as plain values: a result of another request is made anew."""
    import hashlib

    def plain(value: Any) -> Any:
        if isinstance(value, Path) and value.is_file():
            return f"{value} {hashlib.sha256(value.read_bytes()).hexdigest()[:16]}"
        return value if isinstance(value, bool | int | float | None) else str(value)

    asked = {k: v for k, v in options.items() if v is not None and v is not False}
    asked |= {k: v for k, v in zip(("mask", "mask_color"), marks, strict=True) if v is not None}
    numbers = {k: v for k, v in vars(order).items() if v is not None and k != "settings"}
    found = {"pnpcm": __version__, "task": task, "operator": operator} | asked | numbers
    found = {k: plain(v) for k, v in found.items() if v is not None}
    return found | {"settings": {k: str(v) for k, v in order.settings.items()}}


def _print_resolved(files: list[Path], task_for: Any, order: Order) -> None:
    """The configuration each file would be restored with, as JSON."""
    from pnpcm.recon.folder import resolve

    prior = _load(order)
    for path in files:
        print(json.dumps(resolve(path, task_for, order, prior), indent=2))


def _show(outcomes: Any, count: int, *, as_json: bool) -> int:
    """Progress and one line (or JSON object) per file; how many failed."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    failed = 0
    quiet = not console.is_terminal or count == 1
    for outcome in track(outcomes, "restore", count, console=console, disable=quiet):
        failed += outcome.status == "failed"
        if as_json:
            print(json.dumps(_line(outcome), ensure_ascii=False), flush=True)
        elif outcome.status == "failed":
            print(f"pnpcm: {outcome.message}", file=sys.stderr)
        else:
            _tell(outcome, detailed=count == 1)
    return failed


def _line(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {"input": str(outcome.input), "status": outcome.status}
    if outcome.status == "failed":
        return found | {"error": outcome.message}
    return found | {"output": str(outcome.output)} | dict(outcome.record)


def _tell(outcome: Outcome, *, detailed: bool) -> None:
    if outcome.restoration is not None and detailed:
        print(outcome.restoration.report())
    verdict = outcome.record.get("check", {}).get("verdict", "")
    print(f"{outcome.status}: {outcome.output}" + ("" if detailed else f" · {verdict}"))
