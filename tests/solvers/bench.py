"""The Gaussian bench of docs/methods/README.md: everything about it is known exactly.

Prior N(M, S²) in four coordinates, A = diag(1, 0.6, 0, 0.3), noise 0.1. A chain is a row of an
image ``(B, 1, rows, 4)``; methods with a norm per image need chains as images of one row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ddpm import LEVELS
from pnpcm.core import Result
from pnpcm.operators.base import DecomposableOperator
from pnpcm.priors import DiffusionModel, GaussianPrior
from pnpcm.rng import generators
from pnpcm.solvers.base import SolverBase

MEAN = torch.tensor([0.2, -0.1, 0.0, 0.3], dtype=torch.float64)
STD = torch.tensor([1.0, 0.5, 0.3, 0.8], dtype=torch.float64)
GAINS = torch.tensor([1.0, 0.6, 0.0, 0.3], dtype=torch.float64)
NOISE_STD = 0.1
Y = torch.tensor([0.27216, -0.06347, 0.0, 0.20988], dtype=torch.float64)
POSTERIOR_MEAN = (0.2714, -0.1052, 0.0, 0.6405)
POSTERIOR_STD = (0.0995, 0.1581, 0.3000, 0.3077)


class Diagonal(DecomposableOperator):
    """A = diag(gains) on each row of the image."""

    def __init__(self, gains: Tensor = GAINS) -> None:
        super().__init__()
        self._gains = gains

    @property
    def singular_values(self) -> Tensor:
        return self._gains

    def U(self, c: Tensor) -> Tensor:
        return c

    U_adjoint = V = V_adjoint = U

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[Diagonal, Tensor]:
        raise NotImplementedError


class Disguised:
    """The bench's operator without its closed forms: solvers treat it as nonlinear."""

    linear = False

    def A(self, x: Tensor) -> Tensor:
        return GAINS * x

    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        return tuple(y.shape)


def prior(kind: str = "edm", mean: Tensor = MEAN, std: Tensor = STD) -> GaussianPrior:
    """The exact denoiser (``"edm"``) or consistency function, without an upper level."""
    return GaussianPrior(
        mean, std, kind=kind, sigma_min=0.002 if kind != "edm" else 0.0, sigma_max=1e6
    )


def denoised(x: Tensor, sigma: float) -> Tensor:
    """E[x₀ | x₀ + σn = x], written out."""
    return (STD**2 * x + sigma**2 * MEAN) / (STD**2 + sigma**2)


def flowed(x: Tensor, sigma: float) -> Tensor:
    """End of the probability flow from x at σ, at the level 0.002, written out."""
    return MEAN + (x - MEAN) * torch.sqrt((STD**2 + 0.002**2) / (STD**2 + sigma**2))


def vp_prior() -> DiffusionModel:
    """The same denoiser as a DDPM network that predicts noise at an index of the table."""
    levels = torch.tensor(LEVELS, dtype=torch.float64)

    def noise(u: Tensor, index: Tensor) -> Tensor:
        low = index.floor().clamp(0, 998).long()
        s = torch.exp(
            levels.log()[low] + (index - low) * (levels.log()[low + 1] - levels.log()[low])
        )
        s = s.reshape(-1, 1, 1, 1)
        x = u * torch.sqrt(1 + s**2)
        return (x - (STD**2 * x + s**2 * MEAN) / (STD**2 + s**2)) / s

    return DiffusionModel(noise, kind="vp")


def measurement(batch: int = 1, rows: int = 1) -> Tensor:
    return Y.expand(batch, 1, rows, 4).clone()


def sample(solver: SolverBase, *, batch: int = 1, rows: int = 1, seed: int = 0) -> Result:  # type: ignore[type-arg]
    """``batch × rows`` chains on the bench."""
    seeds = generators(range(seed, seed + batch))
    return solver(measurement(batch, rows), Diagonal(), generator=seeds)


def moments(result: Result) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the chains, each of four values."""
    chains = result.x.reshape(-1, 4)
    return chains.mean(0), chains.std(0)


def close(values: Tensor, expected: tuple[float, ...], tolerance: float = 0.01) -> None:
    """Agreement within the tolerance, with both sides in the message."""
    gap = (values - torch.tensor(expected, dtype=values.dtype)).abs().max()
    assert gap <= tolerance, f"{[round(float(v), 4) for v in values]} against {expected}"
