"""Loading and saving of priors. Reading never executes code in a file.

Three formats: the ``.pt`` state dicts of guided-diffusion, OpenAI's consistency models and the
PnP-CM authors; the ``.pth`` state dicts of KAIR's denoisers; and our own, one ``.safetensors`` file
that stores architecture, noise levels, range and the noise input of its network (c_noise).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from pnpcm.errors import ArgumentError, CheckpointError
from pnpcm.io.files import save_tensors
from pnpcm.networks import UNet, UNetConfig
from pnpcm.networks.infer import infer_config
from pnpcm.networks.kair import Denoiser, DenoiserConfig, infer_denoiser
from pnpcm.priors.base import check_c_noise
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.denoiser import DenoiserPrior, build_denoiser_prior, denoiser_from_state
from pnpcm.priors.diffusion import DiffusionModel
from pnpcm.priors.files import INVALID, StateDict, build_empty, check_foreign, fill, read_pt
from pnpcm.priors.info import checked_info

__all__ = [
    "infer_config",
    "load_pt",
    "load_openai",
    "export_openai",
    "save_prior",
    "read_header",
    "load_saved",
    "load_own",
]

KINDS = ("consistency", "edm", "vp")
FORMAT = 1
DEEPEST = 50
"""Nesting of a header's JSON above which it is not read; ours have 6 levels."""
LONGEST = 2**20
"""Characters of a header above which it is not read; ours have 10 000."""
NetPrior = ConsistencyModel | DiffusionModel
FilePrior = NetPrior | DenoiserPrior


def load_pt(
    path: str | Path,
    *,
    kind: str | None = None,
    network: UNetConfig | Mapping[str, Any] | None = None,
    c_noise: str | None = None,
    sigma_min: float | None = None,
    sigma_max: float | None = None,
) -> FilePrior:
    """The prior in a state dict of another library, recognised by its parameter names.

    Guided-diffusion: see :func:`load_openai`; KAIR: see :func:`denoiser_from_state`. Arguments of
    the other layout are refused.
    """
    path = Path(path)
    state = read_pt(path)
    config = infer_denoiser(state)
    if config is None:
        why = f"{path} is not a denoiser in KAIR's layout"
        refuse(why, sigma_min=sigma_min, sigma_max=sigma_max)
        return _from_openai(path, state, kind, network, c_noise)
    refuse(f"{path} holds a {config.architecture}", network=network, c_noise=c_noise)
    if kind not in (None, "edm"):
        raise ArgumentError(
            f"kind is {kind!r}, but {path} holds a {config.architecture}, a denoiser (kind 'edm'); "
            "leave kind out"
        )
    return denoiser_from_state(path, state, config, sigma_min, sigma_max)


# --- guided-diffusion's format ------------------------------------------------------------------


def load_openai(
    path: str | Path,
    *,
    kind: str | None = None,
    network: UNetConfig | Mapping[str, Any] | None = None,
    c_noise: str | None = None,
) -> NetPrior:
    """The prior in a ``.pt`` file of OpenAI or of the PnP-CM authors, for images in [-1, 1].

    ``kind=None``: "edm" if the file name begins with ``edm_``, else "consistency". ``network``:
    a configuration, or a dict of the fields that :func:`infer_config` should not infer.
    ``c_noise=None``: "openai", with which all of these files were trained; "edm" for a network of
    this architecture that was trained with NVlabs' convention, see ``precond``.
    """
    path = Path(path)
    return _from_openai(path, read_pt(path), kind, network, c_noise)


def _from_openai(
    path: Path,
    state: StateDict,
    kind: str | None,
    network: UNetConfig | Mapping[str, Any] | None,
    c_noise: str | None,
) -> NetPrior:
    kind = kind or ("edm" if path.name.startswith("edm_") else "consistency")
    _check_kind(kind)
    if c_noise is not None:
        check_c_noise(c_noise)
        if kind == "vp":
            raise ArgumentError(
                f"c_noise is {c_noise!r}, but networks of kind 'vp' take an index; leave "
                "c_noise out"
            )
    _refuse_nvlabs(path, state)
    if isinstance(network, UNetConfig):
        config = network
    else:
        wishes = {name: _split(value) for name, value in dict(network or {}).items()}
        inferred = infer_config(state, num_head_channels=wishes.get("num_head_channels", 64))
        fields = inferred.to_dict() | wishes
        if wishes.get("attention_resolutions") is not None and "attention_ds" not in wishes:
            fields["attention_ds"] = None
        config = UNetConfig.from_dict(fields)
    move = "the architecture is inferred if network=None" if network else "is the file complete?"
    options = {} if c_noise is None else {"c_noise": c_noise}
    state = {name: _as_2d(name, t) for name, t in state.items()}
    return _build(path, kind, config, state, move, options)


