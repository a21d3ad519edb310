"""Conversion to and from diffusers, which is imported only where it is needed.

Its ``UNet2DModel`` is the same network under other names, with separate q, k and v.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pnpcm.errors import ArgumentError, CheckpointError, MissingExtraError
from pnpcm.interop.hub import download, is_hub_id
from pnpcm.io.reading import read_json
from pnpcm.networks import UNetConfig
from pnpcm.networks.blocks import GROUPS
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.diffusion import DiffusionModel

PIPELINE_KINDS = {
    "ConsistencyModelPipeline": "consistency",
    "DDPMPipeline": "vp",
    "DDIMPipeline": "vp",
}
_FILES = ["model_index.json", "*config.json", "*diffusion_pytorch_model.safetensors"]
_VP_TABLE = {
    "num_train_timesteps": 1000,
    "beta_schedule": "linear",
    "beta_start": 1e-4,
    "beta_end": 0.02,
    "prediction_type": "epsilon",
}
_RESIDUAL = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
    "skip_connection": "conv_shortcut",
    "op": "conv",
    "conv": "conv",
}
_ATTENTION = {"norm": "group_norm", "proj_out": "to_out.0", "qkv": "qkv"}
_FIXED = {
    "time_embed.0": "time_embedding.linear_1",
    "time_embed.2": "time_embedding.linear_2",
    "label_emb": "class_embedding",
    "input_blocks.0.0": "conv_in",
    "out.0": "conv_norm_out",
    "out.2": "conv_out",
}


class DiffusersNetwork(nn.Module):
    """F(x, c_noise) of a diffusers ``UNet2DModel``, whose second argument is the timestep."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        config: Any = unet.config
        size = config.sample_size
        if isinstance(size, (tuple, list)):  # a prior only checks square sizes
            size = size[0] if len(set(size)) == 1 else None
        self.unet = unet
        self.in_channels: int = config.in_channels
        self.image_size: int | None = size
        self.stride: int = 1 << (len(config.block_out_channels) - 1)

    def forward(self, x: Tensor, c_noise: Tensor, labels: Tensor | None = None) -> Tensor:
        out: Tensor = self.unet(x, c_noise, class_labels=labels, return_dict=False)[0]
        return out


def load_diffusers(
    folder_or_hub_id: str | Path, *, kind: str | None = None, c_noise: str | None = None
) -> ConsistencyModel | DiffusionModel:
    """The prior in a diffusers ``UNet2DModel`` or pipeline folder, or on the Hub (``hf:…``).

    ``kind=None``: by the pipeline's class or an EDM scheduler, and "consistency" for a bare
    network. ``c_noise=None``: "edm" (ln σ / 4) with an EDM scheduler, whose σ_data and levels are
    used, else "openai" (250 ln σ), as in diffusers' consistency models.
    """
    try:
        from diffusers import UNet2DModel
    except ImportError as error:
        raise MissingExtraError(
            'load_diffusers needs diffusers; run pip install "pnpcm[hf]"'
        ) from error
    folder = _local_folder(folder_or_hub_id)
    scheduler = folder / "scheduler" / "scheduler_config.json"
    told = _edm_options(scheduler)
    kind = kind or ("edm" if told else _kind_of(folder))
    if kind not in ("consistency", "edm", "vp"):
        raise ArgumentError(f"kind must be 'consistency', 'edm' or 'vp', got {kind!r}")
    options: dict[str, Any] = told if kind == "edm" else {}
    if c_noise is not None:
        options = options | {"c_noise": c_noise}
    if kind == "vp":
        _check_table(scheduler)
    inner = folder / "unet" if (folder / "unet" / "config.json").is_file() else folder
    declared = _read_json(inner / "config.json").get("_class_name", "UNet2DModel")
    if declared != "UNet2DModel":
        raise CheckpointError(
            f"{inner} holds a {declared}, pnpcm reads UNet2DModel; "
            "text-to-image and latent networks are not priors of images"
        )
    try:  # safetensors only: the older .bin files are pickles
        unet = UNet2DModel.from_pretrained(str(inner), use_safetensors=True)
    except Exception as error:  # OSError, ValueError, SafetensorError, … by version of diffusers
        raise CheckpointError(
            f"{inner} cannot be read by diffusers ({error}); "
            "it needs config.json and diffusion_pytorch_model.safetensors"
        ) from error
    network = DiffusersNetwork(unet.to(memory_format=torch.channels_last))
    prior = (
        ConsistencyModel(network, **options)
        if kind == "consistency"
        else DiffusionModel(network, kind=kind, **options)
    )
    return prior.eval().requires_grad_(False)


def diffusers_config(config: UNetConfig) -> dict[str, Any]:
    """Keyword arguments of the ``UNet2DModel`` with the architecture of ``config``."""
    if not config.norm or config.patch != 1 or config.channels[0] != config.model_channels:
        raise ArgumentError(
            f"config has norm={config.norm}, patch={config.patch}, first level "
            f"{config.channels[0]} of {config.model_channels} channels; UNet2DModel has only "
            "norm=True, patch=1 and a first multiplier of 1: keep such a network in our format"
        )
    attends = [1 << level in config.attention_factors for level in range(len(config.channels))]
    plain = ("Resnet{}sampleBlock2D" if config.resblock_updown else "{}Block2D").format
    down = ["AttnDownBlock2D" if a else plain("Down") for a in attends]
    up = ["AttnUpBlock2D" if a else plain("Up") for a in reversed(attends)]
    sampler = "resnet" if config.resblock_updown else "conv"
    return {
        "sample_size": config.image_size,
        "in_channels": config.in_channels,
        "out_channels": config.out_channels or config.in_channels,
        "block_out_channels": config.channels,
        "layers_per_block": config.num_res_blocks,
        "down_block_types": tuple(down),
        "up_block_types": tuple(up),
        "downsample_type": sampler,
        "upsample_type": sampler,
        "attention_head_dim": config.num_head_channels,
        "resnet_time_scale_shift": "scale_shift" if config.use_scale_shift_norm else "default",
        # with scale-shift, diffusers drops the norm of the middle attention by default
        "attn_norm_num_groups": GROUPS if config.use_scale_shift_norm else None,
        "num_class_embeds": config.num_classes,
        "add_attention": config.middle_attention,
        "dropout": config.dropout,
    }


