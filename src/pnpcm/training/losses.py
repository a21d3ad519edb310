"""LOSSES: ways to train a prior, one face.

``loss(nets, batch)`` gives one number per image, ``(B,)``. A loss is a frozen configuration: it
says which kind of prior it trains, whether it needs a teacher, and how fast its target network
follows the student. All randomness comes from the generators of the batch, one per image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.linalg import expand
from pnpcm.operators import OPERATORS, measure
from pnpcm.schedules import SIGMA_MAX, SIGMA_MIN, karras
from pnpcm.solvers.problem import back_projection
from pnpcm.tables import Table
from pnpcm.training.distances import DISTANCES
from pnpcm.training.measuring import operator_for

Denoiser = Callable[..., Tensor]
"""(x, sigma) → clean image; the student of CoSIGN is shown a hint as well."""


@dataclass(frozen=True)
class Nets:
    """The networks of a training step as functions (x, sigma) → clean image, and their levels."""

    student: Denoiser
    target: Denoiser | None = None
    teacher: Denoiser | None = None
    sigma_data: float = 0.5
    sigma_min: float = SIGMA_MIN
    sigma_max: float = SIGMA_MAX

    def grid(self, points: int) -> Tensor:
        """σ_max … σ_min, ``points`` of them."""
        return torch.tensor(karras(points, self.sigma_min, self.sigma_max))


@dataclass(frozen=True)
class Batch:
    """Clean images ``(B, C, H, W)``, one generator each, and where in the run we are."""

    x: Tensor
    generators: list[torch.Generator]
    step: int
    steps: int

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Per image: a uniform number and a normal one, ``(B,)``, and noise like ``x``."""
        u = torch.stack([torch.rand((), generator=g) for g in self.generators])
        g = torch.stack([torch.randn((), generator=g) for g in self.generators])
        shape = self.x.shape[1:]
        n = torch.stack([torch.randn(shape, generator=g) for g in self.generators])
        return u.to(self.x), g.to(self.x), n.to(self.x)


class Loss(Protocol):
    """What the loop knows of a loss."""

    kind: ClassVar[str]
    needs_teacher: ClassVar[bool]

    def __call__(self, nets: Nets, batch: Batch) -> Tensor: ...

    def target_rate(self, step: int, steps: int) -> float | None:
        """EMA rate of the target network at this step; None: there is none."""
        ...


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
            raise ArgumentError("teacher is None, but distillation follows one; name its file")
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
    r"""Easy consistency tuning of a diffusion network: d(f(x_t, t), f(x_r, r))/(t − r).

    r = max(σ_min, t (1 − n(t)/q^a)), n(t) = 1 + k·sigmoid(−b t), a = 1 + ⌊step/stage⌋: the pairs
    close in stage by stage. Same noise for both; no target network. Geng et al. (2024).

    Their d is a norm, here its smooth form ("huber"). With the squared norm ("l2") levels near
    σ_min, which hold the solution in place, have almost no weight, and our networks collapsed to
    f = c_skip x after a few stages.
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
    kind: ClassVar[str] = "consistency"
    needs_teacher: ClassVar[bool] = False

    def __call__(self, nets: Nets, batch: Batch) -> Tensor:
        u, g, n = batch.draw()
        t = log_normal(g, u, self.P_mean, self.P_std, self.wide, self.wide_range)
        t = t.clamp(1.01 * nets.sigma_min, nets.sigma_max)  # at σ_min itself r would equal t
        r = self.lower(t, batch.step, nets.sigma_min)
        x_t, x_r = (batch.x + expand(s, n) * n for s in (t, r))
        return consistency(nets, self.distance, x_t, t, x_r, r) / (t - r)

    def lower(self, t: Tensor, step: int, sigma_min: float = SIGMA_MIN) -> Tensor:
        """r(t) at this step."""
        ratio = self.q ** -(1 + step // self.stage)
        closeness = 1 + self.k * torch.sigmoid(-self.b * t)
        return (t * (1 - closeness * ratio)).clamp_min(sigma_min)

    def target_rate(self, step: int, steps: int) -> float | None:
        return None


@dataclass(frozen=True)
class CosignLoss(Config):
    r"""Reconstruction with a ControlNet beside a frozen consistency model: d(f(x_t, t, h), x).

    h = back(A(x) + noise) with A the ``operator`` (its name and ``options``), noise of
    noise_std = 2 ``sigma_y``, drawn afresh each time, and so are the masks of "inpainting"; t is
    any level but the last of the ``points``-point Karras grid. d is the sum of ``distances``,
    name → weight. ``scaled_hint``: see ``ControlledModel``; short runs want it False. Zhao et al.,
    CoSIGN (ECCV 2024), whose d is LPIPS alone.
    """

    operator: str = "superresolution"
    options: dict[str, Any] = field(default_factory=dict)
    sigma_y: float = 0.05
    points: int = 40
    distances: dict[str, float] = field(default_factory=lambda: {"lpips": 1.0})
    scaled_hint: bool = True
    kind: ClassVar[str] = "control"
    needs_teacher: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = OPERATORS[self.operator]
        weights = {name: float(weight) for name, weight in self.distances.items()}
        object.__setattr__(self, "distances", weights)
        _ = [DISTANCES[name] for name in weights]
        if not weights or min(weights.values()) <= 0:
            raise ArgumentError(
                f"distances must map names to weights > 0, got {self.distances}; "
                f"known: {', '.join(DISTANCES)}"
            )
        if self.points < 2 or self.sigma_y < 0:
            raise ArgumentError(
                f"points must be ≥ 2 and sigma_y ≥ 0, got {self.points} and {self.sigma_y}"
            )

    @property
    def task(self) -> dict[str, Any]:
        """What the ControlNet is trained for, as its file tells it."""
        return {
            "operator": self.operator, "options": dict(self.options), "sigma_y": self.sigma_y
        }  # fmt: skip

    def __call__(self, nets: Nets, batch: Batch) -> Tensor:
        u, _, n = batch.draw()
        t, _ = neighbours(u, nets.grid(self.points))
        hint = self.hint(batch.x, batch.generators)
        x_0 = nets.student(batch.x + expand(t, n) * n, t, hint=hint)
        parts = [weight * DISTANCES[d](x_0, batch.x) for d, weight in self.distances.items()]
        return torch.stack(parts).sum(0)

    def hint(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        """A fresh measurement of each image, as an image."""
        operator = operator_for(self.operator, self.options, x, generators)
        return back_projection(operator, measure(operator, x, self.sigma_y, generator=generators))

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
    """d(f(x_t, t), stopgrad f⁻(x_r, r)); both passes see the same dropout."""
    target = nets.target or nets.student
    devices = [x_t.device] if x_t.is_cuda else []
    with torch.random.fork_rng(devices), torch.no_grad():
        end = target(x_r, r)
    return DISTANCES[distance](nets.student(x_t, t), end)


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


def neighbours(u: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """(σ_i, σ_{i+1}) of a grid of N levels, i = ⌊u (N − 1)⌋: uniform if u is."""
    i = (u * (len(grid) - 1)).long().clamp_max(len(grid) - 2)
    return grid.to(u)[i], grid.to(u)[i + 1]


def log_normal(
    g: Tensor, u: Tensor, mean: float, std: float, wide: float, wide_range: tuple[float, float]
) -> Tensor:
    """exp(mean + std g) where u ≥ wide, else log-uniform in ``wide_range`` (u/wide is uniform)."""
    low, high = (math.log(value) for value in wide_range)
    spread = torch.exp(low + (high - low) * u / max(wide, 1e-12))
    return torch.where(u < wide, spread, torch.exp(mean + std * g))
