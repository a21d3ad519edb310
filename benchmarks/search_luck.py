"""Variance of a fair row: the same search of 12 trials with other random seeds.

    python benchmarks/search_luck.py [--seeds 5]

Best score (PSNR − 20 LPIPS) on the 4 training crops of faces, per seed of the search. Prints no
scores of held-out images. Needs $PNPCM_DATA.
"""

from __future__ import annotations

import argparse
import statistics

from contest_problems import measured, prior_for, training_crops
from pnpcm.tune import fair_tune

METHODS = ("pnp-cm", "cm4ir", "dpir")
TASKS = ("superres-4", "deblur-gauss", "inpaint-70")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    count = parser.parse_args().seeds
    x = training_crops("faces")
    print(f"| | best of 12 trials, seeds 0 to {count - 1} | median |\n|---|---|---|")
    for task in TASKS:
        round_ = measured("faces", task, x)
        for method in METHODS:
            prior = prior_for(method, "faces", task)
            found = [
                fair_tune(method, round_.problem, x, prior, round_.setting, seed=seed).score
                for seed in range(count)
            ]
            scores = ", ".join(f"{score:.2f}" for score in sorted(found))
            middle = statistics.median(found)
            print(f"| {task}, {method} | {scores} | {middle:.2f} |", flush=True)


if __name__ == "__main__":
    main()
