"""Linear tasks: denoise, inpaint, superres, deblur."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.arguments import check_name
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators import (
    Blur,
    Compose,
    Crop,
    GaussianBlur,
    Inpainting,
    NonlinearBlur,
    OperatorBase,
    SuperResolution,
)
from pnpcm.operators.blur import WIDEST_KERNEL, gaussian_kernel, motion_kernel
from pnpcm.operators.crop import canvas_for
from pnpcm.problems.task import Problem, Shape, Task, conditioning

LARGEST_FACTOR = 64


@dataclass(frozen=True, eq=False)
class Denoise(Task):
    """y is the image with additive noise."""

    name = "denoise"

    @property
    def operator_name(self) -> str:
        return "inpainting"

    @property
    def options(self) -> dict[str, Any]:
        return {"missing": 0.0}

    def operator(self, image_shape: Shape) -> OperatorBase:
        return Inpainting(torch.ones(image_shape[1:]))

    def conditioning(self, problem: Problem) -> tuple[float, float]:
        return 1.0, 1.0


@dataclass(frozen=True, eq=False)
class Inpaint(Task):
    """Pixels are missing. ``mask`` (1 = kept), or ``missing``: share of pixels to remove."""

    name = "inpaint"
    baseline_name = "holes filled with medians"
    mask: Tensor | None = None
    missing: float | None = None

    def __post_init__(self) -> None:
        if (self.mask is None) == (self.missing is None):
            raise ArgumentError(
                "inpaint needs a mask, or missing (share of pixels) to draw one; give one of them"
            )

    @property
    def operator_name(self) -> str:
        return "inpainting"

    @property
    def options(self) -> dict[str, Any]:
        """The share of missing pixels, in steps of 5 %."""
        missing = self.missing
        if self.mask is not None:
            missing = 1 - float(self.mask.float().mean())
        return {"missing": round(20 * cast(float, missing)) / 20}

    def prepared(self, image_shape: Shape, generator: torch.Generator) -> Self:
        if self.missing is None:
            return self
        drawn = Inpainting.random(image_shape[1:], missing=self.missing, generator=generator)
        return replace(self, mask=drawn.mask[0, 0], missing=None)

    def operator(self, image_shape: Shape) -> OperatorBase:
        if self.mask is None:
            raise ArgumentError("inpaint needs a mask to be solved; give mask")
        if tuple(self.mask.shape[-2:]) != tuple(image_shape[1:]):
            (mh, mw), (_, h, w) = self.mask.shape[-2:], image_shape
            move = "give a mask of the size of the image"
            if (mh, mw) == (w, h):
                move = (
                    "it seems to be turned by 90°: pixels are read as they are stored, before the "
                    "rotation in EXIF, so turn the mask, or save the image without that rotation"
                )
            raise ShapeError(f"mask is {mh}×{mw} and the image {h}×{w} (height×width); {move}")
        return Inpainting(self.mask)

    def problem(self, y: Tensor) -> Problem:
        operator = cast(Inpainting, self.operator((y.shape[1], y.shape[2], y.shape[3])))
        kept = operator.mask.to(y)
        return Problem(y * kept, operator, known=kept)

    def baseline(self, problem: Problem) -> Tensor:
        return cast(Inpainting, problem.operator).x_start(problem.y)

    def conditioning(self, problem: Problem) -> tuple[float, float]:
        return 1.0, float(cast(Tensor, problem.known).mean())


@dataclass(frozen=True, eq=False)
class SuperRes(Task):
    """y is the image reduced by an integer ``factor`` with ``downsampler``.

    ``size``: original height and width, if ``fit`` padded the image to multiples of the factor.
    """

    name = "superres"
    baseline_name = "bicubic"
    factor: int = 4
    downsampler: str = "bicubic"
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_name("downsampler", self.downsampler, ("bicubic", "area"))
        if not 2 <= self.factor <= LARGEST_FACTOR:
            raise ArgumentError(
                f"factor must be a whole number of at least 2 and at most {LARGEST_FACTOR}, got "
                f"{self.factor}"
            )

    @property
    def operator_name(self) -> str:
        return "superresolution"

    @property
    def options(self) -> dict[str, Any]:
        named = {} if self.downsampler == "bicubic" else {"downsampler": self.downsampler}
        return {"factor": self.factor} | named

    @property
    def growth(self) -> int:
        return self.factor**2

    def fit(self, x: Tensor) -> tuple[Tensor, Self]:
        """``x`` padded by replication to multiples of the factor, and the task with its size."""
        height, width = x.shape[-2:]
        bottom, right = -height % self.factor, -width % self.factor
        if bottom == right == 0:
            return x, self
        grown = F.pad(x, (0, right, 0, bottom), mode="replicate")
        return grown, replace(self, size=(height, width))

    def operator(self, image_shape: Shape) -> OperatorBase:
        return SuperResolution(image_shape, self.factor, downsampler=self.downsampler)

    def problem(self, y: Tensor) -> Problem:
        channels, height, width = y.shape[1:]
        operator = self.operator((channels, height * self.factor, width * self.factor))
        return Problem(y, operator, window=None if self.size is None else (0, 0, *self.size))

    def baseline(self, problem: Problem) -> Tensor:
        size = [n * self.factor for n in problem.y.shape[-2:]]
        return problem.picture(F.interpolate(problem.y, size, mode="bicubic").clamp(-1, 1))

    def conditioning(self, problem: Problem) -> tuple[float, float]:
        """Computed on a small image, since the values do not depend on the size."""
        side = 16 * self.factor
        return conditioning(self.operator((1, side, side)), torch.zeros(1, 1, 16, 16))


BOUNDARIES = ("unknown", "zero", "circular", "reflect")


def _fits_gaussian(size: float, sigma: float) -> bool:
    return size in range(1, WIDEST_KERNEL + 1) and 0 < sigma < math.inf


def _fits_motion(length: float, angle: float) -> bool:
    return 1 <= length <= WIDEST_KERNEL and math.isfinite(angle)


@dataclass(frozen=True, eq=False)
class Deblur(Task):
    """y is blurred by a ``kernel``, a ``gaussian`` (size, sigma) or a ``motion`` (length, angle).

    ``boundary``: boundary condition; "unknown" solves for an image padded by the kernel size.
    ``linear_light``: the blur acts on linear light, not on sRGB values (borders are replicated).
    ``reference``: the Gaussian of the authors' released code, with zero boundary; the paper's
    deblurring score belongs to it (see ``GaussianBlur``).
    """

    name = "deblur"
    kernel: Tensor | None = None
    gaussian: tuple[float, float] | None = None
    motion: tuple[float, float] | None = None
    boundary: str = "unknown"
    linear_light: bool = False
    reference: bool = False

    def __post_init__(self) -> None:
        if [self.kernel, self.gaussian, self.motion].count(None) != 2:
            raise ArgumentError(
                "deblur needs exactly one of kernel, gaussian and motion; for example gaussian=9,2 "
                "(size and sigma) or motion=15,30 (length and angle)"
            )
        if self.kernel is not None and max(self.kernel.shape, default=0) > WIDEST_KERNEL:
            raise ArgumentError(
                f"kernel has shape {tuple(self.kernel.shape)}, expected sides of at most "
                f"{WIDEST_KERNEL} pixels; crop it to the part that is not zero"
            )
        if self.gaussian is not None and not _fits_gaussian(*self.gaussian):
            raise ArgumentError(
                f"gaussian is {self.gaussian}, expected a whole size of 1 to {WIDEST_KERNEL} and a "
                "sigma > 0, both in pixels, for example 9,2"
            )
        if self.motion is not None and not _fits_motion(*self.motion):
            raise ArgumentError(
                f"motion is {self.motion}, expected a length of 1 to {WIDEST_KERNEL} pixels and an "
                "angle in degrees, for example 15,30"
            )
        check_name("boundary", self.boundary, BOUNDARIES)
        if self.linear_light and self.boundary != "unknown":
            raise ArgumentError(
                f"boundary is {self.boundary!r}, but linear_light replicates borders; "
                "leave boundary out"
            )
        if self.reference:
            zero = self.boundary in ("unknown", "zero")
            if self.gaussian is None or self.linear_light or not zero:
                raise ArgumentError(
                    "reference is the Gaussian of the paper's code, with zero borders; "
                    "give gaussian, and leave linear_light and boundary out"
                )
            object.__setattr__(self, "boundary", "zero")

    @property
    def taps(self) -> Tensor:
        """The kernel as a tensor."""
        if self.gaussian is not None:
            return gaussian_kernel(int(self.gaussian[0]), self.gaussian[1])
        if self.motion is not None:
            return motion_kernel(*self.motion)
        return cast(Tensor, self.kernel)

    @property
    def operator_name(self) -> str:
        if self.linear_light:
            return "nonlinear-blur"
        return "blur" if self.gaussian is None else "gaussian-blur"

    @property
    def options(self) -> dict[str, Any]:
        if self.gaussian is None or self.linear_light:
            return {}
        named = {"reference": True} if self.reference else {}
        return {"size": int(self.gaussian[0]), "sigma": float(self.gaussian[1])} | named

    def prepared(self, image_shape: Shape, generator: torch.Generator) -> Self:
        """This task with the boundary "reflect" instead of "unknown", for simulation."""
        if self.boundary != "unknown" or self.linear_light:
            return self
        return replace(self, boundary="reflect")

    def operator(self, image_shape: Shape) -> OperatorBase:
        if self.linear_light:
            return NonlinearBlur(kernel=self.taps)
        if self.boundary == "unknown":
            raise ArgumentError("boundary is 'unknown'; a forward model needs a known one")
        if self.gaussian is not None and self.boundary == "zero":
            size, sigma = int(self.gaussian[0]), self.gaussian[1]
            return GaussianBlur(image_shape, size, sigma, reference=self.reference)
        return Blur(self.taps, image_shape, self.boundary)

    def problem(self, y: Tensor) -> Problem:
        shape = (y.shape[1], y.shape[2], y.shape[3])
        if self.boundary != "unknown" or self.linear_light:
            return Problem(y, self.operator(shape))
        taps = self.taps
        canvas, margins = canvas_for(taps, shape)
        operator = Compose(Crop(canvas, margins), Blur(taps, canvas, "circular"))
        return Problem(y, operator, window=(margins[2], margins[0], *shape[1:]))

    def conditioning(self, problem: Problem) -> tuple[float, float]:
        """Computed on a small image, since the values do not depend on the size."""
        if self.linear_light:
            return 1.0, 1.0
        side = max(64, 2 * max(self.taps.shape))
        small = Blur(self.taps, (1, side, side), "circular")
        return conditioning(small, torch.zeros(1, 1, side, side))
