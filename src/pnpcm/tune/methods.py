"""METHODS: the search space of each solver in the fair tuning, and its configuration.

Every method has the same budget, and its first trial has the parameters of its authors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pnpcm.baselines import SCANS
from pnpcm.core import Config, DataStep
from pnpcm.names import Table
from pnpcm.presets import PRESETS
from pnpcm.recon.rule import Numbers
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

Values = dict[str, Any]
Axis = tuple[float, float, bool] | tuple[bool, bool]
"""Lowest, highest, logarithmic; or two choices."""


@dataclass(frozen=True)
class Setting:
    """The problem of a configuration: its task, its noise, its data step."""

    task: str
    noise_std: float
    linear: bool = True
    data_step: DataStep = field(default_factory=ProxStep)
    frame: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of PnP-CM that are not searched: data step, start, clamping."""

    @property
    def clamps(self) -> bool:
        """Whether images are clamped to ±1; MR images have no known largest value."""
        return self.task not in SCANS


@dataclass(frozen=True)
class Method:
    """The search ``space``, the published ``first`` values, and ``build``: values → configuration.

    ``fraction``: the share of its published evaluations at which a slow method is tuned.
    ``published``: the published configuration, if ``space`` contains only a similar one.
    """

    build: Callable[[Values, Setting], Config]
    space: Mapping[str, Axis]
    first: Callable[[Setting], Values]
    fraction: float = 1.0
    published: Callable[[Setting], Config] | None = None


FIFTH = 0.2
"""Share of their published evaluations at which slow methods are tuned."""
TEMPERATURE = (0.3, 3.0, True)
"""Axis of a factor on the noise level that a method is given."""


def fixed(**values: Any) -> Callable[[Setting], Values]:
    """Published numbers that are the same for every problem."""
    return lambda s: values


PNP_CM_SPACE: dict[str, Axis] = {
    "sigma_start": (0.05, 3.0, True),
    "fall": (0.1, 1.0, True),
    "weight_start": (0.03, 10.0, True),
    "weight_end": (0.1, 10.0, True),
    "noise_scale": (0.0, 1.0, False),
}
"""Levels passed to the model, (1 + δ)σ, the ends of ρ as in the paper, relative to the MAP weight,
and the share of injected noise; δ = 0, since it would be redundant. Five numbers, as for CM4IR;
one weight instead of two was worse on training crops in all six linear studies."""


def _pnp_cm(values: Values, s: Setting) -> Config:
    start = values["sigma_start"]
    return PnPCMConfig.geometric(
        (start, start * values["fall"]),
        n=8 if s.task == "phase-retrieval" else 4,
        noise_std=s.noise_std,
        delta=0.0,
        weight=(values["weight_start"], values["weight_end"]),
        mu=0.2,
        noise_scale=values["noise_scale"],
        **s.frame,
    )


def _pnp_cm_published(s: Setting) -> PnPCMConfig:
    name = f"fastmri/pd-{s.task}" if s.task in SCANS else f"celeba-hq/{s.task}"
    return replace(PRESETS[name].solver, **s.frame)


def _pnp_cm_first(s: Setting) -> Values:
    """The paper's parameters, as far as the five numbers can represent them."""
    row = Numbers.of(_pnp_cm_published(s), s.noise_std)
    told = 1 + (row.delta_start + row.delta_end) / 2
    values = {
        "sigma_start": told * row.sigma_start,
        "fall": row.sigma_end / row.sigma_start,
        "weight_start": told**2 * row.weight_start,
        "weight_end": told**2 * row.weight_end,
        "noise_scale": 1 / told,
    }
    return {k: _within(v, PNP_CM_SPACE[k]) for k, v in values.items()}


def _within(value: float, axis: Axis) -> float:
    return min(max(value, axis[0]), axis[1])


def _cm4ir(values: Values, s: Setting) -> Config:
    """CM4IR; scans have a hundred times the loading, since noise and values of A are small."""
    config = CM4IRConfig.from_paper(
        round(values["i_N"]),
        values["decay"],
        zeta=values["zeta"] * (1 if s.clamps else 100),
        eta=values["eta"],
        deltas=(values["delta"],) * 4,
        noise_std=s.noise_std,
        delta_in_scalings=True,
    )
    return replace(config, clamp=s.clamps)


def _cm4ir_published(s: Setting) -> Values:
    """The row for bedrooms at σ_y = 0.05 (δ of inpainting: mean); MRI has no published row."""
    rows = {"superres-4": (250, 0.2, 0.0, 0.0), "deblur-gauss": (150, 0.05, 1.0, 0.0)}
    i_N, decay, zeta, delta = rows.get(s.task, (150, 0.2, 0.0, 0.525))
    return {"i_N": i_N, "decay": decay, "zeta": zeta, "eta": 0.1, "delta": delta}


def _cosign(values: Values, s: Setting) -> Config:
    second, last = values["sigma_second"], values["sigma_last"]
    levels = (80.0, second, (second * last) ** 0.5, last)
    return CoSIGNConfig(sigmas=levels, hard=values["hard"], noise_std=s.noise_std)


def _wiener(values: Values, s: Setting) -> Config:
    mean = -0.1 if s.clamps else 0.0
    return WienerConfig(noise_std=values["temperature"] * s.noise_std, mean=mean)


