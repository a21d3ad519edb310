"""Coil maps from the calibration lines alone, on measured scans: ``pnpcm mri`` with its defaults.

    python benchmarks/studies/mri_maps.py [--seeds 3] [--only half]

Needs mri_kspace of PNPCM_DATA: a fully sampled 8-coil T1 brain (230×180), the same at low
resolution (128×128), and one whose field of view is too small (320×168, undersampled, no truth).
Every second line of the first is a fully sampled scan of half the field of view, with an object
that is larger; its reference is the root-sum-of-squares (RSS) of its own, folded, coil images.

Each scan is undersampled by gaussian1d masks of R = 4 and 8 (mean over ``--seeds`` of them) and
reconstructed by the command line. The image is then compared here with the RSS of the full scan:
PSNR over the whole image and over the object (RSS > 10 % of its 99th percentile), data range the
largest RSS; "lost" is the share of the object's pixels that are exactly 0. Since only the command
line is used, the script also measures older versions of the package (PYTHONPATH). The scan without
a ground truth is scored by held-out lines: the relative error of their prediction by CG-SENSE.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pnpcm.cli import app
from pnpcm.transforms import ifft2c

try:
    from pnpcm.places import PLACES
except ImportError:  # older versions of the package, which this script compares
    PLACES = {"PNPCM_DATA": "data"}

ITERATIONS = (5, 10, 20)
HELD_OUT = 4
"""Every fourth measured line outside the centre."""


def kspace(name: str) -> Tensor:
    """K-space ``(coils, H, W)`` of a file of mri_kspace."""
    data = Path(os.environ.get("PNPCM_DATA") or PLACES["PNPCM_DATA"])
    path = data / "mri_kspace" / f"{name}.npz"
    if not path.is_file():
        raise SystemExit(
            f"{path} is missing; set PNPCM_DATA to the folder that holds mri_kspace with the "
            "measured scans"
        )
    return torch.from_numpy(np.load(path)["kspace"])


def scans() -> dict[str, tuple[Tensor, list[list[str]]]]:
    """Name → fully sampled k-space, and the options to compare."""
    large = kspace("brain_t1_8ch_230x180")
    sets = [["--map-sets", "1"], ["--map-sets", "2"]]
    return {
        "230×180": (large, [[]]),
        "128×128": (kspace("brain_t1_8ch_lowres_128x128"), [[]]),
        "half field of view, 230×90": (large[..., ::2].contiguous(), [[], *sets]),
    }


def reconstruct(file: Path, acceleration: int, seed: int, more: list[str]) -> tuple[Tensor, str]:
    """Magnitude ``(H, W)`` written by the command line, and the reported sampling."""
    out = file.parent / "out"
    words = ["mri", str(file), "--mask", "gaussian1d", "--acceleration", str(acceleration)]
    words += ["--seed", str(seed), "--out", str(out), "--format", "npy", "--json", *more]
    printed = io.StringIO()
    with redirect_stdout(printed):
        app(words, standalone_mode=False)
    record = json.loads(printed.getvalue())
    return torch.from_numpy(np.load(out / f"{file.stem}.npy"))[0].abs(), record["sampling"]


def scores(image: Tensor, rss: Tensor) -> tuple[float, float, float]:
    """PSNR of the whole image and of the object, and the share of the object that is lost."""
    inside = rss > 0.1 * rss.quantile(0.99)
    top, error = rss.max(), (image - rss).double().square()
    db = [float(10 * torch.log10(top**2 / e.mean())) for e in (error, error[inside])]
    return db[0], db[1], float((image[inside] == 0).double().mean())


def held_out(sets: int) -> str:
    """Relative error of held-out lines of the 320×168 scan, predicted by CG-SENSE."""
    from pnpcm.linalg import cg
    from pnpcm.mri.espirit import espirit
    from pnpcm.mri.sampling import calibration, infer_mask
    from pnpcm.operators import MultiCoilMRI

    y = kspace("brain_8ch_small_fov_320x168")
    mask, middle = infer_mask(y), y.shape[-1] // 2
    lines = mask.all(0).nonzero().flatten()
    lines = lines[(lines - middle).abs() > 16][::HELD_OUT]
    hidden = torch.zeros_like(mask)
    hidden[:, lines] = True
    seen = mask & ~hidden
    maps = espirit(calibration(y, seen), (y.shape[1], y.shape[2]), map_sets=sets)
    maps = maps[None] if sets > 1 else maps[None, None]
    operator, rest = MultiCoilMRI(maps, seen), MultiCoilMRI(maps, hidden)
    right, wanted = operator.A_adjoint((y * seen)[None]), (y * hidden)[None]
    found = []
    for n in ITERATIONS:
        predicted = rest.A(cg(operator.A_adjoint_A, right, max_iter=n))
        found.append(float((predicted - wanted).norm() / wanted.norm()))
    return ", ".join(f"{e:.3f} ({n} it.)" for e, n in zip(found, ITERATIONS, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="scans whose name contains this")
    parser.add_argument("--plain", action="store_true", help="defaults only, for older versions")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| scan | R | options | sampling | PSNR, whole | PSNR, object | lost |\n" + "|---" * 7 + "|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, (full, tried) in scans().items():
            if options.only not in name:
                continue
            file = Path(folder) / "scan.npz"
            np.savez(file, kspace=full.numpy())
            rss = ifft2c(full).abs().square().sum(0).sqrt()
            for acceleration in (4, 8):
                for more in tried[:1] if options.plain else tried:
                    rows = []
                    for seed in range(options.seeds):
                        image, sampling = reconstruct(file, acceleration, seed, more)
                        rows.append(scores(image, rss))
                    whole, inside, lost = np.mean(rows, 0)
                    words = " ".join(more) or "default"
                    lines = sampling.split("with ")[-1].split(";")[0]
                    print(
                        f"| {name} | {acceleration} | {words} | {lines} | {whole:.2f} | "
                        f"{inside:.2f} | {lost:.0%} |",
                        flush=True,
                    )
    if not options.plain:
        for sets in (1, 2):
            print(f"320×168, held-out lines, {sets} set(s) of maps: {held_out(sets)}")


if __name__ == "__main__":
    main()
