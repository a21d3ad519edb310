"""Compose: one operator after another."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from pnpcm.core import Generators
from pnpcm.errors import ArgumentError
from pnpcm.operators.base import LinearOperatorBase, OperatorBase
from pnpcm.operators.gaussian_blur import GaussianBlur
from pnpcm.operators.inpainting import Inpainting


class Compose(OperatorBase):
    """``Compose(outer, …, inner)``: A(x) = outer(… inner(x)), applied right to left.

    Of linear operators it is linear itself (adjoint, prox by CG); noise falls where the
    outermost one measures.

    >>> operator = Compose(Inpainting(mask), GaussianBlur((3, 64, 64)))    # mask after blur
    """

    def __new__(cls, *operators: OperatorBase) -> Compose:
        linear = all(getattr(op, "linear", False) for op in operators)
        return object.__new__(LinearCompose if linear else Compose)

    def __init__(self, *operators: OperatorBase) -> None:
        super().__init__()
        if not operators:
            raise ArgumentError("Compose needs at least one operator, got none")
        for op in operators:
            if not isinstance(op, OperatorBase):
                raise ArgumentError(
                    f"Compose takes pnpcm operators, got {type(op).__name__}; wrap a function "
                    "with FunctionOperator"
                )
        self.operators = operators
        self.image_shape = operators[-1].image_shape

    def __getnewargs__(self) -> tuple[OperatorBase, ...]:
        return self.operators

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.operators))})"

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[Compose, Tensor]:
        mask, x = Inpainting.example(generator, batch=batch, size=size)
        return Compose(mask, GaussianBlur((3, *size), size=3, sigma=1.0)), x

    def _A(self, x: Tensor) -> Tensor:
        for op in reversed(self.operators):
            x = op.A(x)
        return x

    def acquire(self, x: Tensor) -> Tensor:
        for op in reversed(self.operators):
            x = op.acquire(x)
        return x

    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        for op in self.operators:
            y = y.new_empty(op.x_shape(y), device="meta")
        return tuple(y.shape)

    def n_measured(self, y: Tensor) -> int:
        return self.operators[0].n_measured(y)

    def noise_like(self, y: Tensor, generator: Generators | None) -> Tensor:
        return self.operators[0].noise_like(y, generator)

    def _check_x(self, x: Tensor, name: str = "x") -> None:
        self.operators[-1]._check_x(x, name)

    def to(self, *args: Any, **kwargs: Any) -> Compose:
        return Compose(*(op.to(*args, **kwargs) for op in self.operators))


class LinearCompose(Compose, LinearOperatorBase):
    """A composition of linear operators."""

    def _A_adjoint(self, y: Tensor) -> Tensor:
        for op in self.operators:
            y = cast(LinearOperatorBase, op).A_adjoint(y)
        return y

    def _check_y(self, y: Tensor) -> None:
        cast(LinearOperatorBase, self.operators[0])._check_y(y)
