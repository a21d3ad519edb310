"""``pnpcm tune``: searches a preset for a task on a folder of clean images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pnpcm.cli import shared
from pnpcm.cli.display import say
from pnpcm.errors import ArgumentError


@shared.takes(values=shared.task_values)
def tune(
    *,
    data: Annotated[Path, typer.Option(help="Folder of clean images.")],
    task: shared.TaskName = None,
    sigma_y: Annotated[
        str, typer.Option(help="Std of the simulated noise on the [0, 1] scale, as 0.1 or 25/255.")
    ] = "0.05",
    missing: shared.Missing = None,
    values: dict[str, Any],
    prior: Annotated[
        str,
        typer.Option(help="Prior: natural, faces, a file, a folder or hf:owner/name."),
    ] = "natural",
    steps: Annotated[
        int | None, typer.Option(help="Number of steps of the preset; default: by task.")
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Total number of trials, earlier runs included.")
    ] = 60,
    metric: Annotated[
        str, typer.Option(help="Objective: psnr, lpips or mix (PSNR − 20 LPIPS).")
    ] = "psnr",
    images: Annotated[
        int, typer.Option(help="Number of images, evenly spaced over the folder.")
    ] = 24,
    size: Annotated[int, typer.Option(help="Side of the centre crops in pixels.")] = 96,
    fix: Annotated[
        list[str] | None,
        typer.Option(help="Fix a hyperparameter instead of searching it, e.g. mu=0; repeatable."),
    ] = None,
    seed: shared.Seed = 0,
    out: Annotated[Path, typer.Option(help="Output file of the preset.")] = Path("out/preset.json"),
) -> None:
    """Search the hyperparameters of a task on clean images and save them as a preset.

    Writes OUT (for `pnpcm restore --preset OUT`), the study in the same folder (the command
    continues it when repeated) and a plot of the search.
    """
    from rich.console import Console
    from rich.progress import Progress

    from pnpcm.catalogue import load_prior, pinned
    from pnpcm.io.files import write_json
    from pnpcm.presets import is_preset
    from pnpcm.tune.search import picture_of_search
    from pnpcm.tune.search import tune as search
    from pnpcm.tune.study import is_study, tried

    if min(trials, images, size) < 1:
        raise ArgumentError(
            f"--trials, --images and --size must be ≥ 1, got {trials}, {images} and {size}"
        )
    wanted = shared.simulated_task(task, values, missing)
    study, shown = out.with_suffix(".study"), out.with_suffix(".png")
    shared.check_output(out, is_preset, "a preset of pnpcm tune")
    shared.check_output(study, is_study, "a study of pnpcm tune")
    shared.check_output(shown, lambda _: study.exists(), f"the picture of {study}")
    prior = str(pinned(prior))
    loaded = load_prior(prior)
    x = _crops(data, images, size, loaded)
    out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("tune", total=trials)

        def show(study: Any, trial: Any) -> None:
            done = [t.value for t in study.trials if t.value is not None]
            text = f"best {max(done):.3f}" if done else "tune"
            progress.update(bar, completed=len(tried(study)), description=text)

        found = search(
            wanted,
            x,
            loaded,
            prior_name=prior,
            sigma_y=shared.added_noise(sigma_y),
            steps=steps,
            trials=trials,
            metric=metric,
            storage=study,
            seed=seed,
            source=f"pnpcm tune, {trials} trials, {metric}, {len(x)} crops of {data.name}",
            fixed=shared.parse_settings(fix or []),
            callback=show,
        )
    write_json(out, found.preset.to_dict())
    picture_of_search(found.study, shown)
    before = "" if found.score_before is None else f", {found.score_before:.3f} before"
    say(f"best {metric} {found.score:.3f}{before}, {found.trials} trials")
    say(f"preset: {out}, search: {shown}")


def _crops(data: Path, count: int, size: int, prior: Any) -> Any:
    """Centre crops of images evenly spaced over the folder, without those that are too small."""
    import torch

    from pnpcm.evaluation.images import Images, fit

    network = getattr(prior, "network", None)
    fixed = getattr(network, "image_size", None)
    side = fixed or size
    source = Images(data, size=None)
    order = range(0, len(source), max(1, len(source) // count))
    found = []
    for i in order:
        x = source.image(i)
        if min(x.shape[-2:]) < side:
            continue
        if fixed is None:
            top, left = ((n - side) // 2 for n in x.shape[-2:])
            x = x[..., top : top + side, left : left + side]
        else:
            x = fit(x, side)
        found.append(x)
        if len(found) == count:
            break
    if not found:
        raise ArgumentError(f"--data {data} has no image of at least {side}×{side} pixels")
    return torch.cat(found)
