"""Tune the presets of a shipped prior with `pnpcm tune`'s search, on training images.

    python benchmarks/studies/tune_shipped.py natural --studies ../runs/tune [--only superres-4 …]
    python benchmarks/studies/tune_shipped.py natural-edm --studies ../runs/tune  # the denoiser
    python benchmarks/studies/tune_shipped.py natural-perception --studies ../runs/tune  # the aim
    python benchmarks/studies/tune_shipped.py natural --studies ../runs/tune --write

Needs $PNPCM_DATA. Each study is a file and is continued if it exists. `--write` writes the best of
every finished study to src/pnpcm/data/presets.json, with its score on the images it was tuned on
(training images, never test images) and the number of trials.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from torch import Tensor

from images import training_crops, training_slices
from pnpcm import load_prior
from pnpcm.bench.reproduce import SCANS
from pnpcm.io.files import write_text
from pnpcm.problems import (
    Deblur,
    Denoise,
    Inpaint,
    Jpeg,
    NonlinearDeblur,
    PhaseRetrievalTask,
    SuperRes,
    Task,
)
from pnpcm.tune.search import tune

ROOT = Path(__file__).parents[2]
PRESETS = ROOT / "src" / "pnpcm" / "data" / "presets.json"
USUAL = {"phase-retrieval": 8}  # steps of the row without @; all others 4, with a denoiser 8


@dataclass(frozen=True)
class Study:
    """One search for the best ``metric``; ``images``: number of crops, ``side``: in pixels."""

    task: str
    build: Task
    steps: int
    sigma_y: float
    trials: int
    images: int = 8
    side: int = 128
    usual: int = 4
    metric: str = "psnr"

    @property
    def name(self) -> str:
        steps = USUAL.get(self.task, self.usual)
        usual = self.steps == steps and self.sigma_y == usual_noise(self.task)
        return self.task if usual else f"{self.task}@n{self.steps},s{self.sigma_y:g}"


def usual_noise(task: str) -> float:
    return 0.005 if task in ("r4", "r8") else 0.05


def photo_studies(side: int) -> list[Study]:
    linear: dict[str, Task] = {
        "superres-4": SuperRes(4),
        "deblur-gauss": Deblur(gaussian=(5, 10.0)),
        "inpaint-70": Inpaint(missing=0.7),
        "denoise": Denoise(),
    }
    found = [
        Study(name, task, steps, sigma_y, 60)
        for steps in (4, 2, 8)
        for sigma_y in (0.05, 0.025)
        for name, task in linear.items()
    ]
    found += [Study(f"superres-{f}", SuperRes(f), 4, 0.05, 30) for f in (2, 8)]
    found += [
        Study("denoise", Denoise(), n, s, 30, images=6, side=96)
        for n in (4, 2, 8)
        for s in (0.1, 0.2)
    ]
    found += [Study("deblur-motion", Deblur(motion=(9, 30)), 4, 0.025, 30)]
    found += [Study("inpaint-30", Inpaint(missing=0.3), 4, 0.025, 30)]
    found += [Study(f"jpeg-{q}", Jpeg(q), 4, 0.0, 30, images=6) for q in (5, 10, 20, 40)]
    found += [
        Study("jpeg-5", Jpeg(5), 4, 0.05, 20, images=4, side=64),
        Study("nonlinear-deblur", NonlinearDeblur(), 4, 0.05, 20, images=4, side=96),
        Study("phase-retrieval", PhaseRetrievalTask(), 8, 0.05, 8, images=3, side=64),
    ]
    return [replace(s, side=min(s.side, side)) for s in found]


def denoiser_studies(side: int) -> list[Study]:
    """Studies with a denoiser: no noise is injected, five numbers are searched."""
    noises = (0.05, 0.025, 0.1, 0.01, 0.2)
    few = (0.025, 0.1)
    tasks: dict[str, tuple[Task, tuple[float, ...]]] = {
        "inpaint-70": (Inpaint(missing=0.7), noises),
        "inpaint-30": (Inpaint(missing=0.3), noises),
        "denoise": (Denoise(), (0.025, 0.05, 0.1, 0.2)),
        "superres-4": (SuperRes(4), (0.0, *noises)),
        "deblur-gauss": (Deblur(gaussian=(5, 10.0)), (0.0, *noises)),
        "superres-2": (SuperRes(2), (0.0, *few)),
        "deblur-narrow": (Deblur(gaussian=(9, 2.0)), (0.0, 0.01, *few)),
        "deblur-motion": (Deblur(motion=(9, 30)), (0.0, *few)),
        "superres-8": (SuperRes(8), few),
    }
    found = [
        Study(name, task, 8, sigma_y, 18) for name, (task, s) in tasks.items() for sigma_y in s
    ]
    found += [
        Study(name, tasks[name][0], steps, sigma_y, 14)
        for name in ("inpaint-70", "inpaint-30", "denoise", "superres-4", "deblur-gauss")
        for steps in (4, 2)
        for sigma_y in (0.01, 0.05, 0.2)
    ]
    found += [
        Study(f"jpeg-{q}", Jpeg(q), n, 0.0, 30) for n in (8, 4, 2) for q in (10, 5, 20, 40, 80)
    ]
    # the paper's JPEG is noisy
    found += [Study(f"jpeg-{q}", Jpeg(q), 4, 0.05, 20, images=4) for q in (5, 20)]
    found += [Study("nonlinear-deblur", NonlinearDeblur(), 4, 0.05, 16, images=4)]
    return [replace(s, side=side, images=min(s.images, 6), usual=8) for s in found]


def perception_studies(
    side: int, images: int, steps: Mapping[str, int], sigma_y: Mapping[str, float]
) -> list[Study]:
    """Studies of aim "perception": a consistency model, the best PSNR − 20 LPIPS."""
    tasks: dict[str, Task] = {
        "superres-4": SuperRes(4),
        "deblur-gauss": Deblur(gaussian=(5, 10.0)),
        "inpaint-70": Inpaint(missing=0.7),
        "nonlinear-deblur": NonlinearDeblur(),
        "jpeg-10": Jpeg(10),
    }
    return [
        Study(n, tasks[n], k, sigma_y.get(n, 0.05), 40, images, side, usual=8, metric="mix")
        for n, k in steps.items()
    ]


NATURAL_STEPS = {"deblur-gauss": 4, "inpaint-70": 8}
"""Of 4 and 8 those that were better on 12 other training crops. Super-resolution by 4 has no study:
its search found nothing better than the parameters of the denoiser."""
FACES_STEPS = dict.fromkeys(
    ("superres-4", "deblur-gauss", "inpaint-70", "nonlinear-deblur", "jpeg-10"), 4
)


SCAN_STUDIES = ((4, 0.005, 40), (4, 0.015, 24), (8, 0.005, 24))
DENOISER_SCAN_STUDIES = ((8, 0.005, 24), (8, 0.0015, 24), (8, 0.015, 24), (4, 0.005, 24))
"""Steps, sigma_y, trials; measured scans of 2 % noise per coil have sigma_y 0.0015 to 0.005."""


def scan_studies(rows: Sequence[tuple[int, float, int]], usual: int) -> list[Study]:
    scans = {name: row.of((2, 128, 128)) for name, row in SCANS.items()}
    return [
        Study(name, task, steps, sigma_y, trials, images=4, usual=usual)
        for steps, sigma_y, trials in rows
        for name, task in scans.items()
    ]


def slices(count: int, side: int) -> Tensor:
    return training_slices(count, ends=True)


DOMAINS = {
    "natural": (lambda: photo_studies(128), partial(training_crops, "natural")),
    "faces": (lambda: photo_studies(64), partial(training_crops, "faces")),
    "mri": (lambda: scan_studies(SCAN_STUDIES, 4), slices),
    "natural-edm": (lambda: denoiser_studies(96), partial(training_crops, "natural")),
    "natural-perception": (
        lambda: perception_studies(96, 6, NATURAL_STEPS, {}),
        partial(training_crops, "natural"),
    ),
    "faces-edm": (lambda: denoiser_studies(64), partial(training_crops, "faces")),
    "faces-perception": (
        lambda: perception_studies(64, 12, FACES_STEPS, {"jpeg-10": 0.0}),
        partial(training_crops, "faces"),
    ),
    "mri-edm": (lambda: scan_studies(DENOISER_SCAN_STUDIES, 8), slices),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain", choices=sorted(DOMAINS))
    parser.add_argument("--studies", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of names, e.g. jpeg-*")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of trials")
    parser.add_argument("--write", action="store_true", help="write presets.json, search nothing")
    options = parser.parse_args()
    plan, images = DOMAINS[options.domain]
    options.studies.mkdir(parents=True, exist_ok=True)
    name, _, part = options.domain.partition("-")
    prior = load_prior(name, kind="edm" if part == "edm" else "consistency")
    rows = json.loads(PRESETS.read_text(encoding="utf-8"))
    for study in plan():
        if not any(fnmatch(study.name, pattern) for pattern in options.only):
            continue
        file = options.studies / f"{options.domain}-{study.name}.study"
        if options.write and not file.exists():
            continue
        start = time.perf_counter()
        found = tune(
            study.build,
            images(study.images, study.side),
            prior,
            prior_name=name,
            sigma_y=study.sigma_y,
            steps=study.steps,
            metric=study.metric,
            trials=1 if options.write else max(4, round(options.scale * study.trials)),
            storage=file,
        )
        before = f"{found.score_before:.2f}" if found.score_before is not None else "–"
        print(
            f"{options.domain}/{study.name:24} {before} → {found.score:.2f}, "
            f"{found.trials} trials, {time.perf_counter() - start:.0f} s",
            flush=True,
        )
        if options.write:
            sought = "PSNR − 20 LPIPS, " if study.metric == "mix" else ""
            source = f"tune, {found.trials} trials, {sought}"
            source += f"{study.images} training crops of {study.side}²"
            rows[f"{options.domain}/{study.name}"] = replace(found.preset, source=source).to_dict()
    if options.write:
        lines = (f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in rows.items())
        write_text(PRESETS, "{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