def _refuse_nvlabs(path: Path, state: StateDict) -> None:
    """NVlabs' EDM networks have another architecture, and another ``c_noise``."""
    theirs = [name for name in state if re.search(r"(^|\.)(map_layer0\.|enc\.\d+x\d+_)", name)]
    if theirs:
        raise CheckpointError(
            f"{path} holds a network of NVlabs' EDM ({theirs[0]}), whose architecture pnpcm does "
            "not have; build it with NVlabs' code and wrap it: DiffusionModel(lambda x, c: "
            "net.model(x, c, None), c_noise='edm')"
        )


def _split(value: Any) -> Any:
    """Guided-diffusion's scripts write lists as "32,16,8"."""
    if not (isinstance(value, str) and value[:1].isdigit()):
        return value
    return tuple(float(v) if "." in v else int(v) for v in value.split(","))


def export_openai(prior: NetPrior, path: str | Path) -> None:
    """Write the bare weights as a ``.pt`` state dict, readable by :func:`load_openai`."""
    network = _unet(prior)
    state = {name: t.detach().cpu().contiguous() for name, t in network.state_dict().items()}
    if network.config.attention_order == "legacy":  # these files have 1-D convolutions
        state = {n: t.squeeze(-1) if _is_attention(n) else t for n, t in state.items()}
    save_tensors(Path(path), lambda temporary: torch.save(state, temporary))


def _as_2d(name: str, tensor: Tensor) -> Tensor:
    """The 1-D convolutions of guided-diffusion's attention with an additional axis."""
    return tensor.unsqueeze(-1) if _is_attention(name) and tensor.ndim == 3 else tensor


def _is_attention(name: str) -> bool:
    return name.endswith(("qkv.weight", "proj_out.weight"))


# --- our own format -----------------------------------------------------------------------------


