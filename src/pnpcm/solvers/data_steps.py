"""Data steps, argmin_z ½‖A(z) − y‖² + ρ/2 ‖z − v‖²: prox, CG, gradient, cells, strips."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Config, DataStep, Operator
from pnpcm.errors import ArgumentError, OperatorError, ShapeError
from pnpcm.linalg import cg, expand, inner, like_form, norm, normal_map

OPTIMIZERS = ("sgd", "adam", "lbfgs")


@dataclass(frozen=True)
class ProxStep(Config):
    """The operator's ``prox_l2(v, y, 1/ρ)``; CG to rounding for a linear operator without it."""

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        prox = getattr(operator, "prox_l2", None)
        if prox is None and hasattr(operator, "A_adjoint"):
            bits = torch.finfo(v.dtype).bits
            return CGStep(500, 1e-7 if bits == 32 else 1e-11)(v, y, operator, rho, z_prev=None)
        if prox is None:
            raise OperatorError(
                f"{type(operator).__name__} has no prox_l2; "
                "give PnPCMConfig(data_step=GradientStep(…))"
            )
        z: Tensor = prox(v, y, 1 / rho)
        return z


@dataclass(frozen=True)
class CGStep(Config):
    """(AᵀA + ρ) z = Aᵀy + ρv by conjugate gradients, one step length per image.

    ``start="zero"`` with ten iterations and no tolerance is the paper's MRI setting;
    ``"warm"`` starts at the previous z (at v in the first iteration).
    """

    max_iter: int = 10
    tol: float = 0.0
    start: str = "zero"

    def __post_init__(self) -> None:
        if self.max_iter < 1:
            raise ArgumentError(f"max_iter must be at least 1, got {self.max_iter}")
        if self.start not in ("zero", "warm"):
            raise ArgumentError(f"start must be 'zero' or 'warm', got {self.start!r}")
        if self.tol < 0:
            raise ArgumentError(f"tol must be ≥ 0, got {self.tol}")

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        adjoint = getattr(operator, "A_adjoint", None)
        if adjoint is None:
            raise OperatorError(
                f"{type(operator).__name__} has no A_adjoint, CG needs a linear operator; "
                "give PnPCMConfig(data_step=GradientStep(…))"
            )
        normal = normal_map(operator)
        x_init = None if self.start == "zero" else v if z_prev is None else z_prev
        return cg(
            lambda p: normal(p) + rho * p,
            like_form(adjoint(y), v) + rho * v,
            x_init=x_init,
            max_iter=self.max_iter,
            tol=self.tol,
        )


@dataclass(frozen=True)
class GradientStep(Config):
    """Descent on the objective, for any differentiable operator; starts at the previous z.

    ``optimizer``: ``"sgd"`` (plain descent, also ``"gd"``), ``"adam"``, or ``"lbfgs"``, which
    needs few operator calls and no tuning (``lr``: its first step, ``lr_decay``: unused). The step
    size is multiplied by ``lr_decay`` whenever the image's loss has grown. ``tol``: relative step
    below which an image stops; 0 runs all ``n_iter`` steps. ``reference=True`` reproduces the
    authors' code: gradients accumulate over the steps and the first step always decays; their
    JPEG step size works only with this.
    """

    optimizer: str = "lbfgs"
    lr: float = 1.0
    n_iter: int = 30
    lr_decay: float = 0.8
    tol: float = 0.0
    reference: bool = False

    def __post_init__(self) -> None:
        name = str(self.optimizer).lower()
        object.__setattr__(self, "optimizer", "sgd" if name == "gd" else name)
        if self.optimizer not in OPTIMIZERS:
            raise ArgumentError(
                f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}"
            )
        if not 0 < self.lr < math.inf:
            raise ArgumentError(f"lr must be positive and finite, got {self.lr}")
        if self.n_iter < 1:
            raise ArgumentError(f"n_iter must be at least 1, got {self.n_iter}")
        if not 0 < self.lr_decay <= 1:
            raise ArgumentError(f"lr_decay must lie in (0, 1], got {self.lr_decay}")
        if self.tol < 0:
            raise ArgumentError(f"tol must be ≥ 0, got {self.tol}")
        if self.reference and self.optimizer == "lbfgs":
            raise ArgumentError("reference=True belongs to 'sgd' or 'adam', got 'lbfgs'")

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        objective = data_objective(v, y, operator, rho)
        z = v if z_prev is None else z_prev
        common: dict[str, Any] = {"lr": self.lr, "n_iter": self.n_iter, "tol": self.tol}
        if self.optimizer == "lbfgs":
            return lbfgs(objective, z, **common)
        return gradient_descent(
            objective,
            z,
            lr_decay=self.lr_decay,
            adam=self.optimizer == "adam",
            accumulate=self.reference,
            decay_first=self.reference,
            **common,
        )


