"""The ablation with re-tuned cells: PnP-CM with injection and momentum on or off, each searched.

    python benchmarks/studies/tune_ablation.py faces --studies out/ablation [--trials 16]

Needs $PNPCM_DATA. Every cell has the same budget on the same training images (`faces`: 4 faces and
the linear tasks; `mri`: 3 slices, R = 8); injection is fixed at scale 1 or 0, momentum searched or
fixed at 0, so that none uses the numbers of another. Writes the numbers into a spec,
`benchmarks/specs/ablation-tuned-DOMAIN.yaml`, which scores them on held-out images. A repeated run
continues the studies.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from images import training_crops, training_slices
from pnpcm import load_prior
from pnpcm.baselines import LINEAR
from pnpcm.bench import read_spec
from pnpcm.bench.spec import MethodRow
from pnpcm.io.files import write_text
from pnpcm.io.yaml_files import dump
from pnpcm.tune.search import tune

SPECS = Path(__file__).parents[1] / "specs"
FIXED = {"faces": "ablation", "mri": "ablation-mri"}
"""Specs with the images, the tasks and the names of the cells."""
TASKS = {"faces": LINEAR, "mri": ("r8",)}
STEPS = {"faces": (4,), "mri": (4, 10, 20)}
SWITCHES: dict[str, dict[str, float]] = {
    "injection and momentum": {"noise_scale": 1.0},
    "injection": {"noise_scale": 1.0, "mu": 0.0},
    "momentum": {"noise_scale": 0.0},
    "neither": {"noise_scale": 0.0, "mu": 0.0},
}
NUMBERS = ("sigmas", "deltas", "rhos", "mu", "noise_scale", "init")


def row_of(config: Any, base: str, task: str, trials: int) -> MethodRow:
    """The tuned numbers in place of those of a preset with the same data step."""
    values = {name: getattr(config, name) for name in NUMBERS}
    plain = {
        name: [float(f"{v:.4g}") for v in value] if isinstance(value, tuple) else value
        for name, value in values.items()
    }
    return MethodRow(
        preset=base, settings=plain, steps=(config.n_steps,), tasks=(task,), trials=trials
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain", choices=sorted(FIXED))
    parser.add_argument("--studies", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=16)
    options = parser.parse_args()
    options.studies.mkdir(parents=True, exist_ok=True)
    domain, trials = options.domain, options.trials
    spec, prior = read_spec(SPECS / f"{FIXED[domain]}.yaml"), load_prior(domain)
    x = training_slices(3) if domain == "mri" else training_crops(domain)
    shape = (x.shape[1], x.shape[2], x.shape[3])
    found: dict[str, MethodRow] = {}
    torch.set_num_threads(1)
    for task in TASKS[domain]:
        for steps in STEPS[domain]:
            for name, fixed in SWITCHES.items():
                best = tune(
                    spec.tasks[task].of(shape),
                    x,
                    prior,
                    prior_name=domain,
                    sigma_y=spec.sigma_y[0],
                    steps=steps,
                    trials=trials,
                    storage=options.studies / f"{domain}-{task}-{steps}-{name}.study",
                    fixed=fixed,
                )
                label = f"{name}; {task}, {steps} steps"
                found[label] = row_of(best.preset.solver, f"{domain}/{task}", task, trials)
                print(f"{label}: {best.score:.2f} dB on training images", flush=True)
    tasks = {task: spec.tasks[task] for task in TASKS[domain]}
    data = {name: row for name, row in spec.data.items() if name in ("fairface", "ixi")}
    words = "injection and momentum on and off, every cell tuned on its own"
    tuned = replace(
        spec, name=f"ablation-tuned-{domain}", data=data, tasks=tasks, methods=found,
        priors=(domain,), steps=(None,), skip=(), words=words,
    )  # fmt: skip
    head = f"# Written by benchmarks/studies/tune_ablation.py {domain}, {trials} trials per cell.\n"
    write_text(SPECS / f"{tuned.name}.yaml", head + dump(plain_spec(tuned.to_dict())))


def plain_spec(values: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that have their default values, lists in place of tuples."""
    kept = {}
    for name, value in values.items():
        if name in ("type", "folder") or value in ((), [], {}, None):
            continue
        if isinstance(value, dict):
            value = plain_spec(value)
        kept[name] = list(value) if isinstance(value, tuple) else value
    return kept


if __name__ == "__main__":
    main()
