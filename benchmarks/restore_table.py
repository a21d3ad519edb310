"""Scores before and after restoration, per task and number of steps, on held-out images.

    python benchmarks/restore_table.py --out out/restore-table [--tasks superres …] [--steps 2 4 8]
    python benchmarks/restore_table.py --fills [--side 256] [--limit 8]

Needs $PNPCM_DATA: centre crops (160²) of CBSD68 and of the images of `papers`, none of which was
trained or tuned on. Degradations by seed; sigma_y is given, the operator is known. Writes table.md
and rows.json; existing rows are not computed again.

`--fills`: inpainting without noise, `restore` with its defaults beside the median and biharmonic
fills and, if OpenCV is installed, its Navier-Stokes and Telea fills; prints PSNR, SSIM and seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image, ImageDraw
from rich.progress import track
from torch import Tensor

from pnpcm import load_prior
from pnpcm.core import Prior
from pnpcm.io.files import read_image, write_json, write_text
from pnpcm.metrics import psnr, ssim
from pnpcm.metrics.lpips import lpips
from pnpcm.places import existing
from pnpcm.problems import (
    Deblur,
    Denoise,
    Inpaint,
    Jpeg,
    NonlinearDeblur,
    SuperRes,
    Task,
)
from pnpcm.problems.measurement import simulate
from pnpcm.recon import restore

METRICS = {"psnr": psnr, "ssim": ssim, "lpips": lpips}
TASKS: dict[str, tuple[Task, float]] = {
    "denoise": (Denoise(), 0.05),
    "inpaint 70 %": (Inpaint(missing=0.7), 0.05),
    "superres ×4": (SuperRes(4), 0.05),
    "deblur 5×5": (Deblur(gaussian=(5, 10.0)), 0.05),
    "jpeg 10": (Jpeg(10), 0.0),
    "nonlinear deblur": (NonlinearDeblur(), 0.05),
}


Scores = dict[str, float]


def images(side: int, limit: int | None) -> dict[str, list[Tensor]]:
    """Centre crops of all images of a group."""
    groups = {
        "CBSD68": sorted(existing("$PNPCM_DATA/natural_test/CBSD68").rglob("*.*g")),
        "papers": sorted(existing("$PNPCM_DATA/papers").rglob("*.*g")),
    }
    return {k: [_crop(read_image(p), side) for p in paths[:limit]] for k, paths in groups.items()}


def _crop(x: Tensor, side: int) -> Tensor:
    top, left = (max(0, (n - side) // 2) for n in x.shape[-2:])
    return x[..., top : top + side, left : left + side]


def judge(task: Task, sigma_y: float, steps: int, x: Tensor, seed: int, prior: Prior) -> Scores:
    """Scores of the restored image; ``steps`` 0: of the image before restoration."""
    measured = simulate(x, task, sigma_y, seed=seed)
    if steps == 0:
        done = measured.task.baseline(measured.task.problem(measured.y)).clamp(-1, 1)
    else:
        done = restore(measured.y, measured.task, prior, sigma_y=sigma_y, steps=steps).x
    return {name: float(score(done, x)) for name, score in METRICS.items()}


def table(rows: dict[str, list[Scores]]) -> str:
    lines = [
        "| task, images, N | PSNR | SSIM | LPIPS | better PSNR |",
        "|---|---|---|---|---|",
    ]
    for name, each in sorted(rows.items()):
        before = rows[f"{name.rpartition(', ')[0]}, N = 0"]
        if each is before or len(each) != len(before):
            continue
        cells = []
        for metric, digits in (("psnr", 2), ("ssim", 3), ("lpips", 3)):
            means = (sum(r[metric] for r in some) / len(some) for some in (before, each))
            cells.append(" → ".join(f"{mean:.{digits}f}" for mean in means))
        wins = sum(a["psnr"] > b["psnr"] for a, b in zip(each, before, strict=True))
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {wins} of {len(each)} |")
    return "\n".join(lines) + "\n"


# inpainting without noise ------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Scratches(Inpaint):
    """Polylines of 1 to 4 pixels in width, until they cover the share ``missing``."""

    def prepared(self, image_shape: tuple[int, int, int], generator: torch.Generator) -> Self:
        height, width = image_shape[1:]
        drawn = Image.new("L", (width, height))
        while np.asarray(drawn).mean() / 255 < (self.missing or 0):
            *steps, first, second, thick = torch.rand((8,), generator=generator).tolist()
            points = [(first * width, second * height)]
            for k, turn in enumerate(steps):
                angle = 6.28 * steps[0] + k * (turn - 0.5)
                x, y = points[-1]
                points.append((x + 40 * np.cos(angle), y + 40 * np.sin(angle)))
            ImageDraw.Draw(drawn).line(points, fill=255, width=1 + int(4 * thick))
        kept = torch.from_numpy((np.asarray(drawn) == 0).astype(np.float32))
        return replace(self, mask=kept, missing=None)


Fill = Callable[[Tensor, Inpaint], Tensor]


def fills(prior: str) -> dict[str, Fill]:
    """Methods that fill the missing pixels of y, by name."""

    def median(y: Tensor, task: Inpaint) -> Tensor:
        return task.baseline(task.problem(y))

    def biharmonic(y: Tensor, task: Inpaint) -> Tensor:
        from skimage.restoration import inpaint_biharmonic

        planes, hole = y[0].movedim(0, -1).double().numpy(), (task.mask == 0).numpy()  # type: ignore[union-attr]
        return _image(inpaint_biharmonic(planes, hole, channel_axis=-1))

    def opencv(flag: str) -> Fill:
        def fill(y: Tensor, task: Inpaint) -> Tensor:
            import cv2

            pixels = ((y[0].movedim(0, -1) + 1) * 127.5).round().byte().numpy()
            hole = (task.mask == 0).byte().numpy()  # type: ignore[union-attr]
            return _image(cv2.inpaint(pixels, hole, 3, getattr(cv2, flag)) / 127.5 - 1)

        return fill

    def ours(y: Tensor, task: Inpaint) -> Tensor:
        return restore(y, task, prior).x

    found = {"median": median, "biharmonic": biharmonic}
    if find_spec("cv2") is not None:
        found |= {"Navier-Stokes": opencv("INPAINT_NS"), "Telea": opencv("INPAINT_TELEA")}
    return found | {"restore": ours}


def _image(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float32)).movedim(-1, 0)[None]


def fill_table(each: list[Tensor], prior: str) -> str:
    """Mean PSNR, SSIM and seconds of each fill on the images."""
    lines = ["| holes | fill | PSNR | SSIM | seconds |", "|---|---|---|---|---|"]
    for task in (Scratches(missing=0.07), Inpaint(missing=0.7)):
        measured = [simulate(x, task, 0.0, seed=i) for i, x in enumerate(each)]
        for name, fill in fills(prior).items():
            start, scores = time.perf_counter(), []
            for m, x in zip(track(measured, name), each, strict=True):
                filled = fill(m.y, m.task)  # type: ignore[arg-type]
                scores.append((float(psnr(filled, x)), float(ssim(filled, x))))
            seconds = (time.perf_counter() - start) / len(each)
            high, alike = np.mean(scores, axis=0)
            holes = f"{type(task).__name__.lower()} {100 * (task.missing or 0):.0f} %"
            lines.append(f"| {holes} | {name} | {high:.2f} | {alike:.3f} | {seconds:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/restore-table"))
    parser.add_argument("--prior", default="natural")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--steps", type=int, nargs="*", default=[4, 2, 8])
    parser.add_argument("--side", type=int, default=160, help="side of the crops in pixels")
    parser.add_argument("--limit", type=int, help="largest number of images per group")
    parser.add_argument("--fills", action="store_true", help="inpainting without noise only")
    options = parser.parse_args()
    if options.fills:
        print(fill_table(images(options.side, options.limit)["CBSD68"], options.prior))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "rows.json"
    rows = json.loads(file.read_text()) if file.exists() else {}
    prior = load_prior(options.prior)
    torch.set_grad_enabled(False)
    groups = images(options.side, options.limit)
    for steps in (0, *options.steps):
        for name in options.tasks:
            for group, each in groups.items():
                key = f"{name}, {group}, N = {steps}"
                done = rows.setdefault(key, [])
                for seed in track(range(len(done), len(each)), key):
                    done.append(judge(*TASKS[name], steps, each[seed], seed, prior))
                    write_json(file, rows)
                write_text(options.out / "table.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
