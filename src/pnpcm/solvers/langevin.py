"""Langevin draws from exp(−‖A(z)−y‖²/2 noise_std² − ‖z−x‖²/2 eta²), for nonlinear operators."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.linalg import expand
from pnpcm.solvers.base import Run
from pnpcm.solvers.data_steps import data_objective


def coupled_langevin(
    run: Run, x: Tensor, noise_std: float, eta: float, *, n_steps: int, scale: float
) -> Tensor:
    r"""DPnP's draw: the quadratic coupling is integrated exactly, with one step size per image.

    .. math::
        h &= \text{scale} \min(\sigma_n^2, \eta^2) / (50 + \|y - A(z)\|), \quad
        E = 1 - e^{-h/\eta^2} \\
        z &\leftarrow z + E (x - z) - \eta^2 E\, A'(z)^T (A(z) - y)/\sigma_n^2
              + \eta \sqrt{1 - e^{-2h/\eta^2}}\, n
    """
    misfit, z = data_objective(x, run.y, run.operator, 0.0), x
    for _ in range(n_steps):
        half_square, gradient = misfit(z)
        h = scale * min(noise_std**2, eta**2) / (50 + torch.sqrt(2 * half_square))
        E = expand(-torch.expm1(-h / eta**2), z)
        spread = expand(eta * torch.sqrt(-torch.expm1(-2 * h / eta**2)), z)
        z = z + E * (x - z) - (eta / noise_std) ** 2 * E * gradient + spread * run.noise(z)
    return z


def plain_langevin(
    run: Run, x: Tensor, noise_std: float, eta: float, *, n_steps: int, rate: float
) -> Tensor:
    r"""PnP-DM's draw: unadjusted Langevin steps of constant size γ.

    .. math::
        z \leftarrow z - \gamma \nabla \|y - A(z)\|^2/2\sigma^2 - \gamma (z - x)/\eta^2
        + \sqrt{2\gamma}\, n
    """
    # the gradient of the whole exponent is that of the data objective over noise_std²
    objective, z = data_objective(x, run.y, run.operator, (noise_std / eta) ** 2), x
    for _ in range(n_steps):
        _, gradient = objective(z)
        z = z - rate / noise_std**2 * gradient + (2 * rate) ** 0.5 * run.noise(z)
    return z
