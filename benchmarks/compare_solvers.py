"""Every solver on the same prior, operator, measurement and seed: the table of issue 5.

    python benchmarks/compare_solvers.py run faces --out out/contest [--shard 0/2] [--only 'dps/*']
    python benchmarks/compare_solvers.py table --out out/contest

Needs ../shared/data: 10 held-out faces of 64×64, 10 centre crops of CBSD68 of 128×128, 10 slices of
IXI subjects that nothing was trained or tuned on. `run` computes each cell (prior, task, method,
preset) once and keeps it as a file, so it may be stopped, sharded and run again; `table` writes
table.md and pictures from the cells there are. Differences are paired by image with a 95 %
t-interval.
Phase retrieval is scored with the signs of the true image, for every method.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t as student
from torch import Tensor

from contest_problems import TASKS, Round, held_out_images, measured, missing, prior_for
from pnpcm import PRESETS
from pnpcm.contest import BASELINES, METHODS
from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.files import (
    read_image,
    save_picture,
    stack,
    strip,
    to_picture,
    write_json,
    write_text,
)
from pnpcm.lpips import lpips
from pnpcm.metrics import psnr, ssim
from pnpcm.operators import PhaseRetrieval
from pnpcm.pipeline.signs import squared_distance
from pnpcm.rng import generators
from pnpcm.solvers import SOLVERS
from pnpcm.training.pictures import visible

Cell = dict[str, Any]
REFERENCE = "pnp-cm"
BATCH = 5
SEED = 7000
SLOW = {"dps", "dpnp", "pnp-dm"}
TITLES = {
    "faces": "`faces`, 10 faces of 64×64 (FairFace validation), σ_y = 0.05",
    "natural": "`natural`, 10 crops of 128×128 (CBSD68), σ_y = 0.05",
    "mri": "`mri`, 10 slices (IXI, 8 simulated coils), σ_y = 0.005",
}


def entries(domain: str, task: str) -> Iterator[tuple[str, str, Config]]:
    """(method, origin of its numbers, configuration) of every row of a task."""
    ours = PRESETS.get(f"{domain}/{task}")
    if ours is not None:
        yield REFERENCE, "shipped", ours.solver
    for row in BASELINES.values():
        published = row.origin not in TASKS
        if row.task != task or not (published or row.origin == domain):
            continue
        # at full length on faces only: three slow methods would take a day on the larger images
        if published and row.method in SLOW and domain != "faces":
            continue
        if row.origin == "lsun":  # the same method with other numbers, meant for bedrooms
            continue
        yield row.method, "fair" if row.origin == domain else row.origin, row.solver


def solve(round_: Round, domain: str, method: str, config: Config) -> tuple[Cell, Tensor]:
    """Scores of every image and what the method cost per image; and the first image."""
    solver = SOLVERS[method](prior_for(method, domain, round_.setting.task), config)
    problem, x = round_.problem, round_.x
    cell: Cell = {"psnr": [], "ssim": [], "lpips": [], "seconds": 0.0}
    images: list[Tensor] = []
    for i in range(0, len(x), BATCH):
        some = slice(i, i + BATCH)
        seeds = generators(range(SEED + i, SEED + i + len(x[some])))
        result = solver(problem.y[some], problem.operator, generator=seeds)
        found, truth = result.x, x[some]
        if isinstance(problem.operator, PhaseRetrieval):
            found = problem.operator.resolve_signs(found, truth, squared_distance)
        found, truth = visible(found), visible(truth)
        images += found
        if domain != "mri":
            cell["lpips"] += lpips(found.clamp(-1, 1), truth).tolist()
        cell["psnr"] += psnr(found, truth).tolist()
        cell["ssim"] += ssim(found, truth).tolist()
        cell["seconds"] += result.seconds / len(x)
        cell["nfe"], cell["vjps"] = result.nfe, result.vjps
    return cell, images[0]


def run(domain: str, out: Path, shard: str, only: list[str]) -> None:
    k, n = map(int, shard.split("/"))
    x = held_out_images(domain)
    jobs = [(t, *entry) for t in TASKS[domain] for entry in entries(domain, t)]
    jobs.sort(key=lambda job: (job[1] in SLOW, job[2] != "fair"))  # the quick ones first
    for number, (task, method, origin, config) in enumerate(jobs):
        file = out / "cells" / f"{domain}__{task}__{method}__{origin}.json"
        wanted = any(fnmatch(f"{method}/{origin}/{task}", pattern) for pattern in only)
        if file.exists() or number % n != k or not wanted:
            continue
        round_ = measured(domain, task, x, seed=SEED)
        if missing(method, round_, domain):
            continue
        try:
            cell, image = solve(round_, domain, method, config)
        except ArgumentError as error:  # diverged: that is a result as well
            cell, image = {"failed": str(error)}, visible(x)[0] * 0
        file.parent.mkdir(parents=True, exist_ok=True)
        save_picture(file.with_suffix(".png"), to_picture(image.clamp(-1, 1)))
        key = {"prior": domain, "task": task, "method": method, "origin": origin}
        write_json(file, key | cell | {"config": config.to_dict()})
        print(file.stem, _mean(cell.get("psnr", [])), f"{cell.get('seconds', 0):.2f} s", flush=True)


# the table ---------------------------------------------------------------------------------------
def table(out: Path) -> str:
    cells = [json.loads(p.read_text()) for p in sorted((out / "cells").glob("*.json"))]
    lines: list[str] = []
    for domain, tasks in TASKS.items():
        for task in tasks:
            rows = [c for c in cells if c["prior"] == domain and c["task"] == task]
            if rows:
                lines += [f"### {task}: {TITLES[domain]}", "", *_task_table(rows, domain), ""]
                lines += [*_dashes(domain, task), ""]
                _picture(out, domain, task, rows)
    return "\n".join(lines)


def _picture(out: Path, domain: str, task: str, rows: list[Cell]) -> None:
    """The first image by every method, the best PSNR first."""
    panels = [("truth", visible(held_out_images(domain))[0])]
    for c in sorted(rows, key=lambda c: -_mean(c.get("psnr", [-99.0]))):
        stem = f"{domain}__{task}__{c['method']}__{c['origin']}"
        image = read_image(out / "cells" / f"{stem}.png")[0]
        panels.append((f"{c['method']}, {c['origin']} {_mean(c.get('psnr', [])):.2f}", image))
    lines = [strip(panels[i : i + 6]) for i in range(0, len(panels), 6)]
    save_picture(out / f"{domain}-{task}.png", stack(lines))


def _task_table(rows: list[Cell], domain: str) -> list[str]:
    second = "ssim" if domain == "mri" else "lpips"
    head = f"method, numbers | PSNR | {second.upper()} | NFE | VJPs | s/image"
    head += f" | ΔPSNR to PnP-CM | Δ{second.upper()}"
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    ours = [c for c in rows if c["method"] == REFERENCE and "psnr" in c]
    reference = next((c for c in ours if c["origin"] == "fair"), ours[0] if ours else None)
    for c in sorted(rows, key=lambda c: -_mean(c.get("psnr", [-99.0]))):
        name = f"{c['method']}, {c['origin']}"
        if "failed" in c:
            lines.append(f"| {name} | diverged | – | – | – | – | – | – |")
            continue
        cost = f"{c['nfe']} | {c['vjps']} | {c['seconds']:.2f}"
        gaps = ("reference", "") if c is reference else ("–", "–")
        if reference is not None and c is not reference:
            gaps = (_gap(c, reference, "psnr", 2), _gap(c, reference, second, 3))
        lines.append(
            f"| {name} | {_mean(c['psnr']):.2f} | {_mean(c[second]):.3f} | {cost} | "
            f"{gaps[0]} | {gaps[1]} |"
        )
    return lines


def _gap(cell: Cell, reference: Cell, metric: str, digits: int) -> str:
    """Mean of the paired differences with its 95 % t-interval."""
    d = torch.tensor(cell[metric]) - torch.tensor(reference[metric])
    n = len(d)
    half = float(student.ppf(0.975, n - 1) * d.std() / math.sqrt(n))
    return f"{float(d.mean()):+.{digits}f} ± {half:.{digits}f}"


def _dashes(domain: str, task: str) -> list[str]:
    """Methods without an entry, with the reason."""
    round_ = measured(domain, task, held_out_images(domain, 1), seed=SEED)
    reasons: dict[str, list[str]] = {}
    for method in METHODS:
        reason = missing(method, round_, domain)
        if reason:
            reasons.setdefault(reason, []).append(method)
    return [f"– {', '.join(who)}: {why}" for why, who in reasons.items()]


def _mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "table"):
        sub = commands.add_parser(name)
        sub.add_argument("--out", type=Path, default=Path("out/contest"))
        if name == "run":
            sub.add_argument("domain", choices=sorted(TASKS))
            sub.add_argument("--shard", default="0/1", help="k/n: every n-th cell, from the k-th")
            sub.add_argument("--only", nargs="*", default=["*"], help="method/origin/task patterns")
    options = parser.parse_args()
    if options.command == "run":
        run(options.domain, options.out, options.shard, options.only)
        return
    text = table(options.out)
    write_text(options.out / "table.md", text)
    print(text)


if __name__ == "__main__":
    main()
