"""Wall time and peak memory of the command `pnpcm restore`, for 12 megapixels and for 256².

    python benchmarks/speed/big_restore.py [--megapixels 12] [--tasks denoise …] [--halo 256]
    python benchmarks/speed/big_restore.py --tiles

An image of waves and edges is degraded with NumPy and Pillow; the command runs in its own process
(4 steps by default; JPEG 2). Peak memory is that of the whole process. The stages are those of
result.json; the rest is Python, imports, reading and writing. "ratio": wall time to its bound, the
evaluations of the network alone (one tile times their number). The row "cold start" is a whole
command on a 256×256 photograph. ``--tiles``: one evaluation of the prior at 2000×1500 for several
tiles and halos in turn, minima of CPU seconds, relative to exact tiles of 768.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter
from rich.console import Console
from rich.table import Table

from command import run_command, seconds_of_prior

LIMIT_GB = 3.0
TILE = 640
TASKS = {
    "denoise": ["--task", "denoise"],
    "inpaint": ["--task", "inpaint", "--mask", "mask.png"],
    "deblur": ["--task", "deblur", "--gaussian", "5,10"],
    "superres": ["--task", "superres", "--factor", "2"],
    "jpeg": ["--task", "jpeg", "--steps", "2"],
}


def picture(height: int, width: int) -> Image.Image:
    """An 8-bit image of waves and edges."""
    rows, columns = np.arange(height)[:, None] / 30, np.arange(width)[None] / 40
    waves = np.sin(rows) * np.cos(columns) + 0.5 * np.sign(np.sin(0.2 * rows + 0.3 * columns))
    planes = [0.5 + a * waves for a in (0.2, 0.25, 0.3)]
    return Image.fromarray((255 * np.stack(planes, -1)).clip(0, 255).astype(np.uint8))


def degraded(task: str, folder: Path, height: int, width: int) -> Path:
    """The input file of the command, written to ``folder``."""
    clean = picture(height, width)
    if task == "jpeg":
        clean.save(folder / "in.jpg", quality=10)
        return folder / "in.jpg"
    if task == "superres":
        clean = clean.resize((width // 2, height // 2), Image.Resampling.BICUBIC)
    if task == "deblur":
        clean = clean.filter(ImageFilter.BoxBlur(2))
    rng = np.random.default_rng(0)
    noisy = np.asarray(clean, np.float32)
    noisy += rng.normal(0, 8, noisy.shape).astype(np.float32)
    if task == "inpaint":
        hole = rng.random(noisy.shape[:2]) < 0.7
        noisy[hole] = 0
        Image.fromarray((255 * hole).astype(np.uint8)).save(folder / "mask.png")
    Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8)).save(folder / "in.png")
    return folder / "in.png"


def run(task: str, height: int, width: int, extra: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = degraded(task, folder, height, width)
        arguments = [str(folder / a) if a == "mask.png" else a for a in TASKS[task]]
        words = ["restore", str(source), *arguments, "--out", str(folder / "out"), *extra]
        wall, peak = run_command(words)
        result = json.loads(next((folder / "out").glob("*.json")).read_text())
    stages = result["seconds"]
    side, tiles = min(TILE, height, width), max(1.0, height * width / TILE**2)
    calls = result["nfe"] * tiles
    bound = seconds_of_prior("natural", result["prior_kind"], (1, 3, side, side), calls)
    rest = wall - sum(stages.values())
    return {"wall": wall, "peak": peak, "ratio": wall / bound, **stages, "rest": rest}


def compare_tiles(rounds: int = 2) -> None:
    """Print CPU seconds of one evaluation per tile and halo, and pixels evaluated per pixel."""
    import torch

    import pnpcm
    from pnpcm.priors import TiledPrior

    torch.set_num_threads(1)
    prior = pnpcm.load_prior("natural", kind="edm")
    x = torch.from_numpy(np.asarray(picture(1500, 2000), np.float32) / 127.5 - 1)
    x = x.permute(2, 0, 1)[None]
    radius = prior.network.config.receptive_radius
    cases = [TiledPrior(prior, tile=t, halo=h) for t, h in ((768, radius), (640, None), (512, 64))]
    seconds: list[list[float]] = [[] for _ in cases]
    with torch.inference_mode():
        for _ in range(rounds):
            for tiled, own in zip(cases, seconds, strict=True):
                start = time.process_time()
                tiled(x, 0.1)
                own.append(time.process_time() - start)
    for tiled, own in zip(cases, seconds, strict=True):
        sides = [sum(w.seen.stop - w.seen.start for w in tiled.windows(n)) for n in x.shape[-2:]]
        print(
            f"tile {tiled.tile}, halo {tiled.halo}: {sides[0] * sides[1] / x[0, 0].numel():.2f} "
            f"pixels per pixel, {min(own):.1f} s, ratio {min(own) / min(seconds[0]):.2f}"
        )


def import_seconds() -> float:
    """Seconds of importing torch, in a new process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megapixels", type=float, default=12.0)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--halo", help="option of restore; at least 200: exact tiles")
    parser.add_argument("--tiles", action="store_true", help="compare tiles and halos only")
    parser.add_argument("--steps", help="option of restore; peak memory does not depend on it")
    options = parser.parse_args()
    if options.tiles:
        compare_tiles()
        return
    given = {"--halo": options.halo, "--steps": options.steps}
    extra = [word for name, value in given.items() if value for word in (name, value)]
    height = 8 * round((options.megapixels * 1e6 * 3 / 4) ** 0.5 / 8)
    width = height * 4 // 3 // 8 * 8
    table = Table(title=f"pnpcm restore, {width}×{height} out, {os.cpu_count()} cores")
    for column in ("task", "wall, s", "ratio", "peak, GB", "stages of result.json, s"):
        table.add_column(column)

    def add(name: str, row: dict[str, float]) -> None:
        wall, peak, ratio, *rest = row.items()
        stages = ", ".join(f"{k} {v:.1f}" for k, v in rest)
        table.add_row(name, f"{wall[1]:.1f}", f"{ratio[1]:.2f}", f"{peak[1]:.2f}", stages)
        print(name, row, flush=True)

    for task in options.tasks:
        add(task, run(task, height, width, extra))
    cold = min((run("denoise", 256, 256, []) for _ in range(3)), key=lambda r: r["wall"])
    add("cold start, 256²", cold)
    Console(width=140).print(table)
    print(f"import torch alone: {min(import_seconds() for _ in range(3)):.1f} s")
    print(f"limit {LIMIT_GB} GB: a row above it is a failure")


if __name__ == "__main__":
    main()
