"""UNetConfig: architecture of a U-Net, with guided-diffusion's field names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.networks.blocks import GROUPS

DEFAULT_MULT: dict[int, tuple[float, ...]] = {
    512: (0.5, 1, 1, 2, 2, 4, 4),
    256: (1, 1, 2, 2, 4, 4),
    128: (1, 1, 2, 3, 4),
    64: (1, 2, 3, 4),
}


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
    def receptive_radius(self) -> int | None:
        """Largest distance (per axis) of pixels that an output depends on; None: unbounded."""
        return receptive_radius(self)

    def _check_numbers(self) -> None:
        for name in ("in_channels", "model_channels", "num_res_blocks", "num_head_channels"):
            _check_positive(name, getattr(self, name))
        for name in ("image_size", "out_channels", "num_classes", "patch"):
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
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {value!r}")


if TYPE_CHECKING:
    from pnpcm.networks.config import UNetConfig


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
