"""Is PnP-ADMM ahead of PnP-CM because of its 16 evaluations, or because of its denoiser?

    python benchmarks/count_or_prior.py

The same loop (ADMM without injected noise and momentum) with the denoiser and with the consistency
model of a prior, in 4 and in 16 evaluations, each searched like every method of the contest: 12
trials, 4 training crops of 64×64. Prints the best scores there (MRI: PSNR, else PSNR − 20 LPIPS),
nothing of held-out images. Needs ../shared/data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contest_problems import Round, measured, training_crops
from pnpcm import load_prior
from pnpcm.contest import METHODS
from pnpcm.core import Prior
from pnpcm.pipeline.study import judge, open_study, search
from pnpcm.solvers import PnPCM

PROBLEMS = (
    ("mri", "r4"),
    ("natural", "deblur-gauss"),
    ("natural", "inpaint-70"),
    ("faces", "inpaint-70"),
    ("faces", "phase-retrieval"),
)


def best(round_: Round, prior: Prior, metric: str, steps: int) -> float:
    """Score of the best of 12 trials, the first with PnP-ADMM's usual numbers."""
    row: Any = METHODS["pnp-admm"]

    def objective(trial: Any, k: int) -> float:
        values = {
            name: trial.suggest_float(name, low, high, log=log)
            for name, (low, high, log) in row.space.items()
        }
        config: Any = replace(row.build(values, round_.setting), n_steps=steps)
        solver = PnPCM(prior, config.as_pnp_cm())
        return judge(trial, solver, round_.problem, round_.x, metric, seed=0)

    study = open_study(None, patience=4)
    search(study, objective, 12, starts=[row.first(round_.setting)], startup=6, seed=0)
    return float(study.best_value)


def main() -> None:
    print("| | denoiser, 4 | consistency model, 4 | denoiser, 16 | consistency model, 16 |")
    print("|---|---|---|---|---|")
    for domain, task in PROBLEMS:
        round_ = measured(domain, task, training_crops(domain))
        metric = "psnr" if domain == "mri" else "mix"
        priors = [load_prior(domain, kind="edm"), load_prior(domain)]
        cells = [f"{best(round_, p, metric, n):.2f}" for n in (4, 16) for p in priors]
        print(f"| `{domain}`, {task} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
