"""How far a U-Net looks: which pixels of its input one pixel of its output can depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pnpcm.networks.config import UNetConfig


def receptive_radius(config: UNetConfig) -> int | None:
    """No output depends on pixels farther away (in either axis), some do on pixels this far.

    None: on all of them, through a GroupNorm or attention. The interval [low, high] of needed
    pixels is followed from one output back to the input by the longest way, through the coarsest
    level, once for each position of the output within the network's stride.
    """
    if config.norm or config.middle_attention or config.attention_factors:
        return None
    radius = 0
    for position in range(config.stride):
        low, high = _needed(position // config.patch, config)
        low, high = config.patch * low, config.patch * high + config.patch - 1
        radius = max(radius, position - low, high - position)
    return radius


def _needed(pixel: int, config: UNetConfig) -> tuple[int, int]:
    """First and last input that the output ``pixel`` needs, both counted in patches."""
    blocks, levels = config.num_res_blocks, len(config.channels)
    low, high = pixel - 1, pixel + 1  # head
    for level in range(levels):  # decoder, last block first
        if level > 0:  # nearest neighbour ×2, then one convolution, in a residual block two
            convs = 2 if config.resblock_updown else 1
            low, high = (low - convs) // 2, (high + convs) // 2
        low, high = low - 2 * (blocks + 1), high + 2 * (blocks + 1)
    low, high = low - 4, high + 4  # middle
    for level in reversed(range(levels)):  # encoder
        low, high = low - 2 * blocks, high + 2 * blocks
        if level > 0 and config.resblock_updown:  # means of 2×2, then two convolutions
            low, high = 2 * (low - 2), 2 * (high + 2) + 1
        elif level > 0:  # a 3×3 convolution with stride 2
            low, high = 2 * low - 1, 2 * high + 1
    return low - 1, high + 1  # first convolution
