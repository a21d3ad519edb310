"""Checks of a solver's arguments, and functions of linear operators (prox, pseudo-inverse, draws).

An operator needs only ``A``. The other functions of a linear operator are computed here if it lacks
them, so that deepinv physics and classes with only ``A`` and ``A_adjoint`` can be used.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Generators, Operator, ValueRange
from pnpcm.errors import ArgumentError, OperatorError, ShapeError
from pnpcm.linalg import cg, normal_map
from pnpcm.rng import randn_like
from pnpcm.solvers.data_steps import ProxStep


def is_linear(operator: Operator) -> bool:
    """The operator's ``linear`` flag if it has one, else whether it has an adjoint."""
    return bool(getattr(operator, "linear", hasattr(operator, "A_adjoint")))


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
