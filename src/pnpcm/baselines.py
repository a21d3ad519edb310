"""BASELINES: parameters of PnP-CM and the comparison methods, as ``method/origin/task``.

Origins: ``official`` (the authors' code, in our units: images in [-1, 1], noise_std = 0.10 for
sigma_y = 0.05), ``lsun`` and ``fastmri`` (changes that the PnP-CM paper states), and the shipped
priors ``faces``, ``natural`` and ``mri``: the fair tuning with 12 trials, ``faces@60`` with 60, all
read from `data/baselines.json`, which `benchmarks/studies/tune_baselines.py` writes. Where a
publication has no value for a task, there is no row. The rows of PnP-CM are those of `presets`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pnpcm.core import Config
from pnpcm.names import Table
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
    PnPDMConfig,
)

SCANS = ("r4", "r8")
LINEAR = ("superres-4", "deblur-gauss", "inpaint-70")
NONLINEAR = ("jpeg-5", "nonlinear-deblur", "phase-retrieval")
TUNED_ON = ("faces", "natural", "mri")


@dataclass(frozen=True)
class Baseline:
    """A configuration of a method for a task, and the origin of its parameters."""

    method: str
    origin: str
    task: str
    solver: Config
    source: str

    @property
    def name(self) -> str:
        return f"{self.method}/{self.origin}/{self.task}"

    @property
    def tuned_on(self) -> str | None:
        """The shipped prior of a fair tuning; None: published parameters."""
        prior = self.origin.partition("@")[0]
        return prior if prior in TUNED_ON else None

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"solver": self.solver.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Baseline:
        return cls(**(values | {"solver": Config.from_dict(values["solver"])}))


def _published() -> list[Baseline]:
    noise = 0.10
    rows: list[tuple[str, str, Mapping[str, Config], str]] = []

    def add(method: str, origin: str, configs: Mapping[str, Config], source: str) -> None:
        rows.append((method, origin, configs, source))

    names = {t: f"celeba-hq/{t}" for t in LINEAR + NONLINEAR}
    paper = {t: PRESETS.get(f"{n}-reference", PRESETS[n]) for t, n in names.items()}
    knees = {t: PRESETS[f"fastmri/pd-{t}"].solver for t in SCANS}
    add("pnp-cm", "official", {t: row.solver for t, row in paper.items()}, "CelebA-HQ files")
    add("pnp-cm", "fastmri", knees, "PnP-CM, proton density")
    ffhq = {"superres-4": 0.3, "deblur-gauss": 0.3, "inpaint-70": 0.5, "nonlinear-deblur": 0.3}
    dps: dict[str, Config] = {k: DPSConfig(zeta=z) for k, z in ffhq.items()}
    add("dps", "official", dps | {"phase-retrieval": DPSConfig(zeta=1.0)}, "FFHQ files")
    add("dps", "lsun", dict.fromkeys(LINEAR + NONLINEAR, DPSConfig(zeta=1.0)), "PnP-CM, appendix")
    add("dps", "fastmri", dict.fromkeys(SCANS, DPSConfig(zeta=0.85, clamp=False)), "PnP-CM")
    add(
        "pigdm",
        "official",
        dict.fromkeys((*LINEAR, "jpeg-5", "nonlinear-deblur"), PiGDMConfig(weight=1.0)),
        "RED-diff repository, w = 1; the PnP-CM paper tuned w and does not give it",
    )
    # the official code has noise 0.05 with levels for [-1, 1] images: λ/4 here
    add(
        "diffpir",
        "official",
        {
            "superres-4": DiffPIRConfig(lam=7 / 4, zeta=0.25, noise_std=noise),
            "deblur-gauss": DiffPIRConfig(lam=7 / 4, zeta=0.3, noise_std=noise),
            "inpaint-70": DiffPIRConfig(lam=1 / 4, zeta=1.0, noise_std=noise),
        },
        "official files (λ of super-resolution: middle of its sweep)",
    )
    add(
        "dpnp",
        "official",
        dict.fromkeys((*LINEAR, "jpeg-5", "nonlinear-deblur"), DPnPConfig(noise_std=noise))
        | {"phase-retrieval": DPnPConfig(noise_std=noise, langevin_scale=0.8)},
        "FFHQ files; likelihood at the noise of y; warm start by DPS in place of LGD-MC",
    )
    vp = PnPDMConfig(noise_std=noise, grid="vp")
    phase = PnPDMConfig(noise_std=noise, grid="vp", eta_min=0.1)
    flat = PnPDMConfig(noise_std=noise, grid="vp", slope=14.9)
    add(
        "pnp-dm",
        "official",
        dict.fromkeys(LINEAR, vp) | {"phase-retrieval": phase},
        "official files, vp grid: 1861 evaluations (η_min 0.1: 1491)",
    )
    add("pnp-dm", "lsun", dict.fromkeys(LINEAR, flat), "PnP-CM: β_d 14.9, 2121 evaluations")
    add("dds", "official", dict.fromkeys(SCANS, DDSConfig(cg_iterations=5)), "official files")
    add("dds", "fastmri", dict.fromkeys(SCANS, DDSConfig(cg_iterations=10)), "PnP-CM")
    # deblurring: loading instead of the released code's threshold of singular values at 0.03
    add(
        "cm-iterative",
        "official",
        {
            "superres-4": CMIterativeConfig(),
            "deblur-gauss": CMIterativeConfig(reg=1e-3),
            "inpaint-70": CMIterativeConfig(),
        },
        "zero-shot editing with 40 evaluations as in PnP-CM; deblurring is not official",
    )
    add(
        "cosign",
        "official",
        dict.fromkeys(LINEAR, CoSIGNConfig(noise_std=noise)),
        "soft constraint; the 4 levels are not published, these are ours",
    )
    add(
        "cm4ir",
        "official",
        {
            "superres-4": CM4IRConfig.from_paper(250, 0.2, zeta=0.0, noise_std=noise),
            "deblur-gauss": CM4IRConfig.from_paper(150, 0.05, zeta=1.0, noise_std=noise),
            "inpaint-70": CM4IRConfig.from_paper(
                150,
                0.2,
                zeta=0.0,
                deltas=(0.2, 0.3, 0.8, 0.8),
                delta_in_scalings=True,
                noise_std=noise,
            ),
        },
        "bedroom, σ_y = 0.05 (inpainting: of 80 %)",
    )
    add("ddrm", "official", dict.fromkeys(LINEAR, DDRMConfig(noise_std=noise)), "η .85, η_b 1")
    add("dpir", "official", dict.fromkeys(LINEAR, DPIRConfig(noise_std=noise)), "8 iterations")
    return [
        Baseline(method, origin, task, config, source)
        for method, origin, configs, source in rows
        for task, config in configs.items()
    ]


def _fair() -> list[Baseline]:
    text = (files("pnpcm") / "data" / "baselines.json").read_text(encoding="utf-8")
    return [Baseline.from_dict(row) for row in json.loads(text)]


BASELINES: Table[Baseline] = Table("baseline", {b.name: b for b in (*_published(), *_fair())})
