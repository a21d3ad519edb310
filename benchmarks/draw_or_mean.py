"""Whether DPS, DPnP and PnP-DM are behind in PSNR because they return a draw from a posterior.

    python benchmarks/draw_or_mean.py [--draws 8]

The fair rows of the comparison on 4 training crops of faces: PSNR / LPIPS of one draw (mean over
the draws) and of the mean of all draws, which costs correspondingly more evaluations. Prints no
scores of held-out images. Needs $PNPCM_DATA.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from contest_problems import measured, prior_for, training_crops
from pnpcm.baselines import BASELINES
from pnpcm.metrics import psnr
from pnpcm.metrics.lpips import lpips
from pnpcm.rng import generators
from pnpcm.solvers import SOLVERS

TASKS = ("superres-4", "inpaint-70")
METHODS = ("pnp-cm", "dps", "dpnp", "pnp-dm")


def draws_of(method: str, task: str, x: Tensor, count: int) -> Tensor:
    """``(count, B, C, H, W)``: draws with the fairly tuned parameters, each with its own seed."""
    round_ = measured("faces", task, x)
    solver = SOLVERS[method](
        prior_for(method, "faces", task), BASELINES[f"{method}/faces/{task}"].solver
    )
    each = [
        solver(
            round_.problem.y,
            round_.problem.operator,
            generator=generators(range(k * len(x), (k + 1) * len(x))),
        ).x
        for k in range(count)
    ]
    return torch.stack(each).clamp(-1, 1)


def score(found: Tensor, truth: Tensor) -> str:
    return f"{psnr(found, truth).mean():.2f} / {lpips(found, truth).mean():.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=8)
    count = parser.parse_args().draws
    x = training_crops("faces")
    print(f"| | one draw | mean of {count} |\n|---|---|---|")
    for task in TASKS:
        for method in METHODS:
            found = draws_of(method, task, x, count)
            one = score(found.flatten(0, 1), x.repeat(count, 1, 1, 1))
            print(f"| {task}, {method} | {one} | {score(found.mean(0), x)} |", flush=True)


if __name__ == "__main__":
    main()
