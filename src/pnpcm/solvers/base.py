"""Base class of solvers: interface, checks and cost counts. Each solver has its own loop.

A new solver is a frozen ``Config`` with ``nfe`` (its number of evaluations) and ``example()``, and
a class with ``_solve(run)``, which contains its update equations.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from pnpcm.core import Config, Generators, Operator, Prior, Result, Step, ValueRange
from pnpcm.counted import CountedPrior, checked_range
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.linalg import norm
from pnpcm.rng import per_image, randn_like
from pnpcm.solvers.problem import check_call, image_shape, in_usual_range, is_finite, is_linear

ConfigT = TypeVar("ConfigT", bound=Config)

DENOISERS = ("edm", "vp")
CONSISTENCY = ("consistency",)


class Run:
    """One call of a solver: measurement, operator, counted prior, noise and records.

    ``prior``: call it as ``run.prior(x, sigma)``; every call is counted. ``noise(x)``: new standard
    normal values, each image from its own generator. Images have ``value_range``, which is [-1, 1]
    unless the solver handles other ranges itself.
    """

    def __init__(
        self,
        y: Tensor,
        operator: Operator,
        prior: CountedPrior | None,
        generator: Generators | None,
        x_init: Tensor | None,
        callback: Callable[[Step], None] | None,
        value_range: ValueRange,
    ) -> None:
        self.y, self.operator, self.x_init = y, operator, x_init
        self._prior, self._callback = prior, callback
        self.generators = None if generator is None else per_image(generator, len(y))
        self.low, self.high = value_range
        self.residuals: list[Tensor] = []
        self._x_before: Tensor | None = None

    @property
    def prior(self) -> CountedPrior:
        assert self._prior is not None, "a solver that takes no prior called one"
        return self._prior

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the image batch."""
        if self.x_init is not None:
            return tuple(self.x_init.shape)
        return image_shape(self.y, self.operator)

    @property
    def middle(self) -> Tensor:
        """The constant image at the middle of the range, in the dtype of the problem."""
        real = self.y.real.dtype if self.y.is_complex() else self.y.dtype
        value = (self.low + self.high) / 2
        return torch.full(self.shape, value, dtype=real, device=self.y.device)

    @property
    def origin(self) -> Tensor:
        """The image at which a run starts: ``x_init`` if given, else the constant middle."""
        return self.middle if self.x_init is None else self.x_init

    def noise(self, x: Tensor) -> Tensor:
        return randn_like(x, self.generators)

    def clamp(self, x: Tensor) -> Tensor:
        return x.clamp(self.low, self.high)

    def residual(self, x: Tensor) -> Tensor:
        """y − A(x)"""
        return self.y - self.operator.A(x)

    def check(self, x: Tensor, k: int, sigma: float) -> None:
        """Raise an error if an iterate has NaN or infinity."""
        if not is_finite(x):
            raise ArgumentError(
                f"prior returned NaN or infinity in iteration {k} at σ = {sigma:g}; "
                "check its weights and the scale of y"
            )

    def record(self, k: int, sigma: float, x: Tensor, **more: Any) -> None:
        """End iteration ``k`` with image ``x``: store its residual and call the callback."""
        self.check(x, k, sigma)
        before = x if self._x_before is None else self._x_before
        self.residuals.append(norm(x - before) / math.sqrt(x[0].numel()))
        self._x_before = x
        self.tell(Step(k=k, sigma=sigma, x=x, **more))

    def tell(self, step: Step) -> None:
        if self._callback is not None:
            self._callback(step)


class SolverBase(ABC, Generic[ConfigT]):
    """Interface of every solver: ``solver(y, operator, generator=…)`` returns a ``Result``."""

    name: ClassVar[str]
    config_type: ClassVar[type[Config]]
    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of prior that it takes; empty: any."""
    takes_prior: ClassVar[bool] = True
    usual_range: ClassVar[bool] = True
    """Whether the problem is rescaled to [-1, 1] before ``_solve``."""

    def __init__(self, prior: Prior | None, config: ConfigT) -> None:
        if not isinstance(config, self.config_type):
            raise ArgumentError(
                f"config must be a {self.config_type.__name__}, got {type(config).__name__}; "
                "a preset's configuration is PRESETS[name].solver"
            )
        kind = getattr(prior, "kind", None)
        if self.kinds and kind is not None and kind not in self.kinds:
            raise ArgumentError(
                f"prior is of kind {kind!r}, {self.name} needs {' or '.join(self.kinds)}; "
                f"use load_prior(name, kind={self.kinds[0]!r})"
            )
        self.prior, self.config = prior, config

    @abstractmethod
    def _solve(self, run: Run) -> Tensor:
        """The update equations; returns the image."""

    def refusal(self, operator: Operator) -> str | None:
        """The reason why this method cannot serve ``operator``; None if it can."""
        return None

    def __call__(
        self,
        y: Tensor,
        operator: Operator,
        *,
        generator: Generators | None = None,
        x_init: Tensor | None = None,
        callback: Callable[[Step], None] | None = None,
        value_range: ValueRange = (-1.0, 1.0),
    ) -> Result:
        """Reconstruct the batch ``y``.

        ``value_range``: range of the images that the operator takes, (0, 1) for deepinv.
        ``generator``: one for the batch or one per image, needed if noise is drawn.
        """
        check_call(y, operator, x_init)
        low, high = checked_range(value_range)
        reason = self.refusal(operator)
        if reason is not None:
            raise OperatorError(f"{self.name} cannot serve {type(operator).__name__}: {reason}")
        # gradients only where a method enables them, even under torch.inference_mode()
        with torch.inference_mode(False), torch.no_grad():
            start = time.perf_counter()
            y = y.clone() if y.is_inference() else y
            if x_init is not None and x_init.is_inference():
                x_init = x_init.clone()
            inner = (-1.0, 1.0) if self.usual_range else (low, high)
            prior = None
            if self.takes_prior:
                prior = CountedPrior(self.prior, inner)  # type: ignore[arg-type]  # checked there
            if self.usual_range:
                y, operator, x_init = in_usual_range(y, operator, x_init, (low, high))
            run = Run(y, operator, prior, generator, x_init, callback, inner)
            x = self._solve(run)
            if (low, high) != inner:
                x = (x + 1) * ((high - low) / 2) + low
            nfe, vjps = (0, 0) if prior is None else (prior.nfe, prior.vjps)
            residuals = torch.stack(run.residuals) if run.residuals else x.new_zeros(0, len(x))
            notes = () if prior is None or prior.note is None else (prior.note,)
            return Result(x, nfe, vjps, time.perf_counter() - start, residuals, notes)


# reasons to refuse -------------------------------------------------------------------------------
def unless_linear(operator: Operator, needs: str) -> str | None:
    """The refusal of a nonlinear operator by a method that needs ``needs``; None if linear."""
    if is_linear(operator):
        return None
    return f"it needs {needs}, and this operator is not linear; use PnPCM, DPS or DPnP"


def start(run: Run, otherwise: Callable[[], Tensor]) -> Tensor:
    """``x_init``, else the operator's own start (inpainting: medians), else ``otherwise()``."""
    if run.x_init is not None:
        return run.x_init
    if hasattr(run.operator, "x_start"):
        x: Tensor = run.operator.x_start(run.y)
        return x
    return otherwise()


def z_start(run: Run) -> Tensor | None:
    """The operator's own start of an iterative data step; None if it has none."""
    offered = getattr(run.operator, "z_start", None)
    return None if offered is None else offered(run.y, run.generators)
