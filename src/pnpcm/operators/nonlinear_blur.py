"""Nonlinear blur: camera motion blur in linear light, or a network trained on such blur."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.core import Generators
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.networks.kernel_wizard import REDUCTION, KernelWizard
from pnpcm.operators.base import OperatorBase
from pnpcm.operators.blur import motion_kernel
from pnpcm.transforms import fast_length

# sRGB with the threshold at which value and slope of line and power agree exactly: t = a/(γ − 1).
# The rounded threshold of the standard has a kink.
_GAMMA, _OFFSET = 2.4, 0.055
_TOE = _OFFSET / (_GAMMA - 1)
_SLOPE = ((_TOE + _OFFSET) / (1 + _OFFSET)) ** _GAMMA / _TOE

_CODE_SEED, _CODE_SCALE = 8, 1.2


class NonlinearBlur(OperatorBase):
    r"""Camera blur, which is linear in light and not in pixel values.

    .. math:: A(x) = 2\, g^{-1}\!\big(s(e \cdot k * g(\tfrac{x+1}{2}))\big) - 1, \qquad
        s(l) = l - \tau \log\big(1 + e^{(l - 1)/\tau}\big)

    with g the sRGB curve from pixel values to light (continued by its tangent below 0, so values
    outside [-1, 1] are fine), k a motion kernel, e the exposure and s a sensor that saturates
    softly at 1. Borders are replicated. Any size and number of channels.

    With ``network``: A(x) = 2 G((x+1)/2, κ) − 1, no clamp; sides are multiples of 128.

    network: a :class:`~pnpcm.networks.kernel_wizard.KernelWizard`; its weights stay frozen.
    code: κ, ``(1 | B, 512, H/128, W/128)``; default: the fixed draw of the paper's code.
    kernel: 2-D, ≥ 0, divided by its sum (the gain is ``exposure``); convolved, centre size//2.
    length, angle: of the default motion kernel, pixels and degrees counter-clockwise.
    exposure: e > 0; above 1 highlights saturate.
    softness: τ > 0 in units of white; light below 1 − 10 τ is not changed.

    Source: Tran et al., CVPR 2021 (network); IEC 61966-2-1 (g).
    """

    def __init__(
        self,
        network: KernelWizard | None = None,
        code: Tensor | None = None,
        *,
        kernel: Any = None,
        length: float = 15.0,
        angle: float = 30.0,
        exposure: float = 1.0,
        softness: float = 0.05,
    ) -> None:
        super().__init__()
        if network is None and code is not None:
            raise ArgumentError(
                "code is given without a network that reads it; give network=KernelWizard or "
                "use NonlinearBlur.from_checkpoint(path, code)"
            )
        if network is not None and kernel is not None:
            raise ArgumentError(
                "kernel and network are both given, but the network has its own blur; "
                "give one of them"
            )
        self.exposure = _positive("exposure", exposure)
        self.softness = _positive("softness", softness)
        self.kernel = motion_kernel(length, angle) if kernel is None else _checked_kernel(kernel)
        self.network = None if network is None else _frozen(network)
        self.code = None if code is None or network is None else _checked_code(code, network)

    @classmethod
    def from_checkpoint(cls, path: str | Path, code: Tensor | None = None) -> NonlinearBlur:
        """The network of the paper: ``GOPRO_wVAE.pth`` of blur-kernel-space-exploring."""
        return cls(KernelWizard.from_checkpoint(path), code)

    @property
    def preset_options(self) -> dict[str, Any]:
        return {} if self.network is None else {"network": "kernel-wizard"}

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[NonlinearBlur, Tensor]:
        x = 2 * torch.rand((batch, 3, *size), generator=generator) - 1
        return cls(length=5.0), x

    def _A(self, x: Tensor) -> Tensor:
        v = (x + 1) / 2
        blurred = self._camera(v) if self.network is None else self._apply(self.network, v)
        return 2 * blurred - 1

    def _camera(self, v: Tensor) -> Tensor:
        light = self.exposure * self._blur(to_light(v))
        light = light - F.softplus(light - 1, beta=1 / self.softness)
        return from_light(light)

    def _blur(self, light: Tensor) -> Tensor:
        """k ∗ light by FFT, cropped to the values without wrap-around."""
        kernel = self._like("kernel", light)
        (kh, kw), (height, width) = kernel.shape, light.shape[-2:]
        top, left = (kh - 1) // 2, (kw - 1) // 2
        grown = F.pad(light, (left, kw - 1 - left, top, kh - 1 - top), mode="replicate")
        size = fast_length(height + kh - 1), fast_length(width + kw - 1)
        spectrum = torch.fft.rfft2(grown, s=size) * torch.fft.rfft2(kernel, s=size)
        full: Tensor = torch.fft.irfft2(spectrum, s=size)
        return full[..., kh - 1 : kh - 1 + height, kw - 1 : kw - 1 + width]

    def _apply(self, network: KernelWizard, v: Tensor) -> Tensor:
        """G(v, κ) in the precision of the weights."""
        weight = next(network.parameters())
        code = self.code
        if code is None:
            code = default_code(network.code_channels, *_code_size(v))
        out: Tensor = network(v.to(weight.dtype), code.to(weight))
        return out.to(v.dtype)

    def approx_inverse(self, y: Tensor) -> Tensor:
        """``y``, which is an image: the approximate inverse for methods that need one."""
        return y

    def z_start(self, y: Tensor, generator: Generators | None = None) -> Tensor:
        """The start of the first data step: the blurred image. Draws no random numbers."""
        return y.clone()

    def _check_x(self, x: Tensor, name: str = "x") -> None:
        super()._check_x(x, name)
        if 0 in x.shape:
            raise ShapeError(f"{name} has shape {tuple(x.shape)}, expected at least one pixel")
        if self.network is None:
            return
        channels = self.network.channels
        if x.shape[1] != channels or x.shape[-2] % REDUCTION or x.shape[-1] % REDUCTION:
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, the network takes (B, {channels}, H, W) with "
                f"sides that are multiples of {REDUCTION}; pad or crop the image"
            )
        if self.code is None:
            return
        batch, _, *size = self.code.shape
        if tuple(size) != _code_size(x) or batch not in (1, x.shape[0]):
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, which needs a code (1 or {x.shape[0]}, "
                f"{self.network.code_channels}, {', '.join(map(str, _code_size(x)))}), but code "
                f"has shape {tuple(self.code.shape)}; leave code out for the default one"
            )


def to_light(v: Tensor) -> Tensor:
    """g(v): pixel value 0…1 to linear light, smooth, increasing and finite on all numbers."""
    power = ((v.clamp_min(_TOE) + _OFFSET) / (1 + _OFFSET)) ** _GAMMA
    return torch.where(v > _TOE, power, _SLOPE * v)


def from_light(light: Tensor) -> Tensor:
    """g⁻¹: linear light to pixel value, the camera's response."""
    toe = _SLOPE * _TOE
    power = (1 + _OFFSET) * light.clamp_min(toe) ** (1 / _GAMMA) - _OFFSET
    return torch.where(light > toe, power, light / _SLOPE)


