"""KID of samples of the prior `faces`: its denoiser, and its consistency model in 1, 2 and 4 steps.

    python benchmarks/studies/samples.py [--priors FILE …] [--count 200] [--out out/samples]

Sample i has seed i. They are compared with --count images of $PNPCM_DATA/faces_test at 64×64
(validation images of FairFace, not trained on); "training images" is a set of real faces, the
floor of the table. KID on means of LPIPS's VGG features (`pnpcm.metrics.kid`), not on those of
Inception: not comparable with published numbers. Prints the table; writes the first 16 samples of
each row as a sheet into --out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import pnpcm
from images import markdown, pictures, training_crops
from pnpcm.core import Prior
from pnpcm.evaluation.samples import draw, sheet
from pnpcm.io.files import read_image, save_picture
from pnpcm.metrics.kid import kid, vgg_features
from pnpcm.places import existing

STEPS = {"edm": (18,), "consistency": (1, 2, 4)}
"""Heun steps of the denoiser, as its authors; evaluations of the consistency model."""
SHOWN = 16
BATCH = 50


def features(x: Tensor) -> Tensor:
    return torch.cat([vgg_features(part) for part in x.split(BATCH)])


def faces(count: int) -> Tensor:
    """Faces that no prior was trained on."""
    paths = pictures(existing("$PNPCM_DATA/faces_test"))[:count]
    return torch.cat([F.avg_pool2d(read_image(p), 2) for p in paths])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--priors", nargs="*", default=[], help="files; default: those of faces")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("out/samples"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    true = features(faces(options.count))

    def score(x: Tensor) -> str:
        found = kid(features(x), true, generator=torch.Generator().manual_seed(0))
        return f"{found.mean:.2f} ± {found.std:.2f}"

    priors: dict[str, Prior] = {Path(f).stem: pnpcm.load_prior(f) for f in options.priors} or {
        f"faces, {kind}": pnpcm.load_prior("faces", kind=kind) for kind in STEPS
    }
    rows = [["training images", "–", score(training_crops("faces", options.count))]]
    for name, prior in priors.items():
        for steps in STEPS[prior.kind]:
            drawn = draw(prior, options.count, steps=steps)
            rows.append([name, str(drawn.nfe), score(drawn.x)])
            print(*rows[-1], sep=" | ", flush=True)
            shown = draw(prior, SHOWN, steps=steps)
            file = options.out / f"{name.replace(', ', '-')}-{drawn.nfe}.png"
            save_picture(file, sheet(shown, prior, f"{name}, {drawn.nfe} NFE"))
    print("\n" + markdown(("samples of", "NFE", "KID"), rows))


if __name__ == "__main__":
    main()
