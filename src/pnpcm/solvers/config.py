"""PnPCMConfig: the parameters of a PnP-CM run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

from pnpcm.core import Config, DataStep
from pnpcm.errors import ArgumentError
from pnpcm.schedules import (
    ddpm_decay,
    decay_from,
    inverse_softplus,
    linspace,
    softplus,
    softplus_ramp,
)
from pnpcm.solvers.data_steps import ProxStep

FAMILIES = ("ddpm", "geometric", "explicit")
RULES = ("ends", "released")
INITS = ("auto", "zero", "z_start", "extension")


@dataclass(frozen=True)
class PnPCMConfig(Config):
    """Parameters of a PnP-CM run, in execution order and for images in [-1, 1].

    ``sigmas``: injected noise; ``deltas``: the prior is evaluated at (1 + δ_k) σ_k; ``rhos``:
    penalties as in the equation; ``mu``: momentum, a float means μ/k in iteration k = 1, 2, …, a
    tuple gives each value. ``noise_scale=0`` switches injection off (the prior is still evaluated
    at (1 + δ_k) σ_k). ``init="auto"``: the operator's own start if it has one, ``"z_start"``: the
    start of its first data step (for JPEG the decoded image), ``"extension"``: known pixels
    extended into the holes of inpainting, for other linear operators of real images a smooth image
    that explains y.

    ``family``: rule of the levels, which :meth:`with_steps` keeps: ``"ddpm"`` (1 − σ² grows by the
    factor 1 + ``decay`` per step up to 0.9999), ``"geometric"``, or ``"explicit"``. Levels that do
    not follow the given family are stored as explicit.
    """

    sigmas: tuple[float, ...]
    deltas: tuple[float, ...]
    rhos: tuple[float, ...]
    mu: float | tuple[float, ...] = 0.0
    noise_scale: float = 1.0
    clamp: bool = True
    init: str = "auto"
    data_step: DataStep = field(default_factory=ProxStep)
    family: str = "explicit"
    decay: float | None = None

    def __post_init__(self) -> None:
        for name in ("sigmas", "deltas", "rhos"):
            object.__setattr__(self, name, _floats(name, getattr(self, name)))
        single = isinstance(self.mu, float | int)
        object.__setattr__(self, "mu", float(self.mu) if single else _floats("mu", self.mu))  # type: ignore[arg-type]
        if not callable(self.data_step):
            raise ArgumentError(
                f"data_step is {self.data_step!r}, expected ProxStep(), CGStep(…) or "
                "GradientStep(…)"
            )
        n = len(self.sigmas)
        if n == 0:
            raise ArgumentError("sigmas is empty; give one noise level per iteration")
        for name in ("deltas", "rhos") + (("mu",) if isinstance(self.mu, tuple) else ()):
            if len(getattr(self, name)) != n:
                raise ArgumentError(
                    f"{name} has {len(getattr(self, name))} entries for {n} sigmas; "
                    "give one per iteration"
                )
        softplus_hint = (
            "; the paper's tables list values before softplus, see schedules.softplus_ramp"
        )
        for name, low, what, hint in (
            ("sigmas", 0, "positive", ""),
            ("deltas", -1, "above -1", ""),
            ("rhos", 0, "positive", softplus_hint),
        ):
            for k, value in enumerate(getattr(self, name)):
                if not low < value < math.inf:
                    raise ArgumentError(f"{name} must be {what}, got {name}[{k}] = {value}{hint}")
        for k, value in enumerate(self.momentum):
            if not 0 <= value < math.inf:
                raise ArgumentError(f"mu must be ≥ 0, got mu[{k}] = {value}")
        if not (math.isfinite(self.noise_scale) and self.noise_scale >= 0):
            raise ArgumentError(f"noise_scale must be ≥ 0, got {self.noise_scale}")
        if self.init not in INITS:
            raise ArgumentError(f"init must be one of {', '.join(INITS)}, got {self.init!r}")
        if self.family not in FAMILIES:
            raise ArgumentError(f"family must be one of {', '.join(FAMILIES)}, got {self.family!r}")
        if self.family == "ddpm" and (self.decay is None or not 0 <= self.decay < math.inf):
            raise ArgumentError(f"family 'ddpm' needs a decay ≥ 0, got {self.decay}")
        if not self._follows_family():
            object.__setattr__(self, "family", "explicit")
        if self.family != "ddpm":
            object.__setattr__(self, "decay", None)

    def _follows_family(self) -> bool:
        """Whether the levels are those of the family, to the precision of a preset file."""
        first, last, made = self.sigmas[0], self.sigmas[-1], self.sigmas
        if self.family == "geometric":
            made = _geometric((first, last), self.n_steps)
        elif self.family == "ddpm":
            if first >= 1:
                return False
            made = decay_from(first, cast(float, self.decay), self.n_steps)
        pairs = zip(self.sigmas, made, strict=True)
        return all(math.isclose(a, b, rel_tol=2e-3) for a, b in pairs)

    @property
    def n_steps(self) -> int:
        return len(self.sigmas)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run."""
        return self.n_steps

    @classmethod
    def example(cls) -> PnPCMConfig:
        """A short run for the laws."""
        return cls.geometric((0.5, 0.1), n=3, noise_std=0.1, mu=0.2)

    @property
    def told(self) -> tuple[float, ...]:
        """(1 + δ_k) σ_k, the levels passed to the prior."""
        return tuple((1 + d) * s for d, s in zip(self.deltas, self.sigmas, strict=True))

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
        """From the paper's symbols: start index i_N, decay γ, δ, ends of ρ before softplus, μ_N."""
        n = len(deltas)
        return cls(
            sigmas=ddpm_decay(i_N, decay, n, index_offset=index_offset),
            deltas=tuple(deltas),
            rhos=softplus_ramp(*rho, n),
            mu=mu,
            data_step=ProxStep() if data_step is None else data_step,
            family="ddpm",
            decay=decay,
        )

    @classmethod
    def geometric(
        cls,
        sigmas: tuple[float, float],
        *,
        n: int,
        noise_std: float,
        delta: float | tuple[float, float] = 0.0,
        weight: float | tuple[float, float] = 1.0,
        mu: float = 0.0,
        noise_scale: float = 1.0,
        init: str = "auto",
        clamp: bool = True,
        data_step: DataStep | None = None,
    ) -> PnPCMConfig:
        """Geometric levels between two ends, ρ_k = weight_k (noise_std/σ_k)².

        With weight 1, ρ_k is the MAP weight of a data term with noise ``noise_std`` and a denoiser
        of level σ_k; the prior is evaluated at (1 + delta_k) σ_k. Two deltas (weights) are the ends
        of a linear (geometric) sequence.
        """
        levels = _geometric(sigmas, n)
        weights = _geometric(weight if isinstance(weight, tuple) else (weight, weight), n)
        return cls(
            sigmas=levels,
            deltas=linspace(*delta, n) if isinstance(delta, tuple) else (delta,) * n,
            rhos=tuple(w * (noise_std / s) ** 2 for w, s in zip(weights, levels, strict=True)),
            mu=mu,
            noise_scale=noise_scale,
            init=init,
            clamp=clamp,
            data_step=ProxStep() if data_step is None else data_step,
            family="geometric",
        )

    def with_steps(self, n: int, *, rule: str = "ends") -> PnPCMConfig:
        """This configuration with ``n`` iterations: its sequences at ``n`` evenly spaced positions.

        First and last values stay (one iteration keeps the first). The levels passed to the prior,
        (1 + δ) σ, are interpolated in ln and so stay within their range; σ follows its family, ρ is
        interpolated before softplus (ddpm) or in ln, a tuple of μ linearly.

        ``rule="released"``, for the paper's schedules (ddpm): the effect of ``T_sampling`` in the
        authors' code. The decay per step stays, so that more iterations end at a lower level and
        fewer at a higher one; the ends of ρ and the first μ stay. That code takes one δ per
        iteration from the user, or 0.1; here 1 + δ is interpolated in ln.
        """
        if n != int(n) or n < 1:
            raise ArgumentError(f"n must be a whole number, at least 1, got {n}")
        if rule not in RULES:
            raise ArgumentError(f"rule must be 'ends' or 'released', got {rule!r}")
        if rule == "released" and self.family != "ddpm":
            raise ArgumentError(
                f"rule is 'released', which keeps the decay of the paper's schedules; this one is "
                f"{self.family}: leave rule out"
            )
        n = int(n)
        if n == self.n_steps:
            return self
        decay = self.decay
        if rule == "ends" and decay is not None:
            decay = math.expm1(math.log1p(decay) * (self.n_steps - 1) / max(n - 1, 1))
        if decay is None:
            sigmas = _resampled(self.sigmas, n, math.log, math.exp)
            rhos = _resampled(self.rhos, n, math.log, math.exp)
        else:
            sigmas = decay_from(self.sigmas[0], decay, n)
            rhos = _resampled(self.rhos, n, inverse_softplus, softplus)
        if rule == "ends":
            told = _resampled(self.told, n, math.log, math.exp)
            deltas = tuple(t / s - 1 for t, s in zip(told, sigmas, strict=True))
        else:
            deltas = _resampled(self.deltas, n, math.log1p, math.expm1)
        mu = _resampled(self.mu, n) if isinstance(self.mu, tuple) else self.mu
        return replace(self, sigmas=sigmas, deltas=deltas, rhos=rhos, mu=mu, decay=decay)


def _geometric(ends: tuple[float, float], n: int) -> tuple[float, ...]:
    return tuple(math.exp(v) for v in linspace(math.log(ends[0]), math.log(ends[1]), n))


def _floats(name: str, values: object) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name} is {values!r}, expected a tuple of numbers, one per iteration"
        ) from error


def _resampled(
    values: tuple[float, ...],
    n: int,
    to: Callable[[float], float] = float,
    back: Callable[[float], float] = float,
) -> tuple[float, ...]:
    """``values`` at ``n`` evenly spaced positions with both ends, linear in ``to(value)``."""
    last, out = len(values) - 1, []
    for position in linspace(0.0, float(last), n):
        i = min(int(position), max(last - 1, 0))
        j = min(i + 1, last)
        share = position - i
        if share in (0.0, 1.0):  # exact, also where to and back round
            out.append(values[j] if share else values[i])
        else:
            out.append(back(to(values[i]) + share * (to(values[j]) - to(values[i]))))
    return tuple(out)
