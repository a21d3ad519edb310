"""`restore` with default options beside the classical methods that a user has instead.

    python benchmarks/studies/classics.py [--data natural_test] [--crops 24] [--out FILE]

Evenly spaced centre crops of a folder of $PNPCM_DATA (default: CBSD68, not used in training or
tuning; `--data natural`: training images, for development). 8-bit measurements, noise of crop i by
seed i; all methods get the same measurement and the true noise level. Needs `pip install bm3d
opencv-python-headless`. PSNR (dB), SSIM, LPIPS (VGG) and seconds, means over the crops.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pnpcm
from images import crops, markdown, pictures
from pnpcm.io.files import write_text
from pnpcm.metrics import psnr, ssim
from pnpcm.metrics.lpips import lpips
from pnpcm.places import existing
from pnpcm.problems import Deblur, Denoise, Inpaint, Jpeg, SuperRes, Task
from pnpcm.problems.measurement import Measurement, simulate
from pnpcm.solvers import Wiener, WienerConfig

Classic = Callable[[Measurement, float], Tensor]
Scores = tuple[float, float, float, float]


# classical methods --------------------------------------------------------------------------------
def to_array(x: Tensor) -> np.ndarray:
    """(1, 3, H, W) in [-1, 1] as (H, W, 3) in [0, 1]."""
    return ((x[0] + 1) / 2).permute(1, 2, 0).double().numpy()


def to_tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array).permute(2, 0, 1)[None].float() * 2 - 1


def bm3d(measured: Measurement, sigma_y: float) -> Tensor:
    """CBM3D, for JPEG (no noise level) at the level 0.04."""
    from bm3d import bm3d_rgb

    level = sigma_y if sigma_y > 0 else 0.04
    return to_tensor(np.asarray(bm3d_rgb(to_array(measured.y), level)))


def biharmonic(measured: Measurement, sigma_y: float) -> Tensor:
    from skimage.restoration import inpaint_biharmonic

    holes = ~mask_of(measured)
    return to_tensor(inpaint_biharmonic(to_array(measured.y), holes, channel_axis=-1))


def navier_stokes(measured: Measurement, sigma_y: float) -> Tensor:
    import cv2

    picture = np.round(255 * to_array(measured.y).clip(0, 1)).astype(np.uint8)
    holes = (~mask_of(measured)).astype(np.uint8)
    return to_tensor(cv2.inpaint(picture, holes, 3, cv2.INPAINT_NS) / 255)


def mask_of(measured: Measurement) -> np.ndarray:
    task = measured.task
    assert isinstance(task, Inpaint)
    assert task.mask is not None
    return task.mask.numpy().astype(bool)


def lanczos(measured: Measurement, sigma_y: float) -> Tensor:
    from PIL import Image

    task = measured.task
    assert isinstance(task, SuperRes)
    picture = Image.fromarray(np.round(255 * to_array(measured.y).clip(0, 1)).astype(np.uint8))
    size = (picture.width * task.factor, picture.height * task.factor)
    return to_tensor(np.asarray(picture.resize(size, Image.Resampling.LANCZOS)) / 255)


def wiener(measured: Measurement, sigma_y: float) -> Tensor:
    problem = measured.task.problem(measured.y)
    config = WienerConfig(noise_std=max(2 * sigma_y, 1 / 255))
    return problem.picture(Wiener(None, config)(problem.y, problem.operator).x)


# tasks --------------------------------------------------------------------------------------------
def scratches(side: int, seed: int = 0) -> Tensor:
    """Kept pixels (1) of an image with 12 thin polylines, about 6 % missing."""
    from PIL import Image, ImageDraw

    generator = np.random.default_rng(seed)
    picture = Image.new("L", (side, side), 255)
    draw = ImageDraw.Draw(picture)
    for _ in range(12):
        points = np.cumsum(
            [generator.uniform(0, side, 2), *generator.normal(0, side / 8, (5, 2))], 0
        )
        draw.line([tuple(p) for p in points], fill=0, width=int(generator.integers(1, 4)))
    return torch.from_numpy(np.asarray(picture) > 127).float()


def tasks(side: int) -> dict[str, tuple[Task, float, dict[str, Classic]]]:
    fill = {"biharmonic": biharmonic, "Navier–Stokes": navier_stokes}
    return {
        "denoise σ 15": (Denoise(), 15 / 255, {"BM3D": bm3d}),
        "denoise σ 25": (Denoise(), 25 / 255, {"BM3D": bm3d}),
        "denoise σ 50": (Denoise(), 50 / 255, {"BM3D": bm3d}),
        "inpaint scratches": (Inpaint(mask=scratches(side)), 0.0, fill),
        "inpaint 70 %": (Inpaint(missing=0.7), 0.0, fill),
        "jpeg q10": (Jpeg(quality=10), 0.0, {"BM3D σ .04": bm3d}),
        "jpeg q20": (Jpeg(quality=20), 0.0, {"BM3D σ .04": bm3d}),
        "superres ×4": (SuperRes(4), 0.0, {"Lanczos": lanczos}),
        "superres ×2": (SuperRes(2), 0.0, {"Lanczos": lanczos}),
        "deblur 9,2 σ .01": (Deblur(gaussian=(9, 2.0)), 0.01, {"Wiener": wiener}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="natural_test")
    parser.add_argument("--crops", type=int, default=24)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--tasks", nargs="*", help="tasks whose name contains one of these words")
    parser.add_argument("--aims", nargs="*", default=["fidelity", "perception"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    paths = pictures(existing(f"$PNPCM_DATA/{options.data}"))
    images = crops(paths, options.crops, options.side)
    lines: list[list[str]] = []
    for name, (task, sigma_y, others) in tasks(options.side).items():
        if options.tasks and not any(word in name for word in options.tasks):
            continue
        scores: dict[str, list[Scores]] = {}
        for i, x in enumerate(images):
            measured = simulate(x, task, sigma_y, seed=i)
            before = measured.task.baseline(measured.task.problem(measured.y))
            scores.setdefault("before", []).append(judge(x, before.clone)[0])
            for other, method in others.items():
                row, _ = judge(x, partial(method, measured, sigma_y))
                scores.setdefault(other, []).append(row)
            for aim in options.aims:
                own = partial(pnpcm.restore, measured.y, measured.task, sigma_y=sigma_y, aim=aim)
                row, done = judge(x, own)
                scores.setdefault(f"pnpcm, {aim}", []).append(row)
                if i == 0:
                    print(f"<!-- {aim}: {done.plan.method}, {done.plan.parameters_from} -->")
        for label, rows in scores.items():
            means = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
            cells = [f"{v:.{d}f}" for v, d in zip(means, (2, 3, 3, 2), strict=True)]
            lines.append([name, label, *cells])
            print(*lines[-1], sep=" | ", flush=True)
    table = markdown(("task", "method", "PSNR", "SSIM", "LPIPS", "seconds"), lines)
    print(table)
    if options.out:
        write_text(options.out, table)


def judge(x_true: Tensor, make: Callable[[], Any]) -> tuple[Scores, Any]:
    start = time.perf_counter()
    done = make()
    seconds = time.perf_counter() - start
    x = (done if isinstance(done, Tensor) else done.x).float().clamp(-1, 1)
    return (float(psnr(x, x_true)), float(ssim(x, x_true)), float(lpips(x, x_true)), seconds), done


if __name__ == "__main__":
    main()
