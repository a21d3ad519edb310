"""Descent on smooth objectives (gradient descent, Adam, L-BFGS), with decisions per image.

``objective(z)`` returns the loss ``(B,)`` and the gradient of each image; the functions below
return the last iterate. An image that has converged (tol > 0) is frozen while others continue.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pnpcm.linalg import expand, inner, norm

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

    The first step is ``lr`` times the negative gradient; afterwards steps start at 1. An image
    whose line search fails, or whose relative step is below ``tol``, stops.
    """
    loss, g = objective(z)
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
        pending = moving & (slope < 0)
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
            t = torch.where(pending, 0.5 * t, t)
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
