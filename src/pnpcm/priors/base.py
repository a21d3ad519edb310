"""NetworkPrior, the base of priors with a network: levels per image, padding, dtype, scalings.

Four scalings connect a noisy image and the network, as functions of the noise level:
``f(v, σ) = c_skip v + c_out F(c_in v, c_noise)``, Karras et al. (2022) Table 1, with the boundary
condition of Song et al. (2023) for consistency models. The network depends on the noise level only
through these functions.

``c_noise`` is a convention of the code that trained the network, and the weights do not show it:

========== ================ ==========================================================
"openai"   250 ln σ         guided-diffusion, OpenAI's consistency models and their EDM
                            teachers, the PnP-CM authors' networks, all priors of pnpcm
"edm"      ln σ / 4         NVlabs' EDM networks, diffusers' EDM schedulers; Karras et
                            al. (2022), Table 1
========== ================ ==========================================================

The first is the second times 1000, the number of indices that a DDPM network distinguishes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pnpcm.core import ValueRange
from pnpcm.errors import ArgumentError, ShapeError

# scalings ----------------------------------------------------------------------------------------
C_NOISE = {"openai": 250.0, "edm": 0.25}
"""Conventions of the noise input of a network: c_noise = factor · ln σ."""


class Scalings(NamedTuple):
    c_skip: Tensor
    c_out: Tensor
    c_in: Tensor
    c_noise: Tensor


def check_c_noise(c_noise: str) -> str:
    """``c_noise`` if it is the name of a convention."""
    if c_noise not in C_NOISE:
        raise ArgumentError(
            f"c_noise must be 'openai' (250 ln σ) or 'edm' (ln σ / 4), got {c_noise!r}"
        )
    return c_noise


def check_sigma_data(sigma_data: float) -> float:
    """``sigma_data`` if it is positive and finite."""
    if not 0 < sigma_data < math.inf:
        raise ArgumentError(f"sigma_data must be positive and finite, got {sigma_data}")
    return float(sigma_data)


def edm_scalings(sigma: Tensor, sigma_data: float = 0.5, *, c_noise: str = "openai") -> Scalings:
    """c_skip = σ_d²/(σ² + σ_d²), c_out = σ σ_d/√(σ² + σ_d²)."""
    return consistency_scalings(sigma, sigma_data, sigma_min=0.0, c_noise=c_noise)


def consistency_scalings(
    sigma: Tensor, sigma_data: float = 0.5, sigma_min: float = 0.002, *, c_noise: str = "openai"
) -> Scalings:
    """c_skip = σ_d²/((σ − σ_min)² + σ_d²), c_out = σ_d (σ − σ_min)/√(σ² + σ_d²).

    The root of c_out holds σ, not σ − σ_min, as in the released networks. At σ_min: c_skip = 1
    and c_out = 0 exactly. c_noise = ``C_NOISE[c_noise]`` ln σ; the 1e-44 only avoids ln 0.
    """
    total = torch.sqrt(sigma**2 + sigma_data**2)
    return Scalings(
        c_skip=sigma_data**2 / ((sigma - sigma_min) ** 2 + sigma_data**2),
        c_out=sigma_data * (sigma - sigma_min) / total,
        c_in=1 / total,
        c_noise=C_NOISE[c_noise] * torch.log(sigma + 1e-44),
    )


# priors ------------------------------------------------------------------------------------------
Network = Callable[..., Tensor]
"""F(x, c_noise): an ``nn.Module``, or any function without weights."""


def levels(sigma: float | Tensor, x: Tensor) -> Tensor:
    """Noise level as one float per image, ``(B,)``, on the device of ``x``."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    level = torch.as_tensor(sigma, dtype=dtype, device=x.device).reshape(-1)
    if level.numel() not in (1, x.shape[0]):
        raise ShapeError(
            f"sigma has {level.numel()} values for a batch of {x.shape[0]}; "
            "give one number or one per image"
        )
    if not bool((level >= 0).all()):
        raise ArgumentError(f"sigma must be ≥ 0, got {level.min():g}")
    return level.expand(x.shape[0])


def check_image(x: Tensor) -> None:
    """Refuse what is not a batch of real images."""
    if x.ndim != 4 or not x.is_floating_point():
        raise ShapeError(
            f"x has shape {tuple(x.shape)} and dtype {x.dtype}, a prior takes real (B, C, H, W); "
            "complex images are two channels"
        )


