"""PnP-CM: ADMM whose proximal operator of the prior is a consistency model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pnpcm.core import Config, DataStep, Generators, Operator, Prior, Result, Step, ValueRange
from pnpcm.counted import CountedPrior
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.linalg import norm
from pnpcm.rng import per_image, randn_like
from pnpcm.schedules import ddpm_decay, inverse_softplus, linspace, softplus_ramp
from pnpcm.solvers.data_steps import ProxStep


@dataclass(frozen=True)
class PnPCMConfig(Config):
    """Numbers of a PnP-CM run, in execution order and for images in [-1, 1].

    ``sigmas``: injected noise; ``deltas``: the prior is told (1 + δ_k) σ_k; ``rhos``: penalties as
    the equation uses them; ``mu``: momentum, a float means μ/k in iteration k = 1, 2, …, a tuple
    gives each value. ``noise_scale=0`` switches injection off (the prior still gets
    (1 + δ_k) σ_k). ``init="auto"`` takes the operator's own start where it has one.
    """

    sigmas: tuple[float, ...]
    deltas: tuple[float, ...]
    rhos: tuple[float, ...]
    mu: float | tuple[float, ...] = 0.0
    noise_scale: float = 1.0
    clamp: bool = True
    init: str = "auto"
    data_step: DataStep = field(default_factory=ProxStep)

    def __post_init__(self) -> None:
        for name in ("sigmas", "deltas", "rhos"):
            object.__setattr__(self, name, tuple(float(v) for v in getattr(self, name)))
        if isinstance(self.mu, tuple | list):
            object.__setattr__(self, "mu", tuple(float(v) for v in self.mu))
        n = len(self.sigmas)
        if n == 0:
            raise ArgumentError("sigmas is empty; give one noise level per iteration")
        for name in ("deltas", "rhos") + (("mu",) if isinstance(self.mu, tuple) else ()):
            if len(getattr(self, name)) != n:
                raise ArgumentError(
                    f"{name} has {len(getattr(self, name))} entries for {n} sigmas; "
                    "give one per iteration"
                )
        _check_each("sigmas", self.sigmas, lambda s: s > 0, "positive")
        _check_each("deltas", self.deltas, lambda d: d > -1, "above -1")
        hint = "; the paper's tables list values before softplus, see schedules.softplus_ramp"
        _check_each("rhos", self.rhos, lambda r: r > 0, "positive", hint)
        _check_each("mu", self.momentum, lambda m: m >= 0, "≥ 0")
        if not (math.isfinite(self.noise_scale) and self.noise_scale >= 0):
            raise ArgumentError(f"noise_scale must be ≥ 0, got {self.noise_scale}")
        if self.init not in ("auto", "zero"):
            raise ArgumentError(f"init must be 'auto' or 'zero', got {self.init!r}")

    @property
    def n_steps(self) -> int:
        return len(self.sigmas)

    @property
    def momentum(self) -> tuple[float, ...]:
        """μ_k of each iteration."""
        if isinstance(self.mu, tuple):
            return self.mu
        return tuple(self.mu / (k + 1) for k in range(self.n_steps))

    @classmethod
    def from_paper(
        cls,
        i_N: int,
        decay: float,
        deltas: tuple[float, ...],
        rho: tuple[float, float],
        mu: float,
        index_offset: int = 2,
        *,
        data_step: DataStep | None = None,
    ) -> PnPCMConfig:
        """The paper's letters: start index i_N, decay γ, δ, ends of ρ before softplus, μ_N."""
        n = len(deltas)
        return cls(
            sigmas=ddpm_decay(i_N, decay, n, index_offset=index_offset),
            deltas=tuple(deltas),
            rhos=softplus_ramp(*rho, n),
            mu=mu,
            data_step=ProxStep() if data_step is None else data_step,
        )

    def with_steps(self, n: int) -> PnPCMConfig:
        """The same run in ``n`` iterations.

        δ (and a tuple of μ) are interpolated, ρ keeps its ends before softplus, and the decay
        (1 + γ) of 1 − σ² is chosen anew so that the first and last σ stay. One iteration keeps
        the first values. Levels of 1 and above are spaced evenly in ln σ instead.
        """
        if n < 1:
            raise ArgumentError(f"n must be at least 1, got {n}")
        if n == self.n_steps:
            return self
        first, last = self.sigmas[0], self.sigmas[-1]
        if first < 1:
            a, b = (math.log1p(-(s**2)) for s in (first, last))
            sigmas = tuple(math.sqrt(-math.expm1(v)) for v in linspace(a, b, n))
        else:
            sigmas = tuple(math.exp(v) for v in linspace(math.log(first), math.log(last), n))
        rho_ends = inverse_softplus(self.rhos[0]), inverse_softplus(self.rhos[-1])
        mu = _interpolate(self.mu, n) if isinstance(self.mu, tuple) else self.mu
        deltas = _interpolate(self.deltas, n)
        return replace(self, sigmas=sigmas, deltas=deltas, rhos=softplus_ramp(*rho_ends, n), mu=mu)


