"""PRESETS: named parameters. Values that the user gives take precedence over a preset.

The rows of the paper (Gülle et al., CVPR 2026, hyperparameter table; sigma_y = 0.05) are for the
authors' priors: CelebA-HQ 256×256 and fastMRI knee 320×320. Noise levels start from ᾱ_{i_N + 2} as
in the released code. Where its operator or its optimiser differs from ours, the paper's score
belongs to a separate row, ``celeba-hq/…-reference``, with the released code's operator options
and data step; the row without the suffix has the same parameters for our operator, and no score.

The rows of the shipped priors are in `data/presets.json`, written by
`benchmarks/studies/tune_shipped.py` (`pnpcm tune` on training images); their score is the one on
those images. A row for another number of steps N or another noise level than the default is named
``natural/superres-4@n2,s0.025``. Rows ``natural-edm/…`` are for the denoiser of the prior instead
of its consistency model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from pnpcm.core import DataStep
from pnpcm.errors import ArgumentError, PnPCMError
from pnpcm.io.reading import read_json, reading
from pnpcm.names import Table
from pnpcm.solvers import CGStep, GradientStep, PnPCMConfig, ProxStep


@dataclass(frozen=True)
class Preset:
    """Prior, operator, noise level, solver configuration and expected score of a named run.

    ``operator`` is a row of ``OPERATORS``, ``options`` are those that the task fixes.
    ``conditions``: see ``Task.conditions``, for the rule of parameters. ``aim``: what the numbers
    were chosen for, "fidelity" or "perception"; those of the paper inject noise throughout.
    ``kind``: kind of the prior that they were tuned with, "consistency" or "edm" (denoiser).
    """

    prior: str
    operator: str
    options: Mapping[str, Any]
    sigma_y: float
    solver: PnPCMConfig
    expected: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    conditions: Mapping[str, float] = field(default_factory=dict)
    aim: str = "fidelity"
    kind: str = "consistency"

    @property
    def reference(self) -> dict[str, Any]:
        """The options that select the operator of the released code; empty for other presets."""
        return {k: self.options[k] for k in ("reference", "network") if k in self.options}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse of ``from_dict``."""
        return vars(self) | {"solver": self.solver.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preset:
        try:
            return cls(**(dict(values) | {"solver": PnPCMConfig.from_dict(values["solver"])}))
        except (TypeError, KeyError, AttributeError) as error:
            raise ArgumentError(
                f"a preset needs {', '.join(cls.__dataclass_fields__)}; this one does not fit: "
                f"{error}"
            ) from error


def load_preset(path: Path) -> Preset:
    """The preset in a file of ``pnpcm tune``."""
    format = "a preset file of `pnpcm tune`"
    with reading(path, format):
        return Preset.from_dict(read_json(path, format))


def is_preset(path: Path) -> bool:
    """Whether a file is a preset file of ``pnpcm tune``."""
    try:
        load_preset(path)
    except PnPCMError:
        return False
    return True


def _table() -> dict[str, Preset]:
    rows: dict[str, Preset] = {}
    for name, (task, *numbers, data_step, psnr, lpips) in _FACES.items():
        operator, options = _TASKS[task]
        solver = PnPCMConfig.from_paper(*numbers, data_step=data_step)
        row = Preset("celeba-hq", operator, options, 0.05, solver, aim="perception")
        scores = {"psnr": psnr, "lpips_vgg": lpips}
        if task not in _REFERENCE:
            rows[f"celeba-hq/{name}"] = replace(row, expected=scores, source="paper, main tables")
            continue
        source = "paper, main tables; operator or data step corrected, so its score does not apply"
        rows[f"celeba-hq/{name}"] = replace(row, source=source)
        if name.endswith("-paper"):
            continue
        more, step, what = _REFERENCE[task]
        rows[f"celeba-hq/{name}-reference"] = replace(
            row,
            options=options | more,
            solver=replace(solver, data_step=step),
            expected=scores,
            source=f"paper, main tables; as in the released code: {what}",
        )
    for name, (acceleration, acs, *numbers, psnr, ssim) in _KNEES.items():
        options = {"acceleration": acceleration, "acs": acs}
        solver = PnPCMConfig.from_paper(*numbers, data_step=CGStep(10, start="zero"))
        scores = {"psnr": psnr, "ssim": ssim}
        rows[f"fastmri/{name}"] = Preset(
            "fastmri", "mri", options, 0.0, solver, scores, "paper, MRI table", aim="perception"
        )
    shipped = json.loads((files("pnpcm") / "data" / "presets.json").read_text(encoding="utf-8"))
    return rows | {name: Preset.from_dict(row) for name, row in shipped.items()}


_TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "superres": ("superresolution", {"factor": 4}),
    "deblur": ("gaussian-blur", {"size": 5, "sigma": 10.0}),
    "inpaint": ("inpainting", {"missing": 0.7}),
    "jpeg": ("jpeg", {"quality": 5}),
    "nonlinear": ("nonlinear-blur", {}),
    "phase": ("phase-retrieval", {"oversampling": 4.0}),
}
_PROX = ProxStep()
# The authors' JPEG step (5e-4) only works because their gradients accumulate; with cleared
# gradients 0.05 gives the most similar result.
_SGD = GradientStep("sgd", lr=0.05, n_iter=100, lr_decay=0.8)
_ADAM = GradientStep("adam", lr=0.05, n_iter=100, lr_decay=0.8)
_LONG = GradientStep("sgd", lr=0.4, n_iter=1000, lr_decay=0.95)
# operator options and data steps of the released code, to which its scores belong
_REFERENCE: dict[str, tuple[dict[str, Any], DataStep, str]] = {
    "deblur": ({"reference": True}, _PROX, "spectrum of the blur tiled over the channels"),
    "jpeg": (
        {"reference": True},
        replace(_SGD, lr=5e-4, reference=True),
        "codec without clipping, gradients that accumulate",
    ),
    "nonlinear": (
        {"network": "kernel-wizard"},
        replace(_ADAM, reference=True),
        "the network KernelWizard, gradients that accumulate",
    ),
    "phase": (
        {"reference": True},
        replace(_LONG, reference=True),
        "its start, gradients that accumulate, signs by LPIPS to a sample of the prior; "
        "LPIPS was measured before the signs were chosen",
    ),
}
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
    # the authors' task file, to which the score belongs, and the paper's text
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
# fmt: on

PRESETS: Table[Preset] = Table("preset", _table())
