"""Inputs and published numbers for the denoisers in KAIR's layout, which several tests share.

The numbers were worked out with KAIR's own code. Weights: the j-th number of a state dict, counted
on through its tensors in order, is sin(0.37 j + 0.1) √(1.2/f), f being the number of entries of
``p[0]`` (8 for biases), rounded to float32. Image: 0.5 + 0.4 cos(0.21 k). Level: 0.1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pnpcm.networks.kair import DenoiserConfig

LEVEL = 0.1


class Golden(NamedTuple):
    config: DenoiserConfig
    shape: tuple[int, int, int]
    parameters: int
    total: float
    squares: float
    first: tuple[float, float, float, float]
    """The first four of y[0, 0, 0]."""


GOLDEN = {
    "drunet": Golden(
        DenoiserConfig("drunet", 3, (4, 6, 8, 10), 2),
        (3, 24, 32),
        13420,
        516.072743178,
        585.659019710,
        (0.194830723, 0.259106537, 0.174615138, 0.036880959),
    ),
    "ffdnet": Golden(
        DenoiserConfig("ffdnet", 3, (8,), 4),
        (3, 23, 31),
        2988,
        -155.288952582,
        193.779958891,
        (0.397712496, 0.281028446, 0.420772526, 0.256977582),
    ),
    "dncnn": Golden(
        DenoiserConfig("dncnn", 1, (8,), 5),
        (1, 20, 28),
        1905,
        -119.431634675,
        507.462459907,
        (0.775089500, 0.915155880, 0.755731316, 0.470031793),
    ),
}

# published file: (shape of every tensor, number of parameters, channels of its images)
PUBLISHED = {
    "drunet_color.pth": (32640960, 3),
    "drunet_gray.pth": (32638656, 1),
    "ffdnet_color.pth": (852108, 3),
    "ffdnet_gray.pth": (485316, 1),
    "dncnn_25.pth": (555137, 1),
    "dncnn_color_blind.pth": (668227, 3),
}


def published_shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a published file, written out without our networks."""
    _, channels = PUBLISHED[name]
    if name.startswith("drunet"):
        return _drunet(channels)
    if name.startswith("ffdnet"):
        width, depth = (96, 12) if channels == 3 else (64, 15)
        ends = 4 * channels + 1, 4 * channels
    else:
        width, depth, ends = 64, 20 if channels == 3 else 17, (channels, channels)
    sizes = [ends[0], *[width] * (depth - 1), ends[1]]
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(depth):
        shapes[f"model.{2 * i}.weight"] = (sizes[i + 1], sizes[i], 3, 3)
        shapes[f"model.{2 * i}.bias"] = (sizes[i + 1],)
    return shapes


def _drunet(channels: int) -> dict[str, tuple[int, ...]]:
    widths = (64, 128, 256, 512)
    shapes: dict[str, tuple[int, ...]] = {"m_head.weight": (64, channels + 1, 3, 3)}

    def blocks(part: str, first: int, width: int) -> None:
        for i in range(first, first + 4):
            for j in (0, 2):
                shapes[f"{part}.{i}.res.{j}.weight"] = (width, width, 3, 3)

    for level in (1, 2, 3):
        blocks(f"m_down{level}", 0, widths[level - 1])
        shapes[f"m_down{level}.4.weight"] = (widths[level], widths[level - 1], 2, 2)
    blocks("m_body", 0, 512)
    for level in (3, 2, 1):
        shapes[f"m_up{level}.0.weight"] = (widths[level], widths[level - 1], 2, 2)
        blocks(f"m_up{level}", 1, widths[level - 1])
    shapes["m_tail.weight"] = (channels, 64, 3, 3)
    return shapes


def golden_state(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Weights by the rule above."""
    state, j = {}, 0
    for name, shape in shapes.items():
        n = math.prod(shape)
        fan = n // shape[0] if len(shape) > 1 else 8
        numbers = torch.arange(j, j + n, dtype=torch.float64)
        values = torch.sin(0.37 * numbers + 0.1) * math.sqrt(1.2 / fan)
        state[name] = values.float().reshape(shape)
        j += n
    return state


def golden_image(shape: tuple[int, ...]) -> Tensor:
    k = torch.arange(math.prod(shape), dtype=torch.float64)
    return (0.5 + 0.4 * torch.cos(0.21 * k)).reshape(1, *shape)
