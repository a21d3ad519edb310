"""Base class of solvers: interface, checks and cost counts. Each solver has its own loop.

A new solver is a frozen ``Config`` with ``nfe`` (its number of evaluations) and ``example()``, and
a class with ``_solve(run)``, which contains its update equations.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch
from torch import Tensor

from pnpcm.core import (
    Config,
    Generators,
    LinearOperator,
    Operator,
    Prior,
    Result,
    Step,
    ValueRange,
    has_adjoint,
    is_linear,
)
from pnpcm.counted import CountedPrior, checked_range
from pnpcm.errors import ArgumentError, OperatorError, ShapeError
from pnpcm.linalg import cg, norm, normal_map, smooth_fit
from pnpcm.rng import per_image, randn_like
from pnpcm.solvers.data_steps import ProxStep

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
        self.prior = cast(CountedPrior, prior)  # None for solvers that do not call it
        self._callback = callback
        self.generators = None if generator is None else per_image(generator, len(y))
        self.low, self.high = value_range
        self.residuals: list[Tensor] = []
        self._x_before: Tensor | None = None

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


def start(run: Run, init: str = "auto") -> Tensor | None:
    """``x_init``, else the operator's own start, else None.

    Inpainting starts at medians, or for ``init="extension"`` at the extension of known pixels;
    for it other linear operators of real images start at a smooth image that explains y.
    """
    if run.x_init is not None:
        return run.x_init
    if init == "extension" and hasattr(run.operator, "x_extension"):
        extended: Tensor = run.operator.x_extension(run.y)
        return extended
    if init == "extension" and has_adjoint(run.operator):
        back = cast(LinearOperator, run.operator).A_adjoint(run.y)
        if back.ndim == 4 and not back.is_complex():
            return run.clamp(smooth_fit(normal_map(run.operator), back))
    if hasattr(run.operator, "x_start"):
        x: Tensor = run.operator.x_start(run.y)
        return x
    return None


def z_start(run: Run) -> Tensor | None:
    """The operator's own start of an iterative data step; None if it has none."""
    offered = getattr(run.operator, "z_start", None)
    return None if offered is None else offered(run.y, run.generators)


# functions of an operator ------------------------------------------------------------------------
# An operator needs only ``A``. What a linear one lacks is computed here, so that deepinv physics
# and classes with only ``A`` and ``A_adjoint`` can be used.


def check_call(y: Tensor, operator: Operator, x_init: Tensor | None) -> None:
    """Raise an error for arguments that no solver accepts."""
    if not isinstance(y, Tensor):
        raise ArgumentError(f"y is a {type(y).__name__}, expected a torch.Tensor (B, …)")
    if not isinstance(operator, Operator):
        raise OperatorError(f"operator is a {type(operator).__name__} without A(x); see core.py")
    if y.ndim < 2 or len(y) == 0:
        raise ShapeError(f"y has shape {tuple(y.shape)}, expected a batch (B, …) of at least one")
    if not is_finite(y):
        raise ArgumentError("y holds NaN or infinity; mask or repair the measurement first")
    if x_init is None:
        return
    if x_init.is_complex():
        raise ArgumentError("x_init is complex; give two channels (real, imaginary), (B, 2, H, W)")
    if not is_finite(x_init):
        raise ArgumentError("x_init holds NaN or infinity; give a finite start")
    known = hasattr(operator, "x_shape") or hasattr(operator, "A_adjoint")
    shape = image_shape(y, operator) if known else (len(y), *x_init.shape[1:])
    if tuple(x_init.shape) != shape:
        raise ShapeError(
            f"x_init has shape {tuple(x_init.shape)}, y {tuple(y.shape)} was measured from {shape}"
        )


def is_finite(x: Tensor) -> bool:
    """Whether ``x`` has neither NaN nor infinity; unlike ``torch.isfinite`` without a copy."""
    real = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return x.numel() == 0 or all(math.isfinite(end) for end in torch.aminmax(real))


def image_shape(y: Tensor, operator: Operator) -> tuple[int, ...]:
    """Shape of the image batch that ``y`` was measured from."""
    if hasattr(operator, "x_shape"):
        return tuple(operator.x_shape(y))
    if hasattr(operator, "A_adjoint"):
        return tuple(operator.A_adjoint(y).shape)
    raise OperatorError(
        f"{type(operator).__name__} has neither x_shape nor A_adjoint, so the shape of the image "
        "is unknown; give x_init"
    )