ON_CONSISTENCY: dict[str, Method] = {
    "pnp-cm": Method(_pnp_cm, PNP_CM_SPACE, _pnp_cm_first, published=_pnp_cm_published),
    "cm-iterative": Method(
        lambda values, s: CMIterativeConfig(**values, noise_std=s.noise_std, clamp=s.clamps),
        {"reg": (1e-4, 1.0, True), "final_denoise": (False, True)},
        fixed(reg=1e-3, final_denoise=False),
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
        _cm4ir_published,
    ),
    "cosign": Method(
        _cosign,
        {
            "sigma_second": (1.0, 40.0, True),
            "sigma_last": (0.05, 1.0, True),
            "hard": (False, True),
        },
        fixed(sigma_second=16.8, sigma_last=0.47, hard=False),
    ),
    "tv": Method(
        lambda values, s: TVConfig(**values),
        {"weight": (1e-4, 1.0, True)},
        fixed(weight=0.05),
    ),
    "wiener": Method(_wiener, {"temperature": TEMPERATURE}, fixed(temperature=1.0)),
}


def _dps(values: Values, s: Setting) -> Config:
    return DPSConfig(n_steps=round(FIFTH * 1000), zeta=values["zeta"], clamp=s.clamps)


def _dps_published(s: Setting) -> Values:
    special = {"inpaint-70": 0.5, "phase-retrieval": 1.0}
    return {"zeta": special.get(s.task, 0.3) if s.clamps else 0.85}


def _pigdm(values: Values, s: Setting) -> Config:
    """The paper's form for noisy linear problems; there is none for nonlinear ones."""
    return PiGDMConfig(
        weight=values["weight"],
        variant="ddim" if values["ddim"] else "official",
        noise_aware=s.linear,
        noise_std=s.noise_std,
    )


def _diffpir(values: Values, s: Setting) -> Config:
    return DiffPIRConfig(**values, noise_std=s.noise_std, clamp=s.clamps)


def _diffpir_published(s: Setting) -> Values:
    """λ is a quarter of the official one, see ``DiffPIRConfig``."""
    if s.task == "inpaint-70":
        return {"lam": 1 / 4, "zeta": 1.0}
    return {"lam": 7 / 4, "zeta": 0.25 if s.task == "superres-4" else 0.3}


def _dpnp(values: Values, s: Setting) -> Config:
    start = values["eta_start"]
    falling = log_falling(start, max(start * values["fall"], 0.02), 12)
    return DPnPConfig(
        etas=(start,) * 4 + tuple(float(f"{eta:.4g}") for eta in falling),
        noise_std=values["temperature"] * s.noise_std,
        warm_zeta=values["warm_zeta"],
        langevin_scale=values["langevin_scale"],
        clamp=s.clamps,
    ).scaled(FIFTH)


def _pnp_dm(values: Values, s: Setting) -> Config:
    return PnPDMConfig(
        eta_min=values["eta_min"],
        mode="ode" if values["ode"] else "sde",
        noise_std=values["temperature"] * s.noise_std,
        langevin_rate=values["langevin_rate"],
        grid="vp",
    ).scaled(FIFTH)


def _pnp_admm(values: Values, s: Setting) -> Config:
    return PnPADMMConfig(
        sigma_start=values["sigma_start"],
        sigma_end=values["sigma_start"] * values["fall"],
        weight=values["weight"],
        noise_std=s.noise_std,
        clamp=s.clamps,
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


ON_DIFFUSION: dict[str, Method] = {
    "dps": Method(_dps, {"zeta": (0.03, 10.0, True)}, _dps_published, FIFTH),
    "pigdm": Method(
        _pigdm,
        {"weight": (0.05, 5.0, True), "ddim": (False, True)},
        fixed(weight=1.0, ddim=False),
        published=lambda s: PiGDMConfig(noise_std=s.noise_std),  # has no noise model
    ),
    "diffpir": Method(
        _diffpir,
        {"lam": (0.05, 25.0, True), "zeta": (0.05, 1.0, False)},
        _diffpir_published,
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
        fixed(eta_start=0.4, fall=0.4, temperature=1.0, warm_zeta=0.8, langevin_scale=0.6),
        FIFTH,
    ),
    "pnp-dm": Method(
        _pnp_dm,
        {
            "eta_min": (0.02, 0.6, True),
            "ode": (False, True),
            "temperature": TEMPERATURE,
            "langevin_rate": (1e-6, 1e-3, True),
        },
        fixed(eta_min=0.3, ode=False, temperature=1.0, langevin_rate=1e-4),
        FIFTH,
    ),
    "dds": Method(
        lambda values, s: DDSConfig(**values),
        {"eta": (0.0, 1.0, False), "gamma": (0.05, 100.0, True)},
        fixed(eta=0.85, gamma=1.0),
    ),
    "ddrm": Method(
        _ddrm,
        {"eta": (0.0, 1.0, False), "eta_b": (0.0, 1.0, False), "temperature": TEMPERATURE},
        fixed(eta=0.85, eta_b=1.0, temperature=1.0),
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
}


METHODS: Table[Method] = Table("method", ON_CONSISTENCY | ON_DIFFUSION)
