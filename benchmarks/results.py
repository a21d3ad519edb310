"""The committed results of specs, and RESULTS.md, which is written from them.

    pnpcm bench benchmarks/specs/NAME.yaml --out out/NAME
    python benchmarks/results.py --keep NAME --out out/NAME    # rows → results/NAME.jsonl
    pnpcm reproduce all --out out/reproduce
    python benchmarks/results.py --reproduced out/reproduce    # → results/reproduce-*.jsonl
    python benchmarks/results.py                               # results/*.jsonl → RESULTS.md

`results/NAME.jsonl`: one line with the spec, the weights and the origin of the numbers, then one
line per cell (data, task, noise, prior, method, steps) with the scores of every image.
`results/NAME.md`: remarks, copied below the tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pnpcm.bench.reproduce import TABLES, domains, merged
from pnpcm.bench.run import Chosen, environment, finished, weights_of
from pnpcm.bench.scores import METRICS
from pnpcm.bench.spec import MethodRow, Spec, read_spec
from pnpcm.bench.stats import Cell, Group, cells, mean
from pnpcm.bench.store import Saved, Store
from pnpcm.bench.tables import heading, number
from pnpcm.bench.verify import CELL
from pnpcm.errors import ArgumentError
from pnpcm.io.files import write_text

HERE = Path(__file__).parent
KEPT = ("main", "momentum", "nfe-noise")
"""Tables of ``pnpcm reproduce`` that are kept; `ablation` is a spec with more images."""
SECONDS = ("lpips-vgg", "ssim")
"""The metric beside PSNR in overviews: the first of these that a spec has."""
PREFACE = """# Results

Written by `python benchmarks/results.py` from the files of [results](results); each section names
the command, prior, data and seeds of its numbers. Results of the studies are in
[studies/README.md](studies/README.md), times in [speed/README.md](speed/README.md); specs without
results of the present weights are listed in [README.md](README.md).

