"""Fair tuning of methods on a consistency prior, and of those without weights."""

from __future__ import annotations

from dataclasses import replace

from pnpcm.baselines import SCANS
from pnpcm.core import Config
from pnpcm.presets import PRESETS
from pnpcm.recon.rule import Numbers
from pnpcm.solvers import (
    CM4IRConfig,
    CMIterativeConfig,
    CoSIGNConfig,
    PnPCMConfig,
    TVConfig,
    WienerConfig,
)
from pnpcm.tune.method import TEMPERATURE, Axis, Method, Setting, Values, fixed

PNP_CM_SPACE: dict[str, Axis] = {
    "sigma_start": (0.05, 3.0, True),
    "fall": (0.1, 1.0, True),
    "weight_start": (0.03, 10.0, True),
    "weight_end": (0.1, 10.0, True),
    "noise_scale": (0.0, 1.0, False),
}
"""Levels that the model is told, (1 + δ)σ, the ends of ρ as in the paper, relative to the exact
balance, and the share of injected noise: with δ = 0 none is there twice. Five numbers, as CM4IR's;
one weight in place of two did worse on training crops in all six linear studies."""


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
    """The paper's row, as far as five numbers have it."""
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
    """Scans get a hundred times the loading: their noise is small, and so are values of A."""
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
    """Bedrooms at σ_y = 0.05 (δ of inpainting: their mean); MRI has no published row."""
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
