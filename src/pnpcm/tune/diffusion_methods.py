"""Fair tuning of methods on a diffusion prior: what is searched, and how it becomes a run."""

from __future__ import annotations

from pnpcm.core import Config
from pnpcm.solvers import (
    DDRMConfig,
    DDSConfig,
    DiffPIRConfig,
    DPIRConfig,
    DPnPConfig,
    DPSConfig,
    PiGDMConfig,
    PnPADMMConfig,
    PnPDMConfig,
)
from pnpcm.solvers.level_grids import log_falling
from pnpcm.tune.method import FIFTH, TEMPERATURE, Method, Setting, Values, fixed


def _dps(values: Values, s: Setting) -> Config:
    return DPSConfig(n_steps=round(FIFTH * 1000), zeta=values["zeta"], clamp=s.clamps)


def _dps_published(s: Setting) -> Values:
    special = {"inpaint-70": 0.5, "phase-retrieval": 1.0}
    return {"zeta": special.get(s.task, 0.3) if s.clamps else 0.85}


def _pigdm(values: Values, s: Setting) -> Config:
    """The paper's form for noisy linear problems; nonlinear ones have none."""
    return PiGDMConfig(
        weight=values["weight"],
        variant="ddim" if values["ddim"] else "official",
        noise_aware=s.linear,
        noise_std=s.noise_std,
    )


def _diffpir(values: Values, s: Setting) -> Config:
    return DiffPIRConfig(**values, noise_std=s.noise_std, clamp=s.clamps)


def _diffpir_published(s: Setting) -> Values:
    """λ a quarter of the official one, see ``DiffPIRConfig``."""
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
        published=lambda s: PiGDMConfig(noise_std=s.noise_std),  # the code, which knows no noise
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
