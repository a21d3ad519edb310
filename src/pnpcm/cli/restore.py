"""``pnpcm restore``: degraded images and measurement files to restored images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pnpcm.cli import shared
from pnpcm.errors import ArgumentError


def restore(
    inputs: Annotated[list[Path], typer.Argument(help="Images, folders or measurement files.")],
    task: shared.TaskName = None,
    mask: Annotated[
        Path | None, typer.Option(help="inpaint: mask image, white = to be filled.")
    ] = None,
    mask_color: Annotated[
        str | None, typer.Option(help="inpaint: colour of the pixels to be filled, e.g. #ff0000.")
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
        str | None, typer.Option(help="Your own forward model, as my_module:MyOperator.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="phase-retrieval: image that determines the signs.")
    ] = None,
    prior: shared.PriorName = "natural",
    method: shared.Method = None,
    aim: shared.Aim = "fidelity",
    sigma_y: shared.SigmaY = "auto",
    steps: shared.Steps = None,
    step_rule: shared.StepRule = None,
    preset: shared.PresetName = None,
    set_: shared.Set = None,
    samples: shared.Samples = 1,
    seed: shared.Seed = 0,
    tile: shared.Tile = 768,
    halo: shared.Halo = None,
    device: shared.Device = "cpu",
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("out/restored"),
    format: Annotated[
        str | None,
        typer.Option(
            help="Output format: png, jpeg, tiff or webp; default: the input's, PNG for JPEG."
        ),
    ] = None,
    json_: shared.Json = False,
    dry_run: shared.DryRun = False,
) -> None:
    """Restore degraded images of any size; noise level and parameters are estimated.

    Writes NAME.png and NAME.result.json (configuration, self-check, times) for each input.
    Finished results are kept when the command is repeated. Exit code 0: all restored, 1: some
    failed, 2: bad input.
    """
    from pnpcm.io.photos import SUFFIXES
    from pnpcm.problems import TaskChoice
    from pnpcm.problems.measurement import SUFFIX, find_inputs
    from pnpcm.recon.batch import process
    from pnpcm.recon.photo import PhotoJob, photo_targets
    from pnpcm.recon.plan import Priors

    files = find_inputs(inputs, (*SUFFIXES, SUFFIX))
    values = shared.given(
        factor=factor,
        downsampler=downsampler,
        kernel=kernel,
        gaussian=gaussian,
        motion=motion,
        boundary=boundary,
        linear_light=linear_light,
        quality=quality,
        length=length,
        angle=angle,
        reference_operator=reference_operator,
        kernel_wizard=kernel_wizard,
    )
    choice = TaskChoice(task, operator, values, mask, mask_color)
    if format not in (None, "png", "jpeg", "tiff", "webp"):
        raise ArgumentError(f"format is {format!r}, expected png, jpeg, tiff or webp")
    options = shared.options(
        sigma_y,
        set_,
        prior=prior,
        method=method,
        aim=aim,
        steps=steps,
        step_rule=step_rule,
        preset=preset,
        samples=samples,
        seed=seed,
        tile=tile,
        halo=halo,
        device=device,
    )
    job = PhotoJob(choice, options, Priors(prior, device), format, reference)
    if dry_run:
        for path in files:
            print(json.dumps(job.plan(path), indent=2))
        return
    outcomes = process(files, photo_targets(files, out, format), job.choices(), job)
    shared.show(outcomes, len(files), restore, as_json=json_)
