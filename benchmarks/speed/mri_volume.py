"""Time and memory of ``pnpcm mri`` on a simulated volume: 30 slices, 15 coils, 320×320, R = 4.

    python benchmarks/speed/mri_volume.py [--slices 30] [--coils 15] [--size 320] [--batch 4]

The raw file (fastMRI layout, readout twice oversampled) is written first; then the command runs in
its own process. Stages are those of result.json; the rest is Python, imports and writing. The
bound of the ratios is the evaluations of the network alone: one batch times the number of calls.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from command import run_command, seconds_of_prior


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", default="30")
    parser.add_argument("--coils", default="15")
    parser.add_argument("--size", default="320")
    parser.add_argument("--batch", default="4")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        raw, out = Path(name) / "scan.h5", Path(name) / "out"
        size = f"{options.size},{options.size}"
        words = ["--slices", options.slices, "--coils", options.coils, "--size", size]
        run_command(["simulate-mri", str(raw), *words])
        print(f"{raw.stat().st_size / 1e6:.0f} MB of k-space")
        words = ["--mask", "gaussian1d", "--acceleration", "4", "--batch", options.batch]
        wall, peak = run_command(["mri", str(raw), *words, "--out", str(out)])
        record = json.loads((out / "scan.result.json").read_text())
    stages = record["seconds"]
    batch, slices, side = int(options.batch), int(options.slices), int(options.size)
    calls = len(record["solver"]["sigmas"]) * slices / batch  # one evaluation per step of PnP-CM
    bound = seconds_of_prior("mri", record["prior_kind"], (batch, 2, side, side), calls)
    print(f"{wall:.1f} s in all, peak {peak:.2f} GB")
    print(
        f"network alone {bound:.1f} s: solve {stages['solve'] / bound:.2f}, all {wall / bound:.2f}"
    )
    print(", ".join(f"{k} {v:.1f} s" for k, v in stages.items()))
    print(f"rest {wall - sum(stages.values()):.1f} s")
    for score in record["scores"]:
        print(f"{score['convention']}: PSNR {score['psnr']:.2f}, SSIM {score['ssim']:.4f}")


if __name__ == "__main__":
    main()
