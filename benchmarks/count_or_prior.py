"""Whether PnP-ADMM and DPIR are ahead of PnP-CM because of their evaluations or of the denoiser.

    python benchmarks/count_or_prior.py pnp-admm
    python benchmarks/count_or_prior.py dpir

The method's loop (without injected noise and momentum) with the denoiser and with the consistency
model of a prior, in 4 evaluations and in its own number, each tuned like every method of the
comparison: 12 trials, 4 training crops of 64×64; and PnP-CM's fair search. Prints the best scores
on these crops (MRI: PSNR, else PSNR − 20 LPIPS), none of held-out images. Needs $PNPCM_DATA.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from contest_problems import Round, measured, training_crops
from pnpcm import load_prior
from pnpcm.core import Prior
from pnpcm.solvers import SOLVERS
from pnpcm.tune import METHODS, fair_tune
from pnpcm.tune.study import judge, open_study, search

PROBLEMS = {
    "pnp-admm": (
        ("mri", "r4"),
        ("natural", "deblur-gauss"),
        ("natural", "inpaint-70"),
        ("faces", "inpaint-70"),
        ("faces", "phase-retrieval"),
    ),
    "dpir": (
        ("mri", "r4"),
        ("mri", "r8"),
        ("natural", "jpeg-5"),
        ("natural", "nonlinear-deblur"),
        ("faces", "superres-4"),
        ("faces", "deblur-gauss"),
        ("faces", "inpaint-70"),
    ),
}


def best(round_: Round, method: str, prior: Prior, metric: str, steps: int) -> float:
    """Score of the best of 12 trials; the first one has the default parameters of the method."""
    row: Any = METHODS[method]
    solver_type: Any = SOLVERS[method]
    on_any_prior = type(method, (solver_type,), {"kinds": (prior.kind,)})

    def objective(trial: Any, k: int) -> float:
        values = {
            name: trial.suggest_float(name, low, high, log=log)
            for name, (low, high, log) in row.space.items()
        }
        config: Any = replace(row.build(values, round_.setting), n_steps=steps)
        solver = on_any_prior(prior, config)
        return judge(trial, solver, round_.problem, round_.x, metric, seed=0)

    study = open_study(None, patience=4)
    search(study, objective, 12, starts=[row.first(round_.setting)], startup=6, seed=0)
    return float(study.best_value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=sorted(PROBLEMS))
    method = parser.parse_args().method
    usual: Any = SOLVERS[method].config_type()
    counts = (4, usual.n_steps)
    heads = [f"{prior}, {n}" for n in counts for prior in ("denoiser", "consistency model")]
    print(f"| | {' | '.join(heads)} | PnP-CM |\n{'|---' * 6}|")
    for domain, task in PROBLEMS[method]:
        round_ = measured(domain, task, training_crops(domain))
        metric = "psnr" if domain == "mri" else "mix"
        priors = [load_prior(domain, kind="edm"), load_prior(domain)]
        scores = [best(round_, method, p, metric, n) for n in counts for p in priors]
        problem, x, setting = round_.problem, round_.x, round_.setting
        scores.append(fair_tune("pnp-cm", problem, x, priors[1], setting, metric=metric).score)
        cells = " | ".join(f"{score:.2f}" for score in scores)
        print(f"| `{domain}`, {task} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
