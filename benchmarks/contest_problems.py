"""The problems of the comparison: images and tasks, measured once for all methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pnpcm import load_prior
from pnpcm.core import Prior
from pnpcm.errors import UnknownNameError
from pnpcm.io.files import read_image
from pnpcm.mri import birdcage_maps, gaussian1d
from pnpcm.operators import GaussianBlur, MultiCoilMRI, measure
from pnpcm.places import existing
from pnpcm.problems import (
    Custom,
    Inpaint,
    Jpeg,
    NonlinearDeblur,
    PhaseRetrievalTask,
    Problem,
    SuperRes,
    Task,
)
from pnpcm.recon.parameters import frame_for
from pnpcm.rng import generators
from pnpcm.solvers import SOLVERS
from pnpcm.solvers.base import is_linear
from pnpcm.training.sources import Magnitude
from pnpcm.tune import Setting

HELD_OUT = [546, 565, 577, 603, 606, 632]
PHOTO_TASKS: dict[str, Callable[[tuple[int, int, int]], Task]] = {
    "superres-4": lambda shape: SuperRes(4),
    "deblur-gauss": lambda shape: Custom(GaussianBlur(shape)),  # the paper's, with zero borders
    "inpaint-70": lambda shape: Inpaint(missing=0.7),
    "jpeg-5": lambda shape: Jpeg(5),
    "nonlinear-deblur": lambda shape: NonlinearDeblur(),
    "phase-retrieval": lambda shape: PhaseRetrievalTask(),
}
TASKS = {"faces": tuple(PHOTO_TASKS), "natural": tuple(PHOTO_TASKS), "mri": ("r4", "r8")}
SIGMA_Y = {"faces": 0.05, "natural": 0.05, "mri": 0.005}


@dataclass(frozen=True)
class Round:
    """Clean images, one measurement of them, its operator and its noise level."""

    x: Tensor
    problem: Problem
    setting: Setting


def measured(domain: str, task: str, x: Tensor, seed: int = 0) -> Round:
    """Measurement with a known operator; each image has its own noise."""
    sigma_y = SIGMA_Y[domain]
    shape = (x.shape[1], x.shape[2], x.shape[3])
    generator = torch.Generator().manual_seed(seed)
    chosen = _scan(int(task[1:]), shape[-1]) if domain == "mri" else PHOTO_TASKS[task](shape)
    chosen = chosen.prepared(shape, generator)
    operator = chosen.operator(shape)
    y = measure(operator, x, sigma_y, generator=generators([seed + i for i in range(len(x))]))
    problem = Problem(y, operator)
    frame = frame_for(problem, 2 * sigma_y)
    noise_std = chosen.error_std(2 * sigma_y)
    setting = Setting(task, noise_std, is_linear(operator), frame["data_step"], frame)
    return Round(x, problem, setting)


def _scan(acceleration: int, side: int) -> Task:
    generator = torch.Generator().manual_seed(0)
    lines = 10 * side // 128
    mask = gaussian1d(side, acceleration, lines, generator=generator)
    return Custom(MultiCoilMRI(birdcage_maps(8, (side, side)), mask))


# images ------------------------------------------------------------------------------------------
def training_crops(domain: str, count: int = 4, side: int = 64) -> Tensor:
    """Crops for tuning, of training images of the priors, never of test images."""
    if domain == "mri":
        held_out = {"subject": [526, 527, *HELD_OUT]}
        return centre(slices(count, exclude=held_out), side)
    paths = sorted(existing(f"$PNPCM_DATA/{domain}").rglob("*.jpg"))[
        : -50 if domain == "faces" else None
    ]
    return _pictures(domain, paths[:: len(paths) // count][:count], side)


def held_out_images(domain: str, count: int = 10) -> Tensor:
    """Held-out images: faces of FairFace's validation split, CBSD68, IXI subjects."""
    if domain == "mri":
        return slices(count, only={"subject": HELD_OUT})
    folder = {"faces": "faces_test", "natural": "natural_test/CBSD68"}[domain]
    found = existing(f"$PNPCM_DATA/{folder}").rglob("*")
    paths = sorted(p for p in found if p.suffix in (".png", ".jpg"))
    side = 64 if domain == "faces" else 128
    return _pictures(domain, paths[:: len(paths) // count][:count], side)


def _pictures(domain: str, paths: list[Path], side: int) -> Tensor:
    each = [read_image(p) for p in paths]
    if domain == "faces":
        return torch.cat([torch.nn.functional.avg_pool2d(x, 2) for x in each])
    return torch.cat([centre(x, side) for x in each])


def slices(count: int, **choice: object) -> Tensor:
    """``count`` slices, evenly spaced, with a random phase as in training."""
    file = existing("$PNPCM_DATA/mri/ixi_t1_axial_128.npz")
    source = Magnitude(file, jitter=0.0, **choice)  # type: ignore[arg-type]
    each = np.linspace(0, len(source) - 1, count + 2).astype(int)[1:-1].tolist()
    return torch.stack([source.image(i, torch.Generator().manual_seed(i)) for i in each])


def centre(x: Tensor, side: int) -> Tensor:
    top, left = ((n - side) // 2 for n in x.shape[-2:])
    return x[..., top : top + side, left : left + side]


# priors ------------------------------------------------------------------------------------------
def prior_for(method: str, domain: str, task: str) -> Prior | None:
    """The denoiser or consistency model that a method needs; an error if the domain has none."""
    solver = SOLVERS[method]
    if not solver.takes_prior:
        return None
    if method == "cosign":
        return load_prior(domain, control=task)
    return load_prior(domain, kind="edm" if "edm" in solver.kinds else None)


def missing(method: str, round_: Round, domain: str) -> str | None:
    """The reason why a method has no entry for this problem; None if it has one."""
    solver = SOLVERS[method]
    try:
        prior = prior_for(method, domain, round_.setting.task)
    except UnknownNameError:  # CoSIGN without a ControlNet
        return "no ControlNet was trained for this prior and task"
    config = solver.config_type.example()
    if hasattr(config, "data_step"):
        config = replace(config, data_step=round_.setting.data_step)  # type: ignore[type-var]
    return solver(prior, config).refusal(round_.problem.operator)
