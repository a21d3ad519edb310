"""Noise injection and momentum, on and off, at N = 4, 10, 20, as in the paper's ablation.

    python benchmarks/mri_ablation.py --out out/mri-ablation [--slices 12] [--trials 16]

Needs $PNPCM_DATA. Every cell is tuned on its own with the same budget (``--trials`` runs on 3
training slices; injection fixed at scale 1 or 0, momentum searched or fixed at 0), so that none
uses the parameters of another. Scores are of slices of the six IXI subjects that were not used in
training or tuning: simulated smooth phase, 8 coils, sigma_y 0.005, gaussian1d mask, R = 8, 10
calibration lines, true coil maps, the paper's convention. A repeated run continues the studies in
OUT.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from contest_problems import HELD_OUT, slices
from pnpcm import PnPCM, load_prior, measure
from pnpcm.io.files import write_text
from pnpcm.linalg import to_complex
from pnpcm.mri import birdcage_maps, gaussian1d
from pnpcm.mri.scores import paper_scores
from pnpcm.operators import MultiCoilMRI
from pnpcm.problems import Custom
from pnpcm.rng import generators
from pnpcm.tune.search import tune

SIGMA_Y = 0.005
TUNE_ON = {"subject": [526, 527, *HELD_OUT]}  # what training left out, and what validated it
STEPS = (4, 10, 20)
SWITCHES: dict[str, dict[str, float]] = {
    "neither": {"noise_scale": 0.0, "mu": 0.0},
    "injection": {"noise_scale": 1.0, "mu": 0.0},
    "momentum": {"noise_scale": 0.0},
    "both": {"noise_scale": 1.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/mri-ablation"))
    parser.add_argument("--slices", type=int, default=12)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--prior", default="mri")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    prior = load_prior(options.prior)
    mask = gaussian1d(128, 8, 10, generator=torch.Generator().manual_seed(0))
    task = Custom(MultiCoilMRI(birdcage_maps(8, (128, 128)), mask))
    x, known = slices(options.slices, only={"subject": HELD_OUT}), slices(3, exclude=TUNE_ON)
    y = measure(task.forward, x, SIGMA_Y, generator=generators(range(len(x))))
    lines = ["| | " + " | ".join(f"N = {n}" for n in STEPS) + " |", "|---" * 4 + "|"]
    for name, fixed in SWITCHES.items():
        cells = []
        for n in STEPS:
            found = tune(
                task,
                known,
                prior,
                prior_name=options.prior,
                sigma_y=SIGMA_Y,
                steps=n,
                trials=options.trials,
                storage=options.out / f"{name}-{n}.study",
                fixed=fixed,
            )
            seeds = generators([1000 + i for i in range(len(x))])
            result = PnPCM(prior, found.preset.solver)(y, task.forward, generator=seeds)
            everywhere = torch.ones_like(x[:, 0], dtype=torch.bool)
            scores = paper_scores(to_complex(result.x), to_complex(x), everywhere)
            cells.append(f"{scores.psnr:.2f} / {scores.ssim:.3f}")
            print(name, n, cells[-1], flush=True)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    write_text(options.out / "table.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
