"""METHODS: what a fair tuning searches for each solver, and how the numbers found become a run.

Every method has the same budget, and its first trial is what its authors published. ``fraction``:
the share of its published evaluations at which a slow method is tuned (and then runs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pnpcm.core import Config, DataStep
from pnpcm.pipeline.rules import Numbers
from pnpcm.presets import PRESETS
from pnpcm.solvers import (
    CM4IRConfig,
    CMIterativeConfig,
    CoSIGNConfig,
    DDRMConfig,
    DDSConfig,
    DiffPIRConfig,
    DPIRConfig,
    DPnPConfig,
    DPSConfig,
    PiGDMConfig,
    PnPADMMConfig,
    PnPCMConfig,
    PnPDMConfig,
    ProxStep,
    TVConfig,
    WienerConfig,
)
from pnpcm.solvers.level_grids import log_falling
from pnpcm.tables import Table

Values = dict[str, Any]
Axis = tuple[float, float, bool] | tuple[bool, bool]
"""Lowest, highest, logarithmic; or two choices."""


@dataclass(frozen=True)
class Setting:
    """What a configuration must know of the problem: its name, its noise, how it is solved."""

    task: str
    noise_std: float
    linear: bool = True
    data_step: DataStep = field(default_factory=ProxStep)
    frame: Mapping[str, Any] = field(default_factory=dict)
    """What PnP-CM does not search: data step, start, clamping."""


@dataclass(frozen=True)
class Method:
    """``space`` of numbers, the published ``first`` ones, and ``build``, which makes a run."""

    build: Callable[[Values, Setting], Config]
    space: Mapping[str, Axis]
    first: Callable[[Setting], Values]
    fraction: float = 1.0


PNP_CM_SPACE: dict[str, Axis] = {
    "sigma_start": (0.05, 1.5, True),
    "fall": (0.05, 1.0, True),
    "delta": (0.0, 1.5, False),
    "weight": (0.03, 10.0, True),
    "injection": (False, True),
}
SCANS = ("r4", "r8")
FIFTH = 0.2
TEMPERATURE = (0.3, 3.0, True)  # factor on the noise a method is told


def _pnp_cm(values: Values, s: Setting) -> Config:
    start, delta, weight = values["sigma_start"], values["delta"], values["weight"]
    return PnPCMConfig.geometric(
        (start, start * values["fall"]),
        n=8 if s.task == "phase-retrieval" else 4,
        noise_std=s.noise_std,
        delta=delta,
        weight=weight,
        mu=0.2,
        noise_scale=float(values["injection"]),
        **s.frame,
    )


def _pnp_cm_published(s: Setting) -> Values:
    """The paper's row, as far as five numbers have it."""
    name = f"fastmri/pd-{s.task}" if s.task in SCANS else f"celeba-hq/{s.task}"
    row = Numbers.of(PRESETS[name].solver, s.noise_std)
    values = {
        "sigma_start": row.sigma_start,
        "fall": row.sigma_end / row.sigma_start,
        "delta": (row.delta_start + row.delta_end) / 2,
        "weight": math.sqrt(row.weight_start * row.weight_end),
    }
    return {k: _within(v, PNP_CM_SPACE[k]) for k, v in values.items()} | {"injection": True}


def _dps(values: Values, s: Setting) -> Config:
    return DPSConfig(n_steps=round(FIFTH * 1000), zeta=values["zeta"], clamp=_clamps(s))


def _pigdm(values: Values, s: Setting) -> Config:
    return PiGDMConfig(
        weight=values["weight"],
        variant="ddim" if values["ddim"] else "official",
        noise_aware=values["noise_aware"] and s.linear,
        noise_std=s.noise_std,
    )


def _diffpir(values: Values, s: Setting) -> Config:
    return DiffPIRConfig(**values, noise_std=s.noise_std, clamp=_clamps(s))


def _dpnp(values: Values, s: Setting) -> Config:
    start = values["eta_start"]
    falling = log_falling(start, max(start * values["fall"], 0.02), 12)
    return DPnPConfig(
        etas=(start,) * 4 + tuple(float(f"{eta:.4g}") for eta in falling),
        noise_std=values["temperature"] * s.noise_std,
        warm_zeta=values["warm_zeta"],
        langevin_scale=values["langevin_scale"],
        clamp=_clamps(s),
    ).scaled(FIFTH)


def _pnp_dm(values: Values, s: Setting) -> Config:
    return PnPDMConfig(
        rho_min=values["rho_min"],
        noise_std=values["temperature"] * s.noise_std,
        langevin_rate=values["langevin_rate"],
        grid="vp",
    ).scaled(FIFTH)


def _cm4ir(values: Values, s: Setting) -> Config:
    return CM4IRConfig.from_paper(
        round(values["i_N"]),
        values["decay"],
        zeta=values["zeta"],
        eta=values["eta"],
        deltas=(values["delta"],) * 4,
        noise_std=s.noise_std,
        delta_in_scalings=True,
    )


def _cosign(values: Values, s: Setting) -> Config:
    second, last = values["sigma_second"], values["sigma_last"]
    levels = (80.0, second, (second * last) ** 0.5, last)
    return CoSIGNConfig(sigmas=levels, hard=values["hard"], noise_std=s.noise_std)


