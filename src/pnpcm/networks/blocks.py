"""Blocks of the U-Net: residual block, attention, resampling, embedding of a number.

Attribute names and their order inside each ``Sequential`` are those of guided-diffusion
(Dhariwal & Nichol 2021), since they are the keys of published checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 32
SILU_POWER = 0.3557
"""E[silu(n)²] of a standard normal n: mean square per channel after a SiLU."""


def sinusoids(c_noise: Tensor, width: int, max_period: float = 10000.0) -> Tensor:
    """[cos(c ω_i), sin(c ω_i)] with ω_i = max_period^(−i/half), ``(B,)`` → ``(B, width)``."""
    half = width // 2
    values = widen(c_noise)
    steps = torch.arange(half, dtype=values.dtype, device=values.device) / half
    angles = values[:, None] * torch.exp(-math.log(max_period) * steps)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def widen(x: Tensor) -> Tensor:
    """``x`` in at least float32: half precision is too coarse for c_noise = −1553.65."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def group_norm(channels: int, norm: bool) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels) if norm else nn.Identity()


def zeroed(conv: nn.Conv2d) -> nn.Conv2d:
    """``conv`` with zero weights: a new network starts with zero residual branches."""
    for parameter in conv.parameters():
        nn.init.zeros_(parameter)
    return conv


def keep_variance(conv: nn.Conv2d, *, power: float = 1.0) -> None:
    """Initialise so that the output has variance 1 if the inputs have mean square ``power``.

    PyTorch's default divides the variance by 3 at each convolution. GroupNorm compensates for it;
    without norms the output of the decoder's 1×1 skips would vanish at the start of training.
    """
    if conv.weight.is_meta:  # torch would import its compiler, for seconds, without need
        return
    fan_in = conv.weight[0].numel()
    nn.init.normal_(conv.weight, std=1 / math.sqrt(power * fan_in))


def halve(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 2)


def double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


class ResBlock(nn.Module):
    """skip(x) + conv(SiLU(norm(conv(SiLU(norm(x))) + Linear(SiLU(emb))))).

    ``scale_shift``: norm(h) (1 + scale) + shift instead of the sum. ``resample`` acts on x and,
    before its first convolution, on the branch. Without ``norm`` both norms are the identity.
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        *,
        emb_channels: int,
        dropout: float = 0.0,
        scale_shift: bool = False,
        norm: bool = True,
        resample: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.scale_shift, self.resample = scale_shift, resample
        first = nn.Conv2d(channels, out_channels, 3, padding=1)
        last = zeroed(nn.Conv2d(out_channels, out_channels, 3, padding=1))
        width = 2 * out_channels if scale_shift else out_channels
        self.in_layers = nn.Sequential(group_norm(channels, norm), nn.SiLU(), first)
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb_channels, width))
        self.out_layers = nn.Sequential(
            group_norm(out_channels, norm), nn.SiLU(), nn.Dropout(dropout), last
        )
        self.skip_connection: nn.Module = nn.Identity()
        if channels != out_channels:
            self.skip_connection = nn.Conv2d(channels, out_channels, 1)
        if not norm:
            keep_variance(first, power=SILU_POWER)
            if isinstance(self.skip_connection, nn.Conv2d):
                keep_variance(self.skip_connection)

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        h: Tensor = self.in_layers[1](self.in_layers[0](x))
        if self.resample is not None:
            x, h = self.resample(x), self.resample(h)
        h = self.in_layers[2](h)
        e: Tensor = self.emb_layers(emb)[..., None, None]
        if self.scale_shift:
            scale, shift = e.chunk(2, dim=1)
            h = self.out_layers[0](h) * (1 + scale) + shift
        else:
            h = self.out_layers[0](h + e)
        for layer in list(self.out_layers)[1:]:
            h = layer(h)
        skip: Tensor = self.skip_connection(x)
        return skip + h


class AttentionBlock(nn.Module):
    """x + proj(softmax(qᵀk/√d) v) over all pixels, computed in at least float32.

    ``legacy``: the 3C channels of ``qkv`` are ordered head | q, k, v | channel (original
    guided-diffusion) instead of q, k, v | head | channel (consistency models). The wrong order
    loads without an error and gives wrong images.
    """

    def __init__(self, channels: int, *, head_channels: int, legacy: bool, norm: bool) -> None:
        super().__init__()
        self.head_channels, self.legacy = head_channels, legacy
        self.norm = group_norm(channels, norm)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj_out = zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        heads, d = channels // self.head_channels, self.head_channels
        # pixels before channels: a view, not a copy, of a channels-last tensor
        rows = widen(self.qkv(self.norm(x))).permute(0, 2, 3, 1)
        if self.legacy:
            parts = rows.reshape(batch, height * width, heads, 3, d).permute(3, 0, 2, 1, 4)
        else:
            parts = rows.reshape(batch, height * width, 3, heads, d).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        h = F.scaled_dot_product_attention(q, k, v)  # 1/√d = d^(−1/4) on q times d^(−1/4) on k
        h = h.transpose(1, 2).reshape(batch, height, width, channels).permute(0, 3, 1, 2)
        out: Tensor = x + self.proj_out(h.to(x.dtype))
        return out


class Downsample(nn.Module):
    """3×3 convolution with stride 2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.op(x)
        return out


class Upsample(nn.Module):
    """Nearest neighbour ×2, then a 3×3 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(double(x))
        return out


class Stage(nn.ModuleList):
    """A sequence of layers, of which only residual blocks take the embedding."""

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        for layer in self:
            x = layer(x, emb) if isinstance(layer, ResBlock) else layer(x)
        return x
