"""Nonlinear tasks: jpeg, nonlinear-deblur, phase-retrieval, and the signs of the latter."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError
from pnpcm.metrics.lpips import available, lpips
from pnpcm.operators import JPEG, NonlinearBlur, OperatorBase, PhaseRetrieval
from pnpcm.operators.blur import check_motion
from pnpcm.priors.generate import consistency_sample
from pnpcm.problems.task import Problem, Shape, Task
from pnpcm.rng import randn_like


@dataclass(frozen=True, eq=False)
class Jpeg(Task):
    """y was compressed at a ``quality``, or with the ``tables`` of its file.

    ``reference``: codec and differentiable surrogate of the paper's code instead of those of real
    files; y is not rounded to 8 bits.
    """

    name = "jpeg"
    quality: int | None = None
    tables: Tensor | None = None
    subsampling: str = "4:2:0"
    reference: bool = False

    def __post_init__(self) -> None:
        if (self.quality is None) == (self.tables is None):
            raise ArgumentError(
                "jpeg needs the quality, or the tables that are read from a .jpg file; "
                "give --quality for an image in another format"
            )
        whole = type(self.quality) is int and 1 <= self.quality <= 100
        if self.quality is not None and not whole:
            raise ArgumentError(
                f"quality is {self.quality!r}, expected a whole number 1…100; leave it out for a "
                ".jpg file, which has its own tables"
            )

    @classmethod
    def from_file(cls, path: Path) -> Jpeg:
        """The task with the quantization tables of a ``.jpg`` file."""
        operator = JPEG.from_file(path)
        return cls(tables=operator.tables, subsampling=operator.subsampling)

    @property
    def operator_name(self) -> str:
        return "jpeg"

    @property
    def options(self) -> dict[str, Any]:
        named = {"reference": True} if self.reference else {}
        return ({} if self.quality is None else {"quality": self.quality}) | named

    def operator(self, image_shape: Shape) -> JPEG:
        """JPEG with chroma subsampling and 8-bit pixels as in files, or as in the paper's code."""
        quality = 50 if self.quality is None else self.quality
        return JPEG(
            quality,
            tables=self.tables,
            subsampling=self.subsampling,
            chroma="smooth" if self.reference else "libjpeg",
            eight_bit=not self.reference,
        )

    def error_std(self, noise_std: float) -> float:
        return math.hypot(noise_std, self.operator((3, 8, 8)).rounding_std)


@dataclass(frozen=True, eq=False)
class NonlinearDeblur(Task):
    """Camera motion of ``length`` pixels at ``angle`` degrees, averaged in linear light.

    ``kernel_wizard``: checkpoint file of the paper's network, used instead
    (``GOPRO_wVAE.pth`` of blur-kernel-space-exploring); sides must be multiples of 128.
    """

    name = "nonlinear-deblur"
    length: float = 15.0
    angle: float = 30.0
    exposure: float = 1.0
    kernel_wizard: str | None = None

    def __post_init__(self) -> None:
        if self.kernel_wizard is not None and self._motion:
            raise ArgumentError(
                f"kernel_wizard has its own blur; leave {', '.join(self._motion)} out"
            )
        check_motion(self.length, self.angle)

    @property
    def _motion(self) -> dict[str, float]:
        """The motion options that differ from their defaults."""
        usual = {"length": 15.0, "angle": 30.0, "exposure": 1.0}
        given = {name: getattr(self, name) for name in usual}
        return {name: value for name, value in given.items() if value != usual[name]}

    @property
    def operator_name(self) -> str:
        return "nonlinear-blur"

    @property
    def options(self) -> dict[str, Any]:
        return self._motion if self.kernel_wizard is None else {"network": "kernel-wizard"}

    def operator(self, image_shape: Shape) -> OperatorBase:
        if self.kernel_wizard is not None:
            return _kernel_wizard(self.kernel_wizard)
        return NonlinearBlur(length=self.length, angle=self.angle, exposure=self.exposure)


