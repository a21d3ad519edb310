"""How kernel and crop of ESPIRiT follow from the number of calibration lines, on training slices.

    python benchmarks/studies/mri_map_rule.py [--slices 6] [--lines 6,8,10,12,14,16,20,24]

``espirit.fit_kernel`` and ``espirit.FOLDED`` are chosen from what this prints. Training slices of
PNPCM_DATA (mri/ixi_t1_axial_128, without the six subjects that are test data, and
mri_256/t1ce_mixed_planes_256) become multi-coil scans: loop coils on a ring around the object,
their field that of magnetic dipoles, smooth phase, white noise. Half of the scans have 8
coils, half 12; distance and size of the loops are drawn anew for each (``--near``). A scan is
undersampled four times, and its maps come from the calibration lines alone. Columns:

    kept     share of the object's pixels inside the maps
    air      share of the pixels outside the object inside the maps
    PSNR     of CG-SENSE, best of 4, 8 and 16 iterations, against the noise-free RSS, whole image
    behind   the best kernel and crop of that slice and number of lines: mean and worst slice

The second table is about the number of sets: the share of the support with a second eigenvalue
above the crop, where the object fits into the field of view and where every second line is
missing, so that it folds over itself.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from itertools import product

import numpy as np
import torch
from torch import Tensor

from pnpcm.linalg import cg, to_complex
from pnpcm.mri.espirit import GRID, _kernels, _on_grid, _spectrum, espirit, fit_kernel
from pnpcm.mri.sampling import calibration
from pnpcm.mri.simulate import smooth_phase
from pnpcm.operators import MultiCoilMRI
from pnpcm.places import existing
from pnpcm.transforms import fft2c

CROPS = (0.8, 0.85, 0.9, 0.925, 0.95, 0.97)
HELD_OUT_SUBJECTS = 6


def training_slices(count: int) -> list[Tensor]:
    """Magnitude images of both training sets in turn, the second cropped to 224×176."""
    ixi = np.load(existing("$PNPCM_DATA/mri/ixi_t1_axial_128.npz"))
    test = np.unique(ixi["subject"])[-HELD_OUT_SUBJECTS:]
    small = ixi["images"][~np.isin(ixi["subject"], test)]
    large = np.load(existing("$PNPCM_DATA/mri_256/t1ce_mixed_planes_256.npz"))["images"]
    chosen = np.random.default_rng(0)
    found = []
    for i in range(count):
        images = (large, small)[i % 2]
        image = torch.from_numpy(images[chosen.integers(len(images))]).float() / 255
        if i % 2 == 0:
            image = torch.nn.functional.pad(image, (16, 16, 16, 16))  # air around the head
            image = torch.nn.functional.interpolate(image[None, None], (224, 176), mode="area")[
                0, 0
            ]
        found.append(image)
    return found


def loop_maps(coils: int, size: tuple[int, int], generator: torch.Generator, near: float) -> Tensor:
    """Fields B_x − iB_y ``(coils, H, W)`` of circular loops around the object, facing it.

    A loop of radius a in the plane across direction n has, at distance r from its centre, about
    the field of a dipole, B = (3 (m·r) r/|r|² − m) / (|r|² + a²)^{3/2}, bounded near the loop.
    """
    ring = near + 0.3 * torch.rand(1, generator=generator)
    radius = near - 0.8 + 0.3 * torch.rand(1, generator=generator)
    turn = 2 * math.pi * torch.rand(1, generator=generator)
    angle = turn + 2 * math.pi * torch.arange(coils) / coils
    p = torch.linspace(-1, 1, size[0])[None, :, None]
    q = torch.linspace(-1, 1, size[1])[None, None, :]
    n = torch.stack([torch.sin(angle), torch.cos(angle)])[:, :, None, None]
    r = torch.stack(torch.broadcast_tensors(p - ring * n[0], q - ring * n[1]))
    square = r.square().sum(0) + radius**2
    along = (n * r).sum(0)
    field = 3 * along * r / square - n
    return torch.complex(field[1], -field[0]) / square**1.5


def simulated(image: Tensor, coils: int, seed: int, near: float) -> tuple[Tensor, Tensor]:
    """K-space ``(coils, H, W)`` with noise of 1 % of the top, and the RSS without noise."""
    generator = torch.Generator().manual_seed(seed)
    size = (image.shape[0], image.shape[1])
    maps = loop_maps(coils, size, generator, near)
    x = torch.polar(image, smooth_phase(size, generator=generator))
    coil_images = maps * x
    rss = coil_images.abs().square().sum(0).sqrt()
    top = rss.quantile(0.99)
    noise = torch.randn(2, *coil_images.shape, generator=generator)
    kspace = fft2c(coil_images) + 0.01 * top * torch.complex(noise[0], noise[1]) / math.sqrt(2)
    return kspace / top, rss / top


def mask_of(width: int, lines: int, seed: int) -> Tensor:
    """``lines`` central lines and random ones by a Gaussian density, a quarter in all."""
    chosen = np.random.default_rng(seed)
    mask = np.zeros(width, bool)
    middle = width // 2
    mask[middle - lines // 2 : middle - lines // 2 + lines] = True
    while mask.sum() < max(width // 4, lines):
        at = round(chosen.normal(middle, width / 5))
        if 0 <= at < width:
            mask[at] = True
    return torch.from_numpy(mask)


def best_psnr(kspace: Tensor, maps: Tensor, mask: Tensor, truth: Tensor) -> float:
    operator = MultiCoilMRI(maps[None, None], mask)
    right = operator.A_adjoint((kspace * mask)[None])
    found = []
    for iterations in (4, 8, 16):
        image = to_complex(cg(operator.A_adjoint_A, right, max_iter=iterations))[0].abs()
        found.append(float(10 * torch.log10(truth.max() ** 2 / (image - truth).square().mean())))
    return max(found)


def second_share(block: Tensor, kernel: int, crop: float) -> float:
    """Share of the support with a second eigenvalue above ``crop``."""
    G = _on_grid(_spectrum(_kernels(block, kernel, 0.02)), (GRID, GRID))
    above = (torch.linalg.eigvalsh(G) > crop).sum((0, 1))
    return int(above[-2]) / max(int(above[-1]), 1)


Rows = dict[tuple[int, int, float], list[tuple[float, float, float]]]


def print_rules(rows: Rows) -> None:
    print("| lines | kernel | crop | kept | air | PSNR | behind | worst |\n" + "|---" * 8 + "|")
    for (lines, kernel, crop), found in sorted(rows.items()):
        best = np.max([[f[2] for f in rows[key]] for key in rows if key[0] == lines], 0)
        kept, air, psnr = np.mean(found, 0)
        behind = best - [f[2] for f in found]
        rule = " (rule)" if fit_kernel(lines) == (kernel, crop) else ""
        print(
            f"| {lines} | {kernel} | {crop:g}{rule} | {kept:.3f} | {air:.2f} | {psnr:.2f} | "
            f"{behind.mean():.2f} | {behind.max():.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--slices", type=int, default=6)
    parser.add_argument("--lines", default="6,8,10,12,14,16,20,24")
    parser.add_argument("--kernels", default="3,4,5,6,7")
    parser.add_argument("--near", type=float, default=1.0, help="least distance of a loop's centre")
    parser.add_argument("--only-sets", action="store_true", help="the second table alone")
    options = parser.parse_args()
    lines_tried, kernels = (
        [int(n) for n in words.split(",")] for words in (options.lines, options.kernels)
    )
    rows: Rows = defaultdict(list)
    folded: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for i, image in enumerate(training_slices(options.slices)):
        kspace, truth = simulated(image, (8, 12)[(i // 2) % 2], i, options.near)
        inside = image > 0.08
        for lines in lines_tried:
            mask = mask_of(kspace.shape[-1], lines, seed=i)
            block = calibration(kspace, mask)
            for kernel, crop in () if options.only_sets else product(kernels, CROPS):
                if lines < kernel + 2:
                    continue
                maps = espirit(block, (image.shape[0], image.shape[1]), kernel=kernel, crop=crop)
                seen = maps.abs().amax(0) > 0
                psnr = best_psnr(kspace, maps, mask, truth) if bool(seen.any()) else 0.0
                kept, air = (float(seen[w].float().mean()) for w in (inside, ~inside))
                rows[lines, kernel, crop].append((kept, air, psnr))
            half = kspace[..., ::2]
            kernel, crop = fit_kernel(lines)
            shares = [
                second_share(calibration(k, mask_of(k.shape[-1], lines, i)), kernel, crop)
                for k in (kspace, half)
            ]
            folded[lines].append((shares[0], shares[1]))
        print(f"slice {i + 1} of {options.slices}", flush=True)
    if rows:
        print_rules(rows)
    print(
        "| lines | second eigenvalue: fits (largest) | folded (smallest, median) |\n|---|---|---|"
    )
    for lines, shares_of in folded.items():
        fits, folds = zip(*shares_of, strict=True)
        print(f"| {lines} | {max(fits):.3f} | {min(folds):.3f}, {np.median(folds):.3f} |")


if __name__ == "__main__":
    main()
