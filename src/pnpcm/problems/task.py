"""Task: a degradation with its options; Problem: the measurement and operator to be solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from pnpcm.core import Config, LinearOperator, Operator, has_adjoint
from pnpcm.linalg import normal_map, power_norm
from pnpcm.operators import OPERATORS, Inpainting, OperatorBase
from pnpcm.rng import randn_like

Shape = tuple[int, int, int]
Window = tuple[int, int, int, int]


@dataclass(frozen=True)
class Problem:
    """A measurement ready to be solved.

    ``known``: 1 where ``y`` was measured; None: everywhere. ``window``: (top, left, height, width)
    of the requested part of the image that is solved for; None: all of it.
    """

    y: Tensor
    operator: OperatorBase
    known: Tensor | None = None
    window: Window | None = None

    @property
    def is_denoising(self) -> bool:
        """Whether y is the image with additive noise."""
        return bool(getattr(self.operator, "is_identity", False))

    def picture(self, x: Tensor) -> Tensor:
        """The requested part of the solved image."""
        if self.window is None:
            return x
        top, left, height, width = self.window
        return x[..., top : top + height, left : left + width]


@dataclass(frozen=True, eq=False)
class Task(Config):
    """One kind of degradation with its options; fields are numbers, words or tensors.

    ``operator(image_shape)`` is the forward model of a clean image, ``problem(y)`` the problem that
    is solved for a measurement. They can differ: the boundary of a photograph is not known.
    """

    name: ClassVar[str]
    baseline_name: ClassVar[str] = "input"
    """What :meth:`baseline` shows, as a label."""

    @property
    def operator_name(self) -> str:
        """Row of ``OPERATORS``: the family whose presets and rule apply."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, Any]:
        """The options of the operator that presets are matched by."""
        return {}

    def plain(self) -> dict[str, Any]:
        """The options as plain values for records; arrays as their shape."""
        found: dict[str, Any] = {}
        for name, value in self.to_dict().items():
            if isinstance(value, Tensor):
                found[name] = f"array {'×'.join(map(str, value.shape))}"
            elif name != "type" and isinstance(value, str | int | float | list):
                found[name] = value
        return found

    @property
    def growth(self) -> int:
        """Number of pixels of the image for each of the measurement, at least 1."""
        return 1

    def prepared(self, image_shape: Shape, generator: torch.Generator) -> Self:
        """This task with its random parts drawn for images of ``image_shape``; here: none."""
        return self

    def fit(self, x: Tensor) -> tuple[Tensor, Self]:
        """``x`` padded to a size that the operator takes, and the task; here: unchanged."""
        return x, self

    def operator(self, image_shape: Shape) -> OperatorBase:
        raise NotImplementedError

    def problem(self, y: Tensor) -> Problem:
        """The problem for ``y`` ``(B, C, H, W)``; here: with the operator of the shape of ``y``."""
        return Problem(y, self.operator(_shape(y)))

    def baseline(self, problem: Problem) -> Tensor:
        """The image before restoration, in the size of the result; here: ``y``."""
        return problem.y

    def error_std(self, noise_std: float) -> float:
        """Typical RMS of y − A(x): noise and model error, at least the rounding of 8-bit pixels."""
        return max(noise_std, 1 / 255)

    def conditions(self, problem: Problem, noise_std: float) -> dict[str, float]:
        """The conditions of the problem for the rule of parameters, see :func:`conditioning`."""
        gain, seen = self.conditioning(problem)
        return {"error_std": self.error_std(noise_std), "gain": gain, "seen": seen}

    def conditioning(self, problem: Problem) -> tuple[float, float]:
        """‖A‖ and the share of the image that A measures; here: of the problem's operator."""
        return conditioning(problem.operator, problem.y)


def conditioning(operator: Operator, y: Tensor) -> tuple[float, float]:
    """‖A‖ and trace(AᵀA) / (‖A‖² n), the share of the image that A measures, by random probes.

    The share is 1 for the identity, that of the kept pixels for a mask, small for a strong blur.
    (1, 1) for a nonlinear operator.
    """
    if not has_adjoint(operator):
        return 1.0, 1.0
    generator = torch.Generator().manual_seed(0)
    x = cast(LinearOperator, operator).A_adjoint(y[:1])
    gain = float(power_norm(normal_map(operator), x, generator=generator, n_iter=50, tol=1e-3))
    probe = randn_like(x, generator)
    trace = float(operator.A(probe).abs().square().sum()) / probe.numel()
    return gain, min(1.0, trace / gain**2) if gain > 0 else 1.0


def samples_image(operator: Operator, y: Tensor, gain: float) -> bool:
    """Whether a linear A measures all that it measures with about the same weight ‖A‖ = ``gain``.

    Σs⁴ / (‖A‖² Σs²) over the singular values s, by a random probe: 1 for masks, colour filter
    arrays and means of separate pixels, 0.7 for a motion blur of 9 pixels, 0.5 for a Gaussian one.
    """
    adjoint = cast(LinearOperator, operator).A_adjoint
    probe = operator.A(randn_like(adjoint(y[:1]), torch.Generator().manual_seed(0)))
    share = adjoint(probe).abs().square().sum() / (gain**2 * probe.abs().square().sum())
    return bool(share > 0.9)


def _shape(y: Tensor) -> Shape:
    return (y.shape[1], y.shape[2], y.shape[3])


@dataclass(frozen=True, eq=False)
class Custom(Task):
    """Any forward model; the presets of pnpcm's own operators apply to them here too."""

    name = "custom"
    forward: Operator

    @property
    def operator_name(self) -> str:
        rows = [name for name, row in OPERATORS.items() if type(self.forward) is row]
        return rows[0] if rows else "custom"

    @property
    def options(self) -> dict[str, Any]:
        return dict(getattr(self.forward, "preset_options", {}))

    def operator(self, image_shape: Shape) -> OperatorBase:
        return cast(OperatorBase, self.forward)

    def problem(self, y: Tensor) -> Problem:
        known = self.forward.mask.to(y) if isinstance(self.forward, Inpainting) else None
        return Problem(y, cast(OperatorBase, self.forward), known=known)

    def baseline(self, problem: Problem) -> Tensor:
        """``y``; of k-space the zero-filled image Aᵀy."""
        adjoint = getattr(problem.operator, "A_adjoint", None)
        return problem.y if adjoint is None or not problem.y.is_complex() else adjoint(problem.y)