@dataclass(frozen=True, eq=False)
class PhaseRetrievalTask(Task):
    """y holds magnitudes of the coded image's Fourier transform; the code is drawn or given.

    ``reference``: start value and choice of the channels' signs as in the paper's code, by LPIPS
    to a sample of the prior.
    """

    name = "phase-retrieval"
    baseline_name = "no image was measured"
    code_mask: Tensor | None = None
    oversampling: float = 4.0
    reference: bool = False

    @property
    def operator_name(self) -> str:
        return "phase-retrieval"

    @property
    def options(self) -> dict[str, Any]:
        named = {"reference": True} if self.reference else {}
        return {"oversampling": self.oversampling} | named

    def prepared(self, image_shape: Shape, generator: torch.Generator) -> Self:
        if self.code_mask is not None:
            return self
        drawn = PhaseRetrieval.random(image_shape[1:], generator, oversampling=self.oversampling)
        return replace(self, code_mask=drawn.code_mask)

    def operator(self, image_shape: Shape) -> OperatorBase:
        if self.code_mask is None:
            raise ArgumentError(
                "phase-retrieval needs the code mask of the instrument; give code_mask, or a "
                "measurement file of `pnpcm simulate`"
            )
        return PhaseRetrieval(self.code_mask, self.oversampling, reference=self.reference)

    def problem(self, y: Tensor) -> Problem:
        return Problem(y, self.operator((0, 0, 0)))

    def baseline(self, problem: Problem) -> Tensor:
        """A grey image: y is not an image."""
        return torch.zeros(problem.operator.x_shape(problem.y))


@lru_cache(maxsize=1)
def _kernel_wizard(path: str) -> NonlinearBlur:
    """The blur of the network; the file of 460 MB is read once and cached."""
    if not Path(path).is_file():
        raise ArgumentError(
            f"kernel_wizard is {path}, which is not a file; give GOPRO_wVAE.pth of "
            "blur-kernel-space-exploring"
        )
    return NonlinearBlur.from_checkpoint(path)


LEVEL = 0.3


def resolve_signs(
    operator: PhaseRetrieval, x: Tensor, reference: Tensor | None, prior: Prior
) -> tuple[Tensor, str]:
    """``x`` with the signs nearest to ``reference``, else those that the prior denoises best.

    An operator with ``reference=True`` uses the rule of the paper's code: the smallest LPIPS to
    ``reference``, else to one sample of the prior. The second value is a note for the record.
    """
    if operator.reference:
        return _as_released(operator, x, reference, prior)
    if reference is not None:
        turned = operator.resolve_signs(x, reference.to(x), squared_distance)
        return turned, "signs of the channels: those of the reference"
    noise = LEVEL * randn_like(x[:1], torch.Generator().manual_seed(0))

    def surprise(candidate: Tensor, _: Tensor) -> Tensor:
        return squared_distance(prior(candidate + noise, LEVEL), candidate)

    turned = operator.resolve_signs(x, x, surprise)
    return turned, (
        "signs of the channels: those that the prior denoises best, which may be wrong "
        "(give a reference to determine them)"
    )


def _as_released(
    operator: PhaseRetrieval, x: Tensor, reference: Tensor | None, prior: Prior
) -> tuple[Tensor, str]:
    image = "the reference"
    if reference is None:
        generator = torch.Generator().manual_seed(0)
        reference = consistency_sample(prior, (1, *x.shape[1:]), generator=generator)
        image = "a sample of the prior, as in the paper's code; they may be wrong"
    distance, name = (lpips, "LPIPS") if available() else (squared_distance, "squared distance")
    turned = operator.resolve_signs(x, reference.to(x), distance)
    return turned, f"signs of the channels: those of the smallest {name} to {image}"


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared difference of each image ``(B,)``."""
    return (a - b).square().flatten(1).mean(1)