def _pnp_admm(values: Values, s: Setting) -> Config:
    return PnPADMMConfig(
        sigma_start=values["sigma_start"],
        sigma_end=values["sigma_start"] * values["fall"],
        weight=values["weight"],
        noise_std=s.noise_std,
        clamp=_clamps(s),
        data_step=s.data_step,
    )


def _dpir(values: Values, s: Setting) -> Config:
    return DPIRConfig(
        sigma_start=values["sigma_start"],
        sigma_end=values["sigma_start"] * values["fall"],
        lam=values["lam"],
        noise_std=s.noise_std,
        data_step=s.data_step,
    )


def _ddrm(values: Values, s: Setting) -> Config:
    noise_std = values["temperature"] * s.noise_std
    return DDRMConfig(eta=values["eta"], eta_b=values["eta_b"], noise_std=noise_std)


def _wiener(values: Values, s: Setting) -> Config:
    mean = -0.1 if _clamps(s) else 0.0
    return WienerConfig(noise_std=values["temperature"] * s.noise_std, mean=mean)


def _clamps(s: Setting) -> bool:
    """An MR image has no largest value that is known beforehand."""
    return s.task not in SCANS


def _within(value: float, axis: Axis) -> float:
    return min(max(value, axis[0]), axis[1])


def _fixed(**values: Any) -> Callable[[Setting], Values]:
    return lambda s: values


METHODS: Table[Method] = Table(
    "method",
    {
        "pnp-cm": Method(_pnp_cm, PNP_CM_SPACE, _pnp_cm_published),
        "dps": Method(
            _dps,
            {"zeta": (0.03, 10.0, True)},
            lambda s: {"zeta": 0.85 if not _clamps(s) else 0.3},
            FIFTH,
        ),
        "pigdm": Method(
            _pigdm,
            {"weight": (0.05, 5.0, True), "noise_aware": (False, True), "ddim": (False, True)},
            _fixed(weight=1.0, noise_aware=False, ddim=False),
        ),
        "diffpir": Method(
            _diffpir,
            {"lam": (0.05, 25.0, True), "zeta": (0.05, 1.0, False)},
            _fixed(lam=1.75, zeta=0.3),
        ),
        "dpnp": Method(
            _dpnp,
            {
                "eta_start": (0.1, 2.0, True),
                "fall": (0.05, 1.0, True),
                "temperature": TEMPERATURE,
                "warm_zeta": (0.1, 10.0, True),
                "langevin_scale": (0.05, 3.0, True),
            },
            _fixed(eta_start=0.4, fall=0.4, temperature=1.0, warm_zeta=0.8, langevin_scale=0.6),
            FIFTH,
        ),
        "pnp-dm": Method(
            _pnp_dm,
            {
                "rho_min": (0.02, 0.6, True),
                "temperature": TEMPERATURE,
                "langevin_rate": (1e-6, 1e-3, True),
            },
            _fixed(rho_min=0.3, temperature=1.0, langevin_rate=1e-4),
            FIFTH,
        ),
        "dds": Method(
            lambda values, s: DDSConfig(**values),
            {"eta": (0.0, 1.0, False), "gamma": (0.05, 100.0, True)},
            _fixed(eta=0.85, gamma=1.0),
        ),
        "cm-iterative": Method(
            lambda values, s: CMIterativeConfig(**values, noise_std=s.noise_std, clamp=_clamps(s)),
            {"reg": (1e-4, 1.0, True), "final_denoise": (False, True)},
            _fixed(reg=1e-3, final_denoise=False),
        ),
        "cm4ir": Method(
            _cm4ir,
            {
                "i_N": (20, 600, True),
                "decay": (0.01, 0.8, True),
                "zeta": (0.0, 8.0, False),
                "eta": (0.0, 1.0, False),
                "delta": (0.0, 1.0, False),
            },
            _fixed(i_N=150, decay=0.2, zeta=0.0, eta=0.1, delta=0.0),
        ),
        "cosign": Method(
            _cosign,
            {
                "sigma_second": (1.0, 40.0, True),
                "sigma_last": (0.05, 1.0, True),
                "hard": (False, True),
            },
            _fixed(sigma_second=16.8, sigma_last=0.47, hard=False),
        ),
        "pnp-admm": Method(
            _pnp_admm,
            {
                "sigma_start": (0.05, 3.0, True),
                "fall": (0.02, 1.0, True),
                "weight": (0.03, 30.0, True),
            },
            lambda s: {"sigma_start": 0.4, "fall": min(1.0, s.noise_std / 0.4), "weight": 1.0},
        ),
        "dpir": Method(
            _dpir,
            {
                "sigma_start": (0.05, 3.0, True),
                "fall": (0.02, 1.0, True),
                "lam": (0.01, 10.0, True),
            },
            lambda s: {
                "sigma_start": 2 * 49 / 255,
                "fall": min(1.0, s.noise_std / (2 * 49 / 255)),
                "lam": 0.23,
            },
        ),
        "ddrm": Method(
            _ddrm,
            {"eta": (0.0, 1.0, False), "eta_b": (0.0, 1.0, False), "temperature": TEMPERATURE},
            _fixed(eta=0.85, eta_b=1.0, temperature=1.0),
        ),
        "tv": Method(
            lambda values, s: TVConfig(**values),
            {"weight": (1e-3, 1.0, True)},
            _fixed(weight=0.05),
        ),
        "wiener": Method(_wiener, {"temperature": TEMPERATURE}, _fixed(temperature=1.0)),
    },
)
