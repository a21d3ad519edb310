"""From a name or a path to a prior."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pnpcm import catalogue
from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, CheckpointError, UnknownNameError
from pnpcm.networks import UNetConfig
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.priors.checkpoint import load_openai, load_own
from pnpcm.priors.controlled import load_control

PRIOR_NAMES = ("gaussian",)
"""Priors that need no file: ``gaussian`` is the 1/f² Gaussian for images of any size."""


def load_prior(
    name_or_path: str | Path,
    *,
    kind: str | None = None,
    network: Mapping[str, Any] | UNetConfig | None = None,
    control: str | Path | None = None,
) -> Prior:
    """A prior by name, from a file, from a folder, or from the Hugging Face Hub.

    Names: "gaussian", and those of the catalogue (``pnpcm priors list``), where ``kind=None`` is
    the consistency model if there is one and ``kind="edm"`` its teacher. A name wins over a file
    of the same name, which is ``./name``. Folders: what ``pnpcm priors export`` or diffusers wrote.
    ``.safetensors``: our own format, everything stored inside. ``.pt``: a guided-diffusion state
    dict (OpenAI, the authors), whose architecture is inferred or given as ``network``, a mapping
    with guided-diffusion's names. ``kind``: ``"consistency"``, ``"edm"`` or ``"vp"``. ``control``:
    a ControlNet for CoSIGN beside it, the file of ``pnpcm train cosign`` or the name of a shipped
    one ("superres-4"). No file is ever executed.
    """
    if control is not None:
        prior = load_prior(name_or_path, kind=kind, network=network)
        return load_control(_control_file(str(name_or_path), control), prior)
    if not isinstance(name_or_path, str | Path):
        raise ArgumentError(
            f"name_or_path is a {type(name_or_path).__name__}, expected a name or a path"
        )
    if not isinstance(network, Mapping | UNetConfig | None):
        raise ArgumentError(
            f"network is a {type(network).__name__}, expected a dict with guided-diffusion's names"
        )
    name, path = str(name_or_path), Path(name_or_path)
    if name in PRIOR_NAMES:
        _refuse_network(network, f"the prior {name_or_path!r}")
        return StationaryGaussianPrior(kind=kind or "consistency")
    if catalogue.is_name(name_or_path):
        _refuse_network(network, f"the prior {name!r}")
        return load_own(catalogue.find(name, kind).path)
    if path.is_dir() or _is_hub_id(name):
        from pnpcm.interop import load_diffusers
        from pnpcm.interop.hub import own_file

        _refuse_network(network, "a folder")
        inner = own_file(path if path.is_dir() else name)
        if inner is None:
            return load_diffusers(path if path.is_dir() else name, kind=kind)
        path = inner
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise CheckpointError(f"there is no file {path}; check the path")
        raise UnknownNameError("prior", name, (*PRIOR_NAMES, *catalogue.names()))
    if path.suffix != ".safetensors":
        return load_openai(path, kind=kind, network=network)
    _refuse_network(network, "our own format")
    prior = load_own(path)
    if kind not in (None, prior.kind):
        raise ArgumentError(
            f"kind is {kind!r}, but {path} holds a prior of kind {prior.kind!r}; leave kind out"
        )
    return prior


def named_prior(prior: str | Path | Prior) -> tuple[Prior, str]:
    """A prior and the name that presets know it by; one that is there already is taken as it is."""
    if isinstance(prior, str | Path):
        return load_prior(prior), str(prior)
    name = getattr(prior, "info", {}).get("name", type(prior).__name__)
    return prior, name.removesuffix("-cm")


def _control_file(prior: str, control: str | Path) -> Path:
    """The file of a ControlNet, from its path or its task."""
    if isinstance(control, Path) or Path(control).suffix:
        return Path(control)
    known = catalogue.controls(prior)
    if control not in known:
        raise UnknownNameError(f"ControlNet of the prior {prior!r}", control, known)
    return known[control]


def _is_hub_id(name: str) -> bool:
    """``owner/name``, without a suffix and not a place on this disk."""
    parts = name.split("/")
    plain = all(part and not part.startswith((".", "~")) for part in parts)
    return len(parts) == 2 and plain and not Path(name).suffix and not Path(name).exists()


def _refuse_network(network: object, what: str) -> None:
    if network is not None:
        raise ArgumentError(
            f"network is given, but {what} brings its architecture itself; leave network out"
        )