class PnPCM:
    r"""ADMM whose prior step is a noise-injected consistency model, with momentum.

    .. math::
        z_k &= \operatorname{argmin}_z \tfrac12\|A(z) - y\|^2
               + \tfrac{\rho_k}{2}\|z - (\tilde x - \tilde u)\|^2 \\
        x_k &= f_\theta\big(z_k + \tilde u + \sigma_k n,\ (1+\delta_k)\,\sigma_k\big),
               \quad n \sim N(0, I) \\
        u_k &= \tilde u + z_k - x_k \\
        (\tilde x, \tilde u) &= (x_k, u_k) + \mu_k\big[(x_k, u_k) - (x_{k-1}, u_{k-1})\big]

    Costs ``n_steps`` prior calls. Source: Gülle et al., PnP-CM (CVPR 2026), Algorithm 1.

    >>> result = PnPCM(prior, PRESETS["celeba-hq/superres-4"].solver)(y, operator, generator=g)
    """

    def __init__(self, prior: Prior, config: PnPCMConfig) -> None:
        if not isinstance(config, PnPCMConfig):
            raise ArgumentError(
                f"config must be a PnPCMConfig, got {type(config).__name__}; "
                "a preset's configuration is PRESETS[name].solver"
            )
        self.prior, self.config = prior, config

    @torch.no_grad()
    def __call__(
        self,
        y: Tensor,
        operator: Operator,
        *,
        generator: Generators | None = None,
        x_init: Tensor | None = None,
        callback: Callable[[Step], None] | None = None,
        value_range: ValueRange = (-1.0, 1.0),
    ) -> Result:
        """Reconstruct the batch ``y``.

        ``value_range`` is the range of images as the operator sees them; deepinv users pass
        (0, 1). ``generator``: one for the batch or one per image, needed unless noise is off.
        """
        config, (low, high) = self.config, value_range
        if not bool(torch.isfinite(y).all()):
            raise ArgumentError("y holds NaN or infinity; mask or repair the measurement first")
        start = time.perf_counter()
        prior = CountedPrior(self.prior, value_range)
        unit = (high - low) / 2  # configurations are quoted for [-1, 1]
        x = self._start(y, operator, x_init, (low + high) / 2)
        noisy = config.noise_scale > 0
        generators = per_image(generator, len(x)) if noisy or generator is not None else []
        u = torch.zeros_like(x)
        x_ahead, u_ahead = x, u
        z_prev = self._z_start(y, operator, generators)
        residuals = []
        steps = zip(config.sigmas, config.deltas, config.rhos, config.momentum, strict=True)
        for k, (sigma, delta, rho, mu) in enumerate(steps, start=1):
            z = config.data_step(x_ahead - u_ahead, y, operator, rho, z_prev=z_prev)
            noised = z + u_ahead
            if noisy:
                noise = randn_like(noised, generators)
                noised = noised + config.noise_scale * sigma * unit * noise
            x_next = prior(noised, (1 + delta) * sigma * unit)
            if config.clamp:
                x_next = x_next.clamp(low, high)
            u_next = u_ahead + z - x_next
            x_ahead = x_next + mu * (x_next - x)
            u_ahead = u_next + mu * (u_next - u)
            moved = norm(x_next - x) + norm(z - (x if z_prev is None else z_prev))
            residuals.append((moved + norm(u_next - u)) / math.sqrt(x[0].numel()))
            x, u, z_prev = x_next, u_next, z
            if callback is not None:
                callback(Step(k=k, sigma=sigma, rho=rho, x=x, z=z, u=u))
        seconds = time.perf_counter() - start
        return Result(x, prior.nfe, prior.vjps, seconds, torch.stack(residuals))

    def _start(self, y: Tensor, operator: Operator, x_init: Tensor | None, middle: float) -> Tensor:
        if x_init is not None:
            if not bool(torch.isfinite(x_init).all()):
                raise ArgumentError("x_init holds NaN or infinity; give a finite start")
            return x_init.clone()
        if self.config.init == "auto" and hasattr(operator, "x_start"):
            x: Tensor = operator.x_start(y)
            return x
        real = y.real.dtype if y.is_complex() else y.dtype
        return torch.full(_image_shape(y, operator), middle, dtype=real, device=y.device)

    def _z_start(
        self, y: Tensor, operator: Operator, generators: list[torch.Generator]
    ) -> Tensor | None:
        """Where an iterative data step begins: the operator's own start, else None (v)."""
        offered = getattr(operator, "z_start", None)
        return None if offered is None else offered(y, generators or None)


def _image_shape(y: Tensor, operator: Operator) -> tuple[int, ...]:
    if hasattr(operator, "x_shape"):
        return tuple(operator.x_shape(y))
    if hasattr(operator, "A_adjoint"):
        return tuple(operator.A_adjoint(y).shape)
    raise OperatorError(
        f"{type(operator).__name__} has neither x_shape nor A_adjoint, so the shape of the image "
        "is unknown; give x_init"
    )


def _check_each(
    name: str, values: tuple[float, ...], holds: Callable[[float], bool], what: str, hint: str = ""
) -> None:
    for k, value in enumerate(values):
        if not (math.isfinite(value) and holds(value)):
            raise ArgumentError(f"{name} must be {what}, got {name}[{k}] = {value}{hint}")


def _interpolate(values: tuple[float, ...], n: int) -> tuple[float, ...]:
    """``values`` resampled at ``n`` evenly spaced places, ends kept, linear in between."""
    last, out = len(values) - 1, []
    for position in linspace(0.0, float(last), n):
        i = min(int(position), max(last - 1, 0))
        j = min(i + 1, last)
        out.append(values[i] + (position - i) * (values[j] - values[i]))
    return tuple(out)
