"""Why back-projection fails in multi-coil MRI: CM4IR's guidance forgets its prior there.

    python benchmarks/cm4ir_mri.py --out out/cm4ir-mri [--slices 4]

With c coils and acceleration R there are c/R times as many equations as unknowns. As long as A has
full column rank, A⁺A = I and the guidance b = d − A⁺(Ad − y) is A⁺y *whatever* the network said:
the least-squares image, with the noise that undersampling amplifies. Printed per R, on held-out IXI
slices (8 simulated coils, σ_y = 0.005, true maps, gaussian1d masks, 10 calibration lines):

  forgotten   1 − ‖(b_k − A⁺y)‖ / ‖d_k − A⁺y‖, mean over k: 1 = nothing of the estimate is left
  swapped     ‖b_k(this prior) − b_k(a prior that always answers grey)‖ / ‖b_k‖ in the first step
  A⁺y         PSNR of the least-squares image (CG to rounding)
  CM4IR ζ     PSNR of its result with the published loading ζ = 0, 1 and with much more, 30 and 300
  PnP-CM      PSNR with the shipped preset of the R (4 and 8) at the same 4 evaluations
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from contest_problems import SIGMA_Y, held_out_images, measured
from pnpcm import PRESETS, load_prior
from pnpcm.core import Prior, Step
from pnpcm.files import write_text
from pnpcm.linalg import norm
from pnpcm.metrics import psnr
from pnpcm.operators.mri import to_complex
from pnpcm.priors import GaussianPrior
from pnpcm.rng import generators
from pnpcm.solvers import CM4IR, CM4IRConfig, PnPCM
from pnpcm.tasks import Problem

CONFIG = CM4IRConfig.from_paper(50, 0.1, noise_std=2 * SIGMA_Y["mri"])
LOADINGS = (0.0, 1.0, 30.0, 300.0)


def score(x: Tensor, truth: Tensor) -> float:
    one, two = (to_complex(v).abs()[:, None] * 2 - 1 for v in (x, truth))
    return float(psnr(one, two).mean())


def guided(problem: Problem, prior: Prior, config: CM4IRConfig) -> tuple[Tensor, list[Step]]:
    steps: list[Step] = []
    seeds = generators(range(len(problem.y)))
    result = CM4IR(prior, config)(
        problem.y, problem.operator, generator=seeds, callback=steps.append
    )
    return result.x, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/cm4ir-mri"))
    parser.add_argument("--slices", type=int, default=4)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, prior = held_out_images("mri", options.slices), load_prior("mri")
    grey = GaussianPrior(0.0, 0.0)  # answers 0 to everything
    head = "R | equations per unknown | forgotten | swapped | A⁺y | "
    head += " | ".join(f"CM4IR ζ = {z:g}" for z in LOADINGS) + " | PnP-CM"
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for acceleration in (2, 4, 8):
        round_ = measured("mri", f"r{acceleration}", x, seed=7000)
        problem, operator = round_.problem, round_.problem.operator
        least_squares = operator.A_dagger(problem.y)
        result, steps = guided(problem, prior, CONFIG)
        _, other = guided(problem, grey, CONFIG)
        kept = [
            float((norm(s.x - least_squares) / norm(s.z - least_squares)).mean())
            for s in steps[:-1]
            if s.z is not None
        ]
        swapped = float((norm(steps[0].x - other[0].x) / norm(steps[0].x)).mean())
        cells = [
            f"{operator.n_measured(problem.y) / x.numel():.1f}",
            f"{1 - sum(kept) / len(kept):.4f}",
            f"{swapped:.1e}",
            f"{score(least_squares, x):.2f}",
            f"{score(result, x):.2f}",
        ]
        for zeta in LOADINGS[1:]:
            loaded, _ = guided(problem, prior, replace(CONFIG, zeta=zeta))
            cells.append(f"{score(loaded, x):.2f}")
        ours = PRESETS.get(f"mri/r{acceleration}")
        if ours is not None:
            seeds = generators(range(len(x)))
            ours_x = PnPCM(prior, ours.solver)(problem.y, operator, generator=seeds).x
            cells.append(f"{score(ours_x, x):.2f}")
        else:
            cells.append("–")
        lines.append(f"| {acceleration} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    write_text(options.out / "table.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
