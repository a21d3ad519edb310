"""Nonlinear tasks: jpeg, nonlinear-deblur, phase-retrieval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError
from pnpcm.operators import JPEG, NonlinearBlur, OperatorBase, PhaseRetrieval
from pnpcm.problems.task import Problem, Shape, Task
from pnpcm.rng import randn_like

# Root mean square error of quality 5 on photographs in [-1, 1] (24 dB). It falls with the square
# root of the tables' mean: most of what a coarse table discards is small already.
_QUALITY_5_ERROR = 0.126


@dataclass(frozen=True, eq=False)
class Jpeg(Task):
    """y was compressed at a ``quality``, or with the ``tables`` of its file."""

    name = "jpeg"
    quality: int | None = None
    tables: Tensor | None = None
    subsampling: str = "4:2:0"

    def __post_init__(self) -> None:
        if (self.quality is None) == (self.tables is None):
            raise ArgumentError(
                "jpeg needs the quality, or the tables that are read from a .jpg file; "
                "give --quality for a picture in another format"
            )

    @classmethod
    def from_file(cls, path: Path) -> Jpeg:
        """The compression that wrote a ``.jpg`` file."""
        operator = JPEG.from_file(path)
        return cls(tables=operator.tables, subsampling=operator.subsampling)

    @property
    def operator_name(self) -> str:
        return "jpeg"

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.quality is None else {"quality": self.quality}

    def operator(self, image_shape: Shape) -> JPEG:
        """With the chroma sampling and the 8-bit pixels of real files."""
        quality = 50 if self.quality is None else self.quality
        return JPEG(
            quality,
            tables=self.tables,
            subsampling=self.subsampling,
            chroma="libjpeg",
            eight_bit=True,
        )

    def error_std(self, noise_std: float) -> float:
        tables = self.operator((3, 8, 8)).tables[0].double().mean()
        coarse = JPEG(5).tables[0].double().mean()
        return math.hypot(noise_std, _QUALITY_5_ERROR * math.sqrt(float(tables / coarse)))


@dataclass(frozen=True, eq=False)
class NonlinearDeblur(Task):
    """A camera moved by ``length`` pixels at ``angle`` degrees; light adds up, pixels do not."""

    name = "nonlinear-deblur"
    length: float = 15.0
    angle: float = 30.0
    exposure: float = 1.0

    @property
    def operator_name(self) -> str:
        return "nonlinear-blur"

    @property
    def options(self) -> dict[str, Any]:
        usual = NonlinearDeblur()
        fields = ("length", "angle", "exposure")
        given = {f: getattr(self, f) for f in fields}
        return {f: v for f, v in given.items() if v != getattr(usual, f)}

    def operator(self, image_shape: Shape) -> OperatorBase:
        return NonlinearBlur(length=self.length, angle=self.angle, exposure=self.exposure)


@dataclass(frozen=True, eq=False)
class PhaseRetrievalTask(Task):
    """y holds magnitudes of the coded image's Fourier transform; the code is drawn or given."""

    name = "phase-retrieval"
    code_mask: Tensor | None = None
    oversampling: float = 4.0

    @property
    def operator_name(self) -> str:
        return "phase-retrieval"

    @property
    def options(self) -> dict[str, Any]:
        return {"oversampling": self.oversampling}

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
        return PhaseRetrieval(self.code_mask, self.oversampling)

    def problem(self, y: Tensor) -> Problem:
        return Problem(y, self.operator((0, 0, 0)))

    def baseline(self, problem: Problem) -> Tensor:
        """Nothing: a grey image."""
        return torch.zeros(problem.operator.x_shape(problem.y))


LEVEL = 0.3


def resolve_signs(
    operator: PhaseRetrieval, x: Tensor, reference: Tensor | None, prior: Prior
) -> tuple[Tensor, str]:
    """``x`` with its signs turned to fit ``reference``, or else to please the prior most."""
    if reference is not None:
        turned = operator.resolve_signs(x, reference.to(x), squared_distance)
        return turned, "signs of the channels: those of the reference"
    noise = LEVEL * randn_like(x[:1], torch.Generator().manual_seed(0))

    def surprise(candidate: Tensor, _: Tensor) -> Tensor:
        return squared_distance(prior(candidate + noise, LEVEL), candidate)

    turned = operator.resolve_signs(x, x, surprise)
    return turned, (
        "signs of the channels: those that the prior denoises best; a guess, which may be wrong "
        "(give a reference to be sure)"
    )


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean square of the difference, one number per image."""
    return (a - b).square().flatten(1).mean(1)
