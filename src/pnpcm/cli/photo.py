"""``pnpcm restore`` (degraded to restored images) and ``pnpcm simulate`` (clean to degraded)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm.cli import shared
from pnpcm.cli.display import Display, count_inputs
from pnpcm.errors import ArgumentError

if TYPE_CHECKING:
    from pnpcm.recon import Options


@shared.takes(values=shared.task_values, options=shared.options)
def restore(
    inputs: Annotated[list[Path], typer.Argument(help="Images, folders or measurement files.")],
    *,
    task: shared.TaskName = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            help="inpaint: mask image, white = to be filled, or a folder of masks named like the "
            "images."
        ),
    ] = None,
    mask_color: Annotated[
        str | None, typer.Option(help="inpaint: colour of the pixels to be filled, e.g. #ff0000.")
    ] = None,
    values: dict[str, Any],
    boundary: Annotated[
        str | None,
        typer.Option(help="deblur: boundary, unknown (default), zero, circular or reflect."),
    ] = None,
    operator: Annotated[
        str | None, typer.Option(help="Your own forward model, as my_module:MyOperator.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="phase-retrieval: image that determines the signs.")
    ] = None,
    options: Options,
    tile: Annotated[
        int,
        typer.Option(help="Side of the prior's tiles in pixels; smaller ones need less memory."),
    ] = 640,
    halo: Annotated[
        int | None,
        typer.Option(
            help="Pixels around a tile that are evaluated too; default: the network's receptive "
            "radius, at most 128."
        ),
    ] = None,
    recursive: Annotated[
        bool,
        typer.Option("--recursive", help="Take the images in subfolders of folders as well."),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Output folder, or for one input an image file, e.g. result.png.")
    ] = Path("out/restored"),
    format: Annotated[
        str | None,
        typer.Option(
            help="Output format: png, jpeg, tiff or webp; default: the input's, PNG for JPEG."
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Also write a picture of the image before and after."),
    ] = False,
    max_pixels: shared.MaxPixels = None,
    workers: shared.Workers = None,
    scheduler: shared.Scheduler = None,
    json_: shared.Json = False,
    dry_run: shared.DryRun = False,
) -> None:
    """Restore degraded images of any size; noise level and parameters are estimated.

    Writes NAME.TASK.png and NAME.TASK.result.json (configuration, self-check, times) for each
    input. Finished results are kept when the command is repeated; results of other tasks stay.
    Several processes with the same output folder share the work. Exit code 0: all restored, 1: some
    failed, 2: bad input, 130: Ctrl-C, 143: SIGTERM.
    """
    from pnpcm.io.photos import SUFFIXES
    from pnpcm.problems import TaskChoice
    from pnpcm.problems.measurement import SUFFIX
    from pnpcm.recon.inputs import find_inputs, photo_targets
    from pnpcm.recon.photo import DEFAULT_PRIOR, PhotoJob
    from pnpcm.recon.plan import Priors
    from pnpcm.recon.record import process

    found, skipped = find_inputs(inputs, (*SUFFIXES, SUFFIX), recursive=recursive, mask=mask)
    files = [one.path for one in found]
    if boundary is not None:
        values["boundary"] = boundary
    choice = TaskChoice(task, operator, values, mask, mask_color)
    options = replace(options, tile=tile, halo=halo)
    with Display("restore", count_inputs(files, skipped), as_json=json_) as display:
        priors = Priors(options.prior or DEFAULT_PRIOR, options.device, display.loading)
        job = PhotoJob(choice, options, priors, format, reference, compare, max_pixels, display)
        targets = photo_targets(found, [job.task(path) for path in files], out, format)
        spelled = partial(shared.in_its_spelling, command=restore)
        if dry_run:
            display.pass_over(skipped)
            display.each(files, lambda path: json.dumps(job.plan(path), indent=2), spelled)
            return
        with display.connected(workers, scheduler) as client:
            display.show(chain(skipped, process(files, targets, job, client)), spelled)


@shared.takes(values=shared.task_values)
def simulate(
    inputs: Annotated[list[Path], typer.Argument(help="Clean images or folders of them.")],
    *,
    task: shared.TaskName = None,
    sigma_y: Annotated[
        str, typer.Option(help="Std of the added noise on the [0, 1] scale, as 0.1 or 25/255.")
    ] = "0.05",
    mask: Annotated[
        Path | None, typer.Option(help="inpaint: mask image, white = to be removed.")
    ] = None,
    missing: shared.Missing = None,
    values: dict[str, Any],
    boundary: Annotated[
        str | None,
        typer.Option(help="deblur: reflect (default), zero (as in the paper) or circular."),
    ] = None,
    seed: shared.Seed = 0,
    max_pixels: shared.MaxPixels = None,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("out/measured"),
) -> None:
    """Degrade clean images: NAME.npz holds y, operator and noise level, NAME.png shows y.

    Exit code 0: all done, 1: some failed, 2: bad input.
    """
    from pnpcm.io.files import save_picture, to_picture
    from pnpcm.io.photos import SUFFIXES, read_photo
    from pnpcm.problems.choice import hole_mask
    from pnpcm.problems.measurement import is_measurement, preview, write_measurement
    from pnpcm.problems.measurement import simulate as degrade
    from pnpcm.recon.inputs import distinct, find_inputs
    from pnpcm.recon.photo import NEED
    from pnpcm.recon.record import made_folder

    level = shared.added_noise(sigma_y)
    if boundary is not None:
        values["boundary"] = boundary
    if mask is not None:
        values["mask"] = hole_mask(mask, max_pixels)[0]
    if task == "jpeg" and "quality" not in values:
        raise ArgumentError("--task jpeg needs --quality (1…100)")
    wanted = shared.simulated_task(task, values, missing)
    found, skipped = find_inputs(inputs, SUFFIXES, mask=mask)
    files = [one.path for one in found]
    if os.path.realpath(out) in {os.path.dirname(os.path.realpath(path)) for path in files}:
        raise ArgumentError(f"out is {out}, the folder of an input, which NAME.png would replace")
    names = dict(zip(files, distinct(found), strict=True))
    seeds = {path: seed + i for i, path in enumerate(files)}

    def degraded(path: Path) -> str:
        target = out / f"{names[path]}.npz"
        shown = target.with_name(f"{names[path]}.png")
        shared.check_output(target, is_measurement, "a measurement of pnpcm simulate")
        shared.check_output(shown, lambda _: target.exists(), f"the picture of {target}")
        x = read_photo(path, max_pixels=max_pixels, need=NEED).x
        measured = degrade(x, wanted, level, seed=seeds[path])
        write_measurement(target, measured)
        picture = preview(measured)
        if picture is not None and task != "phase-retrieval":
            save_picture(shown, to_picture(picture))
        return f"{target}: {measured.task.name}, sigma_y = {level:g}"

    with made_folder(out), Display("simulate", count_inputs(files, skipped)) as display:
        display.pass_over(skipped)
        display.each(files, degraded, partial(shared.in_its_spelling, command=simulate))
