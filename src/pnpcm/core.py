"""Protocols Operator, Prior, DataStep and Solver, and the classes Result, Step and Config.

The interfaces are protocols, not base classes: any object with these members can be used, e.g.
deepinv physics or your own class. Shapes: images are ``(B, C, H, W)``, complex images have two
channels (real, imaginary).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator]
"""Source of randomness: one generator for the whole batch, or a sequence with one per image."""

ValueRange = tuple[float, float]


@runtime_checkable
class Operator(Protocol):
    """Forward model ``y = A(x)``. Every deepinv ``Physics`` is one."""

    def A(self, x: Tensor) -> Tensor: ...


@runtime_checkable
class LinearOperator(Operator, Protocol):
    """Linear forward model. Every deepinv ``LinearPhysics`` is one."""

    def A_adjoint(self, y: Tensor) -> Tensor: ...

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float) -> Tensor:
        """argmin_x  γ/2 ‖Ax − y‖² + ½ ‖x − z‖²"""
        ...


@runtime_checkable
class Prior(Protocol):
    """Callable that returns a clean image for one at noise level ``sigma``. It never clamps."""

    @property
    def value_range(self) -> ValueRange: ...
    @property
    def sigma_min(self) -> float: ...
    @property
    def sigma_max(self) -> float: ...
    @property
    def nfe_per_call(self) -> int: ...

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """``sigma``: scalar or one value per image ``(B,)``, in units of ``value_range``."""
        ...


def is_linear(operator: Operator) -> bool:
    """The operator's ``linear`` flag if it has one, else whether it has an adjoint."""
    return bool(getattr(operator, "linear", hasattr(operator, "A_adjoint")))


def has_adjoint(operator: Operator) -> bool:
    """Whether the operator is linear and has ``A_adjoint``."""
    return is_linear(operator) and hasattr(operator, "A_adjoint")


def name_of(operator: Operator) -> str:
    """The operator with its parameters if it says them in ``repr``, else the name of its class."""
    silent = type(operator).__repr__ in (object.__repr__, torch.nn.Module.__repr__)
    return type(operator).__name__ if silent else repr(operator)


@runtime_checkable
class DataStep(Protocol):
    """The inner problem that pulls toward ``y``: argmin_z ½‖A(z) − y‖² + ρ/2 ‖z − v‖²."""

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor: ...


@dataclasses.dataclass(frozen=True)
class Step:
    """The argument of a callback after iteration ``k`` (counted from 1).

    ``rho``, ``z`` and ``u``: if the method has a penalty, a second image, a dual variable.
    """

    k: int
    sigma: float
    x: Tensor
    rho: float | None = None
    z: Tensor | None = None
    u: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """A reconstruction and its cost.

    ``nfe`` and ``vjps`` are the counted network evaluations and vector-Jacobian products per image.
    ``residuals`` is ``(n_steps, B)``, the distance between iterates; for ADMM
    Δ_k = (‖x_k − x_{k−1}‖ + ‖z_k − z_{k−1}‖ + ‖u_k − u_{k−1}‖) / √P with P values per image, for
    other methods its first term. ``notes``: sentences about the run, e.g. about noise levels
    outside the range of the prior.
    """

    x: Tensor
    nfe: int
    vjps: int
    seconds: float
    residuals: Tensor
    notes: tuple[str, ...] = ()


@runtime_checkable
class Solver(Protocol):
    """Callable that computes a reconstruction from a measurement."""

    def __call__(
        self,
        y: Tensor,
        operator: Operator,
        *,
        generator: Generators | None = None,
        x_init: Tensor | None = None,
        callback: Callable[[Step], None] | None = None,
        value_range: ValueRange = (-1.0, 1.0),
    ) -> Result: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Config:
    """Base of frozen configuration dataclasses, with conversion to and from JSON values.

    ``Config.from_dict(c.to_dict()) == c`` for every configuration ``c``; nested configurations
    store their class name under ``"type"``.
    """

    _classes: ClassVar[dict[str, type[Config]]] = {}

    def __init_subclass__(cls) -> None:
        Config._classes[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        values = {f.name: _to_plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"type": type(self).__name__} | values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        from pnpcm.errors import ArgumentError, UnknownNameError

        rest = {key: _from_plain(value) for key, value in values.items() if key != "type"}
        name = values.get("type", cls.__name__)
        if name not in Config._classes:
            raise UnknownNameError("configuration type", str(name), Config._classes)
        target = Config._classes[name]
        if not issubclass(target, cls):
            raise ArgumentError(f"type is {name!r}, expected {cls.__name__}")
        known = {f.name for f in dataclasses.fields(target)}
        for key in rest:
            if key not in known:
                raise UnknownNameError(f"field of {name}", key, known)
        try:
            return target(**rest)
        except TypeError as error:
            raise ArgumentError(f"{name} cannot be built from {sorted(rest)}: {error}") from error


def _to_plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    return [_to_plain(v) for v in value] if isinstance(value, tuple) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict) and "type" in value:
        return Config.from_dict(value)
    return tuple(_from_plain(v) for v in value) if isinstance(value, list) else value
