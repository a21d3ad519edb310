"""Compose: one operator after another."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from pnpcm.arguments import Gamma
from pnpcm.core import Generators
from pnpcm.errors import ArgumentError
from pnpcm.linalg import cg
from pnpcm.operators.base import LinearOperatorBase, OperatorBase, _tolerance
from pnpcm.operators.blur import Blur, each_plane
from pnpcm.operators.crop import Crop
from pnpcm.operators.gaussian_blur import GaussianBlur
from pnpcm.operators.inpainting import Inpainting
from pnpcm.operators.superresolution import SuperResolution


class Compose(OperatorBase):
    """``Compose(outer, …, inner)``: A(x) = outer(… inner(x)), applied right to left.

    A composition of linear operators is linear (adjoint, prox by CG; masks after a blur or a
    reduction are solved for the missing measurements only). Noise is added where the outermost
    operator measures.

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
    r"""A composition of linear operators.

    Masks M (crops, inpainting) after an operator A = U S Vᵀ with known decomposition remove some
    of its measurements. In the prox these equal the prediction of its result:

    .. math::
        x = z + \gamma A^T w, \qquad w = (1 + \gamma A A^T)^{-1} (M^T (y - M A z) + e)

    with e on the missing measurements E such that w vanishes there. So CG solves for e only,

    .. math:: E\,(1 + \gamma A A^T)^{-1} E^T e = -E\,(1 + \gamma A A^T)^{-1} M^T (y - M A z)

    preconditioned by E (1 + γAAᵀ) Eᵀ. For a crop E is the border, and few iterations are needed.
    Source: Reeves, Fast image restoration without boundary artifacts (IEEE TIP 2005).
    """

    def _A_adjoint(self, y: Tensor) -> Tensor:
        for op in self.operators:
            y = cast(LinearOperatorBase, op).A_adjoint(y)
        return y

    def _check_y(self, y: Tensor) -> None:
        cast(LinearOperatorBase, self.operators[0])._check_y(y)

    def _prox_l2(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        *masks, inner = self.operators
        solve = super()._prox_l2
        # a decomposition A = U S Vᵀ with orthogonal square U is known
        square = isinstance(inner, Blur | SuperResolution) and inner.decomposed
        if square and all(isinstance(op, Crop | Inpainting) for op in masks):
            solve = self._complete
        if _is_planar(inner) and all(_is_planar(op) for op in masks):
            return each_plane(solve, z, y, gamma)
        return solve(z, y, gamma)

    def _complete(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        """The prox by the missing measurements, in the symbols of the class docstring."""
        *masks, inner = cast(tuple[Any, ...], self.operators)
        s = inner._like("singular_values", z)
        damping = 1 + gamma * s**2
        # a circular blur commutes with its adjoint, and V is the cheaper basis
        commutes = isinstance(inner, Blur) and inner.boundary == "circular"
        to, back = (inner.V_adjoint, inner.V) if commutes else (inner.U_adjoint, inner.U)
        seen, missing = inner._A(z), torch.ones_like(y)
        for op in reversed(masks):
            seen = op._A(seen)
        residual = y - seen
        for op in masks:
            residual, missing = op._A_adjoint(residual), op._A_adjoint(missing)
        missing = missing.neg_().add_(1)
        e = cg(
            lambda v: back(to(v).div_(damping)).mul_(missing),
            back(to(residual).div_(damping)).mul_(missing).neg_(),
            max_iter=self.max_iter,
            tol=_tolerance(z),
            precondition=lambda v: back(to(v).mul_(damping)).mul_(missing),
        )
        step: Tensor = inner.V(inner.U_adjoint(residual.add_(e)).mul_(gamma * s / damping))
        return step.add_(z)


def _is_planar(op: OperatorBase) -> bool:
    """Whether the operator treats all channels of all images equally and independently."""
    if isinstance(op, Inpainting):
        return op.mask.shape[:2] == (1, 1)
    return isinstance(op, Crop) or (isinstance(op, Blur) and op.planar)
