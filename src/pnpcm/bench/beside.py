"""beside: our means beside the published numbers of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pnpcm.baselines import LINEAR, NONLINEAR
from pnpcm.bench import sensitivity
from pnpcm.bench.comparisons import Beside, comparison_table
from pnpcm.bench.paper import PUBLISHED, Published
from pnpcm.bench.reproduce import PAPER, Domain, table_of
from pnpcm.bench.run import finished
from pnpcm.bench.sections import Section, TextTable
from pnpcm.bench.spec import Spec
from pnpcm.bench.stats import images
from pnpcm.bench.store import Saved, Store

TASK_GROUPS: dict[str, tuple[str, ...]] = {"linear tasks": LINEAR, "nonlinear tasks": NONLINEAR}
"""The paper has a table of each for photographs."""
WITH_CONDITIONS = ("momentum", "nfe-noise")
"""Tables whose lines state the number of steps."""
PARAMETERS = {
    "main": "parameters: the best of 12 trials on training images, for every method",
    "nfe-noise": "parameters: the shipped presets and the rule between them",
}
"""Of tables with shipped priors that do not have the parameters of the paper."""


def tables(
    specs: Sequence[Spec], used: Sequence[Domain], store: Store, *, limit: int | None = None
) -> dict[str, list[Section]]:
    """The finished rows of the specs of :mod:`pnpcm.bench.reproduce`, as sections by table."""
    rows: dict[str, list[Saved]] = {}
    for spec in specs:
        rows.setdefault(table_of(spec), []).extend(finished(spec, store, limit=limit))
    found = {}
    for name, own in rows.items():
        if name == "sensitivity":
            words = [f"{one.data.words}, prior {one.prior}" for one in used if one.photo]
            found[name] = sensitivity.sections(own, words)
        else:
            found[name] = sections(name, beside(name, own, used), used)
    return found


def beside(table: str, rows: Iterable[Saved], used: Sequence[Domain]) -> list[Beside]:
    """Published cells of a table with the means of its rows of the data in their place."""
    names = {one.paper: one.name for one in used}
    wanted = [p for p in PUBLISHED if p.table == table and p.data in names]
    noise = {one.paper: {t: row.sigma_y for t, row in one.tasks.items()} for one in used}
    own: dict[tuple[Any, ...], list[Saved]] = {}
    for row in rows:
        if row["failed"] is None:
            key = (row["data"], row["task"], row["method"], row["sigma_y"], row["steps"])
            own.setdefault(key, []).append(row)
    found = []
    for cell in wanted:
        level = (noise[cell.data][cell.task] or (cell.sigma_y,))[0]
        steps = cell.nfe if table in WITH_CONDITIONS else None
        rows_of = own.get((names[cell.data], cell.task, cell.method, level, steps), [])
        found.append(Beside(cell, images(rows_of), rows_of[0]["nfe"] if rows_of else None))
    return found


def sections(table: str, cells: Sequence[Beside], used: Sequence[Domain]) -> list[Section]:
    """One section per data set and group of tasks: a line per method, steps and noise."""
    found = []
    for domain in used:
        own = [c for c in cells if c.published.data == domain.paper]
        split = domain.photo and table == "main"
        groups = {"": tuple(dict.fromkeys(c.published.task for c in own))}
        for words, tasks in (TASK_GROUPS if split else groups).items():
            some = [c for c in own if c.published.task in tasks]
            if some:
                title = ", ".join(part for part in (table, words, domain.data.words) if part)
                made = (_table(table, some), comparison_table(table, some))
                shown = tuple(each for each in made if each is not None)
                found.append(Section(title, (_caption(table, some, domain),), shown))
    return found


def _caption(table: str, cells: Sequence[Beside], domain: Domain) -> str:
    """What the numbers are, and how ours and those of the paper differ."""
    counts = sorted({c.count for c in cells if c.count})
    number = "/".join(map(str, counts)) if counts else "no"
    noun = "image" if counts == [1] else "images"
    second = "SSIM" if cells[0].published.is_scan else "LPIPS (VGG)"
    count = "slices of 10 volumes" if cells[0].published.is_scan else "300 images"
    paper = "parameters: those of the paper"
    numbers = paper if domain.own else PARAMETERS.get(table, paper)
    return (
        f"PSNR (dB) / {second}. Ours: {number} {noun} of {domain.data.words}, prior "
        f"{domain.prior}; {numbers}. Paper: {PAPER[domain.paper]}, {count}, priors of "
        "its authors."
    )


def _table(table: str, cells: Sequence[Beside]) -> TextTable:
    tasks = list(dict.fromkeys(c.published.task for c in cells))
    head = ["method", "NFE", "NFE, paper", *(t for task in tasks for t in (task, "paper"))]
    lines: dict[str, dict[str, Beside]] = {}
    for cell in cells:
        lines.setdefault(_label(table, cell.published), {})[cell.published.task] = cell
    rows = []
    for label, own in lines.items():
        counts = sorted({c.nfe for c in own.values() if c.nfe is not None})
        row = [label, "/".join(map(str, counts)) or "–"]
        row.append(str(next(iter(own.values())).published.nfe))
        for task in tasks:
            row += _entries(own[task]) if task in own else ["–", "–"]
        rows.append(tuple(row))
    return TextTable(tuple(head), tuple(rows))


def _label(table: str, p: Published) -> str:
    if table == "nfe-noise":
        return f"{p.method}, N = {p.nfe}, σ_y = {p.sigma_y:g}"
    return f"{p.method}, N = {p.nfe}" if table == "momentum" else p.method


def _entries(cell: Beside) -> list[str]:
    p = cell.published
    psnr, second = map(cell.mean, cell.metrics)
    ours = "–" if psnr is None else f"{psnr:.2f}"
    if second is not None:
        ours += f" / {second:.3f}"
    return [ours, f"{p.psnr:.2f} / {p.second:.3f}"]
