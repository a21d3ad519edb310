"""`restore` with default parameters: task × method × aim, PSNR (dB) and LPIPS (VGG) on crops.

    python benchmarks/method_table.py [--data natural_test] [--crops 10] [--side 128] [--out FILE]

Crops are centres of evenly spaced images of a folder of $PNPCM_DATA (default: CBSD68, not used in
training or tuning; `--data natural`: training images, on which defaults are chosen). Noise level
and all parameters are chosen by `pnpcm.restore`; the noise of crop i has seed i.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

import pnpcm
from pnpcm.io.files import read_image, write_text
from pnpcm.metrics import psnr
from pnpcm.metrics.lpips import lpips
from pnpcm.places import existing
from pnpcm.problems import Deblur, Denoise, Inpaint, Jpeg, NonlinearDeblur, SuperRes, Task
from pnpcm.problems.measurement import simulate

TASKS: dict[str, tuple[Task, float]] = {
    "denoise σ 25": (Denoise(), 25 / 255),
    "denoise σ 50": (Denoise(), 50 / 255),
    "inpaint 70 %, σ_y .05": (Inpaint(missing=0.7), 0.05),
    "inpaint 30 %, σ_y .01": (Inpaint(missing=0.3), 0.01),
    "superres ×4, σ_y .05": (SuperRes(4), 0.05),
    "superres ×2, σ_y .01": (SuperRes(2), 0.01),
    "deblur 5,10, σ_y .05": (Deblur(gaussian=(5, 10.0), boundary="zero"), 0.05),
    "deblur 9,2, σ_y .01": (Deblur(gaussian=(9, 2.0)), 0.01),
    "jpeg q10": (Jpeg(quality=10), 0.0),
    "nonlinear-deblur, σ_y .05": (NonlinearDeblur(), 0.05),
}
RUNS = {
    "PnP-CM, fidelity": {"method": "pnp-cm", "aim": "fidelity"},
    "PnP-CM, perception": {"method": "pnp-cm", "aim": "perception"},
    "DPIR": {"method": "dpir"},
    "PnP-ADMM": {"method": "pnp-admm"},
    "default": {},
}


def crops(folder: Path, count: int, side: int) -> Iterator[Tensor]:
    paths = sorted(p for p in folder.rglob("*") if p.suffix in (".png", ".jpg"))
    for path in paths[:: max(1, len(paths) // count)][:count]:
        x = read_image(path)
        top, left = ((n - side) // 2 for n in x.shape[-2:])
        yield x[..., top : top + side, left : left + side].contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="natural_test")
    parser.add_argument("--crops", type=int, default=10)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--tasks", nargs="*", help="tasks whose name contains one of these words")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    images = list(crops(existing(f"$PNPCM_DATA/{options.data}"), options.crops, options.side))
    lines = ["| task | before | " + " | ".join(RUNS) + " |", "|---" * (len(RUNS) + 2) + "|"]
    for name, (task, sigma_y) in TASKS.items():
        if options.tasks and not any(word in name for word in options.tasks):
            continue
        scores: dict[str, list[tuple[float, float]]] = {}
        used = ""
        for i, x in enumerate(images):
            measured = simulate(x, task, sigma_y, seed=i)
            before = measured.task.baseline(measured.task.problem(measured.y))
            scores.setdefault("before", []).append(judge(before, x))
            for run, choices in RUNS.items():
                done = pnpcm.restore(measured.y, measured.task, sigma_y=sigma_y, **choices)
                scores.setdefault(run, []).append(judge(done.x, x))
                used = f"{done.plan.method} ({done.result.nfe})"
        cells = [
            " / ".join(
                f"{sum(v) / len(v):.{d}f}"
                for v, d in zip(zip(*s, strict=True), (2, 3), strict=True)
            )
            for s in scores.values()
        ]
        lines.append(f"| {name} | " + " | ".join([*cells[:-1], f"{cells[-1]}, {used}"]) + " |")
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if options.out:
        write_text(options.out, text)
    print(text)


def judge(x: Tensor, x_true: Tensor) -> tuple[float, float]:
    return float(psnr(x, x_true)), float(lpips(x.clamp(-1, 1), x_true))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
