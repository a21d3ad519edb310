"""The fair tuning of every method: 12 trials × 4 training crops of 64×64 per method and task.

    python benchmarks/tune_baselines.py faces --studies out/fair [--only 'dps/*'] [--shard 0/2]
    python benchmarks/tune_baselines.py faces --studies out/fair --write [--trials 60]

Needs $PNPCM_DATA and LPIPS weights. Metric: PSNR − 20 LPIPS (MRI: PSNR). DPS, DPnP and PnP-DM
are tuned at one fifth of their published steps. A study is a file and is continued if it exists;
`--write` writes the best of every finished study to src/pnpcm/data/baselines.json. With other
`--trials` the rows have their own origin, such as faces@60.
"""

from __future__ import annotations

import argparse
import json
import time
from fnmatch import fnmatch
from pathlib import Path

from contest_problems import TASKS, measured, missing, prior_for, training_crops
from pnpcm.baselines import Baseline
from pnpcm.io.files import write_text
from pnpcm.tune import METHODS, fair_tune

FILE = Path(__file__).parents[1] / "src" / "pnpcm" / "data" / "baselines.json"
TRIALS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain", choices=sorted(TASKS))
    parser.add_argument("--studies", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of method/task")
    parser.add_argument("--shard", default="0/1", help="k/n: every n-th study, from the k-th")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--write", action="store_true", help="write baselines.json, search nothing")
    options = parser.parse_args()
    options.studies.mkdir(parents=True, exist_ok=True)
    x = training_crops(options.domain)
    k, n = map(int, options.shard.split("/"))
    metric = "psnr" if options.domain == "mri" else "mix"
    origin = options.domain
    origin += "" if options.trials == TRIALS else f"@{options.trials}"
    found: list[Baseline] = []
    jobs = [(m, t) for m in METHODS for t in TASKS[options.domain]]
    for number, (method, task) in enumerate(jobs):
        file = options.studies / f"{origin}-{method}-{task}.study"
        wanted = any(fnmatch(f"{method}/{task}", pattern) for pattern in options.only)
        if not wanted or number % n != k or (options.write and not file.exists()):
            continue
        round_ = measured(options.domain, task, x)
        if missing(method, round_, options.domain):
            continue
        start = time.perf_counter()
        fair = fair_tune(
            method,
            round_.problem,
            x,
            prior_for(method, options.domain, task),
            round_.setting,
            trials=0 if options.write else options.trials,
            metric=metric,
            storage=file,
        )
        if options.write and fair.trials < options.trials:
            continue
        published = "–" if fair.score_published is None else f"{fair.score_published:.2f}"
        print(
            f"{method}/{options.domain}/{task:18} {published} → {fair.score:.2f}, "
            f"{fair.trials} trials, {time.perf_counter() - start:.0f} s {fair.values}",
            flush=True,
        )
        steps = METHODS[method].fraction
        source = f"fair: {options.trials} trials, 4 training crops 64×64, {metric}"
        source += "" if steps == 1 else f", at {steps:g} of the published steps"
        found.append(Baseline(method, origin, task, fair.config, source))
    if options.write:
        rows = {b.name: b for b in map(Baseline.from_dict, json.loads(FILE.read_text()))}
        rows |= {b.name: b for b in found}
        lines = (f" {json.dumps(b.to_dict(), ensure_ascii=False)}" for b in rows.values())
        write_text(FILE, "[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
