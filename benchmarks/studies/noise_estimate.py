"""Error of the noise estimate on textured and smooth photographs, before and now.

    python benchmarks/studies/noise_estimate.py [--count 10] [--seed 0]

The textured and smooth photographs are the ``count`` with the largest and the smallest mean
magnitude of the Laplacian among the training images ``$PNPCM_DATA/natural``. Every cell is the mean
estimate of sigma_y ([0, 1] scale) and, in brackets, the smallest and the largest of the images;
"median": Donoho and Johnstone's, "patches": ``estimate_noise_std``. Seed of an
image: seed + number.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

from pnpcm.io.files import read_image
from pnpcm.metrics.noise_level import estimate_noise_std, median_noise_std
from pnpcm.places import existing

LEVELS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
LAPLACE = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]


def texture(path: Path) -> float:
    grey = read_image(path).mean(1, keepdim=True)
    return float(F.conv2d(grey, LAPLACE).abs().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    natural = sorted(existing("$PNPCM_DATA/natural").rglob("*.jpg"), key=texture)
    groups = {
        "textured": natural[-args.count :],
        "smooth": natural[: args.count],
        "natural_open": sorted(existing("$PNPCM_DATA/natural_open").glob("*.png")),
    }
    print(f"seed {args.seed}\n\n| photographs | sigma_y | median | patches |\n|---|---|---|---|")
    for name, paths in groups.items():
        for level in LEVELS:
            found: list[list[float]] = [[], []]
            for i, path in enumerate(paths):
                x = read_image(path)
                generator = torch.Generator().manual_seed(args.seed + i)
                y = x + 2 * level * torch.randn(x.shape, generator=generator)
                for column, estimate in zip(
                    found, (median_noise_std, estimate_noise_std), strict=True
                ):
                    column.append(estimate(y) / 2)
            cells = [f"{sum(c) / len(c):.4f} ({min(c):.4f} … {max(c):.4f})" for c in found]
            print(f"| {name} ({len(paths)}) | {level:g} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