def to_diffusers_state(state_dict: Mapping[str, Tensor], config: UNetConfig) -> dict[str, Tensor]:
    """Our weights under ``UNet2DModel``'s names, with separate q, k and v."""
    diffusers_config(config)  # refuses architectures that UNet2DModel does not have
    result: dict[str, Tensor] = {}
    for name, tensor in state_dict.items():
        stem, suffix = name.rsplit(".", 1)
        new = _diffusers_name(stem, config.num_res_blocks + 1)
        if not new.endswith("qkv"):
            tensor = (
                tensor.flatten(1) if new.endswith("to_out.0") and suffix == "weight" else tensor
            )
            result[f"{new}.{suffix}"] = tensor
            continue
        for part, rows in zip("qkv", _split_qkv(tensor, config), strict=True):
            result[f"{new.removesuffix('qkv')}to_{part}.{suffix}"] = rows
    return result


def _diffusers_name(stem: str, per_level: int) -> str:
    if stem in _FIXED:
        return _FIXED[stem]
    match = re.fullmatch(r"(input_blocks|output_blocks)\.(\d+)\.(\d)\.(.+)", stem)
    if match is None:
        match = re.fullmatch(r"(middle_block)\.(\d)(\.)(.+)", stem)
    if match is None:
        raise CheckpointError(f"{stem} is not a name of pnpcm's U-Net; give UNet.state_dict()")
    side, index, place, part = match.group(1), int(match[2]), match[3], match[4]
    attention = part in _ATTENTION
    part = _ATTENTION[part] if attention else _RESIDUAL[part]
    if side == "middle_block":
        return (
            f"mid_block.attentions.0.{part}"
            if attention
            else f"mid_block.resnets.{index // 2}.{part}"
        )
    level, j = divmod(index - (side == "input_blocks"), per_level)
    if attention:
        slot = f"attentions.{j}"
    elif side == "input_blocks":
        slot = "downsamplers.0" if j == per_level - 1 else f"resnets.{j}"
    else:
        slot = f"resnets.{j}" if place == "0" else "upsamplers.0"
    return f"{'down' if side == 'input_blocks' else 'up'}_blocks.{level}.{slot}.{part}"


def _split_qkv(tensor: Tensor, config: UNetConfig) -> tuple[Tensor, ...]:
    """Rows of q, k, v; the legacy order interleaves them head by head."""
    rows = tensor.reshape(tensor.shape[0], -1) if tensor.ndim > 1 else tensor
    if config.attention_order == "legacy":
        heads = rows.reshape(-1, 3, config.num_head_channels, *rows.shape[1:])
        return tuple(part.flatten(0, 1) for part in heads.unbind(1))
    return rows.chunk(3)


def _local_folder(name: str | Path) -> Path:
    """``name`` if it is a folder, else the local copy of the Hub repository of this id."""
    if is_hub_id(name):
        return download(str(name), _FILES)
    if not Path(name).is_dir():
        raise CheckpointError(
            f"{name} is neither a folder nor a Hub id like "
            "hf:openai/diffusers-cd_bedroom256_lpips; check the path"
        )
    return Path(name)


def _kind_of(folder: Path) -> str:
    if not (folder / "model_index.json").is_file():
        return "consistency"
    pipeline = _read_json(folder / "model_index.json").get("_class_name")
    if pipeline not in PIPELINE_KINDS:
        raise ArgumentError(
            f"kind is None and {folder} is a {pipeline}, expected "
            f"{', '.join(PIPELINE_KINDS)}; give kind='consistency', 'edm' or 'vp'"
        )
    return PIPELINE_KINDS[pipeline]


def _edm_options(path: Path) -> dict[str, Any]:
    """The options of a network from its EDM scheduler; empty if ``path`` is not one."""
    said = _read_json(path) if path.is_file() else {}
    if not str(said.get("_class_name", "")).startswith("EDM"):
        return {}
    prediction = said.get("prediction_type", "epsilon")
    if prediction != "epsilon":
        raise CheckpointError(
            f"{path} has prediction_type = {prediction}, pnpcm's edm priors are trained with "
            "epsilon; such a network is not supported"
        )
    names = ("sigma_data", "sigma_min", "sigma_max")
    return {"c_noise": "edm"} | {name: said[name] for name in names if name in said}


def _check_table(path: Path) -> None:
    """Raise an error if the DDPM table differs from that of VP priors."""
    table = _read_json(path) if path.is_file() else {}
    for name, value in _VP_TABLE.items():
        if table.get(name, value) != value:
            raise CheckpointError(
                f"{path} has {name} = {table[name]}, pnpcm's vp priors are trained with {value}; "
                "such a network is not supported"
            )


def _read_json(path: Path) -> dict[str, Any]:
    move = "is the download complete?"
    return read_json(path, "a configuration", move=move, error=CheckpointError)
