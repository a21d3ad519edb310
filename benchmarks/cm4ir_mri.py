"""Why back-projection fails in multi-coil MRI: CM4IR's guidance does not depend on the prior there.

    python benchmarks/cm4ir_mri.py --out out/cm4ir-mri [--slices 4]

c coils at acceleration R give c/R equations per unknown. Where A has full column rank, A⁺A = I, and
the guidance b = d − A⁺(Ad − y) is A⁺y for *any* estimate d of the network: the least-squares
image, with the noise that missing lines amplify. On held-out IXI slices (8 simulated coils, true
maps, σ_y = 0.005, float64, A⁺ exact by rows), per mask:

  kept      ‖b − b′‖/‖d − d′‖ of the first step, b′ and d′ from a network that always returns grey:
            the share of the network's estimate that remains after guidance
  A⁺y       PSNR of the least-squares image, without noise and with it
  CM4IR     PSNR of its result for loadings ζ (published: 0, 1)
  DDS, PnP-CM   PSNR on the same prior with published numbers (100 evaluations) and the shipped
            preset (R = 4, 8) or the parameters of `restore` (4 evaluations)
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from contest_problems import SIGMA_Y, held_out_images
from pnpcm import load_prior, measure
from pnpcm.baselines import BASELINES
from pnpcm.core import Prior, Step
from pnpcm.io.files import write_text
from pnpcm.linalg import norm, to_complex
from pnpcm.metrics import psnr
from pnpcm.mri import birdcage_maps
from pnpcm.mri.masks import equidistant, gaussian1d
from pnpcm.operators import MultiCoilMRI
from pnpcm.priors import GaussianPrior
from pnpcm.problems import Custom
from pnpcm.recon import Options
from pnpcm.recon.parameters import choose_numbers
from pnpcm.rng import generators
from pnpcm.solvers import CM4IR, SOLVERS, CM4IRConfig, PnPCM

NOISE = SIGMA_Y["mri"]
CONFIG = CM4IRConfig.from_paper(50, 0.1, noise_std=2 * NOISE)
LOADINGS = (0.0, 1.0, 30.0, 300.0)
MASKS = {
    "equidistant, R = 2": (equidistant, 2),
    "equidistant, R = 3": (equidistant, 3),
    "equidistant, R = 4": (equidistant, 4),
    "gaussian1d, R = 4": (gaussian1d, 4),
    "gaussian1d, R = 8": (gaussian1d, 8),
}


class Problem:
    """One mask: operator, truth, measurements, and CM4IR run on it."""

    def __init__(self, mask: Tensor, x: Tensor) -> None:
        self.x = x.double()
        self.operator = MultiCoilMRI(birdcage_maps(8, x.shape[-2:]), mask)
        self.clean = self.operator.A(self.x)
        seeds = generators(range(7000, 7000 + len(x)))
        self.y = measure(self.operator, self.x, NOISE, generator=seeds)

    @property
    def seeds(self) -> list[torch.Generator]:
        return generators(range(len(self.x)))

    def score(self, x: Tensor) -> float:
        one, two = (to_complex(v).abs()[:, None] * 2 - 1 for v in (x, self.x))
        return float(psnr(one, two).mean())

    def guided(self, prior: Prior, config: CM4IRConfig) -> tuple[Tensor, list[Step]]:
        steps: list[Step] = []
        solver = CM4IR(prior, config)
        result = solver(self.y, self.operator, generator=self.seeds, callback=steps.append)
        return result.x, steps


def row(problem: Problem, consistency: Prior, denoiser: Prior) -> list[str]:
    operator, y = problem.operator, problem.y
    grey = GaussianPrior(0.0, 0.0)  # answers 0 to everything
    result, steps = problem.guided(consistency, CONFIG)
    _, other = problem.guided(grey, replace(CONFIG, sigmas=CONFIG.sigmas[:2], deltas=()))
    assert steps[0].z is not None
    assert other[0].z is not None
    kept = norm(steps[0].x - other[0].x) / norm(steps[0].z - other[0].z)
    cells = [
        f"{operator.n_measured(y) / problem.x.numel():.1f}",
        f"{float(kept.mean()):.1e}",
        f"{problem.score(operator.A_dagger(problem.clean)):.1f}",
        f"{problem.score(operator.A_dagger(y)):.1f}",
        f"{problem.score(result):.2f}",
    ]
    for zeta in LOADINGS[1:]:
        loaded, _ = problem.guided(consistency, replace(CONFIG, zeta=zeta))
        cells.append(f"{problem.score(loaded):.2f}")
    published = SOLVERS["dds"](denoiser, BASELINES["dds/fastmri/r4"].solver)
    dds = published(y, operator, generator=problem.seeds)
    task = Custom(operator)
    ours = choose_numbers(
        task, task.problem(y), "pnp-cm", "mri", NOISE, Options(method="pnp-cm")
    ).config
    pnp_cm = PnPCM(consistency, ours)(y, operator, generator=problem.seeds)
    return [*cells, f"{problem.score(dds.x):.2f}", f"{problem.score(pnp_cm.x):.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/cm4ir-mri"))
    parser.add_argument("--slices", type=int, default=4)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x = held_out_images("mri", options.slices)
    priors = load_prior("mri"), load_prior("mri", kind="edm")
    head = "mask | equations per unknown | kept | A⁺y, no noise | A⁺y | "
    head += " | ".join(f"CM4IR ζ = {z:g}" for z in LOADINGS) + " | DDS | PnP-CM"
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for name, (draw, acceleration) in MASKS.items():
        mask = draw(x.shape[-1], acceleration, 10, generator=torch.Generator().manual_seed(0))
        lines.append(f"| {name} | " + " | ".join(row(Problem(mask, x), *priors)) + " |")
        print(lines[-1], flush=True)
    write_text(options.out / "table.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
