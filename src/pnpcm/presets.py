"""PRESETS: the table where names meet numbers. A preset fills in only what the user left open.

The rows of the paper (Gülle et al., CVPR 2026, hyperparameter table; sigma_y = 0.05), with the
score that the paper reports for them. They belong to the authors' priors: CelebA-HQ 256×256 and
fastMRI knee 320×320. Noise levels start from ᾱ_{i_N + 2} as in the released code.

The rows of the shipped priors come from `benchmarks/search_presets.py`, a random search of 30
(natural) and 24 (mri) trials on a few training images; the score is the one on those images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pnpcm.core import DataStep
from pnpcm.solvers import CGStep, GradientStep, PnPCMConfig, ProxStep
from pnpcm.tables import Table


@dataclass(frozen=True)
class Preset:
    """A named run: which prior and operator, the noise, the solver's numbers, the score to reach.

    ``operator`` is a row of ``OPERATORS``, ``options`` what the task fixes about it.
    """

    prior: str
    operator: str
    options: Mapping[str, float]
    sigma_y: float
    solver: PnPCMConfig
    expected: Mapping[str, float] = field(default_factory=dict)
    source: str = ""


def _table() -> dict[str, Preset]:
    rows: dict[str, Preset] = {}
    for name, (task, *numbers, data_step, psnr, lpips) in _FACES.items():
        operator, options = _TASKS[task]
        solver = PnPCMConfig.from_paper(*numbers, data_step=data_step)
        scores = {"psnr": psnr, "lpips_vgg": lpips}
        rows[f"celeba-hq/{name}"] = Preset(
            "celeba-hq", operator, options, 0.05, solver, scores, "paper, main tables"
        )
    for name, (acceleration, acs, *numbers, psnr, ssim) in _KNEES.items():
        options = {"acceleration": acceleration, "acs": acs}
        solver = PnPCMConfig.from_paper(*numbers, data_step=CGStep(10, start="zero"))
        scores = {"psnr": psnr, "ssim": ssim}
        rows[f"fastmri/{name}"] = Preset(
            "fastmri", "mri", options, 0.0, solver, scores, "paper, MRI table"
        )
    for prior, tasks in _SHIPPED.items():
        for name, (first, last, delta, weight, mu, noise_scale, psnr) in tasks.items():
            operator, options, data_step, n, sigma_y = shipped_task(name)
            solver = PnPCMConfig.geometric(
                (first, last),
                n=n,
                noise_std=2 * sigma_y,
                delta=delta,
                weight=weight,
                mu=mu,
                noise_scale=noise_scale,
                data_step=data_step,
            )
            rows[f"{prior}/{name}"] = Preset(
                prior, operator, options, sigma_y, solver, {"psnr": psnr}, "search, training images"
            )
    return rows


def shipped_task(name: str) -> tuple[str, dict[str, float], DataStep, int, float]:
    """Operator, its options, data step, evaluations and sigma_y of a task."""
    if name in ("r4", "r8"):
        return "mri", {"acceleration": int(name[1:])}, CGStep(10), 4, 0.005
    operator, options = _TASKS[name.split("-")[0]]
    steps: dict[str, DataStep] = {"jpeg": _LBFGS_10, "nonlinear-blur": _LBFGS_10}
    steps["phase-retrieval"] = GradientStep("lbfgs", n_iter=40)
    n = 8 if operator == "phase-retrieval" else 4
    return operator, options, steps.get(operator, _PROX), n, 0.05


_TASKS: dict[str, tuple[str, dict[str, float]]] = {
    "superres": ("superresolution", {"factor": 4}),
    "deblur": ("gaussian-blur", {"size": 5, "sigma": 10.0}),
    "inpaint": ("inpainting", {"missing": 0.7}),
    "jpeg": ("jpeg", {"quality": 5}),
    "nonlinear": ("nonlinear-blur", {}),
    "phase": ("phase-retrieval", {"oversampling": 4.0}),
}
_PROX = ProxStep()
# The authors' JPEG step (5e-4) only works because their gradients pile up; with cleared gradients
# 0.05 stays closest to what it does.
_SGD = GradientStep("sgd", lr=0.05, n_iter=100, lr_decay=0.8)
_ADAM = GradientStep("adam", lr=0.05, n_iter=100, lr_decay=0.8)
_LBFGS_10 = GradientStep("lbfgs", n_iter=10)
_LONG = GradientStep("sgd", lr=0.4, n_iter=1000, lr_decay=0.95)
_FILE_DELTAS = (0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2)
_TEXT_DELTAS = (0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2, 0.2)

# fmt: off
_FACES: dict[str, tuple[Any, ...]] = {
    # name:            task      i_N  decay  deltas                  rho ends      mu   data  PSNR   LPIPS
    "superres-4":       ("superres",  150, 0.20, (0.3, 0.05, 0.2, 0.2),   (-4, 4),      0.2,  _PROX, 27.27, 0.285),
    "deblur-gauss":     ("deblur",    100, 0.10, (0.3, 0.2, 0.1, 0.1),    (-4, 6.5),    0.1,  _PROX, 28.94, 0.249),
    "inpaint-70":       ("inpaint",   100, 0.10, (0.3, 0.2, 0.8, 0.8),    (-6, 12),     0.05, _PROX, 29.23, 0.201),
    "jpeg-5":           ("jpeg",      250, 0.30, (0.1, 0.1, 0.2, 4.0),    (-2.5, 2.5),  0.05, _SGD,  26.14, 0.356),
    "nonlinear-deblur": ("nonlinear", 250, 0.15, (0.05, 0.05, 0.05, 0.1), (-2, 0),      0.05, _ADAM, 24.55, 0.304),
    # the authors' task file, which runs with the known inner optimiser, and the paper's text
    "phase-retrieval":       ("phase", 250, 0.03, _FILE_DELTAS,           (-5, -0.5),   0.2,  _LONG, 22.18, 0.422),
    "phase-retrieval-paper": ("phase", 250, 0.03, _TEXT_DELTAS,           (-2, 0),      0.05, _LONG, 22.18, 0.422),
}
_KNEES: dict[str, tuple[Any, ...]] = {
    # name:   R  ACS i_N decay deltas                 rho ends       mu    PSNR   SSIM
    "pd-r4":   (4, 24, 50, 0.1, (0.3, 2, 6, 2.5),      (-4.5, -1.0), 0.20, 35.57, 0.915),
    "pd-r8":   (8, 12, 50, 0.1, (0.35, 3.5, 7.5, 3.5), (-4.5, -1.5), 0.50, 33.24, 0.884),
    "pdfs-r4": (4, 24, 50, 0.1, (0.2, 3, 4, 2.5),      (-2.5, -0.5), 0.05, 32.90, 0.842),
    "pdfs-r8": (8, 12, 50, 0.1, (0.4, 9.5, 4.5, 1.5),  (-2.5, 0.5),  0.45, 31.42, 0.804),
}
# prior: task: (first σ, last σ, delta, weight, mu, noise scale, PSNR on the training images)
_SHIPPED: dict[str, dict[str, tuple[float, ...]]] = {
    "natural": {
        "inpaint-70":        (0.18, 0.175, 0.777, 0.296, 0.256, 0.0432, 26.74),
        "superres-4":        (0.292, 0.0563, 1.17, 0.129, 0.265, 0.34, 24.47),
        "deblur-gauss":      (0.4, 0.156, 0.0, 0.583, 0.555, 0.0, 27.44),
        "jpeg-5":            (0.139, 0.0225, 0.827, 0.324, 0.344, 0.33, 24.08),
        "nonlinear-deblur":  (0.519, 0.27, 0.0, 0.828, 0.678, 0.0, 25.54),
        "phase-retrieval":   (0.49, 0.196, 1.3, 0.652, 0.101, 0.945, 21.37),
    },
    "mri": {
        "r4":                (0.146, 0.125, 0.0, 4.95, 0.0795, 0.0, 36.20),
        "r8":                (0.146, 0.125, 0.0, 4.95, 0.0795, 0.0, 32.76),
    },
}
# fmt: on

PRESETS: Table[Preset] = Table("preset", _table())
