"""Inference of an architecture from the names and shapes of a guided-diffusion state dict."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from pnpcm.errors import CheckpointError
from pnpcm.networks.unet import DEFAULT_MULT, UNetConfig


def infer_config(state_dict: Mapping[str, Tensor], *, num_head_channels: int = 64) -> UNetConfig:
    """The architecture that a guided-diffusion state dict belongs to.

    Channels per head do not show in the shapes and must be given. The image size is inferred from
    the multipliers (320 for the paper's two-channel network), None if they match no known size.
    """
    try:
        return _infer(state_dict, num_head_channels)
    except (KeyError, IndexError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"these weights are not a guided-diffusion U-Net, {error} is missing; "
            "was a whole training state saved instead of a state dict?"
        ) from error


def _infer(state: Mapping[str, Tensor], num_head_channels: int) -> UNetConfig:
    model_channels = state["time_embed.0.weight"].shape[1]
    entries = len({name.split(".")[1] for name in state if name.startswith("output_blocks.")})
    # the last decoder entry of each level but the finest has the upsampling, after any attention
    ups = [
        (i, k)
        for i in range(entries)
        for k in (1, 2)
        for part in ("in_layers.2", "conv")
        if f"output_blocks.{i}.{k}.{part}.weight" in state
    ]
    n_blocks = ups[0][0] if ups else entries - 1
    starts = [1 + level * (n_blocks + 1) for level in range(len(ups) + 1)]
    channels = [state[f"input_blocks.{i}.0.out_layers.3.weight"].shape[0] for i in starts]
    ratios = [c / model_channels for c in channels]
    mult = tuple(int(r) if r.is_integer() else r for r in ratios)
    attention = tuple(
        1 << level for level, i in enumerate(starts) if f"input_blocks.{i}.1.qkv.weight" in state
    )
    in_channels = state["input_blocks.0.0.weight"].shape[1]
    out_channels = state["out.2.weight"].shape[0]
    sizes = {table: size for size, table in DEFAULT_MULT.items()}
    size = 320 if in_channels == 2 and mult == DEFAULT_MULT[256] and not attention else None
    labels = state.get("label_emb.weight")
    qkv = [tensor for name, tensor in state.items() if name.endswith("qkv.weight")]
    return UNetConfig(
        image_size=size or sizes.get(mult),
        in_channels=in_channels,
        out_channels=None if out_channels == in_channels else out_channels,
        model_channels=model_channels,
        channel_mult=mult,
        num_res_blocks=n_blocks,
        attention_ds=attention,
        num_head_channels=num_head_channels,
        resblock_updown=not any(f"output_blocks.{i}.{k}.conv.weight" in state for i, k in ups),
        use_scale_shift_norm=state["input_blocks.1.0.emb_layers.1.weight"].shape[0]
        == 2 * channels[0],
        num_classes=None if labels is None else labels.shape[0],
        attention_order="legacy" if qkv and qkv[0].ndim == 3 else "qkv-first",
        norm="out.0.weight" in state,
        middle_attention="middle_block.1.qkv.weight" in state,
    )
