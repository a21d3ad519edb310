"""The catalogue of priors by name, and ``load_prior``.

Shipped priors are in the package's ``weights`` folder, your own in ``$PNPCM_HOME/priors``
(``~/.cache/pnpcm/priors`` by default). The file ``natural-cm.safetensors`` is the prior "natural"
of kind "consistency", ``natural-edm.safetensors`` its teacher; a file without such an ending has
the kind of its header. A model card, ``natural.md``, may be in the same folder.
``natural-cosign-superres-4.safetensors`` is not a prior but a ControlNet of one, see ``controls``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from pnpcm import interop
from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, CheckpointError, PnPCMError, UnknownNameError
from pnpcm.interop import hub
from pnpcm.networks import UNetConfig
from pnpcm.networks.kair import DenoiserConfig
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.priors.checkpoint import KINDS, config_of, load_pt, load_saved, read_header, refuse
from pnpcm.priors.controlled import load_control
from pnpcm.priors.files import INVALID

SHIPPED = Path(__file__).parent / "weights"
ENDINGS = {"-cm": "consistency", "-edm": "edm", "-vp": "vp"}
CONTROL = "-cosign-"
"""faces-cosign-superres-4.safetensors is a ControlNet of the prior "faces", not a prior."""
CARDS = {"prior": "card.md", "model": "README.md"}
"""File names of the card in a training run and in an exported folder."""


PRIOR_NAMES = ("gaussian",)
"""Priors that need no file: ``gaussian`` is the 1/f² Gaussian for images of any size."""


@dataclass(frozen=True)
class Entry:
    """One prior file: its header, without its weights.

    ``damage``: the reason why it cannot be used, else None. A damaged file has the kind of its
    file name, if any, and no header.
    """

    name: str
    kind: str | None
    path: Path
    shipped: bool = False
    header: Mapping[str, Any] = field(default_factory=dict)
    parameters: int = 0
    damage: str | None = None

    @property
    def bytes(self) -> int:
        """Size of the file; 0 if it cannot be read, as for a broken link."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def config(self) -> UNetConfig | DenoiserConfig | None:
        """Architecture of the network."""
        return None if self.damage else config_of(self.header["network"])

    @property
    def image_size(self) -> int | None:
        """Side of the images that it takes; None: any."""
        any_size = self.header.get("options", {}).get("any_size", False)
        return None if self.config is None or any_size else self.config.image_size

    @property
    def info(self) -> dict[str, Any]:
        """Free-form metadata: licence, data, training."""
        return dict(self.header.get("info", {}))

    @property
    def minutes(self) -> float | None:
        """Training time over all stages in minutes; None if the header does not store it."""
        stages = self.info.get("training")
        stages = stages if isinstance(stages, list) else []
        told = [stage.get("minutes") for stage in stages if isinstance(stage, dict)]
        numbers = [float(m) for m in told if isinstance(m, int | float)]
        return sum(numbers) if numbers else None

    @property
    def card(self) -> Path | None:
        """The path of the model card in the same folder; None without one."""
        path = self.path.with_name(CARDS.get(self.path.stem, f"{self.name}.md"))
        return path if path.is_file() else None

    def card_text(self) -> str | None:
        """The text of the card; None without one."""
        return None if self.card is None else self.card.read_text("utf-8", errors="replace")


