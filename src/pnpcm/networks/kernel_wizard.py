"""KernelWizard: a network that blurs an image as a code specifies (blur-kernel-space-exploring).

The parts and their names are those of the published checkpoints (Tran et al., Explore Image
Deblurring via Encoded Blur Kernel Space, CVPR 2021), so that these load strictly. Blurring
uses the three parts below; the fourth, the kernel extractor, computes a code from an image pair.

    features ──▶ adapter(·, code) ──▶ reconstruction ──▶ + image
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pnpcm.errors import CheckpointError
from pnpcm.io.reading import reading
from pnpcm.io.tensors import check_held, load_plain

REDUCTION = 128
"""Ratio of image side to code side: 4 by the features, 32 by the adapter's five levels."""


class KernelWizard(nn.Module):
    r"""G(v, κ) = v + R(U(E(v), κ)) for images v in [0, 1].

    The code κ is ``(B, 8 width, H/128, W/128)``.
    E halves the size twice, U is a U-Net with κ concatenated at its innermost level, R doubles the
    size twice. The published network has ``width`` 64. No layer uses batch or image statistics.
    """

    def __init__(self, width: int = 64, *, channels: int = 3) -> None:
        super().__init__()
        self.width = width
        self.channels = channels
        self.code_channels = 8 * width
        leaky = nn.LeakyReLU(0.1)
        self.feature_extractor = nn.Sequential(
            _conv(channels, width),
            leaky,
            _conv(width, width, stride=2),
            leaky,
            _conv(width, width, stride=2),
            leaky,
            *(_Residual(width) for _ in range(10)),
        )
        self.kernel_extractor = _Extractor(width)
        self.adapter = _Adapter(width)
        self.recon_trunk = nn.Sequential(
            *(_Residual(width) for _ in range(20)),
            _conv(width, 4 * width),
            nn.PixelShuffle(2),
            leaky,
            _conv(width, 4 * width),
            nn.PixelShuffle(2),
            leaky,
            _conv(width, width),
            leaky,
            _conv(width, channels),
        )

    def forward(self, v: Tensor, code: Tensor) -> Tensor:
        """The blurred image of ``v``; ``code`` has one entry per image, or one for all."""
        code = code.expand(v.shape[0], -1, -1, -1)
        out: Tensor = v + self.recon_trunk(self.adapter(self.feature_extractor(v), code))
        return out

    def encode(self, sharp: Tensor, blurred: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the code that takes ``sharp`` to ``blurred``."""
        pair = torch.cat((self.feature_extractor(sharp), self.feature_extractor(blurred)), 1)
        mean, log_variance = self.kernel_extractor(pair).chunk(2, 1)
        return mean, log_variance

    @classmethod
    def from_checkpoint(cls, path: str | Path) -> KernelWizard:
        """The network of a published ``.pth`` file, on the CPU, frozen. Loads tensors only."""
        state = _read_state(Path(path))
        first = state.get("feature_extractor.0.weight")
        if first is None or first.ndim != 4:
            raise CheckpointError(
                f"path is {str(path)!r}, expected a KernelWizard checkpoint with "
                "feature_extractor.0.weight (3×3 convolution); give GOPRO_wVAE.pth of "
                "blur-kernel-space-exploring"
            )
        with torch.device("meta"):  # the tensors of the file become the weights, without a copy
            network = cls(first.shape[0], channels=first.shape[1])
        try:
            network.load_state_dict(state, strict=True, assign=True)
        except RuntimeError as error:
            raise CheckpointError(
                f"path is {str(path)!r}, which does not fit KernelWizard(width={network.width}): "
                f"{error}; the file with VAE is needed, GOPRO_wVAE.pth"
            ) from error
        return network.requires_grad_(False).eval()


class _Residual(nn.Module):
    """x + conv₂(relu(conv₁ x))"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = _conv(width, width)
        self.conv2 = _conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.conv2(self.conv1(x).relu())
        return out


class _Adapter(nn.Module):
    """Five levels of the U-Net: width, 1, 2, 4, 8, 8 times."""

    def __init__(self, width: int) -> None:
        super().__init__()
        level = _Level(8 * width, 8 * width, None)
        for multiple in (4, 2, 1):
            level = _Level(multiple * width, 2 * multiple * width, level)
        self.model = _Outermost(width, level)

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        out: Tensor = self.model(x, code)
        return out


class _Level(nn.Module):
    """One level: [ up(inside(down a), code), a ] with a = leaky(x); the innermost level takes κ."""

    def __init__(self, outer: int, inner: int, submodule: _Level | None) -> None:
        super().__init__()
        down = nn.Conv2d(outer, inner, 4, stride=2, padding=1, bias=False)
        up = nn.ConvTranspose2d(2 * inner, outer, 4, stride=2, padding=1, bias=False)
        self.down = nn.Sequential(nn.LeakyReLU(0.2), down)
        self.submodule = submodule
        self.up = nn.Sequential(nn.ReLU(), up)

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        activated = self.down[0](x)
        inside = self.down[1](activated)
        if self.submodule is None:
            inside = torch.cat((inside, code), 1)
        else:
            inside = self.submodule(inside, code)
        return torch.cat((self.up(inside), activated), 1)


class _Outermost(nn.Module):
    """The outermost level: no activation before it, no skip, tanh after it."""

    def __init__(self, width: int, submodule: _Level) -> None:
        super().__init__()
        up = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.down = nn.Sequential(nn.Conv2d(width, width, 4, stride=2, padding=1, bias=False))
        self.submodule = submodule
        self.up = nn.Sequential(nn.ReLU(), up, nn.Tanh())

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        out: Tensor = self.up(self.submodule(self.down(x), code))
        return out


class _Extractor(nn.Module):
    """Features of a sharp and a blurred image to mean and log-variance of their code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        top = 16 * width
        first = nn.Conv2d(2 * width, width, 7, bias=False)
        layers: list[nn.Module] = [nn.ReflectionPad2d(3), first, nn.Identity(), nn.ReLU()]
        for level in range(5):
            inputs, outputs = (min(2**n * width, top) for n in (level, level + 1))
            down = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
            # the checkpoints number a normalisation that has no effect
            layers += [down, nn.Identity(), nn.ReLU()]
        self.model = nn.Sequential(*layers, *(_ExtractorResidual(top) for _ in range(4)))

    def forward(self, pair: Tensor) -> Tensor:
        out: Tensor = self.model(pair)
        return out


class _ExtractorResidual(nn.Module):
    """x + conv(relu(conv x)) with mirrored borders."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second = (nn.Conv2d(width, width, 3, bias=False) for _ in range(2))
        mirror = nn.ReflectionPad2d(1)
        self.conv_block = nn.Sequential(
            mirror, first, nn.Identity(), nn.ReLU(), mirror, second, nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.conv_block(x)
        return out


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)


def _read_state(path: Path) -> dict[str, Tensor]:
    """Name → tensor of a checkpoint, without the prefix of multi-GPU training."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"path is {str(path)!r}, which is not a file")
    with reading(path, "a file of tensors written by torch.save", error=CheckpointError):
        state: Any = load_plain(path)
    if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
        raise CheckpointError(
            f"path is {str(path)!r}, which holds {type(state).__name__}, expected a plain "
            "dictionary from names to tensors; save the network's state_dict()"
        )
    check_held(path, state)
    return {str(name).removeprefix("module."): tensor for name, tensor in state.items()}
