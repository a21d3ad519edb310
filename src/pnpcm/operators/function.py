"""FunctionOperator: any differentiable Python function as a forward model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators.base import LinearOperatorBase, OperatorBase

Function = Callable[[Tensor], Tensor]


class FunctionOperator(OperatorBase):
    """``A(x) = function(x)`` for images ``image_shape`` = (C, H, W).

    ``function`` takes a batch and treats its images independently. With ``linear=True`` the
    adjoint is computed by autograd (or by ``adjoint``, if given) and the prox by CG;
    otherwise use ``PnPCMConfig(data_step=GradientStep(…))``.

    >>> operator = FunctionOperator(lambda x: x.cumsum(-1), (3, 64, 64), linear=True)
    """

    def __new__(
        cls,
        function: Function,
        image_shape: tuple[int, ...],
        *,
        linear: bool = False,
        adjoint: Function | None = None,
    ) -> FunctionOperator:
        return object.__new__(LinearFunctionOperator if linear else FunctionOperator)

    def __init__(
        self,
        function: Function,
        image_shape: tuple[int, ...],
        *,
        linear: bool = False,
        adjoint: Function | None = None,
    ) -> None:
        super().__init__()
        if not callable(function):
            raise ArgumentError(f"function must be callable, got {type(function).__name__}")
        if adjoint is not None and not linear:
            raise ArgumentError("adjoint is given but linear is False; set linear=True")
        self.function, self.adjoint = function, adjoint
        self.image_shape = tuple(image_shape)

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.function, self.image_shape), {"linear": self.linear}

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[FunctionOperator, Tensor]:
        x = torch.rand((batch, 3, *size), generator=generator) * 2 - 1
        return FunctionOperator(_neighbour_differences, (3, *size), linear=True), x

    def _A(self, x: Tensor) -> Tensor:
        y = self.function(x)
        if y.shape[0] != x.shape[0]:
            raise ShapeError(
                f"function turned a batch of {x.shape[0]} into shape {tuple(y.shape)}; it must "
                "keep the batch axis"
            )
        return y


class LinearFunctionOperator(FunctionOperator, LinearOperatorBase):
    """A linear Python function."""

    def _A_adjoint(self, y: Tensor) -> Tensor:
        if self.adjoint is not None:
            return self.adjoint(y)
        real = y.real.dtype if y.is_complex() else y.dtype
        zero = torch.zeros(self.x_shape(y), dtype=real, device=y.device)
        try:
            return self.A_vjp(zero, y)
        except RuntimeError as error:
            raise ShapeError(
                f"y has shape {tuple(y.shape)}, which does not fit this function: {error}"
            ) from error

    def _check_y(self, y: Tensor) -> None:
        """No check: a function may return any shape, which autograd checks."""


def _neighbour_differences(x: Tensor) -> Tensor:
    return torch.cat([x[..., 1:] - x[..., :-1], 0.5 * x[..., :1]], dim=-1)
