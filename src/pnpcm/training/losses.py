"""LOSSES: training losses of priors, with one interface.

``loss(nets, batch)`` returns one number per image, ``(B,)``. A loss is a frozen configuration with
the kind of prior that it trains, whether it needs a teacher, and the EMA rate of its target
network. All random numbers come from the generators of the batch, one per image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.linalg import expand
from pnpcm.names import Table
from pnpcm.schedules import SIGMA_MAX, SIGMA_MIN
from pnpcm.training.cosign_loss import CosignLoss
from pnpcm.training.step import DISTANCES, Batch, Denoiser, Loss, Nets, neighbours


@dataclass(frozen=True)
class EDMLoss(Config):
    r"""Denoising: w(σ) ‖D(x + σn, σ) − x‖²/P with w = 1/σ² + 1/σ_data², Karras et al. (2022).

    ln σ ~ N(P_mean, P_std²); a fraction ``wide`` of the batch is log-uniform in ``wide_range``
    instead, so that levels far above the data are trained too.
    """

    P_mean: float = -1.2
    P_std: float = 1.2
    wide: float = 0.0
    wide_range: tuple[float, float] = (2.0, SIGMA_MAX)
    kind: ClassVar[str] = "edm"
    needs_teacher: ClassVar[bool] = False

    def __call__(self, nets: Nets, batch: Batch) -> Tensor:
        u, g, n = batch.draw()
        sigma = log_normal(g, u, self.P_mean, self.P_std, self.wide, self.wide_range)
        weight = 1 / sigma**2 + 1 / nets.sigma_data**2
        denoised = nets.student(batch.x + expand(sigma, n) * n, sigma)
        return weight * DISTANCES["l2"](denoised, batch.x)

    def target_rate(self, step: int, steps: int) -> float | None:
        return None


@dataclass(frozen=True)
class DistillLoss(Config):
    r"""Consistency distillation: d(f(x_t, t), f⁻(x̂_t2, t2)), Song et al. (2023), eq. 7.

    t = σ_i, t2 = σ_{i+1} on the ``points``-point Karras grid, i uniform; x̂_t2 is one Heun step of
    the teacher's dx/dσ = (x − D)/σ from x_t; the target f⁻ follows with rate ``ema``.
    """

    points: int = 40
    distance: str = "l2"
    ema: float = 0.95
    kind: ClassVar[str] = "consistency"
    needs_teacher: ClassVar[bool] = True

    def __call__(self, nets: Nets, batch: Batch) -> Tensor:
        if nets.teacher is None:
            raise ArgumentError("teacher is None, but distillation needs one; give its file")
        u, _, n = batch.draw()
        t, t2 = neighbours(u, nets.grid(self.points))
        x_t = batch.x + expand(t, n) * n
        with torch.no_grad():
            x_t2 = heun_step(nets.teacher, x_t, t, t2)
        return consistency(nets, self.distance, x_t, t, x_t2, t2)

    def target_rate(self, step: int, steps: int) -> float | None:
        return self.ema


@dataclass(frozen=True)
class ConsistencyLoss(Config):
    r"""Consistency training without a teacher: x̂_t2 = x + t2 n with the noise of x_t.

    The grid grows and the target slows down along the run, :func:`ct_schedule`.
    """

    s0: int = 2
    s1: int = 150
    mu0: float = 0.95
    distance: str = "l2"
    kind: ClassVar[str] = "consistency"
    needs_teacher: ClassVar[bool] = False

    def __call__(self, nets: Nets, batch: Batch) -> Tensor:
        u, _, n = batch.draw()
        points, _ = ct_schedule(batch.step / batch.steps, self.s0, self.s1, self.mu0)
        t, t2 = neighbours(u, nets.grid(points))
        x_t, x_t2 = (batch.x + expand(s, n) * n for s in (t, t2))
        return consistency(nets, self.distance, x_t, t, x_t2, t2)

    def target_rate(self, step: int, steps: int) -> float | None:
        return ct_schedule(step / steps, self.s0, self.s1, self.mu0)[1]


@dataclass(frozen=True)
class ECTLoss(Config):
    r"""Easy consistency tuning of a diffusion network: d(f(x_t, t), f(x_r, r))/(t − r) + a L(t).

    r = max(σ_min, t (1 − n(t)/q^a)), n(t) = 1 + k·sigmoid(−b t), a = 1 + ⌊step/stage⌋: t − r
    decreases with each stage. Same noise for both; no target network. Geng et al. (2024).

    Their d is a norm, here its smooth form ("huber"). With the squared norm ("l2") levels near
    σ_min, which fix the solution, have almost no weight, and our networks collapsed to
    f = c_skip x after a few stages.

    ``anchor`` a > 0 adds the denoising loss L(t) = (1/t² + 1/σ_data²) ‖f(x_t, t) − x‖²/P of the
    same output: one evaluation then stays near the mean of what x_t allows, at the price of an f
    that is no longer the end of the probability flow alone.
    """

    q: float = 2.0
    k: float = 8.0
    b: float = 1.0
    stage: int = 1000
    P_mean: float = -1.1
    P_std: float = 2.0
    wide: float = 0.0
    wide_range: tuple[float, float] = (2.0, SIGMA_MAX)
    distance: str = "huber"
    anchor: float = 0.0
    kind: ClassVar[str] = "consistency"
    needs_teacher: ClassVar[bool] = False

    def __call__(self, nets: Nets, batch: Batch) -> Tensor:
        u, g, n = batch.draw()
        t = log_normal(g, u, self.P_mean, self.P_std, self.wide, self.wide_range)
        t = t.clamp(1.01 * nets.sigma_min, nets.sigma_max)  # at σ_min itself r would equal t
        r = self.lower(t, batch.step, nets.sigma_min)
        x_t, x_r = (batch.x + expand(s, n) * n for s in (t, r))
        end = target_of(nets, x_r, r)
        start = nets.student(x_t, t)
        anchor = (1 / t**2 + 1 / nets.sigma_data**2) * DISTANCES["l2"](start, batch.x)
        return DISTANCES[self.distance](start, end) / (t - r) + self.anchor * anchor

    def __post_init__(self) -> None:
        if not 0 <= self.anchor < math.inf:
            raise ArgumentError(f"anchor must be ≥ 0, got {self.anchor}; 0 leaves it out")

    def lower(self, t: Tensor, step: int, sigma_min: float = SIGMA_MIN) -> Tensor:
        """r(t) at this step."""
        ratio = self.q ** -(1 + step // self.stage)
        closeness = 1 + self.k * torch.sigmoid(-self.b * t)
        return (t * (1 - closeness * ratio)).clamp_min(sigma_min)

    def target_rate(self, step: int, steps: int) -> float | None:
        return None


LOSSES: Table[type[Loss]] = Table(
    "training method",
    {
        "edm": EDMLoss,
        "distill": DistillLoss,
        "consistency": ConsistencyLoss,
        "ect": ECTLoss,
        "cosign": CosignLoss,
    },
)


def consistency(
    nets: Nets, distance: str, x_t: Tensor, t: Tensor, x_r: Tensor, r: Tensor
) -> Tensor:
    """d(f(x_t, t), stopgrad f⁻(x_r, r))."""
    end = target_of(nets, x_r, r)
    return DISTANCES[distance](nets.student(x_t, t), end)


def target_of(nets: Nets, x: Tensor, sigma: Tensor) -> Tensor:
    """stopgrad f⁻(x, σ); the pass of the student after it has the same dropout."""
    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices), torch.no_grad():
        return (nets.target or nets.student)(x, sigma)


def heun_step(denoiser: Denoiser, x: Tensor, t: Tensor, t2: Tensor) -> Tensor:
    """One step of dx/dσ = (x − D(x, σ))/σ from σ = t to t2, second order."""
    dt = expand(t2 - t, x)
    slope = (x - denoiser(x, t)) / expand(t, x)
    euler = x + dt * slope
    slope2 = (euler - denoiser(euler, t2)) / expand(t2, x)
    return x + dt * (slope + slope2) / 2


def ct_schedule(fraction: float, s0: int, s1: int, mu0: float) -> tuple[int, float]:
    """Grid points N and target EMA rate after this fraction of the run, Song et al. (2023).

    N' = max(1, ⌈√(k/K ((s1 + 1)² − s0²) + s0²) − 1⌉), N = N' + 1, rate = exp(s0 ln(μ0)/N').
    """
    root = math.sqrt(fraction * ((s1 + 1) ** 2 - s0**2) + s0**2)
    n = max(1, math.ceil(root - 1))
    return n + 1, math.exp(s0 * math.log(mu0) / n)


def log_normal(
    g: Tensor, u: Tensor, mean: float, std: float, wide: float, wide_range: tuple[float, float]
) -> Tensor:
    """exp(mean + std g) where u ≥ wide, else log-uniform in ``wide_range`` (u/wide is uniform)."""
    low, high = (math.log(value) for value in wide_range)
    spread = torch.exp(low + (high - low) * u / max(wide, 1e-12))
    return torch.where(u < wide, spread, torch.exp(mean + std * g))
