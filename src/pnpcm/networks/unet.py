"""U-Net of the guided-diffusion family, with options for smaller variants.

With the default options its state dict has the names and shapes of the ``.pt`` files of
guided-diffusion, of OpenAI's consistency models and of the PnP-CM authors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.networks.blocks import (
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
from pnpcm.networks.config import UNetConfig


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
