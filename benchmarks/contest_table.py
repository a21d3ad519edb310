"""Tables and images of the comparison, from the cells that compare_solvers.py has written so far.

    python benchmarks/contest_table.py --out out/contest [--keep]

Writes table.md, with an overview per prior and one table per task, and one image per task of the
cells in the folder. `--keep`: also writes the table as CONTEST.md and its cells to contest.jsonl.
Differences to PnP-CM are paired by image, with a 95 % t-interval. The reference is its fair row
with 12 trials, or with the same number for methods tuned with more (fair@60).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from scipy.stats import t as student

from contest_cells import REFERENCE, Cell, current, keep, name_of
from contest_problems import TASKS, held_out_images, measured, missing
from pnpcm.io.files import read_image, save_picture, stack, strip, write_text
from pnpcm.training.pictures import visible
from pnpcm.tune import METHODS

TITLES = {
    "faces": "`faces`, 10 faces of 64×64 (FairFace validation), σ_y = 0.05",
    "natural": "`natural`, 10 crops of 128×128 (CBSD68), σ_y = 0.05",
    "mri": "`mri`, 10 slices of 128×128 (IXI, 8 simulated coils), σ_y = 0.005",
}
KEPT_TABLE = Path(__file__).parent / "CONTEST.md"
PREFACE = """# Every method on one prior

Written by `contest_table.py --keep` from `contest.jsonl`; read [RESULTS.md](RESULTS.md) first.

