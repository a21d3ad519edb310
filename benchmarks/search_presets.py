"""Find presets for the shipped priors: a seeded random search on training images.

    python benchmarks/search_presets.py natural --trials 60 --out out/presets-natural.json

Needs ../shared/data. Scores are PSNR on a few training crops, never on test or demo images. Half
of the trials are drawn at random, the other half around the best so far. The rows that
`presets.py` holds are the `best` entries that this script printed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pnpcm import PnPCM, PnPCMConfig, load_prior, measure, metrics
from pnpcm.errors import ArgumentError
from pnpcm.files import read_image, write_json
from pnpcm.mri import birdcage_maps, gaussian1d
from pnpcm.operators import (
    JPEG,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    NonlinearBlur,
    OperatorBase,
    PhaseRetrieval,
    SuperResolution,
)
from pnpcm.presets import shipped_task
from pnpcm.rng import generators
from pnpcm.training.sources import Magnitude

DATA = Path(__file__).parents[2] / "shared" / "data"
SEED = 0


Build = Callable[[int, torch.Generator], OperatorBase]
"""Operator of a task for images of a given side; the rest of the task is presets.shipped_task."""

PHOTO_TASKS: dict[str, Build] = {
    "inpaint-70": lambda n, g: Inpainting.random((n, n), missing=0.7, generator=g),
    "superres-4": lambda n, g: SuperResolution((3, n, n), 4),
    "deblur-gauss": lambda n, g: GaussianBlur((3, n, n)),
    "jpeg-5": lambda n, g: JPEG(5),
    "nonlinear-deblur": lambda n, g: NonlinearBlur(),
    "phase-retrieval": lambda n, g: PhaseRetrieval.random((n, n), g),
}


def scan(acceleration: int) -> Build:
    return lambda n, g: MultiCoilMRI(
        birdcage_maps(8, (n, n)), gaussian1d(n, acceleration, n // 12, generator=g)
    )


MRI_TASKS = {f"r{r}": scan(r) for r in (4, 8)}


def photos(side: int, count: int = 6) -> Tensor:
    paths = sorted((DATA / "natural").rglob("*.jpg"))
    return torch.cat([_centre(read_image(p), side) for p in paths[:: len(paths) // count][:count]])


def faces(side: int, count: int = 8) -> Tensor:
    paths = sorted((DATA / "faces").rglob("*.jpg"))[:-50]
    halved = (read_image(p) for p in paths[:: len(paths) // count][:count])
    return torch.cat([torch.nn.functional.avg_pool2d(x, 2) for x in halved])


def brains(side: int, count: int = 4) -> Tensor:
    """Slices of training subjects with the phase that training draws."""
    held_out = {"subject": [526, 527, 546, 565, 577, 603, 606, 632]}
    source = Magnitude(DATA / "mri" / "ixi_t1_axial_128.npz", exclude=held_out, jitter=0.0)
    numbers = np.linspace(0, len(source) - 1, count).astype(int)
    each = [source.image(int(i), torch.Generator().manual_seed(int(i))) for i in numbers]
    return torch.stack(each)


PRIORS = {
    "natural": (PHOTO_TASKS, photos, 96),
    "faces": (PHOTO_TASKS, faces, 64),
    "mri": (MRI_TASKS, brains, 128),
}


def draw(rng: np.random.Generator, best: dict[str, float] | None) -> dict[str, float]:
    """Numbers of one trial: at random, or near the best ones."""
    if best is None:
        first = math.exp(rng.uniform(math.log(0.08), math.log(1.5)))
        return {
            "first": first,
            "last": first * math.exp(rng.uniform(math.log(0.1), 0.0)),
            "delta": rng.uniform(0.0, 1.5),
            "weight": math.exp(rng.uniform(math.log(0.1), math.log(10.0))),
            "mu": rng.uniform(0.0, 0.5),
            "noise_scale": float(rng.choice([0.0, 0.5, 1.0])),
        }
    near = {k: best[k] * math.exp(0.25 * rng.standard_normal()) for k in ("first", "weight")}
    ratio = best["last"] / best["first"] * math.exp(0.25 * rng.standard_normal())
    near["last"] = near["first"] * min(ratio, 1.0)
    near["delta"] = max(0.0, best["delta"] + 0.15 * rng.standard_normal())
    near["mu"] = max(0.0, best["mu"] + 0.1 * rng.standard_normal())
    near["noise_scale"] = min(1.0, max(0.0, best["noise_scale"] + 0.2 * rng.standard_normal()))
    return near


def config(task: str, n: dict[str, float]) -> PnPCMConfig:
    _, _, data_step, n_steps, sigma_y = shipped_task(task)
    return PnPCMConfig.geometric(
        (n["first"], n["last"]),
        n=n_steps,
        noise_std=2 * sigma_y,
        delta=n["delta"],
        weight=n["weight"],
        mu=n["mu"],
        noise_scale=n["noise_scale"],
        data_step=data_step,
    )


def score(prior: object, task: str, build: Build, numbers: dict[str, float], x: Tensor) -> float:
    """Mean PSNR; the same masks and noise in every trial."""
    operator = build(x.shape[-1], torch.Generator().manual_seed(SEED))
    y = measure(operator, x, sigma_y=shipped_task(task)[-1], generator=generators(range(len(x))))
    seeds = generators(range(100, 100 + len(x)))
    result = PnPCM(prior, config(task, numbers))(y, operator, generator=seeds)  # type: ignore[arg-type]
    out = result.x
    if isinstance(operator, PhaseRetrieval):
        out = operator.resolve_signs(out, x, lambda a, b: (a - b).square().flatten(1).mean(1))
    return float(metrics.psnr(out, x).mean())


def _centre(x: Tensor, side: int) -> Tensor:
    top, left = ((n - side) // 2 for n in x.shape[-2:])
    return x[..., top : top + side, left : left + side]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain", choices=sorted(PRIORS))
    parser.add_argument("--prior", help="file instead of the shipped prior")
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    tasks, images, side = PRIORS[options.domain]
    prior, x = load_prior(options.prior or options.domain), images(side)
    found = {}
    for name in options.tasks or tasks:
        rng = np.random.default_rng(SEED)
        trials: list[tuple[float, dict[str, float]]] = []
        for i in range(options.trials):
            best = max(trials, key=lambda t: t[0])[1] if i >= options.trials // 2 else None
            numbers = draw(rng, best)
            try:
                trials.append((score(prior, name, tasks[name], numbers, x), numbers))
            except ArgumentError:  # diverged
                continue
        top, numbers = max(trials, key=lambda t: t[0])
        rounded = {k: float(f"{v:.3g}") for k, v in numbers.items()}
        first_half = max(t[0] for t in trials[: options.trials // 2])
        found[name] = {"psnr": top, "best": rounded, "random_half": first_half}
        print(
            f"{name:18} {top:6.2f} dB (random half {first_half:.2f}) {json.dumps(rounded)}",
            flush=True,
        )
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            options.out, {"domain": options.domain, "trials": options.trials, "tasks": found}
        )


if __name__ == "__main__":
    main()
