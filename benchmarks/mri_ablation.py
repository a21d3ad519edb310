"""Noise injection and momentum, on and off, at N = 4, 10, 20: the shape of the paper's ablation.

    python benchmarks/mri_ablation.py --out out/mri-ablation [--slices 12] [--preset fastmri/pd-r8]

Needs ../shared/data: slices of the six IXI subjects that no prior was trained or tuned on, with a
simulated smooth phase, 8 coils, noise 0.01 per part (sigma_y 0.005), gaussian1d mask R = 8 with 10
calibration lines. The preset's own numbers, stretched to N steps (``with_steps``), injection as
published (scale 1) or none, momentum as published or 0. Scores: the paper's convention, true maps.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from pnpcm import PnPCM, load_prior, measure
from pnpcm.files import write_text
from pnpcm.mri import birdcage_maps, gaussian1d, intensity_scale
from pnpcm.mri.scores import paper_scores
from pnpcm.operators import MultiCoilMRI
from pnpcm.operators.mri import to_complex
from pnpcm.presets import PRESETS
from pnpcm.rng import generators
from pnpcm.training.sources import Magnitude

DATA = Path(__file__).parents[2] / "shared" / "data" / "mri" / "ixi_t1_axial_128.npz"
HELD_OUT = [546, 565, 577, 603, 606, 632]
STEPS = (4, 10, 20)
SWITCHES = {"neither": (0, 0), "injection": (1, 0), "momentum": (0, 1), "both": (1, 1)}


def held_out(count: int) -> Tensor:
    source = Magnitude(DATA, only={"subject": HELD_OUT}, jitter=0.0)
    numbers = np.linspace(0, len(source) - 1, count + 2).astype(int)[1:-1]
    return torch.stack(
        [source.image(int(i), torch.Generator().manual_seed(int(i))) for i in numbers]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/mri-ablation"))
    parser.add_argument("--slices", type=int, default=12)
    parser.add_argument("--preset", default="fastmri/pd-r8")
    parser.add_argument("--prior", default="mri")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    prior, x = load_prior(options.prior), held_out(options.slices)
    x = x * intensity_scale(x, prior.info["scale"])[:, None, None, None]  # type: ignore[attr-defined]
    mask = gaussian1d(128, 8, 10, generator=torch.Generator().manual_seed(0))
    operator = MultiCoilMRI(birdcage_maps(8, (128, 128)), mask)
    y = measure(operator, x, 0.005, generator=generators(range(len(x))))
    support = torch.ones_like(x[:, 0], dtype=torch.bool)
    lines = [
        f"| {options.preset} | " + " | ".join(f"N = {n}" for n in STEPS) + " |",
        "|---" * 4 + "|",
    ]
    for name, (injection, momentum) in track(SWITCHES.items(), "ablation"):
        cells = []
        for n in STEPS:
            config = PRESETS[options.preset].solver.with_steps(n)
            config = replace(config, noise_scale=float(injection), mu=momentum * config.momentum[0])
            seeds = generators([1000 + i for i in range(len(x))])
            result = PnPCM(prior, config)(y, operator, generator=seeds)
            scores = paper_scores(to_complex(result.x), to_complex(x), support)
            cells.append(f"{scores.psnr:.2f} / {scores.ssim:.3f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    write_text(options.out / f"{options.preset.replace('/', '-')}.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
