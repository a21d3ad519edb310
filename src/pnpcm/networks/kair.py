"""Published denoisers in the layout of KAIR: DRUNet, FFDNet and DnCNN, for images in [0, 1].

Parameter names and shapes are those of the published ``.pth`` files (Kai Zhang, MIT licence), so
that these load strictly. A network is a function of an image and of σ, one number per image on the
same [0, 1] scale, without padding: sides must be multiples of its ``stride``. ``padding`` is the
padding of the published code, replication, which the prior applies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pnpcm.core import Config
from pnpcm.errors import ArgumentError, CheckpointError, ShapeError

ARCHITECTURES = ("drunet", "ffdnet", "dncnn")
IRCNN_DEPTH = 7
LARGEST = 2**20
"""Largest number of channels or layers that is taken for one."""


@dataclass(frozen=True)
class DenoiserConfig(Config):
    """Architecture of a denoiser. Default: the published DRUNet for colour images.

    ``widths``: channels of each level, finest first; a chain (FFDNet, DnCNN) has one. ``depth``:
    residual blocks of each level of DRUNet, else the number of convolutions.
    """

    architecture: str = "drunet"
    in_channels: int = 3
    widths: tuple[int, ...] = (64, 128, 256, 512)
    depth: int = 4

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ArgumentError(
                f"architecture must be one of {', '.join(ARCHITECTURES)}, got {self.architecture!r}"
            )
        object.__setattr__(self, "widths", tuple(self.widths))  # JSON has no tuples
        chain = self.architecture != "drunet"
        if len(self.widths) != (1 if chain else 4):
            raise ArgumentError(
                f"widths must have {1 if chain else 4} entries for {self.architecture}, got "
                f"{self.widths}"
            )
        for name, values, least in (
            ("in_channels", (self.in_channels,), 1),
            ("widths", self.widths, 1),
            ("depth", (self.depth,), 2 if chain else 1),
        ):
            whole = (isinstance(v, int) and not isinstance(v, bool) for v in values)
            if not all(whole) or min(values) < least or max(values) > LARGEST:
                raise ArgumentError(
                    f"{name} must be integers from {least} to {LARGEST}, got {values}"
                )

    @property
    def stages(self) -> int:
        """Number of residual blocks (DRUNet) or convolutions, each with at least one tensor."""
        return 7 * self.depth if self.architecture == "drunet" else self.depth

    @property
    def image_size(self) -> None:
        """Images of any size."""
        return None

    @property
    def stride(self) -> int:
        """Sides of an image must be multiples of this."""
        return {"drunet": 8, "ffdnet": 2, "dncnn": 1}[self.architecture]

    @property
    def receptive_radius(self) -> int:
        """Largest distance (in either axis) of pixels that an output depends on."""
        if self.architecture != "drunet":
            return self.depth * self.stride + self.stride - 1
        reach, radius = 2 * self.depth, 0  # of the blocks of one level
        for position in range(self.stride):
            low, high = position - 1, position + 1  # tail
            for _ in range(3):  # up: blocks, then transposed 2×2 convolution
                low, high = (low - reach) // 2, (high + reach) // 2
            low, high = low - reach, high + reach  # body
            for _ in range(3):  # down: 2×2 convolution of stride 2, then blocks
                low, high = 2 * low - reach, 2 * high + 1 + reach
            radius = max(radius, position - low + 1, high + 1 - position)  # head
        return radius


class Denoiser(nn.Module):
    """Base class of the three: ``network(x, sigma)`` and the attributes that a prior reads."""

    padding = "replicate"

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        self.config = config
        self.in_channels, self.stride = config.in_channels, config.stride

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        if any(n % self.stride for n in x.shape[-2:]):
            raise ShapeError(
                f"x is {x.shape[-2]}×{x.shape[-1]}, sides must be multiples of {self.stride}; "
                "priors.DenoiserPrior pads and crops"
            )
        return self.denoise(x, sigma)

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        raise NotImplementedError


class DRUNet(Denoiser):
    """U-Net of residual blocks without biases; skips are added. Zhang et al. (TPAMI 2021).

    The level map is the last channel of the input, and the output is the image. Trained for σ from
    0 to 50/255.
    """

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__(config)
        w1, w2, w3, w4 = config.widths
        self.m_head = _conv(config.in_channels + 1, w1, bias=False)
        self.m_down1, self.m_down2, self.m_down3 = (
            nn.Sequential(*self._blocks(fine), nn.Conv2d(fine, coarse, 2, stride=2, bias=False))
            for fine, coarse in ((w1, w2), (w2, w3), (w3, w4))
        )
        self.m_body = nn.Sequential(*self._blocks(w4))
        self.m_up3, self.m_up2, self.m_up1 = (
            nn.Sequential(
                nn.ConvTranspose2d(coarse, fine, 2, stride=2, bias=False), *self._blocks(fine)
            )
            for fine, coarse in ((w3, w4), (w2, w3), (w1, w2))
        )
        self.m_tail = _conv(w1, config.in_channels, bias=False)

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        head = self.m_head(_with_level(x, sigma))
        down1 = self.m_down1(head)
        down2 = self.m_down2(down1)
        down3 = self.m_down3(down2)
        h = self.m_up3(self.m_body(down3) + down3)
        h = self.m_up2(h + down2)
        h = self.m_up1(h + down1)
        out: Tensor = self.m_tail(h + head)
        return out

    def _blocks(self, width: int) -> list[nn.Module]:
        return [_Residual(width) for _ in range(self.config.depth)]


class FFDNet(Denoiser):
    """Convolutions on 2×2 pixels as channels and a level map. Zhang et al. (TIP 2018).

    The output is the image. Trained for σ from 0 to 75/255.
    """

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__(config)
        self.model = _chain(4 * config.in_channels + 1, 4 * config.in_channels, config)

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        return F.pixel_shuffle(self.model(_with_level(F.pixel_unshuffle(x, 2), sigma)), 2)


class DnCNN(Denoiser):
    """x − R(x) with a chain R of convolutions. Zhang et al. (TIP 2017).

    There is no input for the level: ``sigma`` is ignored. A file was trained for one level, or
    (blind) for any up to 55/255.
    """

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__(config)
        self.model = _chain(config.in_channels, config.in_channels, config)

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        out: Tensor = x - self.model(x)
        return out


def build_denoiser(config: DenoiserConfig) -> Denoiser:
    """The network of ``config``, with weights as PyTorch initialises them."""
    return {"drunet": DRUNet, "ffdnet": FFDNet, "dncnn": DnCNN}[config.architecture](config)


def infer_denoiser(state_dict: Mapping[str, Tensor]) -> DenoiserConfig | None:
    """The architecture of a state dict in KAIR's layout; None if it has another layout."""
    if "m_head.weight" in state_dict:
        return _infer_drunet(state_dict)
    if "model.0.weight" in state_dict and all(
        re.fullmatch(r"model\.\d+\.\w+", name) for name in state_dict
    ):
        return _infer_chain(state_dict)
    return None


