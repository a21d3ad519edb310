"""Time and memory of ``pnpcm mri`` on a simulated volume: 30 slices, 15 coils, 320×320, R = 4.

    python benchmarks/mri_volume.py [--slices 30] [--coils 15] [--size 320] [--batch 4]

The raw file (fastMRI layout, readout twice oversampled) is written first; then the command runs in
its own process. Stages are those of result.json; the rest is Python, imports and writing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from command import run_command


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
    print(f"{wall:.1f} s in all, peak {peak:.2f} GB")
    print(", ".join(f"{k} {v:.1f} s" for k, v in stages.items()))
    print(f"rest {wall - sum(stages.values()):.1f} s")
    for score in record["scores"]:
        print(f"{score['convention']}: PSNR {score['psnr']:.2f}, SSIM {score['ssim']:.4f}")


if __name__ == "__main__":
    main()
