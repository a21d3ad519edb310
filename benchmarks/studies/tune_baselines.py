"""The fair tuning of every method: 12 trials × 4 training crops of 64×64 per method and task.

    python benchmarks/studies/tune_baselines.py faces --studies out/fair [--only 'dps/*']
    python benchmarks/studies/tune_baselines.py faces --studies out/fair --write [--trials 60]
    python benchmarks/studies/tune_baselines.py faces --studies out/luck-1 --seed 1

Needs $PNPCM_DATA and LPIPS weights. Metric: PSNR − 20 LPIPS (MRI: PSNR). DPS, DPnP and PnP-DM
are tuned at one fifth of their published steps. A study is a file and is continued if it exists;
`--write` writes the best of every finished study to src/pnpcm/data/baselines.json, whose rows name
the weights they were searched with. With other `--trials` the rows have their own origin, such as
faces@60. `--seed`: another random search, to see how much a best score depends on it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import torch
from torch import Tensor, nn

from images import training_crops
from pnpcm import load_prior
from pnpcm.baselines import Baseline
from pnpcm.bench.reproduce import PHOTO_TASKS, SCANS
from pnpcm.core import Prior
from pnpcm.errors import UnknownNameError
from pnpcm.io.files import write_text
from pnpcm.operators import measure
from pnpcm.priors.controlled import fingerprint
from pnpcm.problems import Problem
from pnpcm.recon.parameters import frame_for
from pnpcm.rng import generators
from pnpcm.solvers import SOLVERS
from pnpcm.solvers.base import is_linear
from pnpcm.tune import METHODS, Setting, fair_tune

FILE = Path(__file__).parents[2] / "src" / "pnpcm" / "data" / "baselines.json"
TRIALS = 12
TASKS = {"faces": PHOTO_TASKS, "natural": PHOTO_TASKS, "mri": SCANS}
SIGMA_Y = {"faces": 0.05, "natural": 0.05, "mri": 0.005}


def measured(domain: str, task: str, x: Tensor) -> tuple[Problem, Setting]:
    """Measurement with a known operator, and what a search knows of it; noise i has seed i."""
    sigma_y = SIGMA_Y[domain]
    shape = (x.shape[1], x.shape[2], x.shape[3])
    chosen = TASKS[domain][task].of(shape).prepared(shape, torch.Generator().manual_seed(0))
    operator = chosen.operator(shape)
    problem = Problem(measure(operator, x, sigma_y, generator=generators(range(len(x)))), operator)
    frame, noise_std = frame_for(problem, 2 * sigma_y), chosen.error_std(2 * sigma_y)
    return problem, Setting(task, noise_std, is_linear(operator), frame["data_step"], frame)


def prior_for(method: str, domain: str, task: str) -> Prior | None:
    """The denoiser or consistency model that a method needs; an error if the domain has none."""
    solver = SOLVERS[method]
    if not solver.takes_prior:
        return None
    if method == "cosign":
        return load_prior(domain, control=task)
    return load_prior(domain, kind="edm" if "edm" in solver.kinds else None)


def is_refused(method: str, domain: str, problem: Problem, setting: Setting) -> bool:
    """Whether a method cannot serve the problem, or needs a ControlNet that does not exist."""
    solver = SOLVERS[method]
    try:
        prior = prior_for(method, domain, setting.task)
    except UnknownNameError:
        return True
    config = solver.config_type.example()
    if hasattr(config, "data_step"):
        config = replace(config, data_step=setting.data_step)  # type: ignore[type-var]
    return solver(prior, config).refusal(problem.operator) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain", choices=sorted(TASKS))
    parser.add_argument("--studies", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of method/task")
    parser.add_argument("--shard", default="0/1", help="k/n: every n-th study, from the k-th")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seed", type=int, default=0, help="of the search; --write takes 0")
    parser.add_argument("--write", action="store_true", help="write baselines.json, search nothing")
    options = parser.parse_args()
    options.studies.mkdir(parents=True, exist_ok=True)
    x = training_crops(options.domain)
    k, n = map(int, options.shard.split("/"))
    metric = "psnr" if options.domain == "mri" else "mix"
    origin = options.domain
    origin += "" if options.trials == TRIALS else f"@{options.trials}"
    found: list[Baseline] = []
    jobs = [(m, t) for m in METHODS for t in TASKS[options.domain]]
    for number, (method, task) in enumerate(jobs):
        file = options.studies / f"{origin}-{method}-{task}.study"
        wanted = any(fnmatch(f"{method}/{task}", pattern) for pattern in options.only)
        if not wanted or number % n != k or (options.write and not file.exists()):
            continue
        problem, setting = measured(options.domain, task, x)
        if is_refused(method, options.domain, problem, setting):
            continue
        start, prior = time.perf_counter(), prior_for(method, options.domain, task)
        fair = fair_tune(
            method,
            problem,
            x,
            prior,
            setting,
            trials=0 if options.write else options.trials,
            metric=metric,
            storage=file,
            seed=options.seed,
        )
        if options.write and fair.trials < options.trials:
            continue
        published = "–" if fair.score_published is None else f"{fair.score_published:.2f}"
        print(
            f"{method}/{options.domain}/{task:18} {published} → {fair.score:.2f}, "
            f"{fair.trials} trials, {time.perf_counter() - start:.0f} s {fair.values}",
            flush=True,
        )
        steps = METHODS[method].fraction
        source = f"fair: {options.trials} trials, 4 training crops 64×64, {metric}"
        source += "" if steps == 1 else f", at {steps:g} of the published steps"
        source += f", weights {fingerprint(prior)[:8]}" if isinstance(prior, nn.Module) else ""
        found.append(Baseline(method, origin, task, fair.config, source))
    if options.write:
        rows = {b.name: b for b in map(Baseline.from_dict, json.loads(FILE.read_text()))}
        rows |= {b.name: b for b in found}
        lines = (f" {json.dumps(b.to_dict(), ensure_ascii=False)}" for b in rows.values())
        write_text(FILE, "[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