class data_objective:
    """L(z) = ½‖A(z) − y‖² + ρ/2 ‖z − v‖² of each image, with its gradient."""

    def __init__(self, v: Tensor, y: Tensor, operator: Operator, rho: float) -> None:
        self.v, self.y, self.operator, self.rho = v, y, operator, rho

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = z.detach().requires_grad_()
            residual = self.operator.A(leaf) - self.y
            if residual.is_complex():
                residual = torch.view_as_real(residual)
            misfit = residual.square().reshape(len(residual), -1).sum(1)
            gap = leaf - self.v
            gap = torch.view_as_real(gap) if gap.is_complex() else gap
            distance = gap.square().flatten(1).sum(1)
            loss = 0.5 * misfit + 0.5 * self.rho * distance
            if not misfit.requires_grad:
                raise OperatorError(
                    f"A of {type(self.operator).__name__} is not differentiable; write it with "
                    "torch operations that keep the graph"
                )
            (g,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), g


@dataclass(frozen=True)
class ProjectStep(Config):
    """argmin_z ‖z − v‖² over all z with A(z) = y: ``operator.project(v, y)``.

    The data step of a measurement without noise, independent of ρ: the rounded coefficients of a
    JPEG file only determine the quantization cell of the true ones.
    """

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        project = getattr(operator, "project", None)
        if project is None:
            raise OperatorError(
                f"{type(operator).__name__} has no project(v, y); use ProxStep or GradientStep"
            )
        z: Tensor = project(v, y)
        return z


@dataclass(frozen=True)
class CellMeanStep(Config):
    """E[z | A(z) = y] for z ~ N(v, e²/ρ): ``operator.mean_in_cells(v, y, e/√ρ)``.

    e is ``operator.rounding_std``, so that ρ has the scale of a measurement with noise of e. The
    mean where :class:`ProjectStep` takes the nearest point, which is the most probable one: a
    coefficient that v puts outside its cell is moved into the cell, not onto its edge.
    """

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        mean, error = (getattr(operator, n, None) for n in ("mean_in_cells", "rounding_std"))
        if mean is None or error is None:
            raise OperatorError(
                f"{type(operator).__name__} has no mean_in_cells(v, y, std) and rounding_std; use "
                "ProxStep or GradientStep"
            )
        z: Tensor = mean(v, y, error / math.sqrt(rho))
        return z


