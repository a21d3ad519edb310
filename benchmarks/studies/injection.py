"""Does injected noise help a consistency function? A study with exact priors.

    nice python benchmarks/studies/injection.py --csv out/injection.csv

The loop of PnP-CM with the exact consistency function and with the exact denoiser of a Gaussian
mixture, fitted to training faces of 12×12 pixels: injection × momentum × N = 2, 4, 8, on held-out
faces and on images drawn from the mixture, for which the priors have no error. Numbers of a run:
the paper's, and those of a search of equal size per cell on other training faces, for PSNR and for
a distance between distributions. Prints tables in Markdown, of which docs/injection.md has the
main ones. Needs $PNPCM_DATA.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mixtures import Mixture, Posterior, fit
from pnpcm import PRESETS, GaussianMixturePrior, PnPCM, PnPCMConfig
from pnpcm.core import LinearOperator
from pnpcm.errors import ArgumentError
from pnpcm.evaluation.images import Images
from pnpcm.io.files import write_text
from pnpcm.metrics import psnr
from pnpcm.operators import GaussianBlur, measure
from pnpcm.places import existing
from pnpcm.problems import Custom, Inpaint, SuperRes, Task
from pnpcm.rng import generators, randn
from pnpcm.tune.study import Range, nearby

SIDE = 12
COMPONENTS = 3
N_ODE = 16
STEPS = (2, 4, 8)
SIGMA_Y = 0.05
NOISE_STD = 2 * SIGMA_Y
TASKS: dict[str, Task] = {
    "superres-4": SuperRes(4),
    "inpaint-70": Inpaint(missing=0.7),
    "deblur-gauss": Custom(GaussianBlur((1, SIDE, SIDE))),  # the paper's, with zero borders
}
PRIORS = {"consistency": "consistency function", "edm": "denoiser"}
NUMBERS = ("published", "search for PSNR", "search for distance")
SPACE: dict[str, Range] = {
    "sigma_start": (0.03, 2.0, True),
    "fall": (0.05, 1.0, True),  # σ_end / σ_start
    "delta": (-0.2, 2.5, False),
    "weight": (0.03, 30.0, True),
    "mu": (0.05, 0.8, False),
}
STARTS = (
    {"sigma_start": 0.15, "fall": 0.06, "delta": 0.0, "weight": 1.0, "mu": 0.1},
    {"sigma_start": 0.45, "fall": 0.33, "delta": 0.0, "weight": 1.0, "mu": 0.2},
    {"sigma_start": 0.3, "fall": 0.33, "delta": 0.0, "weight": 3.0, "mu": 0.2},
    {"sigma_start": 1.0, "fall": 0.05, "delta": 0.2, "weight": 1.0, "mu": 0.2},
)
"""First trials of every search: four simple schedules."""


@dataclass(frozen=True)
class Cell:
    """One variant of the loop."""

    prior: str
    injection: bool
    momentum: bool
    steps: int


@dataclass(frozen=True)
class Scores:
    """Means over images: PSNR in dB, distance of the distributions, ln p per pixel."""

    psnr: float
    distance: float
    log_p: float


@dataclass(frozen=True)
class Row:
    """Scores of one cell (or bound) on one set of images."""

    images: str
    task: str
    method: str
    injection: bool | None
    momentum: bool | None
    steps: int | None
    numbers: str
    psnr: float
    distance: float
    log_p: float


@dataclass(frozen=True)
class Round:
    """Clean images and their measurement."""

    x: Tensor
    y: Tensor
    operator: LinearOperator


# problem and scores ------------------------------------------------------------------------------
def measured(task: Task, x: Tensor, seed: int) -> Round:
    """One operator for all images, each with its own noise."""
    shape = (x.shape[1], x.shape[2], x.shape[3])
    operator = task.prepared(shape, torch.Generator().manual_seed(0)).operator(shape)
    seeds = generators([seed + i for i in range(len(x))])
    return Round(x, measure(operator, x, SIGMA_Y, generator=seeds), operator)


def sliced_distance(a: Tensor, b: Tensor, whiten: Tensor, count: int = 256) -> float:
    """Mean 2-Wasserstein distance of projections of two sets of equally many images.

    ``whiten`` ``(P, P)`` gives all directions of the training images the variance 1; the images are
    then projected onto ``count`` random unit vectors.
    """
    directions = torch.randn((whiten.shape[0], count), generator=torch.Generator().manual_seed(0))
    directions = whiten @ (directions / directions.norm(dim=0)).to(whiten)
    sorted_a, sorted_b = ((t.flatten(1).to(whiten) @ directions).sort(0).values for t in (a, b))
    return float((sorted_a - sorted_b).square().mean(0).sqrt().mean())


def whitening(x: Tensor) -> Tensor:
    """C^{−1/2} of the covariance C of images."""
    values, vectors = torch.linalg.eigh(torch.cov(x.flatten(1).double().T))
    return (vectors / values.sqrt()) @ vectors.T


class Judge:
    """Scores of reconstructions, with the whitening and the mixture of the training images."""

    def __init__(self, training: Tensor, prior: GaussianMixturePrior) -> None:
        self.whiten, self.prior = whitening(training), prior

    def __call__(self, x: Tensor, truth: Tensor) -> Scores:
        return Scores(
            float(psnr(x, truth).mean()),
            sliced_distance(x, truth, self.whiten),
            float(self.prior.log_density(x).mean()) / truth[0].numel(),
        )


# numbers of a run --------------------------------------------------------------------------------
def published(task: str, cell: Cell) -> PnPCMConfig:
    """The paper's numbers for CelebA-HQ, spread over the cell's number of steps."""
    config = PRESETS[f"celeba-hq/{task}"].solver
    assert isinstance(config, PnPCMConfig)
    config = config.with_steps(cell.steps)
    return replace(
        config,
        noise_scale=float(cell.injection),
        mu=config.mu if cell.momentum else 0.0,
        clamp=False,
    )


def from_values(values: Mapping[str, float], cell: Cell) -> PnPCMConfig:
    """A point of ``SPACE`` as numbers of a run."""
    start = values["sigma_start"]
    return PnPCMConfig.geometric(
        (start, start * values["fall"]),
        n=cell.steps,
        noise_std=NOISE_STD,
        delta=values["delta"],
        weight=values["weight"],
        mu=values["mu"] if cell.momentum else 0.0,
        noise_scale=float(cell.injection),
        clamp=False,
    )


def solved(prior: GaussianMixturePrior, config: PnPCMConfig, round_: Round, seed: int) -> Tensor:
    seeds = generators([seed + i for i in range(len(round_.y))])
    return PnPCM(prior, config)(round_.y, round_.operator, generator=seeds).x


def searched(
    score: Callable[[PnPCMConfig], float], task: str, cell: Cell, trials: int
) -> PnPCMConfig:
    """The best of ``trials``: the paper's numbers, ``STARTS``, then random steps from the best."""
    best = published(task, cell)
    best_score, around, around_score = score(best), STARTS[0], -math.inf
    for k in range(trials - 1):
        near = k - len(STARTS)
        values = STARTS[k] if near < 0 else nearby(around, SPACE, near, seed=k)
        config = from_values(values, cell)
        try:
            found = score(config)
        except ArgumentError:  # the run diverged
            continue
        if found > around_score:
            around, around_score = dict(values), found
        if found > best_score:
            best, best_score = config, found
    return best


