"""Time and agreement of our ESPIRiT and sigpy's on one simulated slice.

``python benchmarks/speed/espirit.py [--coils 15] [--size 320] [--threads 2] [--fill 0.8]``

Ours is the minimum of three runs, sigpy's one run: on a busy machine the ratio is more reliable
than the seconds. ``--fill``: share of each side of the field of view that the object fills; at 1
it reaches the border, where two sets of maps overlap and a single set is ambiguous.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import sigpy.mri.app
import torch
from torch import Tensor

from pnpcm.mri.espirit import coherence, espirit
from pnpcm.mri.scan import crop_centre
from pnpcm.mri.simulate import phantom, simulate_scan

BATCH = 8


def seconds(work: Callable[[], Tensor], runs: int) -> tuple[float, Tensor]:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        maps = work()
        times.append(time.perf_counter() - start)
    return min(times), maps


def sigpy_maps(kspace: Tensor) -> Tensor:
    """Coil maps of sigpy with our default settings."""
    app = sigpy.mri.app.EspiritCalib(kspace.numpy(), 24, 0.02, 6, 0.95, 100, show_pbar=False)
    return torch.from_numpy(app.run())


def simulated(coils: int, side: int, fill: float) -> Tensor:
    inner = phantom((round(fill * side), round(fill * side)))
    image = torch.zeros(side, side)
    crop_centre(image, (inner.shape[0], inner.shape[1])).copy_(inner)
    generator = torch.Generator().manual_seed(0)
    return simulate_scan(image, n_coils=coils, noise_std=0.01, generator=generator).kspace


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--coils", type=int, default=15)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fill", type=float, default=0.8)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    kspace = simulated(options.coils, options.size, options.fill)
    size = (options.size, options.size)
    calibration = crop_centre(kspace, (24, 24))
    ours, maps = seconds(lambda: espirit(calibration, size), runs=3)
    batch, _ = seconds(lambda: espirit(calibration.expand(BATCH, -1, -1, -1), size), runs=1)
    theirs, reference = seconds(lambda: sigpy_maps(kspace), runs=1)

    inside, other = maps.abs().sum(0) > 0, reference.abs().sum(0) > 0
    agreement = coherence(maps, reference)[inside & other]
    print(f"{options.coils} coils, {options.size}², {options.threads} threads, fill {options.fill}")
    print(f"sigpy            {theirs:8.2f} s")
    print(f"ours             {ours:8.2f} s   ratio {theirs / ours:.0f}")
    print(f"ours, {BATCH} slices   {batch / BATCH:8.2f} s per slice")
    print(
        f"coherence        min {agreement.min():.5f}, 0.1 % {agreement.quantile(0.001):.5f}, "
        f"mean {agreement.mean():.6f}"
    )
    print(
        f"support          {100 * inside.float().mean():.1f} % of the image, "
        f"agreement {100 * (inside == other).float().mean():.3f} %"
    )


if __name__ == "__main__":
    main()