def _infer_drunet(state: Mapping[str, Tensor]) -> DenoiserConfig:
    depth = len({name.split(".")[1] for name in state if name.startswith("m_body.")})
    names = ["m_head.weight", *(f"m_down{level}.{depth}.weight" for level in (1, 2, 3))]
    missing = [name for name in names if name not in state]
    if missing:
        raise CheckpointError(
            f"these weights begin like DRUNet's, but {', '.join(missing)} is missing; is it "
            "drunet_color.pth or drunet_gray.pth?"
        )
    widths = tuple(state[name].shape[0] for name in names)
    return DenoiserConfig("drunet", state["m_head.weight"].shape[1] - 1, widths, depth)


def _infer_chain(state: Mapping[str, Tensor]) -> DenoiserConfig:
    if any("running" in name for name in state):
        raise CheckpointError(
            "these weights are a DnCNN with batch normalisation; merge it into the convolutions "
            "first, as in the published files"
        )
    depth = sum(name.endswith(".weight") for name in state)
    first, last = state["model.0.weight"], state.get(f"model.{2 * depth - 2}.weight")
    if last is not None and first.ndim == last.ndim == 4:
        width, inputs, outputs = first.shape[0], first.shape[1], last.shape[0]
        if inputs == outputs and depth != IRCNN_DEPTH:
            return DenoiserConfig("dncnn", outputs, (width,), depth)
        if outputs % 4 == 0 and inputs == outputs + 1:
            return DenoiserConfig("ffdnet", outputs // 4, (width,), depth)
    raise CheckpointError(
        "these weights are a chain of convolutions, but neither DnCNN nor FFDNet in KAIR's layout; "
        "its other networks (FDnCNN, IRCNN, SRMD) are not read: wrap them with "
        "pnpcm.interop.from_denoiser"
    )


class _Residual(nn.Module):
    """x + conv₂(relu(conv₁ x))"""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second = (_conv(width, width, bias=False) for _ in range(2))
        self.res = nn.Sequential(first, nn.ReLU(), second)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.res(x)
        return out


def _chain(inputs: int, outputs: int, config: DenoiserConfig) -> nn.Sequential:
    """``depth`` convolutions with biases, ReLU between them."""
    (width,) = config.widths
    layers: list[nn.Module] = [_conv(inputs, width)]
    for _ in range(config.depth - 2):
        layers += [nn.ReLU(), _conv(width, width)]
    return nn.Sequential(*layers, nn.ReLU(), _conv(width, outputs))


def _conv(inputs: int, outputs: int, *, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)


def _with_level(x: Tensor, sigma: Tensor) -> Tensor:
    """``x`` and σ as a last channel that is constant over each image."""
    level = sigma.to(x.dtype).reshape(-1, 1, 1, 1).expand(len(x), 1, *x.shape[-2:])
    return torch.cat([x, level], dim=1)