# study -------------------------------------------------------------------------------------------
def study(task: str, setup: Setup, *, trials: int, steps: Sequence[int] = STEPS) -> list[Row]:
    """Scores of all cells of a task, and the bounds of the mixture, on every set of images."""
    mixture, judge = setup.mixture, setup.judge
    priors = {kind: mixture.prior(kind, N_ODE) for kind in PRIORS}
    rounds = {name: measured(TASKS[task], x, seed=10_000) for name, x in setup.sets.items()}
    rows = [row for name, r in rounds.items() for row in bounds(name, task, mixture, r, judge)]
    tuning = measured(TASKS[task], setup.search_images, seed=20_000)
    for values in itertools.product(PRIORS, (False, True), (False, True), steps):
        cell = Cell(*values)
        prior = priors[cell.prior]
        for numbers, config in configurations(task, cell, prior, judge, tuning, trials).items():
            for name, round_ in rounds.items():
                found = judge(solved(prior, config, round_, 40_000), round_.x)
                key = (name, task, PRIORS[cell.prior], cell.injection, cell.momentum, cell.steps)
                rows.append(Row(*key, numbers, **asdict(found)))
    return rows


def configurations(
    task: str,
    cell: Cell,
    prior: GaussianMixturePrior,
    judge: Judge,
    tuning: Round,
    trials: int,
) -> dict[str, PnPCMConfig]:
    """The three choices ``NUMBERS`` for a cell."""

    def scores(config: PnPCMConfig) -> Scores:
        return judge(solved(prior, config, tuning, 30_000), tuning.x)

    return {
        NUMBERS[0]: published(task, cell),
        NUMBERS[1]: searched(lambda c: scores(c).psnr, task, cell, trials),
        NUMBERS[2]: searched(lambda c: -scores(c).distance, task, cell, trials),
    }


