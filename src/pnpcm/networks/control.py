"""ControlNet: a trained copy of a U-Net's encoder that conditions the frozen U-Net on a hint."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from pnpcm.errors import ArgumentError
from pnpcm.networks.blocks import zeroed
from pnpcm.networks.unet import Encoder, UNet, UNetConfig


class ControlNet(Encoder):
    """From (x, c_noise, hint) to one control per skip of a U-Net, and one for its middle.

    Embedding, encoder and middle are as in the U-Net; the hint, an image like x, is added to the
    first convolution through a 3×3 one; each control has a 1×1 convolution. These additional
    convolutions start at zero, so that a new ControlNet has no effect. Zhang et al. (2023); as in
    CoSIGN, the hint has one convolution instead of eight.
    """

    def __init__(self, config: UNetConfig) -> None:
        if config.num_classes is not None:
            raise ArgumentError(
                f"num_classes is {config.num_classes}; a ControlNet needs a network without labels"
            )
        super().__init__(config)
        channels, middle = self.skip_channels, self.skip_channels[-1]
        inputs = config.in_channels * config.patch**2
        self.hint_conv = zeroed(nn.Conv2d(inputs, channels[0], 3, padding=1))
        self.skip_convs = nn.ModuleList(zeroed(nn.Conv2d(c, c, 1)) for c in channels)
        self.middle_conv = zeroed(nn.Conv2d(middle, middle, 1))

    @classmethod
    def beside(cls, network: UNet) -> Self:
        """A ControlNet with the weights of ``network``, on its device and in its dtype."""
        with torch.device("meta"):  # no random numbers for weights that are replaced
            control = cls(network.config)
        given, some = network.state_dict(), next(network.parameters())
        new = {
            name: given[name].detach().clone() if name in given else torch.zeros(t.shape)
            for name, t in control.state_dict().items()
        }
        control.load_state_dict(new, assign=True)
        return control.to(some.device, some.dtype).requires_grad_()

    def forward(self, x: Tensor, c_noise: Tensor, hint: Tensor) -> tuple[list[Tensor], Tensor]:
        skips, middle, _ = self.encode(x, c_noise, added=self.hint_conv(self.patches(hint)))
        controls = [conv(skip) for conv, skip in zip(self.skip_convs, skips, strict=True)]
        return controls, self.middle_conv(middle)


class ControlledUNet(nn.Module):
    """F(x, c_noise, hint): a frozen U-Net whose decoder gets the outputs of a ControlNet.

    The middle becomes middle + control, each skip skip + control. The U-Net is not trained;
    gradients reach the ControlNet through its decoder.
    """

    def __init__(self, network: UNet, control: ControlNet) -> None:
        super().__init__()
        self.frozen, self.control = network.requires_grad_(False), control
        self.config, self.stride = network.config, network.stride
        self.in_channels, self.image_size = network.in_channels, network.image_size

    def forward(self, x: Tensor, c_noise: Tensor, hint: Tensor | None = None) -> Tensor:
        if hint is None:
            alone: Tensor = self.frozen(x, c_noise)
            return alone
        skip_controls, middle_control = self.control(x, c_noise, hint)
        skips, middle, emb = self.frozen.encode(x, c_noise)  # in training without a graph
        skips = [skip + control for skip, control in zip(skips, skip_controls, strict=True)]
        return self.frozen.decode(skips, middle + middle_control, emb)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the ControlNet; the frozen part stays in evaluation mode."""
        super().train(mode)
        self.frozen.eval()
        return self
