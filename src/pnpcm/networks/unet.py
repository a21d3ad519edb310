"""U-Net of the guided-diffusion family, with options for smaller variants.

With the default options its state dict has the names and shapes of the ``.pt`` files of
guided-diffusion, of OpenAI's consistency models and of the PnP-CM authors. ``UNetConfig`` has
guided-diffusion's field names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pnpcm.core import Config
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.networks.blocks import (
    GROUPS,
    AttentionBlock,
    Downsample,
    ResBlock,
    Stage,
    Upsample,
    double,
    group_norm,
    halve,
    keep_variance,
    sinusoids,
    zeroed,
)

# configuration -----------------------------------------------------------------------------------
DEFAULT_MULT: dict[int, tuple[float, ...]] = {
    512: (0.5, 1, 1, 2, 2, 4, 4),
    256: (1, 1, 2, 2, 4, 4),
    128: (1, 1, 2, 3, 4),
    64: (1, 2, 3, 4),
}
LARGEST = 2**20
"""Largest size, number of channels or blocks that is taken for one."""
LONGEST_STRIDE = 4096
"""Largest patch × 2^(levels − 1); images of this side would have one pixel at the last level."""


@dataclass(frozen=True)
class UNetConfig(Config):
    """Architecture of a :class:`UNet`, in guided-diffusion's names. Default: the 256-px network.

    ``image_size=None``: any size. Attention is used where the downsampling factor is in
    ``attention_ds`` or, if that is None, equals ``image_size // resolution`` for one of
    ``attention_resolutions`` (None: 32, 16, 8; none without an image size). At 320 px the
    divisions give 10, 20, 40: no level matches and only the middle has attention, as in the
    authors' MRI network. ``patch``: patch × patch pixels are stacked as channels. ``norm=False``
    omits every GroupNorm; together with ``attention_ds=()`` and ``middle_attention=False`` no
    layer depends on the whole image, and tiling is exact.
    """

    image_size: int | None = 256
    in_channels: int = 3
    out_channels: int | None = None
    model_channels: int = 256
    channel_mult: tuple[float, ...] | None = None
    num_res_blocks: int = 2
    attention_resolutions: tuple[int, ...] | None = None
    attention_ds: tuple[int, ...] | None = None
    num_head_channels: int = 64
    resblock_updown: bool = True
    use_scale_shift_norm: bool = False
    dropout: float = 0.0
    num_classes: int | None = None
    attention_order: Literal["qkv-first", "legacy"] = "qkv-first"
    patch: int = 1
    norm: bool = True
    middle_attention: bool = True

    def __post_init__(self) -> None:
        for name in ("channel_mult", "attention_resolutions", "attention_ds"):
            value = getattr(self, name)
            if isinstance(value, list):  # JSON has no tuples
                object.__setattr__(self, name, tuple(value))
            elif isinstance(value, int | float):
                object.__setattr__(self, name, (value,))
        self._check_numbers()
        self._check_channels()
        self._check_attention()

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of each level, finest first."""
        mult = self.channel_mult or DEFAULT_MULT[self.image_size or 0]
        return tuple(int(m * self.model_channels) for m in mult)

    @property
    def attention_factors(self) -> tuple[int, ...]:
        """Downsampling factors (before ``patch``) of the levels with attention."""
        if self.attention_ds is not None:
            wanted = set(self.attention_ds)
        elif self.image_size is None:
            wanted = set()
        else:
            resolutions = self.attention_resolutions
            resolutions = (32, 16, 8) if resolutions is None else resolutions
            wanted = {self.image_size // self.patch // r for r in resolutions}
        factors = (1 << level for level in range(len(self.channels)))
        return tuple(f for f in factors if f in wanted)

    @property
    def stride(self) -> int:
        """Sides of an image must be multiples of this."""
        return self.patch << (len(self.channels) - 1)

    @property
    def stages(self) -> int:
        """Number of entries of encoder and decoder, each with at least two tensors."""
        return 2 * len(self.channels) * (self.num_res_blocks + 1)

    @property
    def receptive_radius(self) -> int | None:
        """Largest distance (per axis) of pixels that an output depends on; None: unbounded."""
        return receptive_radius(self)

    def _check_numbers(self) -> None:
        counts = ("in_channels", "model_channels", "num_res_blocks", "num_head_channels", "patch")
        for name in counts:
            _check_positive(name, getattr(self, name))
        for name in ("image_size", "out_channels", "num_classes"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if not 0 <= self.dropout < 1:
            raise ArgumentError(f"dropout must lie in [0, 1), got {self.dropout}; 0 turns it off")
        if self.attention_order not in ("qkv-first", "legacy"):
            raise ArgumentError(
                f"attention_order must be 'qkv-first' or 'legacy', got {self.attention_order!r}; "
                "consistency models use the first, guided-diffusion files the second"
            )

    def _check_channels(self) -> None:
        if self.channel_mult is None and self.image_size not in DEFAULT_MULT:
            raise ArgumentError(
                f"channel_mult must be given for image_size {self.image_size}; there are defaults "
                "only for 64, 128, 256, 512, and the 320-px MRI network uses (1, 1, 2, 2, 4, 4)"
            )
        if self.channel_mult is not None and not self.channel_mult:
            raise ArgumentError("channel_mult is empty; give one multiplier per level, e.g. (1, 2)")
        for m in self.channel_mult or ():
            if not isinstance(m, int | float) or not math.isfinite(m):
                raise ArgumentError(f"channel_mult must hold finite numbers, got {m!r}")
        if max(self.channels) > LARGEST:
            raise ArgumentError(
                f"model_channels × channel_mult must be at most {LARGEST}, got levels "
                f"{self.channels[:8]}"
            )
        if self.stride > LONGEST_STRIDE:
            raise ArgumentError(
                f"patch × 2^(levels − 1) must be at most {LONGEST_STRIDE}, got patch {self.patch} "
                f"and {len(self.channels)} levels"
            )
        unit = GROUPS if self.norm else 1
        if any(c < 1 or c % unit for c in self.channels) or self.model_channels % 2:
            raise ArgumentError(
                f"model_channels × channel_mult must be multiples of {unit} and model_channels "
                f"even, got {self.model_channels} and levels {self.channels}; "
                "norm=False removes the first condition"
            )
        if self.image_size is not None and self.image_size % self.stride:
            raise ArgumentError(
                f"image_size must be a multiple of patch × 2^(levels − 1) = {self.stride}, "
                f"got {self.image_size}; use fewer levels, or image_size=None for any size"
            )

    def _check_attention(self) -> None:
        if self.attention_resolutions is not None:
            if self.image_size is None or self.attention_ds is not None:
                raise ArgumentError(
                    f"attention_resolutions is {self.attention_resolutions} with image_size "
                    f"{self.image_size} and attention_ds {self.attention_ds}; it needs an image "
                    "size, and only one of the two may be given"
                )
            for r in self.attention_resolutions:
                _check_positive("attention_resolutions", r)
        if not set(self.attention_ds or ()) <= {2**i for i in range(len(self.channels))}:
            raise ArgumentError(
                f"attention_ds must hold powers of 2 up to {2 ** (len(self.channels) - 1)}, the "
                f"downsampling factors of the levels, got {self.attention_ds}"
            )
        attending = {self.channels[f.bit_length() - 1] for f in self.attention_factors}
        attending |= {self.channels[-1]} if self.middle_attention else set()
        for channels in attending:
            if channels % self.num_head_channels:
                raise ArgumentError(
                    f"num_head_channels must divide the {channels} channels of each level with "
                    f"attention, got {self.num_head_channels}; choose a divisor of {channels}"
                )


def _check_positive(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
        raise ArgumentError(f"{name} must be a positive integer up to {LARGEST}, got {value!r}")


def receptive_radius(config: UNetConfig) -> int | None:
    """Largest distance (in either axis) of pixels that an output depends on.

    None: it depends on all pixels, through a GroupNorm or attention. The interval [low, high] of
    needed pixels is traced from one output back to the input by the longest path, through the
    coarsest level, for each position of the output within the network's stride.
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


# network -----------------------------------------------------------------------------------------
class Encoder(nn.Module):
    """The first half of a U-Net: embedding of c_noise, encoder and middle."""

    def __init__(self, config: UNetConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or UNetConfig()
        self.in_channels, self.image_size, self.stride = c.in_channels, c.image_size, c.stride
        emb = 4 * c.model_channels
        self.time_embed = nn.Sequential(
            nn.Linear(c.model_channels, emb), nn.SiLU(), nn.Linear(emb, emb)
        )
        if c.num_classes is not None:
            self.label_emb = nn.Embedding(c.num_classes, emb)
        first = nn.Conv2d(c.in_channels * c.patch**2, c.channels[0], 3, padding=1)
        if not c.norm:
            keep_variance(first)
        self.input_blocks = nn.ModuleList([Stage([first])])
        skips, ch, top = [c.channels[0]], c.channels[0], len(c.channels) - 1

        for level, out in enumerate(c.channels):
            for _ in range(c.num_res_blocks):
                self.input_blocks.append(self._stage(ch, out, level))
                ch = out
                skips.append(ch)
            if level < top:
                down = self._block(ch, ch, halve) if c.resblock_updown else Downsample(ch)
                self.input_blocks.append(Stage([down]))
                skips.append(ch)

        attention = self._attention(ch) if c.middle_attention else nn.Identity()
        self.middle_block = Stage([self._block(ch, ch), attention, self._block(ch, ch)])
        self.skip_channels = tuple(skips)

    def encode(
        self, x: Tensor, c_noise: Tensor, labels: Tensor | None = None, added: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """The outputs of the encoder blocks (the skips) and of the middle, and the embedding.

        ``added`` is added to the output of the first convolution.
        """
        self._check(x, c_noise, labels)
        emb = self.time_embed(sinusoids(c_noise, self.config.model_channels).to(x.dtype))
        if labels is not None:
            emb = emb + self.label_emb(labels)
        first, *rest = self.input_blocks
        h = first(self.patches(x), emb)
        skips = [h if added is None else h + added]
        for stage in rest:
            skips.append(stage(skips[-1], emb))
        return skips, self.middle_block(skips[-1], emb), emb

    def patches(self, x: Tensor) -> Tensor:
        """patch × patch pixels as channels."""
        return F.pixel_unshuffle(x, self.config.patch) if self.config.patch > 1 else x

    def _stage(self, channels: int, out: int, level: int) -> Stage:
        stage = Stage([self._block(channels, out)])
        if 2**level in self.config.attention_factors:
            stage.append(self._attention(out))
        return stage

    def _block(
        self, channels: int, out: int, resample: Callable[[Tensor], Tensor] | None = None
    ) -> ResBlock:
        return ResBlock(
            channels,
            out,
            emb_channels=4 * self.config.model_channels,
            dropout=self.config.dropout,
            scale_shift=self.config.use_scale_shift_norm,
            norm=self.config.norm,
            resample=resample,
        )

    def _attention(self, channels: int) -> AttentionBlock:
        return AttentionBlock(
            channels,
            head_channels=self.config.num_head_channels,
            legacy=self.config.attention_order == "legacy",
            norm=self.config.norm,
        )

    def _check(self, x: Tensor, c_noise: Tensor, labels: Tensor | None) -> None:
        if (
            x.ndim != 4
            or x.shape[1] != self.in_channels
            or any(n % self.stride for n in x.shape[2:])
        ):
            raise ShapeError(
                f"x has shape {tuple(x.shape)}, this network takes (B, {self.in_channels}, H, W) "
                f"with sides in multiples of {self.stride}; a prior with this network pads them"
            )
        if c_noise.shape != x.shape[:1]:
            raise ShapeError(
                f"c_noise has shape {tuple(c_noise.shape)}, expected ({x.shape[0]},): "
                "one value per image"
            )
        classes = self.config.num_classes
        if (labels is None) != (classes is None):
            raise ArgumentError(
                f"labels is {labels}, but the network has num_classes = {classes}; "
                "give labels to class-conditional networks and only to them, "
                "for a prior with ConsistencyModel(lambda x, c_noise: network(x, c_noise, labels))"
            )


class UNet(Encoder):
    """F(x, c_noise), of the size of ``x`` with ``out_channels`` channels. ``c_noise``: ``(B,)``.

    Encoder, middle, decoder with concatenated skips. Dhariwal & Nichol (2021).
    """

    def __init__(self, config: UNetConfig | None = None) -> None:
        super().__init__(config)
        c, skips, ch = self.config, list(self.skip_channels), self.skip_channels[-1]
        self.output_blocks = nn.ModuleList()
        for level, out in reversed(list(enumerate(c.channels))):
            for i in range(c.num_res_blocks + 1):
                stage = self._stage(ch + skips.pop(), out, level)
                ch = out
                if level > 0 and i == c.num_res_blocks:
                    stage.append(self._block(ch, ch, double) if c.resblock_updown else Upsample(ch))
                self.output_blocks.append(stage)

        pixels = c.patch**2
        last = zeroed(nn.Conv2d(ch, (c.out_channels or c.in_channels) * pixels, 3, padding=1))
        self.out = nn.Sequential(group_norm(ch, c.norm), nn.SiLU(), last)

    def forward(self, x: Tensor, c_noise: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.decode(*self.encode(x, c_noise, labels))

    def decode(self, skips: list[Tensor], h: Tensor, emb: Tensor) -> Tensor:
        """The output from the results of the encoder; removes the ``skips`` from their list."""
        for stage in self.output_blocks:
            h = stage(torch.cat([h, skips.pop()], dim=1), emb)
        out: Tensor = self.out(h)
        return F.pixel_shuffle(out, self.config.patch) if self.config.patch > 1 else out
