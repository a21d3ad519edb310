"""``pnpcm priors sample`` and ``evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm import __version__
from pnpcm.cli.display import say
from pnpcm.cli.priors.shared import Force, Kind, Name, Seed, console, label_of, make_folder
from pnpcm.cli.shared import check_folder, check_output, has_fields
from pnpcm.errors import ArgumentError
from pnpcm.names import count_of

if TYPE_CHECKING:
    from pnpcm.core import Prior
    from pnpcm.evaluation import Evaluation, Images, Published

SIGMAS = (15.0, 25.0, 50.0)
RECORD = "evaluate.json"
SETTINGS = ("pnpcm", "prior", "nfe", "seed")
"""Fields of the settings of a sheet."""
BY_NATURE = (
    "a consistency model returns one sharp image, a denoiser the mean of all plausible ones: "
    "the PSNR of a consistency model is therefore lower"
)


def sample(
    name: Name,
    out: Annotated[Path, typer.Option(help="Output .png file; settings go to .json.")],
    kind: Kind = None,
    n: Annotated[int, typer.Option(help="Number of images.")] = 16,
    steps: Annotated[
        int | None,
        typer.Option(help="Number of steps; default: 18 (Heun) for denoisers, 1 for CMs."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Side of the images; default: the prior's, or 64.")
    ] = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Sample images from the prior and write them as one sheet.

    Denoisers use Heun's method, 2 · steps − 1 evaluations; consistency models one evaluation per
    step. Complex images are shown as magnitudes.
    """
    from pnpcm.catalogue import load_prior, pinned
    from pnpcm.evaluation import draw, sheet
    from pnpcm.io.files import save_picture, write_json

    if out.suffix.lower() != ".png":
        raise ArgumentError(f"--out is {out}, expected the name of a .png file")
    settings_file = out.with_suffix(".json")
    for path in () if force else (out, settings_file):
        what = "a sheet of pnpcm priors sample"
        check_output(path, lambda _: has_fields(settings_file, SETTINGS), what, ", or --force")
    name = str(pinned(name))
    prior = load_prior(name, kind=kind)
    make_folder(out.parent)
    drawn = draw(prior, n, steps=steps, size=size, seed=seed)
    settings = {
        "pnpcm": __version__,
        "prior": name,
        "kind": drawn.kind,
        "method": drawn.method,
        "steps": drawn.steps,
        "nfe": drawn.nfe,
        "shape": list(drawn.x.shape),
        "seed": seed,
        "sigma_min": prior.sigma_min,
        "sigma_max": prior.sigma_max,
    }
    label = f"{label_of(name, prior)} {drawn.kind}, {drawn.nfe} NFE"
    save_picture(out, sheet(drawn, prior, label))
    write_json(settings_file, settings)
    images = count_of(n, "image")
    say(f"{images} of {name} ({drawn.kind}) by {drawn.method}, {drawn.nfe} NFE each: {out}")


