"""Test inputs of docs/method.md §12.1 and small tools that tests share."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from pnpcm.errors import ArgumentError
from pnpcm.networks import UNet, UNetConfig
from pnpcm.places import existing

LINEAR = ("inpainting", "superresolution", "gaussian-blur", "blur", "mri", "crop")
LINEAR += ("compose", "function")
NONLINEAR = ("jpeg", "nonlinear-blur", "phase-retrieval")
"""Rows of OPERATORS on which solvers are tried one by one; ``tests/laws`` runs over all rows."""

R4_LINES = (
    *(18, 19, 43, 48, 55, 58, 61, 66, 70, 74, 75, 79, 91, 92, 96, 97, 104, 114, 123, 124, 127),
    *(133, 134, 137, 138, 140, 141),
    *range(147, 171),
    *(175, 176, 179, 180, 183, 184, 189, 191, 192, 196, 197, 201, 202, 203, 204, 207, 211, 224),
    *(225, 228, 230, 238, 249, 256, 269, 278, 289, 299, 307),
)
R8_LINES = (
    *(20, 50, 57, 69, 77, 132, 140, 142, 147),
    *range(153, 165),
    *(
        166,
        171,
        174,
        178,
        184,
        191,
        193,
        207,
        221,
        222,
        224,
        226,
        235,
        246,
        254,
        267,
        276,
        287,
        298,
    ),
)


@cache
def image() -> Tensor:
    """X[c, i, j] = 0.6 sin(2π(i(c+1) + 2j)/96) + 0.3 cos(2π(i − j)/(7 + c)), float64."""
    i, j = _indices()
    planes = [
        0.6 * torch.sin(2 * math.pi * (i * (c + 1) + 2 * j) / 96)
        + 0.3 * torch.cos(2 * math.pi * (i - j) / (7 + c))
        for c in range(3)
    ]
    return torch.stack(planes)[None]


@cache
def mask() -> Tensor:
    """Kept where (37 i + 11 j + (i j mod 17)) mod 10 < 3: 19 612 pixels."""
    i, j = _indices()
    return (37 * i + 11 * j + (i * j) % 17) % 10 < 3


@cache
def code_mask() -> Tensor:
    """r = (7 i + 13 j) mod 8; −1 where r = 0, +1 where r = 7, else 0."""
    i, j = _indices()
    r = (7 * i + 13 * j) % 8
    return (r == 7).double() - (r == 0).double()


@cache
def mri() -> tuple[Tensor, Tensor, Tensor]:
    """Object ``(1, 2, 320, 320)``, four coil maps and the R = 4 line mask."""
    p = (torch.arange(320, dtype=torch.float64)[:, None] - 160) / 320
    q = (torch.arange(320, dtype=torch.float64)[None, :] - 160) / 320
    bump = torch.exp(-(p**2 + q**2) / 0.06) * (1 + 0.3 * torch.cos(40 * p) * torch.cos(30 * q))
    obj = bump / 1.3 * torch.exp(1.5j * (p + q))
    centres = ((0, -0.4), (0, 0.4), (-0.4, 0), (0.4, 0))
    maps = torch.stack(
        [
            torch.exp(-((p - a) ** 2 + (q - b) ** 2) / 0.5)
            * torch.exp(1j * (c * math.pi / 2 + 2 * p * q))
            for c, (a, b) in enumerate(centres)
        ]
    )
    maps = maps / maps.abs().square().sum(0).sqrt()
    lines = torch.zeros(320, dtype=torch.bool)
    lines[list(R4_LINES)] = True
    return torch.stack([obj.real, obj.imag])[None], maps, lines


def _indices() -> tuple[Tensor, Tensor]:
    n = torch.arange(256, dtype=torch.float64)
    return n[:, None], n[None, :]


class Tanh(nn.Module):
    """F(v, c) = tanh(v); stores the norms of its inputs and its c_noise."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[tuple[float, float]] = []

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        self.inputs.append((float(x.norm()), float(c_noise[0])))
        return torch.tanh(x)


def needs(path: str) -> pytest.MarkDecorator:
    """Skip a test if ``path`` (``$PNPCM_DATA/…``) is missing, with a message."""
    reason = ""
    try:
        existing(path)
    except ArgumentError as error:
        reason = str(error)
    return pytest.mark.skipif(bool(reason), reason=reason)


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


TINY = UNetConfig(
    image_size=None,
    model_channels=8,
    channel_mult=(1, 2),
    num_res_blocks=1,
    attention_ds=(),
    middle_attention=False,
    norm=False,
)
"""The smallest network for images of any size."""


def random_unet(config: UNetConfig, seed: int = 0, *, dtype: torch.dtype = torch.float32) -> UNet:
    """A U-Net with random weights, including those that are initialised to zero."""
    with torch.device("meta"):
        network = UNet(config)
    network = network.to_empty(device="cpu").to(dtype)
    g = gen(seed)
    with torch.no_grad():
        for name, p in network.named_parameters():
            fan_in = p[0].numel() if p.ndim > 1 else 25
            p.copy_(torch.randn(p.shape, generator=g) / math.sqrt(fan_in))
            if p.ndim == 1 and name.endswith("weight"):  # of a norm
                p.add_(1)
    return network.eval()
