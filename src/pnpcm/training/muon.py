"""Muon: orthogonalized momentum for weight matrices, AdamW for other parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

SMALLEST_SIDE = 8
"""A weight whose flattened matrix has a side of at most this uses AdamW."""
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    r"""Orthogonalized momentum, Jordan et al. (2024), with convolutions flattened to matrices.

    .. math::
        m &\leftarrow \beta m + g, \qquad u = g + \beta m, \\
        W &\leftarrow W - 0.2\,\eta\,\sqrt{\max(\text{rows}, \text{columns})}\; UV^\top,
        \quad u = U \Sigma V^\top,

    with :math:`UV^\top` from five Newton–Schulz iterations. A weight ``(out, …)`` counts as the
    matrix ``(out, rest)``. Biases, gains and matrices with a side of at most 8 use AdamW with the
    same learning rate (the factor 0.2 √max gives both updates the same root mean square).
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 1e-3,
        *,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        both = list(parameters)
        matrices = [p for p in both if _is_matrix(p)]
        others = [p for p in both if not _is_matrix(p)]
        groups = [
            {"params": group, "matrices": is_matrices}
            for group, is_matrices in ((matrices, True), (others, False))
            if group
        ]
        options: dict[str, Any] = {
            "lr": lr, "momentum": momentum, "betas": betas, "eps": eps,
            "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(groups, options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else closure()
        for group in self.param_groups:
            update = self._orthogonal if group["matrices"] else self._adam
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.sub_(group["lr"] * update(weight, weight.grad, group))
        return loss

    def _orthogonal(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state, beta = self.state[weight], group["momentum"]
        if not state:
            state["momentum"] = torch.zeros_like(gradient)
        m: Tensor = state["momentum"].mul_(beta).add_(gradient)
        u = (gradient + beta * m).flatten(1)
        return orthogonalize(u).view(weight.shape).mul_(0.2 * max(u.shape) ** 0.5)

    def _adam(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state, (beta1, beta2) = self.state[weight], group["betas"]
        if not state:
            state["step"] = torch.zeros(())
            state["m"], state["v"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        k = float(state["step"].add_(1))
        m: Tensor = state["m"].lerp_(gradient, 1 - beta1) / (1 - beta1**k)
        v: Tensor = state["v"].lerp_(gradient**2, 1 - beta2) / (1 - beta2**k)
        update: Tensor = m / (v.sqrt() + group["eps"])
        return update


def orthogonalize(u: Tensor, *, iterations: int = 5) -> Tensor:
    """About U Vᵀ of u = U Σ Vᵀ: X ← aX + (b XXᵀ + c (XXᵀ)²) X from u/‖u‖.

    The singular values of the result lie between about 0.7 and 1.2.
    """
    a, b, c = NEWTON_SCHULZ
    tall = u.shape[0] > u.shape[1]
    x: Tensor = (u.mT if tall else u) / (u.norm() + 1e-7)
    for _ in range(iterations):
        gram: Tensor = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def _is_matrix(weight: Tensor) -> bool:
    return weight.ndim >= 2 and min(weight.flatten(1).shape) > SMALLEST_SIDE