def bounds(name: str, task: str, mixture: Mixture, round_: Round, judge: Judge) -> list[Row]:
    """The exact posterior of the mixture: mean and one draw per image; and the truth itself."""
    posterior = Posterior(mixture, round_.operator, round_.y, NOISE_STD)
    images = {
        "posterior mean": posterior.mean(),
        "posterior draw": posterior.sample(torch.Generator().manual_seed(0)),
        "truth": round_.x,
    }
    return [
        Row(name, task, method, None, None, None, "exact", **asdict(judge(x, round_.x)))
        for method, x in images.items()
    ]


# text --------------------------------------------------------------------------------------------
def table(rows: Iterable[Row], images: str, numbers: str) -> str:
    """PSNR / distance of all cells on one set of images, with the bounds of the mixture."""
    own = [r for r in rows if r.images == images and r.numbers in (numbers, "exact")]
    own = [r for r in own if r.method != "truth"]
    tasks = list(dict.fromkeys(r.task for r in own))
    steps = sorted({r.steps for r in own if r.steps is not None})
    columns = [(task, n) for task in tasks for n in steps]
    lines = [
        f"| prior, injection, momentum | {' | '.join(f'{t}, N = {n}' for t, n in columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for key in dict.fromkeys((r.method, r.injection, r.momentum) for r in own):
        method, injection, momentum = key
        found = {(r.task, r.steps): r for r in own if (r.method, r.injection, r.momentum) == key}
        cells = []
        for task, n in columns:
            row = found.get((task, n)) or found[task, None]
            cells.append(f"{row.psnr:.2f} / {row.distance:.3f}")
        name = method if injection is None else f"{method}, {yes(injection)}, {yes(momentum)}"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def yes(value: bool | None) -> str:
    return "yes" if value else "no"


@dataclass(frozen=True)
class Effect:
    """Scores with injection minus those without, mean of tasks × momentum, and how often > 0."""

    images: str
    numbers: str
    method: str
    steps: int
    psnr: float
    psnr_better: int
    distance: float
    distance_better: int
    count: int


def effects(rows: Iterable[Row]) -> list[Effect]:
    """The effect of injection for every prior, number of steps, choice of numbers and set."""
    pairs: dict[tuple[str, str, str, int], list[tuple[float, float]]] = {}
    with_it = {_key(r): r for r in rows if r.injection}
    for row in rows:
        if row.injection is False and row.steps is not None:
            other = with_it[_key(row)]
            key = (row.images, row.numbers, row.method, row.steps)
            pair = (other.psnr - row.psnr, other.distance - row.distance)
            pairs.setdefault(key, []).append(pair)
    found = []
    for key, each in pairs.items():
        dbs, distances = zip(*each, strict=True)
        found.append(
            Effect(
                *key,
                sum(dbs) / len(dbs),
                sum(d > 0 for d in dbs),
                sum(distances) / len(distances),
                sum(d < 0 for d in distances),
                len(each),
            )
        )
    return found


def _key(row: Row) -> tuple[object, ...]:
    return (row.images, row.task, row.method, row.momentum, row.steps, row.numbers)


def effect_table(found: Iterable[Effect]) -> str:
    lines = [
        "| images | numbers | prior | N | PSNR, dB | better | distance | better |",
        "|---" * 8 + "|",
    ]
    for e in found:
        lines.append(
            f"| {e.images} | {e.numbers} | {e.method} | {e.steps} | {e.psnr:+.2f} | "
            f"{e.psnr_better} of {e.count} | {e.distance:+.3f} | {e.distance_better} of {e.count} |"
        )
    return "\n".join(lines)


def likelihoods(rows: Iterable[Row], images: str) -> str:
    """Mean ln p per pixel under the mixture, over tasks, momentum and steps."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for r in rows:
        if r.images == images:
            injection = "" if r.injection is None else f", injection: {yes(r.injection)}"
            groups.setdefault((r.method, injection, r.numbers), []).append(r.log_p)
    lines = ["| | numbers | ln p per pixel |", "|---|---|---|"]
    for (method, injection, numbers), values in groups.items():
        lines.append(f"| {method}{injection} | {numbers} | {sum(values) / len(values):.2f} |")
    return "\n".join(lines)


def conclusion(rows: list[Row], images: str) -> str:
    """How often injection helps each prior, as sentences."""
    lines = []
    for method in PRIORS.values():
        for numbers in NUMBERS:
            own = [
                e
                for e in effects(rows)
                if (e.method, e.numbers, e.images) == (method, numbers, images)
            ]
            count = sum(e.count for e in own)
            db = sum(e.psnr * e.count for e in own) / count
            distance = sum(e.distance * e.count for e in own) / count
            lines.append(
                f"- {method}, {numbers}: injection changes PSNR by {db:+.2f} dB "
                f"(higher in {sum(e.psnr_better for e in own)} of {count} cells) and the distance "
                f"by {distance:+.3f} (smaller in {sum(e.distance_better for e in own)} of {count})."
            )
    return "\n".join(lines)


def report(rows: list[Row]) -> str:
    """All tables and sentences, in Markdown."""
    parts = []
    for images in dict.fromkeys(r.images for r in rows):
        for numbers in NUMBERS:
            parts.append(f"## {images}, numbers: {numbers}\n\n{table(rows, images, numbers)}\n")
        parts.append(f"## {images}, ln p per pixel\n\n{likelihoods(rows, images)}\n")
        parts.append(f"## {images}, effect of injection\n\n{conclusion(rows, images)}\n")
    parts.append(f"## Effect of injection by N\n\n{effect_table(effects(rows))}\n")
    return "\n".join(parts)


def as_csv(rows: Iterable[Row]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(Row.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return file.getvalue()


def read_csv(path: Path) -> list[Row]:
    """The rows of a file that :func:`as_csv` wrote."""
    kinds = {"injection": _boolean, "momentum": _boolean, "steps": _whole}
    kinds |= dict.fromkeys(("psnr", "distance", "log_p"), float)
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return [Row(**{k: kinds.get(k, str)(v) for k, v in line.items()}) for line in lines]


def _boolean(text: str) -> bool | None:
    return {"True": True, "False": False, "": None}[text]


def _whole(text: str) -> int | None:
    return int(text) if text else None


# data --------------------------------------------------------------------------------------------
def faces(folder: str, side: int) -> Tensor:
    """Grey faces ``(B, 1, side, side)`` in [-1, 1]."""
    return torch.cat(list(Images(existing(f"$PNPCM_DATA/{folder}"), channels=1, size=side)))


@dataclass(frozen=True)
class Setup:
    """The mixture, its judge, images for the searches and sets of test images."""

    mixture: Mixture
    judge: Judge
    search_images: Tensor
    sets: dict[str, Tensor]


def set_up(training: Tensor, test: Tensor, *, count: int, n_iter: int = 20) -> Setup:
    """The fit to all but the last 500 training images; every 20th of those is for searches."""
    generator = torch.Generator().manual_seed(0)
    mixture = fit(training[:-500], COMPONENTS, n_iter=n_iter, generator=generator)
    sets = {
        "faces": test[:: len(test) // count][:count],
        "drawn": mixture.samples(count, generator),
    }
    judge = Judge(training[:-500], mixture.prior("edm"))
    return Setup(mixture, judge, training[-500::20], sets)


def flow_error(setup: Setup) -> float:
    """RMS change of the consistency function at σ = 0.5 with twice as many Runge–Kutta steps."""
    x = setup.sets["faces"]
    v = x + 0.5 * randn(x.shape, torch.Generator().manual_seed(3), x)
    once, twice = (setup.mixture.prior("consistency", n)(v, 0.5) for n in (N_ODE, 2 * N_ODE))
    return float((once - twice).square().mean().sqrt())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=9, help="runs of each search")
    parser.add_argument("--count", type=int, default=64, help="images per test set")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="values of N")
    parser.add_argument("--csv", type=Path, help="file of all scores, written")
    parser.add_argument("--tables", type=Path, help="print the tables of such a file, run nothing")
    given = parser.parse_args()
    if given.tables is not None:
        print(report(read_csv(given.tables)))
        return
    if given.csv is not None:
        given.csv.parent.mkdir(parents=True, exist_ok=True)
    setup = set_up(faces("faces", SIDE), faces("faces_test", SIDE), count=given.count)
    weights = ", ".join(f"{w:.3f}" for w in setup.mixture.weights.tolist())
    print(f"weights of the mixture: {weights}; RMS error of the flow: {flow_error(setup):.1e}")
    rows: list[Row] = []
    for task in TASKS:
        rows += study(task, setup, trials=given.trials, steps=given.steps)
        print(f"{task}: {time.process_time():.0f} s of processor time so far", flush=True)
        if given.csv is not None:
            write_text(given.csv, as_csv(rows))
    print(report(rows))


if __name__ == "__main__":
    main()
