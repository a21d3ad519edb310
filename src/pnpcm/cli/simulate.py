"""``pnpcm simulate``: clean images to measurement files, which ``pnpcm restore`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pnpcm.cli import shared
from pnpcm.errors import ArgumentError
from pnpcm.names import TASK_NAMES


def simulate(
    inputs: Annotated[list[Path], typer.Argument(help="Clean images or folders of them.")],
    task: shared.TaskName = None,
    sigma_y: Annotated[
        float, typer.Option(help="Std of the added noise on the [0, 1] scale.")
    ] = 0.05,
    mask: Annotated[
        Path | None, typer.Option(help="inpaint: mask image, white = to be removed.")
    ] = None,
    missing: shared.Missing = None,
    factor: shared.Factor = None,
    downsampler: shared.Downsampler = None,
    kernel: shared.Kernel = None,
    gaussian: shared.Gaussian = None,
    motion: shared.Motion = None,
    boundary: Annotated[
        str | None,
        typer.Option(help="deblur: reflect (default), zero (as in the paper) or circular."),
    ] = None,
    linear_light: shared.LinearLight = False,
    quality: shared.Quality = None,
    length: shared.Length = None,
    angle: shared.Angle = None,
    reference_operator: shared.ReferenceOperator = False,
    kernel_wizard: shared.KernelWizard = None,
    seed: shared.Seed = 0,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("out/measured"),
) -> None:
    """Degrade clean images: NAME.npz holds y, operator and noise level, NAME.png shows y."""
    from pnpcm.io.files import save_picture, to_picture
    from pnpcm.io.photos import SUFFIXES, read_photo
    from pnpcm.problems import TASKS, build
    from pnpcm.problems.choice import hole_mask
    from pnpcm.problems.measurement import (
        find_inputs,
        preview,
        write_measurement,
    )
    from pnpcm.problems.measurement import simulate as degrade

    if task is None:
        raise ArgumentError(f"--task is missing; expected one of {', '.join(TASK_NAMES)}")
    values = shared.given(
        missing=missing,
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
    if mask is not None:
        values["mask"] = hole_mask(mask)[0]
    if task == "inpaint" and not {"mask", "missing"} & values.keys():
        values["missing"] = 0.7
    if task == "jpeg" and "quality" not in values:
        raise ArgumentError("--task jpeg needs --quality (1…100)")
    wanted = build(TASKS[task], values)
    out.mkdir(parents=True, exist_ok=True)
    for i, path in enumerate(find_inputs(inputs, SUFFIXES)):
        measured = degrade(read_photo(path).x, wanted, sigma_y, seed=seed + i)
        target = out / f"{path.stem}.npz"
        write_measurement(target, measured)
        picture = preview(measured)
        if picture is not None and task != "phase-retrieval":
            save_picture(out / f"{path.stem}.png", to_picture(picture))
        print(f"{target}: {measured.task.name}, sigma_y = {sigma_y:g}")
