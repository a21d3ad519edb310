"""Laws of operators as a public check, so that users can trust their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Operator
from pnpcm.errors import ArgumentError
from pnpcm.linalg import inner, norm, power_norm
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
    """What :func:`check_operator` found; prints as a table, ``ok`` when every law holds."""

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

    Every operator: a batch gives what its images give alone, arguments stay unchanged, a second
    call repeats the first, A is differentiable. Linear ones (with ``A_adjoint``) also:
    ⟨Ax, y⟩ = ⟨x, Aᵀy⟩ relative to ‖Ax‖‖y‖, linearity, and the gradient of the prox objective at
    ``prox_l2``. ``x`` may be left out for operators that know their ``image_shape``.

    >>> print(check_operator(GaussianBlur((3, 64, 64)), generator=torch.Generator()))
    """
    x = _image_for(operator, generator) if x is None else x
    if not isinstance(x, Tensor) or x.ndim < 2:
        raise ArgumentError("x must be a tensor (B, …) with a batch axis")
    double = x.dtype in (torch.float64, torch.complex128)
    bound = 1e-10 if double else 1e-5
    op: Any = operator
    before = x.clone()
    y = op.A(x)
    v = randn_like(y, generator)
    laws = [
        Law("batch = singles", _batch_error(op, x, y), bound, "A mixes images of a batch"),
        Law("same call, same y", _difference(op.A(x), y), 0, "A keeps state or draws noise"),
        Law("x unchanged", _difference(x, before), 0, "A writes into its argument"),
        Law(
            "differentiable", _vjp_error(op, x, v), bound, "A loses the graph, or A_vjp is not Jᵀv"
        ),
    ]
    if not hasattr(operator, "A_adjoint"):
        return OperatorReport(_name(operator), tuple(laws), None)

    gap = (inner(y, v) - inner(x, op.A_adjoint(v))).abs()
    scale = (norm(y) * norm(v)).clamp_min(torch.finfo(y.dtype).tiny)
    laws.append(Law("adjoint", float((gap / scale).max()), bound, "A_adjoint is not Aᵀ"))
    other = randn_like(x, generator)
    error = _difference(op.A(2 * x - 3 * other), 2 * y - 3 * op.A(other))
    laws.append(Law("linear", error, 10 * bound, "A is not linear: do not offer A_adjoint"))
    size = float(power_norm(lambda p: op.A_adjoint(op.A(p)), x, generator=generator).max())
    if hasattr(operator, "prox_l2"):
        for gamma in (0.1, 10.0):
            z = op.prox_l2(other, y, gamma)
            slope = gamma * op.A_adjoint(op.A(z) - y) + z - other
            # relative to the terms that cancel in it: what rounding alone would leave
            terms = norm(other) + norm(z) + gamma * size * (size * norm(z) + norm(y))
            hint = "prox_l2 does not minimise γ/2‖Ax−y‖² + ½‖x−z‖²"
            laws.append(
                Law(f"prox_l2, γ = {gamma:g}", float((norm(slope) / terms).max()), bound, hint)
            )
    return OperatorReport(_name(operator), tuple(laws), size)


def _difference(a: Tensor, b: Tensor) -> float:
    """Largest relative distance of an image in ``a`` from ``b``; infinite for other shapes."""
    if a.shape != b.shape:
        return float("inf")
    return float((norm(a - b) / norm(b).clamp_min(torch.finfo(b.dtype).tiny)).max())


def _batch_error(op: Any, x: Tensor, y: Tensor) -> float:
    """How far the first measurement moves when other images stand beside it."""
    other = 0.5 * x.flip(-1)
    batch = torch.cat([x, other]) if len(x) == 1 else torch.cat([x[:1], other[1:]])
    return _difference(op.A(batch)[:1], y[:1])


def _vjp_error(op: Any, x: Tensor, v: Tensor) -> float:
    """``A_vjp`` against autograd; infinite where A does not keep the graph."""
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        y = op.A(leaf)
        if not y.requires_grad:
            return float("inf")
        (g,) = torch.autograd.grad(y, leaf, v)
    return _difference(op.A_vjp(x, v), g) if hasattr(op, "A_vjp") else 0.0


def _image_for(operator: Operator, generator: torch.Generator) -> Tensor:
    shape = getattr(operator, "image_shape", None)
    if shape is None:
        raise ArgumentError(
            f"x is None and {type(operator).__name__} has no image_shape; "
            "give an image (B, C, H, W)"
        )
    return torch.rand((2, *shape), generator=generator) * 2 - 1


def _name(operator: Operator) -> str:
    own = type(operator).__repr__ is not object.__repr__ and not isinstance(
        operator, torch.nn.Module
    )
    return repr(operator) if own else type(operator).__name__