def evaluate(
    names: Annotated[
        list[str],
        typer.Argument(help="Priors: names (teacher and CM are both evaluated), files, folders."),
    ],
    data: Annotated[
        Path, typer.Option(help="Folder of images, or .npz file with an array 'images'.")
    ],
    sigma: Annotated[
        list[float] | None, typer.Option(help="Noise level, repeatable; default: 15, 25, 50.")
    ] = None,
    unit: Annotated[
        int, typer.Option(help="Value of white in units of sigma: 255 (8-bit levels) or 1.")
    ] = 255,
    kind: Kind = None,
    limit: Annotated[
        int | None, typer.Option(help="Number of images, the first of the data; default: all.")
    ] = None,
    seed: Seed = 0,
    beside: Annotated[
        str | None, typer.Option(help="Add published scores of this data set: cbsd68.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder for table, scores and images.")
    ] = None,
) -> None:
    """Denoise images and print mean PSNR and SSIM per noise level.

    For consistency models also the distance between the results of two neighbouring levels.
    """
    from rich.progress import track
    from rich.table import Table

    from pnpcm.catalogue import load_prior
    from pnpcm.evaluation import Images, rows
    from pnpcm.evaluation import evaluate as judge

    if unit not in (255, 1):
        raise ArgumentError(f"--unit is {unit}, expected 255 (8-bit levels) or 1 (white is 1)")
    sigmas = list(dict.fromkeys(sigma or [s * unit / 255 for s in SIGMAS]))
    published = _published(beside, sigmas, unit)
    jobs: list[tuple[Prior, Images, str]] = []
    notes = []
    if beside is not None:
        notes.append(f"published rows are from the literature, for the whole of {beside}")
    for name, one in [(given, one) for given in names for one in _kinds(given, kind)]:
        prior = load_prior(name, kind=one)
        network = getattr(prior, "network", None)
        channels = getattr(network, "in_channels", None)
        side = None if getattr(prior, "any_size", True) else getattr(network, "image_size", None)
        images = Images(data, channels=channels, size=side, limit=limit, seed=seed)
        notes += _notes(name, channels, images)
        jobs.append((prior, images, label_of(name, prior)))
    if out is not None:
        written = (*(f"sigma-{s:g}.png" for s in sigmas), "evaluate.md", RECORD)
        own = has_fields(out / RECORD, ("pnpcm", "priors"))
        check_folder(out, written, own, "an output of pnpcm priors evaluate")
        make_folder(out)
    terminal, found = console(), []
    quiet = not terminal.is_terminal
    for prior, images, label in jobs:
        seen = track(images, label, len(images), console=terminal, disable=quiet)
        found.append(judge(prior, seen, sigmas, unit=unit, seed=seed, name=label))
    if any(e.kind == "consistency" for e in found):
        notes.append(BY_NATURE)
    notes = list(dict.fromkeys(notes))
    table = Table("prior", "kind", *(f"σ = {s:g}" for s in sigmas), title="PSNR (dB) / SSIM")
    for row in rows(found, published):
        table.add_row(*row)
    terminal.print(table)
    for note in notes:
        say(f"note: {note}")
    if out is not None:
        settings = {"data": str(data), "unit": unit, "limit": limit, "seed": seed}
        _write(out, found, published, settings, notes)
        say(f"table, scores and images: {out}")


def _write(
    out: Path,
    found: Sequence[Evaluation],
    published: Published,
    settings: dict[str, Any],
    notes: Sequence[str],
) -> None:
    from pnpcm.evaluation import comparison, markdown
    from pnpcm.io.files import save_picture, write_json, write_text

    record = {"pnpcm": __version__} | settings | {"notes": notes}
    record |= {"priors": [e.to_dict() for e in found], "published": published}
    write_json(out / RECORD, record)
    for k, score in enumerate(found[0].scores):
        save_picture(out / f"sigma-{score.sigma:g}.png", comparison(found, k))
    write_text(out / "evaluate.md", markdown(found, published, settings=settings, notes=notes))


def _published(beside: str | None, sigmas: Sequence[float], unit: int) -> Published:
    from pnpcm.evaluation import PUBLISHED

    if beside is None:
        return {}
    if unit != 255 or not set(sigmas) & set(SIGMAS):
        raise ArgumentError(
            f"--beside is {beside!r}, whose scores are for --sigma 15, 25, 50 and --unit 255, got "
            f"{', '.join(f'{s:g}' for s in sigmas)} and {unit}; leave --beside out"
        )
    return PUBLISHED[beside]


def _kinds(name: str, kind: str | None) -> Sequence[str | None]:
    """The kinds to evaluate: all kinds of a catalogue name, the teacher first; None for a file."""
    from pnpcm import catalogue
    from pnpcm.catalogue import PRIOR_NAMES

    if kind is not None:
        return [kind]
    if name in PRIOR_NAMES:
        return ["edm", "consistency"]
    return catalogue.kinds(name)[::-1] if catalogue.is_name(name) else [None]


def _notes(name: str, channels: int | None, images: Images) -> list[str]:
    notes = []
    if images.count < images.total:
        notes.append(f"the first {images.count} of {images.total} images only")
    if images.size is not None:
        notes.append(
            f"{name} takes only {images.size}×{images.size} images: others were resized by their "
            "shorter side and cropped at the centre"
        )
    if channels == 2:
        notes.append(
            f"{name} is complex: magnitudes were given a random smooth phase, and real and "
            "imaginary part are scored as two channels on [-1, 1], not the magnitude"
        )
    return notes
