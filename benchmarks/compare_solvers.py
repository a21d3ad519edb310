"""Scores of every solver on the same prior, operator, measurement and seed.

    python benchmarks/compare_solvers.py faces --out out/contest [--shard 0/2] [--only 'dps/*']
    python benchmarks/contest_table.py --out out/contest

Needs $PNPCM_DATA: 10 held-out faces of 64×64, 10 centre crops of CBSD68 of 128×128, 10 slices of
IXI subjects that nothing was trained or tuned on. Each cell (prior, task, method, preset) is
computed once and kept (see contest_cells.py), so that the run can be stopped, sharded and repeated;
with a new preset or new weights it is computed again. Phase retrieval is scored with the signs of
the true image, for every method.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatch
from pathlib import Path

from torch import Tensor

from contest_cells import SLOW, Cell, entries, is_current, made_of, stored
from contest_problems import TASKS, Round, held_out_images, measured, missing, prior_for
from contest_table import psnr_of
from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.io.files import save_picture, to_picture, write_json
from pnpcm.metrics import psnr, ssim
from pnpcm.metrics.lpips import lpips
from pnpcm.operators import PhaseRetrieval
from pnpcm.problems.nonlinear import squared_distance
from pnpcm.rng import generators
from pnpcm.solvers import SOLVERS
from pnpcm.training.pictures import visible

BATCH = 5
SEED = 7000


def solve(round_: Round, domain: str, method: str, config: Config) -> tuple[Cell, Tensor]:
    """Scores of every image, cost of the method per image, and the first restored image."""
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
        if number % n != k or not wanted:
            continue
        round_ = measured(domain, task, x, seed=SEED)
        if missing(method, round_, domain):
            continue
        made = made_of(domain, task, method, config)
        if is_current(stored(out).get(file.stem), made):
            continue
        try:
            cell, image = solve(round_, domain, method, config)
        except ArgumentError as error:  # diverged: that is a result as well
            cell, image = {"failed": str(error)}, visible(x)[0] * 0
        file.parent.mkdir(parents=True, exist_ok=True)
        save_picture(file.with_suffix(".png"), to_picture(image.clamp(-1, 1)))
        key = {"prior": domain, "task": task, "method": method, "origin": origin}
        write_json(file, key | _short(cell) | made)
        print(file.stem, f"{psnr_of(cell):.2f} dB, {cell.get('seconds', 0):.2f} s", flush=True)


def _short(cell: Cell) -> Cell:
    """Scores rounded to five digits, to keep the file short."""
    return {
        key: [round(v, 5) for v in value] if isinstance(value, list) else value
        for key, value in cell.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain", choices=sorted(TASKS))
    parser.add_argument("--out", type=Path, default=Path("out/contest"))
    parser.add_argument("--shard", default="0/1", help="k/n: every n-th cell, from the k-th")
    parser.add_argument("--only", nargs="*", default=["*"], help="method/origin/task patterns")
    options = parser.parse_args()
    run(options.domain, options.out, options.shard, options.only)


if __name__ == "__main__":
    main()
