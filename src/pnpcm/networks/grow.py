"""Start of a larger U-Net that computes the same function as a smaller trained one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from pnpcm.errors import ArgumentError
from pnpcm.networks.blocks import ResBlock
from pnpcm.networks.unet import UNet, UNetConfig


@torch.no_grad()
def grow(small: UNet, large: UNet) -> None:
    """Set the weights of ``large`` so that it equals ``small``, of fewer channels or blocks.

    The channels of ``small`` come first. Weights from added channels to them are zero, those to
    added channels keep their initial values, so that the gradients of both differ from zero.
    Added residual blocks are the identity. Chen et al., Net2Net (2016), with zeros in place of
    copies. Networks with GroupNorm or attention are refused: their layers mix all channels.
    """
    check_growth(small.config, large.config)
    large.time_embed.load_state_dict(small.time_embed.state_dict())
    old, new = small.config, large.config
    extra = new.num_res_blocks - old.num_res_blocks
    _copy_stage(small.input_blocks[0], large.input_blocks[0])
    i = j = 1
    for level in range(len(old.channels)):
        for _ in range(old.num_res_blocks):
            _copy_stage(small.input_blocks[i], large.input_blocks[j])
            i, j = i + 1, j + 1
        j += extra  # the last convolution of a new block is zero, its skip the identity
        if level < len(old.channels) - 1:
            _copy_stage(small.input_blocks[i], large.input_blocks[j])
            i, j = i + 1, j + 1
    _copy_stage(small.middle_block, large.middle_block)
    i = j = 0
    for level in reversed(range(len(old.channels))):
        for n in range(old.num_res_blocks + 1):
            width = old.channels[min(level + (n == 0), len(old.channels) - 1)]
            after = new.channels[min(level + (n == 0), len(old.channels) - 1)]
            _copy_stage(small.output_blocks[i], large.output_blocks[j], (width, after))
            i, j = i + 1, j + 1
            if n == 0:  # the added blocks come second: their skip is that of the block before
                for _ in range(extra):
                    _pass_on(large.output_blocks[j], new.channels[level])
                    j += 1
    _embed(small.out[2], large.out[2])


def check_growth(small: UNetConfig, large: UNetConfig) -> None:
    """Refuse a pair of networks of which :func:`grow` cannot make the second from the first."""
    free = ("image_size", "channel_mult", "num_res_blocks", "dropout", "attention_ds")
    differ = [
        f.name
        for f in dataclasses.fields(small)
        if f.name not in free and getattr(small, f.name) != getattr(large, f.name)
    ]
    if differ or len(small.channels) != len(large.channels):
        raise ArgumentError(
            "a network grows in the channels and blocks of its levels only, but these fields "
            f"differ: {', '.join(differ or ['number of levels'])}"
        )
    for config in (small, large):
        if config.norm or config.middle_attention or config.attention_factors:
            raise ArgumentError(
                "a network with norm, middle_attention or attention_ds cannot grow: the added "
                "channels would change the others; train it from the start"
            )
        if config.resblock_updown:
            raise ArgumentError("a network with resblock_updown cannot grow; set it to False")
    less = [a > b for a, b in zip(small.channels, large.channels, strict=True)]
    changes = [[a != b for a, b in pairwise(c.channels)] for c in (small, large)]
    if changes[0] != changes[1]:
        raise ArgumentError(
            f"channels {small.channels} cannot grow to {large.channels}: levels that differ must "
            "differ in both, and equal ones be equal in both"
        )
    if any(less) or small.num_res_blocks > large.num_res_blocks:
        raise ArgumentError(
            f"the network has channels {large.channels} and {large.num_res_blocks} blocks, the "
            f"file {small.channels} and {small.num_res_blocks}; it can only become larger"
        )


def _copy_stage(small: nn.Module, large: nn.Module, first: tuple[int, int] | None = None) -> None:
    """Copy a stage. ``first``: channels of its first input, before its skip, in both."""
    for a, b in zip(small.children(), large.children(), strict=True):
        if isinstance(a, ResBlock) and isinstance(b, ResBlock):
            _copy_block(a, b, first)
            continue
        convs = [[m for m in layer.modules() if isinstance(m, nn.Conv2d)] for layer in (a, b)]
        for one, other in zip(*convs, strict=True):
            _embed(one, other)


def _copy_block(small: ResBlock, large: ResBlock, first: tuple[int, int] | None) -> None:
    old, new = (cast(nn.Conv2d, block.in_layers[2]) for block in (small, large))
    inputs = [(old.in_channels, new.in_channels)]
    if first is not None:
        inputs = [first, (old.in_channels - first[0], new.in_channels - first[1])]
    _embed(old, new, inputs=inputs)
    _embed(small.out_layers[3], large.out_layers[3])
    halves = [(old.out_channels, new.out_channels)] * (2 if small.scale_shift else 1)
    _embed(small.emb_layers[1], large.emb_layers[1], outputs=halves)
    if isinstance(small.skip_connection, nn.Conv2d):
        _embed(small.skip_connection, large.skip_connection, inputs=inputs)


def _embed(
    small: nn.Module,
    large: nn.Module,
    *,
    inputs: Sequence[tuple[int, int]] | None = None,
    outputs: Sequence[tuple[int, int]] | None = None,
) -> None:
    """Copy a layer into a larger one. ``inputs``, ``outputs``: (old, new) sizes of the parts."""
    (a, a_bias), (b, b_bias) = (
        (cast(Tensor, layer.weight), cast(Tensor, layer.bias)) for layer in (small, large)
    )
    rows = _places(outputs or [(a.shape[0], b.shape[0])])
    columns = _places(inputs or [(a.shape[1], b.shape[1])])
    b[rows] = 0
    b[rows[:, None], columns[None, :]] = a
    b_bias[rows] = a_bias


def _places(parts: Sequence[tuple[int, int]]) -> Tensor:
    """Where the channels of the smaller layer are in the larger one."""
    starts = torch.tensor([0, *(new for _, new in parts)]).cumsum(0)
    return torch.cat(
        [start + torch.arange(old) for start, (old, _) in zip(starts, parts, strict=False)]
    )


def _pass_on(stage: nn.Module, channels: int) -> None:
    """Make a stage of the decoder return its first ``channels`` inputs and omit its skip."""
    skip = cast(nn.Conv2d, next(stage.children()).skip_connection)
    nn.init.zeros_(cast(Tensor, skip.bias))
    nn.init.zeros_(skip.weight)
    skip.weight[:, :channels, 0, 0] = torch.eye(channels)
