"""Restored beside degraded, per task and number of steps, on held-out images.

    python benchmarks/restore_table.py --out out/restore-table [--tasks superres …] [--steps 2 4 8]

Needs ../shared/data: CBSD68 (centre crops of 256²) and the images of `papers`, none of which was
trained or tuned on. Degradations by seed; sigma_y is given, the operator is known. Writes table.md
and rows.json; rows that are there are not computed again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

from pnpcm import load_prior
from pnpcm.files import read_image, write_json, write_text
from pnpcm.lpips import lpips
from pnpcm.metrics import psnr, ssim
from pnpcm.pipeline import restore
from pnpcm.pipeline.measurement import simulate
from pnpcm.tasks import (
    Deblur,
    Denoise,
    Inpaint,
    Jpeg,
    NonlinearDeblur,
    SuperRes,
    Task,
)

DATA = Path(__file__).parents[2] / "shared" / "data"
TASKS: dict[str, tuple[Task, float]] = {
    "denoise": (Denoise(), 0.05),
    "inpaint 70 %": (Inpaint(missing=0.7), 0.05),
    "superres ×4": (SuperRes(4), 0.05),
    "deblur 5×5": (Deblur(gaussian=(5, 10.0)), 0.05),
    "jpeg 10": (Jpeg(10), 0.0),
    "nonlinear deblur": (NonlinearDeblur(), 0.05),
}


def images(limit: int | None) -> dict[str, list[Tensor]]:
    """CBSD68 cropped, papers whole."""
    groups = {
        "CBSD68": sorted((DATA / "natural_test" / "CBSD68").rglob("*.*g")),
        "papers": sorted((DATA / "papers").rglob("*.*g")),
    }
    return {name: [_crop(read_image(p)) for p in paths[:limit]] for name, paths in groups.items()}


def _crop(x: Tensor, side: int = 256) -> Tensor:
    top, left = (max(0, (n - side) // 2) for n in x.shape[-2:])
    return x[..., top : top + side, left : left + side]


def judge(
    task: Task, sigma_y: float, steps: int, x: Tensor, seed: int, prior: object
) -> dict[str, float]:
    measured = simulate(x, task, sigma_y, seed=seed)
    before = measured.task.baseline(measured.task.problem(measured.y)).clamp(-1, 1)
    done = restore(measured.y, measured.task, prior, sigma_y=sigma_y, steps=steps)  # type: ignore[arg-type]
    row = {"ratio": done.check.ratio}
    for name, image in (("before", before), ("after", done.x)):
        row[f"psnr {name}"] = float(psnr(image, x))
        row[f"ssim {name}"] = float(ssim(image, x))
        row[f"lpips {name}"] = float(lpips(image, x))
    return row


def table(rows: dict[str, list[dict[str, float]]]) -> str:
    lines = [
        "| task, N, images | PSNR | SSIM | LPIPS | better PSNR |",
        "|---|---|---|---|---|",
    ]
    for name, each in rows.items():
        cells = []
        for metric, digits in (("psnr", 2), ("ssim", 3), ("lpips", 3)):
            before, after = (
                sum(r[f"{metric} {when}"] for r in each) / len(each) for when in ("before", "after")
            )
            cells.append(f"{before:.{digits}f} → {after:.{digits}f}")
        wins = sum(r["psnr after"] > r["psnr before"] for r in each)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {wins} of {len(each)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/restore-table"))
    parser.add_argument("--prior", default="natural")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--steps", type=int, nargs="*", default=[4, 2, 8])
    parser.add_argument("--limit", type=int, help="images of each group")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "rows.json"
    rows = json.loads(file.read_text()) if file.exists() else {}
    prior = load_prior(options.prior)
    torch.set_grad_enabled(False)
    groups = images(options.limit)
    for steps in options.steps:
        for name in options.tasks:
            for group, each in groups.items():
                key = f"{name}, N = {steps}, {group}"
                if len(rows.get(key, [])) == len(each):
                    continue
                task, sigma_y = TASKS[name]
                rows[key] = [
                    judge(task, sigma_y, steps, x, seed, prior)
                    for seed, x in enumerate(track(each, key))
                ]
                write_json(file, rows)
                write_text(options.out / "table.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
