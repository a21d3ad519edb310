"""sensitivity: PnP-CM's nine hyperparameters of deblurring, changed together at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pnpcm.bench.figures import COLOURS, matplotlib
from pnpcm.bench.scores import METRICS
from pnpcm.bench.sections import Section, TextTable
from pnpcm.bench.spec import MethodRow
from pnpcm.bench.store import Saved
from pnpcm.bench.tables import heading
from pnpcm.names import count_of
from pnpcm.presets import PRESETS
from pnpcm.solvers import PnPCMConfig

BASE = "celeba-hq/deblur-gauss"
"""Preset of the paper whose numbers are changed."""
UNCHANGED = "published"
CHANGES = (0.05, 0.1, 0.15, 0.2, 0.25)
"""Largest relative changes of a hyperparameter."""
DRAWS = 5
"""Variants of each."""
SHOWN = ("psnr", "lpips-vgg")


def variants() -> dict[str, MethodRow]:
    """The published numbers, and these times random factors in 1 ± p for every p of CHANGES."""
    preset = PRESETS[BASE].solver
    methods = {UNCHANGED: MethodRow(preset=BASE)}
    generator = np.random.default_rng(0)
    for largest, name in ((p, _name(p, k)) for p in CHANGES for k in range(DRAWS)):
        f = 1 + generator.uniform(-largest, largest, 9)
        changed = PnPCMConfig.from_paper(
            round(100 * f[0]),
            0.1 * f[1],
            tuple(float(d * g) for d, g in zip(preset.deltas, f[2:6], strict=True)),
            rho=(-4 * f[6], 6.5 * f[7]),
            mu=float(0.1 * f[8]),
        )
        values = {name: getattr(changed, name) for name in ("sigmas", "deltas", "rhos", "mu")}
        methods[name] = MethodRow(preset=BASE, settings=values)
    return methods


def _name(largest: float, draw: int) -> str:
    return f"up to ±{100 * largest:.0f} %, draw {draw + 1}"


Means = dict[str, dict[float, list[dict[str, float]]]]
"""Data → largest change → means over the images of every draw."""


def sections(rows: Iterable[Saved], words: Sequence[str]) -> list[Section]:
    """Scores per data set; ``words``: what the data and the priors are."""
    scored: dict[str, dict[str, list[dict[str, float]]]] = {}
    for row in rows:
        if row["failed"] is None:
            scored.setdefault(row["data"], {}).setdefault(row["method"], []).append(row["scores"])
    if not scored:
        return []
    names = {0.0: [UNCHANGED]} | {p: [_name(p, k) for k in range(DRAWS)] for p in CHANGES}
    means = {
        data: {p: [_mean(found[n]) for n in each if n in found] for p, each in names.items()}
        for data, found in scored.items()
    }
    count = max(len(each) for found in scored.values() for each in found.values())
    text = (
        "Deblurring, four evaluations: i_N, γ, δ_1 … δ_4, both ends of ρ and μ of the paper, each "
        f"times a random factor; {DRAWS} draws per line, "
        f"{count_of(count, 'image')} per data set: mean over the draws (lowest … highest). "
        f"{'; '.join(words)}. "
        "The paper has a figure without numbers: scores fall smoothly and slightly up to ±25 %."
    )
    title = "sensitivity: all nine hyperparameters changed"
    return [Section(title, (text,), (_table(means),), figure=lambda: figure(means))]


def _mean(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([s[name] for s in scores])) for name in SHOWN if name in scores[0]}


def _table(means: Means) -> TextTable:
    heads = [f"{data}, {heading(metric)}" for data in means for metric in SHOWN]
    rows = []
    for p in (0.0, *CHANGES):
        row = [f"up to ±{100 * p:.0f} %" if p else "published numbers"]
        for found in means.values():
            for metric in SHOWN:
                values = [draw[metric] for draw in found[p] if metric in draw]
                row.append(_spread(values, METRICS[metric].digits))
        rows.append(tuple(row))
    return TextTable(("factors", *heads), tuple(rows))


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    mean, low, high = (f"{v:.{digits}f}" for v in (np.mean(values), min(values), max(values)))
    return f"{mean} ({low} … {high})" if len(values) > 1 else mean


def figure(means: Means) -> Any:
    """Scores of every draw and their means, one panel per metric; a figure of matplotlib."""
    matplotlib()
    from matplotlib.figure import Figure

    made = Figure(figsize=(4.2 * len(SHOWN), 2.9), layout="constrained")
    for axes, metric in zip(made.subplots(1, len(SHOWN)), SHOWN, strict=True):
        for number, (data, found) in enumerate(means.items()):
            points = [(100 * p, d[metric]) for p, each in found.items() for d in each
                      if metric in d]  # fmt: skip
            line = [(at, np.mean([v for a, v in points if a == at]))
                    for at in dict.fromkeys(a for a, _ in points)]  # fmt: skip
            if points:
                axes.plot(
                    *zip(*line, strict=True), color=COLOURS[number], linewidth=1.2, label=data
                )
                axes.plot(*zip(*points, strict=True), "o", color=COLOURS[number], markersize=3.5)
        axes.set(xlabel="largest change of a hyperparameter (%)", ylabel=heading(metric))
        axes.grid(alpha=0.2, linewidth=0.6)
        axes.legend(frameon=False)
    return made