@dataclass(frozen=True)
class StripStep(Config):
    """``inner`` on strips of about ``rows`` rows in turn, with the memory of one strip.

    For operators that act on cells of ``operator.row_cell`` rows, as JPEG does. Strips are whole
    cells, so the problem separates exactly and each strip has its own step lengths and stops.
    If cells depend on their neighbours (``operator.row_margin`` rows: interpolated chroma), each
    strip is solved with that many rows above and below, which are then dropped; dependence across
    two margins is neglected.
    """

    inner: DataStep
    rows: int = 512

    def __post_init__(self) -> None:
        if not callable(self.inner) or not isinstance(self.inner, Config):
            raise ArgumentError(
                f"inner is {self.inner!r}, expected a data step such as GradientStep(…)"
            )
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise ArgumentError(f"rows must be a whole number, at least 1, got {self.rows!r}")

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        cell, margin = _cells(operator)
        if y.shape[-2] != v.shape[-2]:
            raise ShapeError(
                f"y has {y.shape[-2]} rows and the image {v.shape[-2]}; StripStep needs them to "
                "correspond, so use its inner step"
            )
        z = torch.empty_like(v)
        for keep, seen in _strips(v.shape[-2], max(self.rows // cell, 1) * cell, margin):
            start = None if z_prev is None else z_prev[..., seen, :]
            strip = self.inner(v[..., seen, :], y[..., seen, :], operator, rho, z_prev=start)
            above = keep.start - seen.start
            z[..., keep, :] = strip[..., above : above + keep.stop - keep.start, :]
        return z


def _cells(operator: Operator) -> tuple[int, int]:
    """``row_cell`` and ``row_margin`` of the operator."""
    cell = getattr(operator, "row_cell", None)
    if cell is None:
        raise OperatorError(
            f"{type(operator).__name__} has no row_cell: its rows depend on each other and cannot "
            "be solved in strips; use the inner step of StripStep itself"
        )
    return int(cell), int(getattr(operator, "row_margin", 0))


def _strips(height: int, rows: int, margin: int) -> Iterator[tuple[slice, slice]]:
    """For each strip, the rows that it keeps and the rows that it is solved on."""
    for start in range(0, height, rows):
        stop = min(start + rows, height)
        yield slice(start, stop), slice(max(start - margin, 0), min(stop + margin, height))


# descent on smooth objectives: an image that has converged (tol > 0) is frozen -------------------
Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
Direction = Callable[[Tensor, int], Tensor]


def gradient_descent(
    objective: Objective,
    z: Tensor,
    *,
    lr: float,
    n_iter: int,
    lr_decay: float,
    tol: float = 0.0,
    adam: bool = False,
    accumulate: bool = False,
    decay_first: bool = False,
) -> Tensor:
    r"""z ← z − lr · d(g), where lr is multiplied by ``lr_decay`` whenever the loss has grown.

    d is the gradient, or Adam's direction (Kingma & Ba 2015, β = 0.9, 0.999). The authors' code
    never clears its gradients (``accumulate``: d is computed from g_0 + … + g_j, for plain descent
    a momentum of exactly 1) and compares the first loss with 0 (``decay_first``).
    """
    direction = _adam() if adam else _plain
    rate = torch.full((len(z),), lr, dtype=z.real.dtype, device=z.device)
    previous = torch.zeros_like(rate) if decay_first else torch.full_like(rate, torch.inf)
    moving = torch.ones_like(rate, dtype=torch.bool)
    total = torch.zeros_like(z)
    for j in range(n_iter):
        loss, g = objective(z)
        if accumulate:
            g = total = total + g
        step = expand(torch.where(moving, rate, 0), z) * direction(g, j)
        z = z - step
        rate = torch.where(loss > previous, rate * lr_decay, rate)
        previous = loss
        if tol > 0:
            moving = moving & (norm(step) > tol * norm(z))
            if not bool(moving.any()):
                break
    return z


def _plain(g: Tensor, j: int) -> Tensor:
    return g


def _adam(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Direction:
    first: Tensor | float = 0.0
    second: Tensor | float = 0.0

    def direction(g: Tensor, j: int) -> Tensor:
        nonlocal first, second
        first = beta1 * first + (1 - beta1) * g
        second = beta2 * second + (1 - beta2) * (g * g.conj()).real
        m = first / (1 - beta1 ** (j + 1))
        v = second / (1 - beta2 ** (j + 1))
        return m / (v.sqrt() + eps)

    return direction


def lbfgs(
    objective: Objective,
    z: Tensor,
    *,
    lr: float = 1.0,
    n_iter: int = 30,
    tol: float = 0.0,
    memory: int = 8,
    backtracks: int = 12,
) -> Tensor:
    r"""Limited-memory BFGS (Nocedal 1980) with Armijo backtracking, one history per image.

    The first step is ``lr`` times the negative gradient; afterwards steps start at 1. A step t that
    is refused is halved; the first one, whose scale is unknown, becomes the minimum of the parabola
    through L(z), its slope and L(z + t d) if that is smaller. An image stops if its line search
    fails, its relative step is below ``tol``, or the decrease that its slope promises is below the
    rounding of its loss.
    """
    loss, g = objective(z)
    eps = torch.finfo(loss.dtype).eps
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # s, y and 1/⟨s, y⟩ (0: not usable)
    moving = torch.ones_like(loss, dtype=torch.bool)
    for j in range(n_iter):
        d = -_two_loop(g, pairs)
        slope = inner(g, d)
        downhill = slope < 0
        d = torch.where(expand(downhill, d), d, -g)
        slope = torch.where(downhill, slope, -inner(g, g))
        t = torch.full_like(loss, lr if j == 0 else 1.0)
        z_next, loss_next, g_next = z, loss, g
        moving = moving & (slope < -eps * loss.abs())
        if not bool(moving.any()):
            break
        pending = moving
        for _ in range(backtracks):
            trial = z + expand(torch.where(pending, t, 0), d) * d
            trial_loss, trial_g = objective(trial)
            accepted = pending & (trial_loss <= loss + 1e-4 * t * slope)
            where = expand(accepted, z)
            z_next = torch.where(where, trial, z_next)
            g_next = torch.where(where, trial_g, g_next)
            loss_next = torch.where(accepted, trial_loss, loss_next)
            pending = pending & ~accepted
            if not bool(pending.any()):
                break
            shorter = 0.5 * t
            if j == 0:
                excess = (trial_loss - loss - t * slope).clamp_min(torch.finfo(t.dtype).tiny)
                shorter = torch.minimum(shorter, -0.5 * slope * t**2 / excess)
            t = torch.where(pending, shorter, t)
        s, y = z_next - z, g_next - g
        curvature = inner(s, y)
        usable = curvature > 1e-10 * inner(y, y)
        pairs.append((s, y, torch.where(usable, 1 / curvature.clamp_min(1e-30), 0)))
        pairs = pairs[-memory:]
        moving = moving & (norm(s) > tol * norm(z_next))
        z, loss, g = z_next, loss_next, g_next
        if not bool(moving.any()):
            break
    return z


def _two_loop(g: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """H g with the inverse-Hessian estimate H of the stored pairs (two-loop recursion)."""
    q, alphas = g, []
    for s, y, rho in reversed(pairs):
        alpha = rho * inner(s, q)
        q = q - expand(alpha, q) * y
        alphas.append(alpha)
    if pairs:
        _, y, rho = pairs[-1]
        scale = 1 / (rho * inner(y, y)).clamp_min(1e-30)
        q = expand(torch.where(rho > 0, scale, 1), q) * q
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        q = q + expand(alpha - rho * inner(y, q), q) * s
    return q