All methods get the same prior (denoiser and consistency model of one shipped prior), operator,
measurement and seeds; phase retrieval is scored with the signs of the true image. Numbers:
`shipped`, the preset; `fair`, 12 trials on 4 training crops of 64×64, metric PSNR − 20 LPIPS (MRI:
PSNR), with a fifth of the steps for DPS, DPnP and PnP-DM; `fair@60`, 60 trials; all others are
published ones. NFE and VJPs are evaluations of the network and products with its Jacobian, per
image; seconds are those of one core of two, the other one busy, at times with a third process, in
batches of five. Δ: mean difference to PnP-CM over the images, with a 95 % t-interval; ↑ better, ↓
worse where the interval leaves out 0. –: no entry, for the reason below the table; …: not run yet.
"""
LARGER_IS_BETTER = {"psnr": True, "ssim": True, "lpips": False}


def table(out: Path, cells: list[Cell]) -> str:
    lines: list[str] = []
    for domain, tasks in TASKS.items():
        of_domain = [c for c in cells if c["prior"] == domain]
        if of_domain:
            refused = {task: refusals(domain, task) for task in tasks}
            lines += [f"## {TITLES[domain]}", "", *overview(of_domain, domain, refused), ""]
        for task in tasks:
            rows = sorted((c for c in of_domain if c["task"] == task), key=lambda c: -psnr_of(c))
            if rows:
                lines += [f"### {task}", "", *task_table(rows, domain), ""]
                lines += [*dashes(refused[task]), ""]
                _picture(out, domain, task, rows)
    return "\n".join(lines)


def overview(cells: list[Cell], domain: str, refused: dict[str, dict[str, str]]) -> list[str]:
    """Fairly tuned methods × tasks; arrows mark differences whose interval excludes 0."""
    second = second_metric(domain)
    head = " | ".join(["method", "NFE", *TASKS[domain]])
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for method, origin in [(REFERENCE, "shipped"), *((m, "fair") for m in METHODS)]:
        own = {c["task"]: c for c in cells if (c["method"], c["origin"]) == (method, origin)}
        if all(method in refused[task] for task in TASKS[domain]):
            continue
        counts = sorted({c["nfe"] for c in own.values() if "nfe" in c})
        entries = []
        for task in TASKS[domain]:
            reference = _reference([c for c in cells if c["task"] == task], "fair")
            entry = _entry(own[task], reference, second) if task in own else "…"
            entries.append("–" if method in refused[task] else entry)
        name = f"{method}, shipped" if origin == "shipped" else method
        lines.append(f"| {name} | {'/'.join(map(str, counts))} | {' | '.join(entries)} |")
    return lines


def _entry(cell: Cell, reference: Cell | None, second: str) -> str:
    if "failed" in cell:
        return "diverged"
    parts = []
    for metric, digits in (("psnr", 2), (second, 3)):
        arrow = ""
        if reference is not None and cell is not reference:
            mean, half = difference(cell, reference, metric)
            if abs(mean) > half:
                arrow = "↑" if (mean > 0) == LARGER_IS_BETTER[metric] else "↓"
        parts.append(f"{mean_of(cell[metric]):.{digits}f}{arrow}")
    return " / ".join(parts)


def task_table(rows: list[Cell], domain: str) -> list[str]:
    second = second_metric(domain)
    head = f"method, numbers | PSNR | {second.upper()} | NFE | VJPs | s/image"
    head += f" | ΔPSNR to PnP-CM | Δ{second.upper()}"
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for c in rows:
        reference = _reference(rows, c["origin"])
        name = f"{c['method']}, {c['origin']}"
        if c["origin"] == "fair" and METHODS[c["method"]].fraction < 1:
            name += f", {METHODS[c['method']].fraction:g} of the steps"
        if "failed" in c:
            lines.append(f"| {name} | diverged | – | – | – | – | – | – |")
            continue
        cost = f"{c['nfe']} | {c['vjps']} | {c['seconds']:.2f}"
        gaps = ("reference", "") if c is reference else ("–", "–")
        if reference is not None and c is not reference:
            gaps = (_gap(c, reference, "psnr", 2), _gap(c, reference, second, 3))
        scores = f"{mean_of(c['psnr']):.2f} | {mean_of(c[second]):.3f}"
        lines.append(f"| {name} | {scores} | {cost} | {gaps[0]} | {gaps[1]} |")
    return lines


def refusals(domain: str, task: str) -> dict[str, str]:
    """Methods that cannot have an entry, with the reason."""
    round_ = measured(domain, task, held_out_images(domain, 1))
    reasons = {method: missing(method, round_, domain) for method in METHODS}
    return {method: reason for method, reason in reasons.items() if reason}


def dashes(refused: dict[str, str]) -> list[str]:
    """The reasons for missing entries, each with its methods."""
    who: dict[str, list[str]] = {}
    for method, reason in refused.items():
        who.setdefault(reason, []).append(method)
    return [f"- – {', '.join(methods)}: {reason}" for reason, methods in who.items()]


def _picture(out: Path, domain: str, task: str, rows: list[Cell]) -> None:
    """The first image restored by every method, in the order of the table."""
    panels = [("truth", visible(held_out_images(domain))[0])]
    for c in rows:
        file = out / "cells" / f"{name_of(c)}.png"
        if not file.exists():
            continue
        image = read_image(file)[0]
        panels.append((f"{c['method']}, {c['origin']} {mean_of(c.get('psnr', [])):.2f}", image))
    lines = [strip(panels[i : i + 6]) for i in range(0, len(panels), 6)]
    save_picture(out / f"{domain}-{task}.png", stack(lines))


# numbers -----------------------------------------------------------------------------------------
def difference(cell: Cell, reference: Cell, metric: str) -> tuple[float, float]:
    """Mean of the paired differences and half of its 95 % t-interval."""
    d = torch.tensor(cell[metric]) - torch.tensor(reference[metric])
    n = len(d)
    return float(d.mean()), float(student.ppf(0.975, n - 1) * d.std() / math.sqrt(n))


def _gap(cell: Cell, reference: Cell, metric: str, digits: int) -> str:
    mean, half = difference(cell, reference, metric)
    return f"{mean:+.{digits}f} ± {half:.{digits}f}"


def _reference(rows: list[Cell], origin: str) -> Cell | None:
    ours = {c["origin"]: c for c in rows if c["method"] == REFERENCE and "psnr" in c}
    return ours.get(origin if "@" in origin else "fair")


def second_metric(domain: str) -> str:
    return "ssim" if domain == "mri" else "lpips"


def mean_of(values: list[float]) -> float:
    return sum(values) / max(1, len(values))


def psnr_of(cell: Cell) -> float:
    return mean_of(cell.get("psnr", [-99.0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/contest"))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    cells = current(options.out)
    text = table(options.out, list(cells.values()))
    write_text(options.out / "table.md", text)
    if options.keep:
        keep(cells)
        write_text(KEPT_TABLE, f"{PREFACE}\n{text}")
    print(text)


if __name__ == "__main__":
    main()
