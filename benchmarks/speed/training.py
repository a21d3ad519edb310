"""Training throughput against a plain eager loop on the same network.

    python benchmarks/speed/training.py [recipes/natural-edm.yaml] [--rounds 5]

Peer: the same network in PyTorch's default layout (NCHW) with torch.optim.AdamW, EDM loss, the
same batch, nothing else. Ours: the step of `pnpcm train` (channels-last, fused AdamW, averages,
clipping, one generator per sample), including data loading. Alternating rounds in one process,
minimum of each; then two processes of one thread each, the fastest setting on a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from pnpcm.networks import UNet
from pnpcm.priors import DiffusionModel
from pnpcm.training import read_recipe, train

STEPS = 6


def peer(recipe_path: Path) -> float:
    """Seconds per step of the plain loop."""
    recipe = read_recipe(recipe_path)
    prior = DiffusionModel(UNet(recipe.network))
    optimizer = torch.optim.AdamW(prior.parameters(), 1e-4)
    side = recipe.data.crop or 64
    x = torch.randn(recipe.batch, recipe.network.in_channels, side, side)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        sigma = torch.exp(1.2 * torch.randn(len(x)) - 1.2)
        level = sigma[:, None, None, None]
        weight = 1 / level**2 + 4
        loss = (weight * (prior(x + level * torch.randn_like(x), sigma) - x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return min(times)


def ours(recipe_path: Path) -> float:
    """Seconds per step of `pnpcm train`, from its log."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"out={folder}/run", f"steps={STEPS}", "report.log_every=1"]
        options += ["report.validation=[]", "report.sample_size=null"]
        with contextlib.redirect_stdout(io.StringIO()):
            train(read_recipe(recipe_path, None, options), recipe_path.parent)
        return _fastest(Path(folder) / "run", read_recipe(recipe_path).batch)


def two_processes(recipe_path: Path) -> float:
    """Seconds per step of the same global batch on two processes of one thread."""
    with tempfile.TemporaryDirectory() as folder:
        launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
        launch += ["--num_processes=2", "--num_machines=1", "--mixed_precision=no"]
        launch += ["--dynamo_backend=no", "-m", "pnpcm", "train", "edm", str(recipe_path)]
        launch += [f"steps={2 * STEPS}", "report.log_every=1", "report.validation=[]"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(
            [*launch, "--out", f"{folder}/run"], check=True, capture_output=True, env=environment
        )
        return _fastest(Path(folder) / "run", read_recipe(recipe_path).batch)


def _fastest(run: Path, batch: int) -> float:
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return min(batch / row["samples_per_second"] for row in rows if "loss" in row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parents[2] / "recipes" / "natural-edm.yaml"
    parser.add_argument("recipe", nargs="?", type=Path, default=default)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    best = {"plain loop (NCHW)": math.inf, "pnpcm train": math.inf}
    for _ in range(options.rounds):
        best["plain loop (NCHW)"] = min(best["plain loop (NCHW)"], peer(options.recipe))
        best["pnpcm train"] = min(best["pnpcm train"], ours(options.recipe))
    best["pnpcm train, 2 processes"] = two_processes(options.recipe)
    batch = read_recipe(options.recipe).batch
    print(f"{options.recipe.name}, batch {batch}, {torch.get_num_threads()} threads")
    for name, seconds in best.items():
        ratio = best["plain loop (NCHW)"] / seconds
        print(f"{name:26} {batch / seconds:6.1f} samples/s   {ratio:.2f}")


if __name__ == "__main__":
    main()
