"""``pnpcm priors convert`` and ``export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm.cli.display import say
from pnpcm.cli.priors.shared import File, Force, Kind, file_of, make_folder
from pnpcm.errors import ArgumentError

if TYPE_CHECKING:
    from pnpcm.priors.checkpoint import FilePrior, NetPrior

DTYPES = ("float16", "float32")


def convert(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A .pt or .pth file, or a pnpcm prior.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="Output file, .safetensors or .pt.")
    ],
    kind: Annotated[
        str | None,
        typer.Option(help="Kind of a .pt file's prior: consistency, edm or vp; it is not stored."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="JSON text or .json file: network options that the weights do not show."),
    ] = None,
    c_noise: Annotated[
        str | None,
        typer.Option(help="Noise input of a .pt network: openai (250 ln σ; default), edm (ln σ/4)"),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Weights in .safetensors files: float16 or float32.")
    ] = "float32",
    name: Annotated[str | None, typer.Option(help="Name stored in the header.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence stored in the header.")] = None,
    force: Force = False,
) -> None:
    """Convert OpenAI's .pt files to pnpcm's .safetensors files, and back.

    A .pt file holds only weights. The rest (kind, network, options) is written to OUT with the
    suffix .json, which --network reads. KAIR's .pth files (DRUNet, FFDNet, DnCNN) can only be
    converted to .safetensors.
    """
    import torch

    from pnpcm.io.files import write_json
    from pnpcm.priors.checkpoint import export_openai, load_own, load_saved, save_prior

    if dtype not in DTYPES:
        raise ArgumentError(f"--dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if target.suffix not in (".safetensors", ".pt"):
        raise ArgumentError(f"OUT is {target}, expected a name ending in .safetensors or .pt")
    foreign = Path(source).suffix in (".pt", ".pth")
    if target.suffix == ".pt" and (foreign or dtype != "float32"):
        raise ArgumentError(
            f"OUT is {target}: a .pt file is written from a pnpcm prior and in float32, "
            f"got {source} and {dtype}"
        )
    for option, given in (("--network", network), ("--c-noise", c_noise)):
        if given is not None and not foreign:
            raise ArgumentError(
                f"{option} is given, but {source} stores its own; leave {option} out"
            )
    beside = target.with_suffix(".json")
    for path in (target, beside) if target.suffix == ".pt" else (target,):
        if path.exists() and not force:
            raise ArgumentError(f"{path} exists; choose another name, or give --force")
    words = {k: v for k, v in (("name", name), ("licence", licence)) if v is not None}
    prior: FilePrior
    if foreign:
        prior, header = _read_pt(source, kind, network, c_noise), {}
    else:
        entry = file_of(source, kind)
        prior, header = load_saved(entry.path), dict(entry.header)
    info = dict(prior.info) | words
    make_folder(target.parent)
    if target.suffix == ".safetensors":
        save_prior(prior, target, info=info, dtype=getattr(torch, dtype))
        say(f"{source} → {target} ({prior.kind}, {dtype})")
    else:
        export_openai(load_own(entry.path), target)
        write_json(beside, header | {"info": info})
        say(f"{source} → {target} ({prior.kind}), kind, network and options → {beside}")


def export(
    name: File,
    folder: Annotated[Path, typer.Argument(help="Output folder, in the layout of the Hub.")],
    kind: Kind = None,
    force: Force = False,
) -> None:
    """Write a prior as a folder for the Hugging Face Hub, which load_prior reads back."""
    from pnpcm.interop.hub import export_folder

    entry = file_of(name, kind)
    make_folder(folder.parent)
    export_folder(entry.path, folder, card=entry.card_text(), force=force)
    say(f"{entry.name} ({entry.kind}) → {folder}")


def _read_pt(source: str, kind: str | None, network: str | None, c_noise: str | None) -> FilePrior:
    from pnpcm.networks import UNetConfig
    from pnpcm.priors import ConsistencyModel, DiffusionModel
    from pnpcm.priors.checkpoint import load_openai, load_pt

    said = _parse(network)
    if "network" not in said:  # a few fields; the rest is read off the weights
        return load_pt(source, kind=kind, network=said or None, c_noise=c_noise)
    if c_noise is not None:
        raise ArgumentError(
            f"--c-noise is given, but {network} describes the whole prior; leave --c-noise out"
        )
    kind = kind or said.get("kind")
    prior = load_openai(source, kind=kind, network=UNetConfig.from_dict(said["network"]))
    options = said.get("options", {})
    try:
        whole: NetPrior = (
            ConsistencyModel(prior.network, **options)
            if prior.kind == "consistency"
            else DiffusionModel(prior.network, kind=prior.kind, **options)
        )
        whole.info = dict(said.get("info", {}))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"--network {network} has invalid options: {error}") from error
    return whole


def _parse(network: str | None) -> dict[str, Any]:
    """The JSON object given as ``--network``, as text or as a file."""
    if network is None:
        return {}
    try:
        text = network if network.lstrip().startswith("{") else Path(network).read_text("utf-8")
        said = json.loads(text)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f'--network is {network!r}, expected JSON like {{"num_head_channels": 32}} or a file '
            f"of it ({error})"
        ) from error
    if not isinstance(said, dict):
        raise ArgumentError(f"--network is {network!r}, expected a JSON object")
    return said