class NetworkPrior(nn.Module):
    """A bare network F(x, c_noise) with the interface of a prior.

    Pads images to the network's stride (by reflection where the image is large enough and the
    network's ``padding`` is not "replicate", else by replication) and crops again; casts float64
    problems to the network's dtype and back. Images must have the network's ``in_channels`` and
    ``image_size``, if it has these attributes.
    """

    nfe_per_call = 1

    def __init__(
        self,
        network: Network,
        *,
        sigma_min: float,
        sigma_max: float,
        value_range: ValueRange = (-1.0, 1.0),
        any_size: bool = False,
    ) -> None:
        super().__init__()
        if not callable(network):
            raise ArgumentError(
                f"network is a {type(network).__name__}, expected a module or function "
                "(x, c_noise) → image"
            )
        if not 0 <= sigma_min < sigma_max < math.inf:
            raise ArgumentError(
                f"sigma_min must lie in [0, sigma_max) and sigma_max be finite, got {sigma_min} "
                f"and {sigma_max}"
            )
        if not -math.inf < value_range[0] < value_range[1] < math.inf:
            raise ArgumentError(f"value_range must be (low, high), got {value_range}")
        self.network = network
        self.sigma_min, self.sigma_max = float(sigma_min), float(sigma_max)
        self.value_range: ValueRange = (float(value_range[0]), float(value_range[1]))
        self.any_size = any_size
        self.info: dict[str, Any] = {}  # metadata of its file: licence, data, conventions

    def run_network(self, x: Tensor, c_noise: Tensor, **images: Tensor) -> Tensor:
        """F(x, c_noise) at the size and in the dtype of ``x``; ``images``: further inputs."""
        self._check(x)
        stride = getattr(self.network, "stride", 1)
        stride = stride if isinstance(stride, int) else 1
        dtype = next((p.dtype for p in self.parameters()), x.dtype)
        padding = padding_of(self.network)
        kernel = next((p for p in self.parameters() if p.ndim == 4 and p.shape[-1] > 1), None)
        layout = torch.preserve_format
        if kernel is not None and kernel.is_contiguous(memory_format=torch.channels_last):
            layout = torch.channels_last  # of loaded files
        padded, *beside = (
            pad_to_multiple(image, stride, padding).to(dtype, memory_format=layout)
            for image in (x, *images.values())
        )
        level = c_noise.float() if dtype != torch.float64 else c_noise  # half would round it
        out = self.network(padded, level, **dict(zip(images, beside, strict=True)))
        if out.ndim != 4 or len(out) != len(x) or out.shape[-2:] != padded.shape[-2:]:
            raise ShapeError(
                f"network turned {tuple(padded.shape)} into {tuple(out.shape)}; it must keep batch "
                "and size"
            )
        if out.shape[1] < x.shape[1]:
            raise ShapeError(
                f"network returned {out.shape[1]} channels for images of {x.shape[1]}; "
                "choose a network for this kind of image"
            )
        return out[..., : x.shape[-2], : x.shape[-1]].to(x.dtype).contiguous()

    def _check(self, x: Tensor) -> None:
        channels = getattr(self.network, "in_channels", None)
        size = getattr(self.network, "image_size", None)
        check_image(x)
        if channels is not None and x.shape[1] != channels:
            raise ShapeError(
                f"x has {x.shape[1]} channels, this prior was trained on {channels}; "
                "choose a prior for this kind of image"
            )
        if size is not None and not self.any_size and tuple(x.shape[-2:]) != (size, size):
            raise ShapeError(
                f"x is {x.shape[-2]}×{x.shape[-1]}, this network was trained on {size}×{size} "
                "images; crop or resize, or set prior.any_size = True to try other sizes"
            )


def padding_of(network: object) -> str:
    """Padding of images for ``network``: its own attribute if "replicate", else "reflect"."""
    padding = getattr(network, "padding", None)
    return padding if padding == "replicate" else "reflect"


def pad_to_multiple(x: Tensor, stride: int, padding: str = "reflect") -> Tensor:
    """``x`` padded at the right and lower sides to multiples of ``stride``."""
    height, width = x.shape[-2:]
    bottom = math.ceil(height / stride) * stride - height
    right = math.ceil(width / stride) * stride - width
    if bottom == right == 0:
        return x
    fits = bottom < height and right < width  # else the image is too small to reflect
    return F.pad(x, (0, right, 0, bottom), mode=padding if fits else "replicate")