def cache_folder() -> Path:
    """The folder of your own priors, which need not exist."""
    home = os.environ.get("PNPCM_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "pnpcm") / "priors"


def names() -> tuple[str, ...]:
    """Every name, shipped ones first. Reads no file."""
    return tuple(dict.fromkeys(name for name, _, _ in _files()))


def is_name(name_or_path: str | Path) -> bool:
    """Whether this is a name of the catalogue.

    A string that is a name takes precedence over a file of that name in the current folder (use
    ``./name``); a ``Path`` that exists is a path.
    """
    path = isinstance(name_or_path, Path) and name_or_path.exists()
    return not path and str(name_or_path) in names()


def entries() -> tuple[Entry, ...]:
    """Every prior, shipped ones first, including damaged files."""
    return tuple(_entry(name, path, shipped) for name, path, shipped in _files())


def kinds(name_or_path: str | Path) -> tuple[str, ...]:
    """The kinds of a name, in the order consistency, edm, vp; empty for a path, which has one."""
    if str(name_or_path) in PRIOR_NAMES:
        return ("consistency", "edm")
    found = _by_kind(str(name_or_path)) if is_name(name_or_path) else {}
    return tuple(kind for kind in found if kind is not None)


def find(name: str, kind: str | None = None) -> Entry:
    """The prior of this name; ``kind=None``: the consistency model, or the kind that exists.

    A shipped file takes precedence over your own with the same name and kind, so that a name means
    the same prior on every machine; your own file can be read by its path.
    """
    if kind not in (None, *KINDS):
        raise ArgumentError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    found = _by_kind(name)
    if not found:
        raise UnknownNameError("prior", name, names())
    entry = next(iter(found.values())) if kind is None else found.get(kind)
    if entry is None:
        raise ArgumentError(
            f"kind is {kind!r}, but the prior {name!r} has the kinds "
            f"{', '.join(k or 'damaged file' for k in found)}; choose one of these"
        )
    if entry.damage:
        raise CheckpointError(entry.damage)
    return entry


def locate(name_or_path: str | Path, kind: str | None = None) -> Entry:
    """The prior file of a name, a path, or a folder that was exported for the Hub."""
    name, path = str(name_or_path), Path(name_or_path)
    if is_name(name_or_path):
        return find(name, kind)
    if path.is_dir():
        inner = hub.own_file(path)
        if inner is None:
            raise CheckpointError(f"{path} is a folder without a pnpcm prior; check the path")
        path = inner
    if not path.exists() and not path.suffix and len(path.parts) == 1:
        raise UnknownNameError("prior", name, names())
    if path.exists() and path.suffix != ".safetensors":
        raise CheckpointError(
            f"{path} is not in pnpcm's format; convert it to .safetensors first: "
            f"pnpcm priors convert {path} {path.with_suffix('.safetensors').name}"
        )
    entry = read_entry(path)
    if entry.damage:
        raise CheckpointError(entry.damage)
    if kind not in (None, entry.kind):
        raise ArgumentError(
            f"kind is {kind!r}, but {path} holds a prior of kind {entry.kind!r}; leave kind out"
        )
    return entry


def pinned(name_or_path: str | Path) -> str | Path:
    """A Hub id with the hash of its commit, which is looked up once; all else unchanged."""
    return hub.pinned(str(name_or_path)) if hub.is_hub_id(name_or_path) else name_or_path


def controls(name: str) -> dict[str, Path]:
    """Files of the ControlNets of a prior, by task; shipped ones take precedence."""
    found: dict[str, Path] = {}
    for folder in (SHIPPED, cache_folder()):
        for path in sorted(folder.glob(f"{name}{CONTROL}*.safetensors")):
            found.setdefault(path.stem.removeprefix(f"{name}{CONTROL}"), path)
    return found


def read_entry(path: Path, name: str | None = None, *, shipped: bool = False) -> Entry:
    """The entry of one file; ``name=None``: the name in its header, else its stem."""
    try:
        header = read_header(path)
        if header["kind"] not in KINDS:
            raise CheckpointError(f"{path} has kind {header['kind']!r}; save it again")
        config_of(header["network"])
        info, options = dict(header["info"]), dict(header["options"])
        with safe_open(path, framework="pt") as file:
            shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118
    except PnPCMError as error:
        return Entry(name or path.stem, None, path, shipped, damage=str(error))
    except (OSError, SafetensorError, *INVALID) as error:
        damage = f"{path} cannot be read ({error!r}); save or download it again"
        return Entry(name or path.stem, None, path, shipped, damage=damage)
    return Entry(
        name=name or str(info.get("name") or path.stem),
        kind=header["kind"],
        path=path,
        shipped=shipped,
        header=header | {"info": info, "options": options},
        parameters=sum(math.prod(shape) for shape in shapes),
    )


def load_prior(
    name_or_path: str | Path | Callable[..., Any],
    *,
    kind: str | None = None,
    network: Mapping[str, Any] | UNetConfig | None = None,
    c_noise: str | None = None,
    sigma_min: float | None = None,
    sigma_max: float | None = None,
    control: str | Path | None = None,
) -> Prior:
    """A prior by name, from a file, a folder, the Hugging Face Hub, or a denoiser of deepinv.

    The Hub is written "hf:owner/name", or with a revision (branch, tag or commit)
    "hf:owner/name@revision"; nothing else is ever downloaded.

    Names: "gaussian", and those of the catalogue (``pnpcm priors list``), where ``kind=None`` is
    the consistency model if there is one and ``kind="edm"`` its teacher. A name takes precedence
    over a file of the same name (use ``./name``). Folders: of ``pnpcm priors export`` or diffusers.
    ``.safetensors``: our own format (``save_prior``), with all options stored. ``.pt``, ``.pth``:
    a guided-diffusion state dict (OpenAI, the authors), whose architecture is inferred or given as
    ``network``, a mapping with guided-diffusion's names; or a DRUNet, FFDNet or DnCNN in KAIR's
    layout. No file is ever executed. A denoiser object ``D(x, sigma)`` on [0, 1], such as
    deepinv's, becomes a prior of kind "edm".

    ``kind``: "consistency", "edm" or "vp". ``c_noise``: noise input of the network of a state dict
    or of a diffusers folder, "openai" (250 ln σ, the default) or "edm" (ln σ / 4, NVlabs' EDM).
    ``sigma_min``, ``sigma_max``: the levels that a denoiser in KAIR's layout or an object was
    trained for, on the [0, 1] scale, if they are not those of the published files. ``control``:
    a ControlNet for CoSIGN, the file of ``pnpcm train cosign`` or the name of a shipped one
    ("superres-4").
    """
    levels = {"sigma_min": sigma_min, "sigma_max": sigma_max}
    if control is not None:
        refuse("a ControlNet belongs to a consistency model", **levels)
        prior = load_prior(name_or_path, kind=kind, network=network, c_noise=c_noise)
        return load_control(_control_file(str(name_or_path), control), prior)
    if not isinstance(name_or_path, str | Path):
        if not callable(name_or_path):
            raise ArgumentError(
                f"name_or_path is a {type(name_or_path).__name__}, expected a name, a path or a "
                "denoiser (x, sigma) → image"
            )
        return _from_object(name_or_path, kind, {"network": network, "c_noise": c_noise}, levels)
    if not isinstance(network, Mapping | UNetConfig | None):
        raise ArgumentError(
            f"network is a {type(network).__name__}, expected a dict with guided-diffusion's names"
        )
    name, path = str(name_or_path), Path(name_or_path)
    if name in PRIOR_NAMES:
        refuse(f"the prior {name!r} is analytic", network=network, c_noise=c_noise, **levels)
        return StationaryGaussianPrior(kind=kind or "consistency")
    if is_name(name_or_path):
        path = find(name, kind).path
    elif path.is_dir() or hub.is_hub_id(name):
        refuse("a folder stores it", network=network, **levels)
        source = pinned(name_or_path)
        inner = hub.own_file(source)
        if inner is None:
            return interop.load_diffusers(source, kind=kind, c_noise=c_noise)
        path = inner
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise CheckpointError(
                f"there is no file {path}; check the path, or write hf:owner/name for the Hub"
            )
        raise UnknownNameError("prior", name, (*PRIOR_NAMES, *names()))
    if path.suffix == ".pkl":
        raise CheckpointError(
            f"{path} is a pickle, which executes code when it is read; pnpcm reads none. Load "
            "it with its own library and wrap the network: DiffusionModel(network, c_noise='edm') "
            "for NVlabs' EDM, load_prior(denoiser) for a denoiser"
        )
    if path.suffix != ".safetensors":
        return load_pt(
            path,
            kind=kind,
            network=network,
            c_noise=c_noise,
            sigma_min=sigma_min,
            sigma_max=sigma_max,
        )
    refuse("pnpcm's format stores it", network=network, **levels)
    prior = load_saved(path)
    for word, asked in (("kind", kind), ("c_noise", c_noise)):
        stored = getattr(prior, word, None)
        if asked not in (None, stored):
            raise ArgumentError(
                f"{word} is {asked!r}, but {path} holds a prior of {word} {stored!r}; "
                f"leave {word} out"
            )
    return prior


def _from_object(
    denoiser: Callable[..., Any],
    kind: str | None,
    rest: dict[str, Any],
    levels: dict[str, float | None],
) -> Prior:
    """A denoiser object as a prior; an object that is a prior is returned unchanged."""
    what = f"a {type(denoiser).__name__} is given as an object"
    if isinstance(denoiser, Prior):
        refuse(what, kind=kind, **rest, **levels)
        return denoiser
    refuse(what, **rest)
    if kind not in (None, "edm"):
        raise ArgumentError(
            f"kind is {kind!r}, but a denoiser (x, sigma) → image is of kind 'edm'; leave kind out"
        )
    return interop.from_denoiser(
        denoiser, sigma_min=levels["sigma_min"], sigma_max=levels["sigma_max"]
    )


def _files() -> Iterator[tuple[str, Path, bool]]:
    """(name, path, shipped) of every file, from file names only."""
    for folder, shipped in ((SHIPPED, True), (cache_folder(), False)):
        for path in sorted(folder.glob("*.safetensors")):
            hidden = path.name.startswith(".")  # a file that is being written
            if not hidden and CONTROL not in path.stem:
                yield _split(path.stem)[0], path, shipped


def _split(stem: str) -> tuple[str, str | None]:
    """Name and kind of a file name."""
    for ending, kind in ENDINGS.items():
        if stem.endswith(ending) and stem != ending:
            return stem.removesuffix(ending), kind
    return stem, None


def _entry(name: str, path: Path, shipped: bool) -> Entry:
    entry, promised = read_entry(path, name, shipped=shipped), _split(path.stem)[1]
    if entry.damage:
        return Entry(name, promised, path, shipped, damage=entry.damage)
    if promised not in (None, entry.kind):
        damage = f"{path} is named as {promised!r}, but holds kind {entry.kind!r}; rename it"
        return Entry(name, promised, path, shipped, damage=damage)
    return entry


def _by_kind(name: str) -> dict[str | None, Entry]:
    """The first file of each kind: usable before damaged, shipped before your own."""
    found = [_entry(n, path, shipped) for n, path, shipped in _files() if n == name]
    chosen: dict[str | None, Entry] = {}
    for kind in (*KINDS, None):
        own = [entry for entry in found if entry.kind == kind]
        usable = [entry for entry in own if not entry.damage]
        if own:
            chosen[kind] = (usable or own)[0]
    return chosen


def _control_file(prior: str, control: str | Path) -> Path:
    """The file of a ControlNet, given its path or its task."""
    if isinstance(control, Path) or Path(control).suffix:
        return Path(control)
    known = controls(prior)
    if control not in known:
        raise UnknownNameError(f"ControlNet of the prior {prior!r}", control, known)
    return known[control]