def save_prior(
    prior: FilePrior,
    path: str | Path,
    *,
    info: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write weights and configuration as one ``.safetensors`` file, atomically.

    ``prior``: a consistency model, a diffusion model (with its ``c_noise``) or a denoiser with one
    of our networks; ``load_prior(path)`` reads it. ``info``: free-form JSON (licence, data, an
    intensity convention); None keeps the prior's own. ``dtype=torch.float16`` halves the file; it
    is loaded as float32.
    """
    network: UNet | Denoiser
    options: tuple[str, ...]
    if isinstance(prior, DenoiserPrior) and isinstance(prior.network, Denoiser):
        network, options = prior.network, _DENOISER_OPTIONS
    else:
        network, options = _unet(prior), _OPTIONS
    header = {
        "kind": prior.kind,
        "network": network.config.to_dict(),
        "options": {name: getattr(prior, name) for name in options},
        "info": dict(getattr(prior, "info", {}) if info is None else info),
    }
    write_own(network, path, header, dtype)


_DENOISER_OPTIONS = ("sigma_min", "sigma_max", "value_range")
_OPTIONS = ("sigma_data", *_DENOISER_OPTIONS, "any_size", "c_noise")


def write_own(
    network: nn.Module, path: str | Path, header: Mapping[str, Any], dtype: torch.dtype | None
) -> None:
    """Write weights and ``header`` as one file of our format."""
    try:
        text = json.dumps({"format": FORMAT} | dict(header), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"info must be plain JSON, but {error}; use str, float, list"
        ) from error
    weights = {}
    for name, tensor in network.state_dict().items():
        stored = tensor.detach().to("cpu", dtype or tensor.dtype).contiguous()
        if not bool(stored.isfinite().all()):
            raise ArgumentError(
                f"{name} is not finite in {stored.dtype}; has training diverged? "
                "otherwise use dtype=None"
            )
        weights[name] = stored
    save_tensors(
        Path(path), lambda temporary: save_file(weights, temporary, metadata={"pnpcm": text})
    )


def read_header(path: str | Path) -> dict[str, Any]:
    """The configuration inside one of our files, without its weights."""
    path = Path(path)
    check_foreign(path)
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("pnpcm")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a safetensors file; download it again ({error})"
        ) from error
    if text is None:
        raise CheckpointError(
            f"{path} is a safetensors file without pnpcm's header; "
            "diffusers folders are read by interop.load_diffusers"
        )
    if len(text) > LONGEST:
        raise CheckpointError(
            f"{path} has a pnpcm header of {len(text)} characters, expected at most {LONGEST}; "
            "save it again with less info"
        )
    try:
        header = json.loads(text)
        _check_depth(header)
        version = header["format"]
    except INVALID as error:
        raise CheckpointError(
            f"{path} has an unreadable pnpcm header ({error}); save it again"
        ) from error
    if version != FORMAT:
        raise CheckpointError(
            f"{path} has format {version}, this pnpcm reads {FORMAT}; update pnpcm"
        )
    return dict(header)


def _check_depth(value: Any) -> None:
    """Raise an error if lists and dictionaries are nested deeper than any header of ours."""
    inside = [value]
    for _ in range(DEEPEST):
        pairs = (v.values() if isinstance(v, dict) else v for v in inside)
        inside = [v for values in pairs for v in values if isinstance(v, dict | list)]
        if not inside:
            return
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def load_own(path: str | Path) -> NetPrior:
    """Like :func:`load_saved`, for consistency and diffusion models only."""
    prior = load_saved(path)
    if isinstance(prior, DenoiserPrior):
        raise CheckpointError(
            f"{path} holds a {type(prior.network).__name__}, a denoiser without scalings; expected "
            "a consistency or diffusion model around a U-Net"
        )
    return prior


def load_saved(path: str | Path) -> FilePrior:
    """The prior that :func:`save_prior` wrote, in float32; its ``info`` is ``prior.info``."""
    path = Path(path)
    header = read_header(path)
    if header.get("kind") == "control":
        raise CheckpointError(
            f"{path} is a ControlNet, not a prior; load it with its prior: "
            f"load_prior(name, control={path.name!r})"
        )
    try:
        kind, options, info = header["kind"], dict(header["options"]), checked_info(header["info"])
        config = config_of(header["network"])
        _check_kind(kind)
    except INVALID as error:
        raise CheckpointError(
            f"{path} has an invalid pnpcm header ({error}); save it again"
        ) from error
    state, move = read_own(path), "was the file edited?"
    prior: FilePrior = (
        _build(path, kind, config, state, move, options)
        if isinstance(config, UNetConfig)
        else build_denoiser_prior(path, config, state, move, options)
    )
    prior.info = info
    return prior


def config_of(values: Mapping[str, Any]) -> UNetConfig | DenoiserConfig:
    """The architecture that a header describes."""
    fields = dict(values)
    if fields.get("type") == DenoiserConfig.__name__:
        return DenoiserConfig.from_dict(fields)
    return UNetConfig.from_dict(fields)


def read_own(path: Path) -> dict[str, Tensor]:
    """The weights in one of our files."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no iterator


# --- shared -------------------------------------------------------------------------------------


def _build(
    path: Path,
    kind: str,
    config: UNetConfig,
    state: StateDict,
    move: str,
    options: Mapping[str, Any] | None = None,
) -> NetPrior:
    if kind != "vp" and config.out_channels not in (None, config.in_channels):
        raise CheckpointError(
            f"{path} has {config.out_channels} output channels for {config.in_channels}, "
            f"which kind={kind!r} cannot use; DDPM files with a learned variance are kind='vp'"
        )
    network = build_empty(path, UNet, config, state)
    fill(path, network, state, move)
    arguments: dict[str, Any] = dict(options or {})
    try:
        prior: NetPrior = (
            ConsistencyModel(network, **arguments)
            if kind == "consistency"
            else DiffusionModel(network, kind=kind, **arguments)
        )
    except INVALID as error:
        raise CheckpointError(f"{path} has invalid options ({error}); save it again") from error
    return prior.eval().requires_grad_(False)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ArgumentError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")


def refuse(why: str, **given: object) -> None:
    """Raise an error for arguments that are given but have no meaning here."""
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(f"{name} is given, but {why}; leave {name} out")


def _unet(prior: FilePrior) -> UNet:
    network = getattr(prior, "network", None)
    if not isinstance(network, UNet):
        raise ArgumentError(
            f"prior must hold a networks.UNet to be saved, got {type(network).__name__}; "
            "save other networks with their own library"
        )
    return network