# functions of linear operators -------------------------------------------------------------------
def prox(operator: Operator, v: Tensor, y: Tensor, rho: float) -> Tensor:
    """argmin_z ½‖Az − y‖² + ρ/2 ‖z − v‖²"""
    return ProxStep()(v, y, operator, rho, z_prev=None)


def pinv(operator: Any, y: Tensor, reg: float = 0.0) -> Tensor:
    """Aᵀ(AAᵀ + reg)⁻¹ y by the operator's own method; by CG for operators of other libraries."""
    if hasattr(operator, "n_measured"):  # an operator of pnpcm
        loaded: Tensor = operator.A_dagger(y, reg)
        return loaded
    if reg == 0 and hasattr(operator, "A_dagger"):
        plain: Tensor = operator.A_dagger(y)
        return plain
    b: Tensor = operator.A_adjoint(y)
    eps, normal = torch.finfo(b.dtype).eps, normal_map(operator)
    return cg(
        lambda p: normal(p) + reg * p,
        b,
        max_iter=500,
        tol=10 * eps,
        rank_tol=30 * eps,
    )


def back_projection(operator: Operator, y: Tensor) -> Tensor:
    """The measurement as an image: y if it has the shape of one, else A⁺y."""
    if not y.is_complex() and tuple(y.shape) == image_shape(y, operator):
        return y
    return pinv(operator, y)


def sample_conditional(
    operator: Any, v: Tensor, y: Tensor, noise_std: float, eta: float, generator: Generators
) -> Tensor:
    """A draw from exp(−‖Az−y‖²/2 noise_std² − ‖z−v‖²/2 eta²), if needed by perturb-and-solve."""
    if hasattr(operator, "sample_conditional"):
        z: Tensor = operator.sample_conditional(v, y, noise_std, eta, generator)
        return z
    v = v + eta * randn_like(v, generator)
    y = y + noise_std * getattr(operator, "noise_like", randn_like)(y, generator)
    return prox(operator, v, y, (noise_std / eta) ** 2)


# images in another range than [-1, 1] ------------------------------------------------------------
def in_usual_range(
    y: Tensor, operator: Operator, x_init: Tensor | None, value_range: ValueRange
) -> tuple[Tensor, Operator, Tensor | None]:
    """The same problem for images in [-1, 1]: x = middle + unit · x′, y′ = A′(x′) + noise/unit.

    A linear operator is unchanged and only y is mapped; a nonlinear one is wrapped.
    """
    low, high = value_range
    if (low, high) == (-1.0, 1.0):
        return y, operator, x_init
    unit, middle = (high - low) / 2, (low + high) / 2
    x_init = None if x_init is None else (x_init - middle) / unit
    if not is_linear(operator):
        return y / unit, Rescaled(operator, unit, middle), x_init
    shape = image_shape(y, operator)
    real = y.real.dtype if y.is_complex() else y.dtype
    grey = torch.full(shape, middle, dtype=real, device=y.device)
    return (y - operator.A(grey)) / unit, operator, x_init


class Rescaled:
    """A nonlinear operator for images x′ in [-1, 1]: A′(x′) = A(middle + unit · x′) / unit."""

    linear = False

    def __init__(self, operator: Any, unit: float, middle: float) -> None:
        self.operator, self.unit, self.middle = operator, unit, middle
        for name in ("acquire", "approx_inverse", "z_start", "x_shape"):
            if hasattr(operator, name):
                setattr(self, name, getattr(self, f"_{name}"))

    def A(self, x: Tensor) -> Tensor:
        y: Tensor = self.operator.A(self.middle + self.unit * x) / self.unit
        return y

    def _acquire(self, x: Tensor) -> Tensor:
        y: Tensor = self.operator.acquire(self.middle + self.unit * x) / self.unit
        return y

    def _approx_inverse(self, y: Tensor) -> Tensor:
        x: Tensor = (self.operator.approx_inverse(y * self.unit) - self.middle) / self.unit
        return x

    def _z_start(self, y: Tensor, generator: Generators | None = None) -> Tensor:
        z: Tensor = (self.operator.z_start(y * self.unit, generator) - self.middle) / self.unit
        return z

    def _x_shape(self, y: Tensor) -> tuple[int, ...]:
        return tuple(self.operator.x_shape(y))
