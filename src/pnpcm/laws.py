"""check_operator: the laws of operators as a public check of your own operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Operator, name_of
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import inner, like_form, norm, power_norm
from pnpcm.rng import randn_like


@dataclass(frozen=True)
class Law:
    """One line of a report: a measured error against the bound it must not exceed."""

    name: str
    error: float
    bound: float
    hint: str

    @property
    def holds(self) -> bool:
        return self.error <= self.bound


@dataclass(frozen=True)
class OperatorReport:
    """The result of :func:`check_operator`; prints as a table, ``ok`` if every law holds."""

    operator: str
    laws: tuple[Law, ...]
    norm: float | None

    @property
    def ok(self) -> bool:
        return all(law.holds for law in self.laws)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        size = "" if self.norm is None else f", ‖A‖ ≈ {self.norm:.4g}"
        lines = [f"{self.operator}{size}: {'all laws hold' if self.ok else 'BROKEN'}"]
        for law in self.laws:
            verdict = "ok" if law.holds else f"FAILS: {law.hint}"
            lines.append(f"  {law.name:<20} {law.error:9.2e} ≤ {law.bound:.0e}  {verdict}")
        return "\n".join(lines)


def check_operator(
    operator: Operator, x: Tensor | None = None, *, generator: torch.Generator
) -> OperatorReport:
    """Check the laws that solvers rely on, with random images like ``x`` ``(B, C, H, W)``.

    Every operator: a batch gives the results of its single images, arguments stay unchanged, a
    second call repeats the first, A is differentiable. Linear ones (with ``A_adjoint``) also:
    ⟨Ax, y⟩ = ⟨x, Aᵀy⟩ relative to ‖Ax‖‖y‖, linearity, and the gradient of the prox objective at
    ``prox_l2``. ``x`` may be omitted for operators with an ``image_shape``.

    >>> print(check_operator(GaussianBlur((3, 64, 64)), generator=torch.Generator()))
    """
    x = _image_for(operator, generator) if x is None else x
    real = isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
    if not real or x.ndim < 2 or len(x) == 0:
        raise ArgumentError("x must be a tensor of floats (B, …) with a batch axis")
    op: Any = operator
    bound = 1e-10 if torch.finfo(x.dtype).bits == 64 else 1e-5
    x = x.detach()
    try:
        y = op.A(x.clone())
    except Exception as error:  # any error of the operator is part of the report
        law = Law("A(x)", math.inf, bound, f"raises {type(error).__name__}: {error}")
        return OperatorReport(name_of(operator), (law,), None)
    v, other = randn_like(y, generator), randn_like(x, generator)

    def unchanged() -> float:
        argument = x.clone()
        op.A(argument)
        return _difference(argument, x)

    laws = [
        _try("x unchanged", unchanged, 0, "A writes into its argument"),
        _try("same call, same y", lambda: _difference(op.A(x.clone()), y), 0, "A keeps state"),
        _try("batch = singles", lambda: _batch_error(op, x, y), bound, "A mixes images"),
        _try("differentiable", lambda: _vjp_error(op, x, v), bound, "A loses the graph"),
    ]
    if not hasattr(operator, "A_adjoint"):
        return OperatorReport(name_of(operator), tuple(laws), None)
    laws += [
        _try("adjoint", lambda: _adjoint_error(op, x, y, v), bound, "A_adjoint is not Aᵀ"),
        _try(
            "linear",
            lambda: _difference(op.A(2 * x - 3 * other), 2 * y - 3 * op.A(other.clone())),
            10 * bound,
            "A is not linear: remove A_adjoint",
        ),
    ]
    size = None
    if laws[-2].holds:  # the normal operator needs a correct adjoint
        size = float(power_norm(lambda p: _normal(op, p), x, generator=generator).max())
    if hasattr(operator, "prox_l2"):
        for gamma in (0.1, 10.0):
            laws.append(
                _try(
                    f"prox_l2, γ = {gamma:g}",
                    partial(_prox_error, op, other, y, gamma, size or 1.0),
                    bound,
                    "prox_l2 does not minimise γ/2‖Ax−y‖² + ½‖x−z‖²",
                )
            )
    return OperatorReport(name_of(operator), tuple(laws), size)


def _try(name: str, error: Callable[[], float], bound: float, hint: str) -> Law:
    """One law; it fails with the message of the error if the operator raises one."""
    try:
        return Law(name, error(), bound, hint)
    except Exception as failure:  # any error of the operator is part of the report
        return Law(name, math.inf, bound, f"raises {type(failure).__name__}: {failure}")


def _difference(a: Tensor, b: Tensor) -> float:
    """Largest relative distance of an image in ``a`` from ``b``; infinite for other shapes."""
    if a.shape != b.shape:
        return math.inf
    value = float((norm(a - b) / norm(b).clamp_min(torch.finfo(b.dtype).tiny)).max())
    return value if math.isfinite(value) else math.inf


def _batch_error(op: Any, x: Tensor, y: Tensor) -> float:
    """The change of the first measurement when other images are in the batch."""
    other = 0.5 * x.flip(-1)
    batch = torch.cat([x, other]) if len(x) == 1 else torch.cat([x[:1], other[1:]])
    return _difference(op.A(batch)[:1], y[:1])


def _vjp_error(op: Any, x: Tensor, v: Tensor) -> float:
    """``A_vjp`` against autograd; infinite if A does not keep the graph."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = x.clone().requires_grad_()
        y = op.A(leaf)
        if not y.requires_grad:
            return math.inf
        (g,) = torch.autograd.grad(y, leaf, v)
    return _difference(op.A_vjp(x, v), g) if hasattr(op, "A_vjp") else 0.0


def _adjoint_error(op: Any, x: Tensor, y: Tensor, v: Tensor) -> float:
    back = like_form(op.A_adjoint(v.clone()), x)
    if back.shape != x.shape:
        raise ShapeError(f"A_adjoint returns shape {tuple(back.shape)} for x {tuple(x.shape)}")
    scale = (norm(y) * norm(v)).clamp_min(torch.finfo(y.dtype).tiny)
    return float(((inner(y, v) - inner(x, back)).abs() / scale).max())


def _normal(op: Any, x: Tensor) -> Tensor:
    return like_form(op.A_adjoint(op.A(x)), x)


def _prox_error(op: Any, z: Tensor, y: Tensor, gamma: float, size: float) -> float:
    """Gradient of the objective, relative to the terms that cancel in it."""
    p = op.prox_l2(z.clone(), y.clone(), gamma)
    if p.shape != z.shape:
        raise ShapeError(f"prox_l2 returns shape {tuple(p.shape)} for z {tuple(z.shape)}")
    slope = gamma * like_form(op.A_adjoint(op.A(p) - y), p) + p - z
    terms = norm(z) + norm(p) + gamma * size * (size * norm(p) + norm(y))
    return float((norm(slope) / terms).max())


def _image_for(operator: Operator, generator: torch.Generator) -> Tensor:
    shape = getattr(operator, "image_shape", None)
    if shape is None:
        raise ArgumentError(
            f"x is None and {type(operator).__name__} has no image_shape; "
            "give an image (B, C, H, W)"
        )
    return torch.rand((2, *shape), generator=generator) * 2 - 1
