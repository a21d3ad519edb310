"""The figures of the README and the numbers below them.

    python tools/readme_figures.py

writes into ``docs/figures``: ``tasks.jpg``, the seven tasks of ``pnpcm demo`` (bundled photographs,
``src/pnpcm/data/CREDITS.md``, and a phantom); ``mri.png``, a simulated scan with error and spread;
``figures.json``, the scores, evaluations and seconds of both. Priors and presets are those of the
package, the seed is 0, one thread computes.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

import pnpcm
from pnpcm.demo import TASKS, solve_task
from pnpcm.io.files import to_picture
from pnpcm.metrics import psnr
from pnpcm.mri import gaussian1d, phantoms, read_scan, write_simulated
from pnpcm.transforms import ifft2c

OUT = Path(__file__).parents[1] / "docs" / "figures"
SIDE = 128  # pixels of a panel; photographs are cropped, not scaled
GAP, HEAD = 6, 34
CROPS = {  # top, left of the part that is shown
    "inpainting": (4, 72),
    "superresolution": (16, 56),
    "deblurring": (48, 96),
    "jpeg": (72, 88),
    "nonlinear-deblurring": (64, 64),
}
NAMES = {
    "superresolution": "super-resolution",
    "jpeg": "JPEG",
    "nonlinear-deblurring": "camera shake",
    "phase-retrieval": "phase retrieval",
    "mri": "MRI",
}
GAIN, WINDOW = 5, 0.5
"""Errors and spread are shown times ``GAIN``, scans up to ``WINDOW`` of their maximum."""


def sheet(
    rows: list[str],
    columns: list[tuple[str, str]],
    pictures: list[list[Tensor]],
    *,
    side: int = SIDE,
    left: int = 56,
) -> Image.Image:
    """Panels ``pictures[row][column]`` (C, side, side), names of the rows at the left."""
    step = side + GAP
    size = left + len(columns) * step - GAP, HEAD + len(rows) * step - GAP
    page = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(12)
    for j, (name, words) in enumerate(columns):
        draw.text((left + j * step, 1), name, fill="black", font=font)
        draw.text((left + j * step, 16), words, fill="#555555", font=font)
    for i, name in enumerate(rows):
        top = HEAD + i * step
        draw.text((0, top + side // 2 - 8), name, fill="black", font=font)
        for j, x in enumerate(pictures[i]):
            page.paste(to_picture(x).convert("RGB"), (left + j * step, top))
    return page


def panel(task: str, x: Tensor, size: int) -> Tensor:
    """What is shown of an image (1, C, h, w) of a problem of ``size``² pixels."""
    if x.shape[-1] < size:  # a small measurement: its pixels as squares
        x = F.interpolate(x, size=(size, size), mode="nearest")
    if task in CROPS:
        top, left = CROPS[task]
        return x[0, :, top : top + SIDE, left : left + SIDE]
    return F.interpolate(x, size=(SIDE, SIDE), mode="area")[0]


def tasks() -> list[dict[str, Any]]:
    """Write the figure of the seven tasks; returns their rows."""
    found, columns = [], []
    pictures: list[list[Tensor]] = [[], [], []]
    for task in TASKS:
        solved = solve_task(task)
        row, own = solved.row, solved.pictures
        given = own["before"] if task == "mri" else own["measured"]
        for line, x in zip(pictures, (given, own["pnpcm"], own["true"]), strict=True):
            if task == "mri":
                x = (x + 1) / WINDOW - 1
            line.append(panel(task, x, own["true"].shape[-1]))
        columns.append((NAMES.get(task, task), f"{row.psnr:.1f} dB, NFE {row.nfe}"))
        found.append({"prior": solved.record["prior"], **asdict(row)})
        print(row, flush=True)
    page = sheet(["given", "restored", "true"], columns, pictures)
    page.save(OUT / "tasks.jpg", quality=90, subsampling=0, optimize=True)
    return found


def mri(samples: int = 8, acceleration: int = 4, side: int = 192) -> dict[str, Any]:
    """Write the figure of a simulated scan with error and spread; returns its scores."""
    mask = gaussian1d(side, acceleration, 16, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "full.h5"
        write_simulated(path, phantoms(1, (side, side)))
        volume = pnpcm.reconstruct(path, mask=mask, samples=samples)
        kspace = read_scan(path).kspace(0) * mask.to(torch.float32)
    assert volume.std is not None
    assert volume.reference is not None
    true = volume.reference[0].abs()
    filled = ifft2c(kspace).abs().square().sum(0).sqrt()
    top = float(true.max())
    images = {
        "zero-filled": filled / top,
        "reconstruction": volume.image[0].abs() / top,
        "true": true / top,
    }
    error = (images["reconstruction"] - images["true"]).abs()
    spread = volume.std[0] / top
    scores = {
        name: float(psnr(2 * x[None, None] - 1, 2 * images["true"][None, None] - 1))
        for name, x in images.items()
        if name != "true"
    }
    columns = [(name, f"{scores[name]:.1f} dB" if name in scores else "") for name in images]
    columns += [("error", f"times {GAIN}"), ("spread", f"times {GAIN}, {samples} samples")]
    shown = [*(x / WINDOW for x in images.values()), GAIN * error, GAIN * spread]
    page = sheet([""], columns, [[2 * x[None] - 1 for x in shown]], side=side, left=0)
    page.save(OUT / "mri.png", optimize=True)
    return {
        "prior": volume.record["prior"],
        "acceleration": acceleration,
        "samples": samples,
        "psnr": scores,
        "mean error": float(error.mean()),
        "mean spread": float(spread.mean()),
        "scores": volume.record["scores"],
        "nfe": volume.record["nfe"],
        "seconds": volume.record["seconds"]["solve"],
        "fit": volume.record["check"]["fit"],
    }


def main() -> None:
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"command": "python tools/readme_figures.py", "seed": 0, "threads": 1}
    content |= {"mri": mri(), "tasks": tasks()}
    (OUT / "figures.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