None of the images was used in training or tuning. NFE and VJPs are evaluations of the network and
products with its Jacobian, per image; seconds are those of the solver on one core. Trials: of a
search on training images, the same for all methods; –: published or shipped numbers. Δ: mean
difference to the first method of the spec (with as many trials, if there is one) over the images,
with a 95 % bootstrap interval over them; ↑ better, ↓ worse where the interval leaves out 0.
"""


# committed rows ----------------------------------------------------------------------------------
def keep(parts: Sequence[Spec], out: Path, command: str, name: str | None = None) -> Path:
    """Write the finished rows of a store as ``results/NAME.jsonl``, those of all ``parts``.

    ``name``: of the file and of the spec in it; None: that of the only part.
    """
    store, (first, *more) = Store(out), parts
    name = first.name if name is None else name
    groups: dict[tuple[Any, ...], list[Saved]] = {}
    names = set()
    for spec in parts:
        for row in finished(spec, store):
            groups.setdefault(tuple(row[column] for column in CELL), []).append(row)
            control = spec.methods[row["method"]].control_for(row["prior"], row["task"])
            names.add((row["prior"], control))
    if not groups:
        raise ArgumentError(f"out is {out}, which has no rows of {name}; run {command} first")
    head = {
        "command": command,
        "finished": max(row["finished"] for own in groups.values() for row in own)[:10],
        "versions": environment(first.threads),
        "weights": {weights_name(*one): weights_of(Chosen(*one)) for one in sorted(names, key=str)},
        "spec": (merged(name, parts) if more else first.to_dict())
        | {"name": name, "words": first.words, "folder": "benchmarks/specs"},
    }
    lines = [head, *(_cell(dict(zip(CELL, key, strict=True)), own) for key, own in groups.items())]
    path = HERE / "results" / f"{name}.jsonl"
    write_text(path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    return path


def keep_reproduced(out: Path) -> list[Path]:
    """Write the rows of ``pnpcm reproduce`` with shipped priors, a file per table and data set."""
    paths, store = [], Store(out)
    for domain in domains():
        for table in KEPT:
            if parts := TABLES[table](domain):
                count = len({row["number"] for spec in parts for row in finished(spec, store)})
                command = f"pnpcm reproduce {table} --limit {count}"
                paths.append(keep(parts, out, command, f"reproduce-{table}-{domain.name}"))
    return paths


def weights_name(prior: str, control: str | None = None) -> str:
    """The name of a prior, or of a prior with a ControlNet, in a file of results."""
    return prior if control is None else f"{prior}, {control}"


def _cell(names: dict[str, Any], rows: Sequence[Saved]) -> dict[str, Any]:
    good = [row for row in rows if row["failed"] is None]
    config = {row["config_hash"] for row in good}
    metrics = dict.fromkeys(name for row in good for name in row["scores"])
    first = good[0] if good else {}
    return names | {
        "trials": rows[0]["trials"],
        "images": [row["image"] for row in rows],
        "seeds": [row["seed"] for row in rows],
        "failed": [row["failed"] for row in rows] if len(good) < len(rows) else None,
        "scores": {m: [round(row["scores"][m], 5) for row in good] for m in metrics},
        "nfe": first.get("nfe"),
        "vjps": first.get("vjps"),
        "seconds": round(sum(r["seconds"]["solve"] for r in good) / len(good), 4) if good else None,
        "parameters_from": first.get("parameters_from"),
        "config": first.get("config") if len(config) == 1 else None,
    }


def load(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """First line and cells of a file of results."""
    head, *found = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return head, found


def rows_of(cell: dict[str, Any]) -> list[Saved]:
    """The rows of a cell, with the columns that tables need."""
    names = {name: cell[name] for name in (*CELL, "trials", "parameters_from")}
    failed = cell["failed"] or [None] * len(cell["images"])
    scores = {metric: iter(values) for metric, values in cell["scores"].items()}
    costs = {"nfe": cell["nfe"], "vjps": cell["vjps"], "seconds": {"solve": cell["seconds"]}}
    found = []
    for i, (image, seed, reason) in enumerate(
        zip(cell["images"], cell["seeds"], failed, strict=True)
    ):
        own = {} if reason else {metric: next(values) for metric, values in scores.items()}
        row = {"number": i, "image": image, "seed": seed, "failed": reason, "scores": own}
        found.append(names | row | (costs if reason is None else {}))
    return found


def is_current(head: dict[str, Any]) -> bool:
    """Whether the weights are those of the package."""
    return all(
        list(weights_of(Chosen(*name.split(", ")))) == list(found)
        for name, found in head["weights"].items()
    )


# tables ------------------------------------------------------------------------------------------
def page(folder: Path) -> str:
    """RESULTS.md."""
    parts = [PREFACE]
    for path in sorted(folder.glob("*.jsonl")):
        remarks = path.with_suffix(".md")
        parts.append(section(*load(path)))
        parts += [remarks.read_text(encoding="utf-8")] if remarks.exists() else []
    return "\n".join(parts)


def section(head: dict[str, Any], found: Sequence[dict[str, Any]]) -> str:
    """Origin, overview and one table per task of a file of results."""
    spec = head["spec"]
    groups = compared(spec, [row for cell in found for row in rows_of(cell)])
    metrics = [m for m in spec["metrics"] if any(m in cell["scores"] for cell in found)]
    state = "those of the package" if is_current(head) else "**earlier than those of the package**"
    weights = "; ".join(f"{name}: {', '.join(each)}" for name, each in head["weights"].items())
    seeds = sorted({seed for cell in found for seed in cell["seeds"]})
    data = "; ".join(f"{row['words'] or name}" for name, row in spec["data"].items())
    lines = [
        f"## {spec['name']}: {spec['words']}",
        "",
        f"`{head['command']}`, {head['finished']}. Data: {data}. "
        f"Priors: {', '.join(spec['priors'])}, weights ({weights}): {state}. "
        f"Seeds: {', '.join(map(str, seeds))}. "
        f"Machine: {head['versions']['processor']}, torch {head['versions']['torch']}.",
        *([head["remark"]] if "remark" in head else []),
        "",
    ]
    for data_name, prior in dict.fromkeys((g.data, g.prior) for g in groups):
        own = {g: c for g, c in groups.items() if (g.data, g.prior) == (data_name, prior)}
        if len(own) > 1:
            lines += [f"### {data_name}, prior {prior}", "", *overview(own, metrics), ""]
    for group, each in groups.items():
        lines += [f"### {group.name}", "", *task_table(each, metrics), *reasons(each), ""]
    return "\n".join(lines)


def compared(spec: dict[str, Any], rows: Sequence[Saved]) -> dict[Group, list[Cell]]:
    """Cells by group, each compared with the first method of the spec with as many trials."""
    methods = {name: MethodRow.from_dict(row) for name, row in spec["methods"].items()}
    present = {row["method"] for row in rows}
    first = next(name for name in methods if name in present)
    firsts: dict[int | None, str] = {None: first}
    for name, row in methods.items():
        if name in present:
            firsts.setdefault(row.trials, name)
    metrics = spec["metrics"]
    found = {name: cells(rows, metrics=metrics, reference=name) for name in set(firsts.values())}
    return {
        group: [
            next(c for c in found[firsts[cell.trials]][group] if _same(c, cell)) for cell in each
        ]
        for group, each in found[first].items()
    }


def _same(one: Cell, other: Cell) -> bool:
    return (one.method, one.steps) == (other.method, other.steps)


def overview(groups: dict[Group, list[Cell]], metrics: Sequence[str]) -> list[str]:
    """Methods × tasks: PSNR and a second metric."""
    shown = ["psnr", *(m for m in SECONDS if m in metrics)][:2]
    noises = {group.sigma_y for group in groups}
    names = [group.task + (f", σ {group.sigma_y:g}" if len(noises) > 1 else "") for group in groups]
    lines = _head(["method", "NFE", *names])
    for label in dict.fromkeys(cell.label for each in groups.values() for cell in each):
        own = [next((c for c in each if c.label == label), None) for each in groups.values()]
        counts = sorted({int(c.nfe.mean) for c in own if c is not None and c.nfe is not None})
        entries = ["" if c is None else " / ".join(_score(c, m) for m in shown) for c in own]
        lines.append(_line([label, "/".join(map(str, counts)), *entries]))
    return lines


def task_table(each: Sequence[Cell], metrics: Sequence[str]) -> list[str]:
    """Scores, costs and differences of one group, the highest PSNR first."""
    shown = [m for m in metrics if any(m in cell.scores for cell in each)]
    lines = _head(
        [
            *("method", "trials", *map(heading, shown), "NFE", "VJPs", "seconds"),
            *(f"Δ {heading(m)}" for m in shown),
        ]
    )
    for cell in sorted(each, key=lambda c: -(mean(c.scores.get("psnr")) or -99.0)):
        means = [number(mean(cell.scores.get(m)), METRICS[m].digits) for m in shown]
        costs = [number(mean(s), d) for s, d in ((cell.nfe, 0), (cell.vjps, 0), (cell.seconds, 2))]
        trials = "–" if cell.trials is None else str(cell.trials)
        gaps = ["reference" if cell.is_reference else _gap(cell, m) for m in shown]
        lines.append(_line([cell.label, trials, *means, *costs, *gaps]))
    return lines


def reasons(each: Iterable[Cell]) -> list[str]:
    """Why rows of a group have no image."""
    return [
        f"- {cell.label}: {count} of {cell.rows} failed: {reason}"
        for cell in each
        for reason, count in cell.failures.items()
    ]


def _score(cell: Cell, metric: str) -> str:
    value = cell.scores.get(metric)
    if value is None:
        return "failed" if cell.failed else "–"
    better = cell.differences[metric].better if metric in cell.differences else None
    return number(value.mean, METRICS[metric].digits) + {None: "", True: "↑", False: "↓"}[better]


def _gap(cell: Cell, metric: str) -> str:
    found, digits = cell.differences.get(metric), METRICS[metric].digits
    if found is None:
        return "–"
    text = number(found.mean, digits, sign=True)
    if found.low is None:
        return text
    return f"{text} ({number(found.low, digits)} … {number(found.high, digits)})"


def _head(names: Sequence[str]) -> list[str]:
    return [_line(names), "|---" * len(names) + "|"]


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", metavar="NAME", help="spec whose rows become a file of results")
    parser.add_argument("--out", type=Path, help="folder of its store; default: out/bench/NAME")
    parser.add_argument(
        "--reproduced", metavar="OUT", type=Path, help="store of pnpcm reproduce to be kept"
    )
    options = parser.parse_args()
    if options.keep:
        path = f"benchmarks/specs/{options.keep}.yaml"
        spec = read_spec(HERE / "specs" / f"{options.keep}.yaml")
        out = options.out or Path("out/bench") / spec.name
        print(keep([spec], out, f"pnpcm bench {path}"))
    if options.reproduced:
        print(*keep_reproduced(options.reproduced), sep="\n")
    write_text(HERE / "RESULTS.md", page(HERE / "results"))


if __name__ == "__main__":
    main()