def default_code(channels: int, height: int, width: int) -> Tensor:
    """κ of the paper's code, 1.2 n with n standard normal from seed 8, the same for all images."""
    generator = torch.Generator().manual_seed(_CODE_SEED)
    return _CODE_SCALE * torch.randn((1, channels, height, width), generator=generator)


def _code_size(x: Tensor) -> tuple[int, int]:
    return x.shape[-2] // REDUCTION, x.shape[-1] // REDUCTION


def _frozen(network: KernelWizard) -> KernelWizard:
    """A copy of the network without gradients for its weights."""
    if not isinstance(network, KernelWizard):
        raise ArgumentError(
            f"network is a {type(network).__name__}, expected pnpcm.networks.KernelWizard; "
            "NonlinearBlur.from_checkpoint(path) builds one"
        )
    if any(p.requires_grad for p in network.parameters()):
        network = copy.deepcopy(network).requires_grad_(False)
    return network


def _checked_code(code: Tensor, network: KernelWizard) -> Tensor:
    if code.ndim != 4 or code.shape[1] != network.code_channels:
        raise ShapeError(
            f"code has shape {tuple(code.shape)}, expected (1 or B, {network.code_channels}, "
            f"H/{REDUCTION}, W/{REDUCTION}); leave code out for the default one"
        )
    return code.detach().clone()


def _checked_kernel(kernel: Any) -> Tensor:
    values = torch.as_tensor(kernel, dtype=torch.float64).detach()
    if values.ndim != 2 or values.numel() == 0:
        raise ShapeError(
            f"kernel has shape {tuple(values.shape)}, expected 2-D, one for all channels; "
            "motion_kernel(length, angle) makes one"
        )
    if not bool((values >= 0).all() & values.isfinite().all()) or not bool(values.sum() > 0):
        raise ArgumentError(
            f"kernel must be ≥ 0 and finite with a positive sum, got values from "
            f"{values.min():g} to {values.max():g}; light is never negative, use Blur for others"
        )
    return values / values.sum()


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"{name} is {value}, expected a positive number; see NonlinearBlur")
    return float(value)
