"""The paper's tasks on images of its test sets, with the paper's scores, per image.

    python benchmarks/paper_columns.py --out out/paper-columns [--tasks SR …] [--steps 4]

Needs $PNPCM_DATA/papers: five CelebA-HQ faces and seven LSUN bedrooms of 256². sigma_y = 0.05,
operators as published; the mask is the authors' file. The paper's columns are means over its whole
test sets with a network of 526 M parameters trained on each, ours are these few images with one
small prior, so that the numbers are not directly comparable. The weights of the paper's
nonlinear-deblurring network are not available: our own operator is used, without a column of the
paper. Writes table.md and rows.json; existing rows are not computed again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from pnpcm import load_prior
from pnpcm.core import Operator, Prior
from pnpcm.io.files import read_image, write_json, write_text
from pnpcm.metrics import psnr
from pnpcm.metrics.lpips import lpips
from pnpcm.operators import (
    JPEG,
    GaussianBlur,
    Inpainting,
    NonlinearBlur,
    PhaseRetrieval,
    SuperResolution,
)
from pnpcm.places import existing
from pnpcm.problems import Custom, NonlinearDeblur
from pnpcm.problems.measurement import simulate
from pnpcm.recon import restore

PAPERS = "$PNPCM_DATA/papers"
SHAPE = (3, 256, 256)
SIGMA_Y = 0.05


def _mask() -> Operator:
    return Inpainting(
        torch.from_numpy(np.load(existing(f"{PAPERS}/masks/random_70_mask.npy"))).float()
    )


def _code() -> Operator:
    return PhaseRetrieval.random(SHAPE[1:], torch.Generator().manual_seed(0))


def _motion() -> Operator:
    operator = NonlinearDeblur().operator(SHAPE)
    assert isinstance(operator, NonlinearBlur)
    return operator


TASKS: dict[str, Callable[[], Operator]] = {
    "SR ×4": lambda: SuperResolution(SHAPE, 4),
    "deblur, exact operator": lambda: GaussianBlur(SHAPE, 5, 10.0),
    "deblur, reference operator": lambda: GaussianBlur(SHAPE, 5, 10.0, reference=True),
    "inpainting 70 %": _mask,
    "JPEG 5": lambda: JPEG(5),
    "nonlinear deblur": _motion,
    "phase retrieval": _code,
}
PAPER = {  # PSNR / LPIPS of PnP-CM in the paper's tables (docs/method.md §10): CelebA-HQ, LSUN
    "SR ×4": ("27.27 / .285", "25.56 / .321"),
    "deblur, exact operator": ("–", "–"),
    "deblur, reference operator": ("28.94 / .249", "27.49 / .285"),
    "inpainting 70 %": ("29.23 / .201", "27.12 / .233"),
    "JPEG 5": ("26.14 / .356", "23.49 / .410"),
    "nonlinear deblur": ("–", "–"),
    "phase retrieval": ("22.18 / .422", "18.98 / .523"),
}
GROUPS = ("celeba_hq", "lsun_bedroom")


def judge(
    operator: Operator, path: Path, seed: int, prior: Prior, steps: int | None
) -> list[float]:
    x = read_image(path)
    measured = simulate(x, Custom(operator), SIGMA_Y, seed=seed)
    done = restore(
        measured.y,
        measured.task,
        prior,
        sigma_y=SIGMA_Y,
        steps=steps,
        reference=x if isinstance(operator, PhaseRetrieval) else None,
    )
    return [float(psnr(done.x, x)), float(lpips(done.x, x))]


def table(rows: dict[str, dict[str, list[float]]]) -> str:
    text = []
    for column, group in enumerate(GROUPS):
        names = [p.stem for p in sorted(existing(f"{PAPERS}/{group}").glob("*.png"))]
        text += [
            f"| {group} | paper | mean | " + " | ".join(n.split("_")[-1] for n in names) + " |"
        ]
        text += ["|---" * (3 + len(names)) + "|"]
        for task, paper in PAPER.items():
            each = [rows[task][n] for n in names if n in rows.get(task, {})]
            if len(each) == len(names):
                shown = [list(np.mean(each, 0)), *each]
                cells = [f"{p:.2f} / {d:.3f}".replace(" 0.", " .") for p, d in shown]
                text += [f"| {task} | {paper[column]} | " + " | ".join(cells) + " |"]
        text += [""]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/paper-columns"))
    parser.add_argument("--prior", default="natural")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--steps", type=int, help="default: the paper's, 4 and 8")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "rows.json"
    rows = json.loads(file.read_text()) if file.exists() else {}
    prior = load_prior(options.prior)
    paths = [p for group in GROUPS for p in sorted(existing(f"{PAPERS}/{group}").glob("*.png"))]
    for name in options.tasks:
        operator = TASKS[name]()
        for seed, path in enumerate(track(paths, name)):
            if path.stem not in rows.setdefault(name, {}):
                rows[name][path.stem] = judge(operator, path, seed, prior, options.steps)
                write_json(file, rows)
    write_text(options.out / "table.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
