"""Train the recipes of queue.yaml in order; stopped runs are resumed.

    python recipes/train_queue.py run [--processes 2] [--max-time 150m]
    python recipes/train_queue.py status

`run` trains with two processes of one thread each, at the lowest priority, and writes its output
to $PNPCM_RUNS/queue.log (default ../runs). It can be killed at any time and started again.
`status` prints one line per started recipe, and the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from pnpcm.places import place, resolve
from pnpcm.priors.checkpoint import read_header
from pnpcm.training.recipe import Recipe, read_recipe

RECIPES = Path(__file__).resolve().parent


def queue() -> list[tuple[Path, Recipe]]:
    """Recipes in the order of queue.yaml."""
    names = yaml.safe_load((RECIPES / "queue.yaml").read_text(encoding="utf-8"))
    return [(RECIPES / name, read_recipe(RECIPES / name)) for name in names]


def steps_done(recipe: Recipe) -> int:
    """Steps in the newest weights of the run; 0 if there are none."""
    name = "control" if recipe.loss.kind == "control" else "prior"
    weights = resolve(recipe.out, RECIPES) / f"{name}.safetensors"
    return int(read_header(weights)["info"]["training"][-1]["steps"]) if weights.exists() else 0


def run(processes: int, max_time: str | None) -> None:
    place("PNPCM_RUNS").mkdir(parents=True, exist_ok=True)
    for path, recipe in queue():
        if steps_done(recipe) >= recipe.steps:
            continue
        command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu",  # or CPUs
                   f"--num_processes={processes}", "--num_machines=1", "--mixed_precision=no",
                   "--dynamo_backend=no", "--main_process_port=0",
                   "-m", "pnpcm", "train", recipe.method, str(path)]  # fmt: skip
        if max_time:
            command += ["--max-time", max_time]
        own = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo"}
        with (place("PNPCM_RUNS") / "queue.log").open("a", encoding="utf-8") as log:
            code = subprocess.run(
                ["nice", "-n", "19", *command],
                env=os.environ | own, stdout=log, stderr=log, check=False,
            ).returncode  # fmt: skip
        if code or steps_done(recipe) < recipe.steps:
            raise SystemExit(f"{path.name} stopped at step {steps_done(recipe)}, exit code {code}")


def status() -> None:
    for path, recipe in queue():
        done, log = steps_done(recipe), resolve(recipe.out, RECIPES) / "log.jsonl"
        line = f"{path.stem}: {done} of {recipe.steps} steps"
        for row in reversed(log.read_text(encoding="utf-8").splitlines() if log.exists() else []):
            values = json.loads(row)
            if "psnr" in values:
                scores = ", ".join(f"{s}: {v:.2f}" for s, v in values["psnr"].items())
                line += f", validation PSNR by sigma at step {values['step']}: {scores}"
                break
        print(line)
        if done < recipe.steps:
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["run", "status"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--max-time", help="for each recipe, e.g. 150m")
    options = parser.parse_args()
    if options.action == "run":
        run(options.processes, options.max_time)
    else:
        status()
