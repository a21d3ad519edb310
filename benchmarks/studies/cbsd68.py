"""Denoising of the 68 images of CBSD68 by the shipped priors in one call, beside BM3D.

    python benchmarks/studies/cbsd68.py [--bm3d]

Noise of σ = 15, 25 and 50 of 255; that of image i has seed i, and is not clipped. Scores per image
are kept in results/cbsd68.csv: those of the priors with the fingerprint of their weights, those
of BM3D (`pip install --no-deps bm3d bm4d`; 16 seconds an image on one core, only with --bm3d)
once and for all. Prints the means, and published ones; PSNR in dB.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import pnpcm
from images import markdown, pictures
from pnpcm.io.files import read_image, write_text
from pnpcm.metrics import psnr
from pnpcm.places import existing
from pnpcm.priors.controlled import fingerprint

FILE = Path(__file__).resolve().parents[1] / "results" / "cbsd68.csv"
SIGMAS = (15, 25, 50)
PUBLISHED = {
    "CBM3D, published": ("33.52", "30.71", "27.38"),
    "DnCNN, published": ("33.90", "31.24", "27.95"),
    "FFDNet, published": ("33.87", "31.21", "27.96"),
    "DRUNet, published": ("34.30", "31.69", "28.51"),
}
"""Zhang et al., DPIR (TPAMI 2021), table 2, CBSD68."""
Key = tuple[str, str, str]


def denoiser(kind: str) -> tuple[str, Callable[[Tensor, float], Tensor]]:
    """Name with fingerprint, and one call of a prior of `natural`."""
    prior = pnpcm.load_prior("natural", kind=kind)
    name = {"edm": "natural-edm", "consistency": "natural-cm"}[kind]
    mark = fingerprint(prior.network)[:8]  # type: ignore[attr-defined]
    return f"{name} ({mark})", torch.no_grad()(prior)


def bm3d(y: Tensor, sigma: float) -> Tensor:
    from bm3d import bm3d_rgb

    array = ((y[0] + 1) / 2).permute(1, 2, 0).double().numpy()
    found = torch.from_numpy(np.asarray(bm3d_rgb(array, sigma / 2)))
    return found.permute(2, 0, 1)[None].float() * 2 - 1


def read_rows() -> dict[Key, str]:
    if not FILE.exists():
        return {}
    with FILE.open(encoding="utf-8", newline="") as file:
        return {(row[0], row[1], row[2]): row[3] for row in list(csv.reader(file))[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bm3d", action="store_true", help="compute missing rows of BM3D too")
    options = parser.parse_args()
    methods = dict([denoiser("edm"), denoiser("consistency"), ("BM3D", bm3d)])
    rows = {key: value for key, value in read_rows().items() if key[0] in methods}
    for number, path in enumerate(pictures(existing("$PNPCM_DATA/natural_test/CBSD68"))):
        x = read_image(path)
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(number))
        for name, method in methods.items():
            for sigma in SIGMAS:
                key = (name, path.stem, str(sigma))
                if key in rows or (name == "BM3D" and not options.bm3d):
                    continue
                level = 2 * sigma / 255
                done = method(x + level * noise, level).clamp(-1, 1)
                rows[key] = f"{float(psnr(done, x)):.4f}"
                write_rows(rows)
                print(*key, rows[key], flush=True)
    lines = []
    for name in methods:
        each = [[float(v) for k, v in rows.items() if k[::2] == (name, str(s))] for s in SIGMAS]
        means = [f"{sum(values) / len(values):.2f}" if values else "–" for values in each]
        lines.append([name, *means, str(len(each[0]))])
    lines += [[name, *scores, "68"] for name, scores in PUBLISHED.items()]
    print(markdown(("PSNR (dB)", *(f"σ {s}" for s in SIGMAS), "images"), lines))


def write_rows(rows: dict[Key, str]) -> None:
    lines = [",".join((*key, value)) for key, value in sorted(rows.items())]
    write_text(FILE, "\n".join(["method,image,sigma,psnr", *lines]) + "\n")


if __name__ == "__main__":
    main()
