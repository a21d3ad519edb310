"""reproduce: the tables of the paper as specs, and ours beside the published numbers.

With nothing given, the shipped priors are used on images of ``$PNPCM_DATA`` or, without it, on the
bundled photographs. With a checkpoint and a folder of images (``prior``, ``data``) the paper's own
presets and operators of the released code are used on 256×256 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pnpcm.baselines import BASELINES, LINEAR
from pnpcm.bench.paper import PUBLISHED, Published
from pnpcm.bench.spec import DataSet, MethodRow, Spec, TaskRow
from pnpcm.errors import ArgumentError
from pnpcm.names import Table
from pnpcm.places import place
from pnpcm.presets import PRESETS
from pnpcm.solvers import PnPCMConfig

BUNDLED = str(Path(__file__).parents[1] / "data")
HELD_OUT = (546, 565, 577, 603, 606, 632)
PHOTO_TASKS = {
    "superres-4": TaskRow("superres", {"factor": 4}),
    "deblur-gauss": TaskRow("deblur", {"gaussian": (5, 10.0), "boundary": "zero"}),
    "inpaint-70": TaskRow("inpaint", {"missing": 0.7}),
    "jpeg-5": TaskRow("jpeg", {"quality": 5}),
    "nonlinear-deblur": TaskRow("nonlinear-deblur"),
    "phase-retrieval": TaskRow("phase-retrieval"),
}
RELEASED = {
    "deblur-gauss": TaskRow("deblur", {"gaussian": (5, 10.0), "reference": True}),
    "jpeg-5": TaskRow("jpeg", {"quality": 5, "reference": True}),
    "phase-retrieval": TaskRow("phase-retrieval", {"reference": True}),
}
"""Tasks whose published scores belong to the operators of the released code."""
SCANS = {f"r{r}": TaskRow("mri", {"acceleration": r}, (0.005,)) for r in (4, 8)}
METHODS = {
    "PnP-CM": "pnp-cm",
    "DPS": "dps",
    "PiGDM": "pigdm",
    "DiffPIR": "diffpir",
    "DPnP": "dpnp",
    "PnP-DM": "pnp-dm",
    "DDS": "dds",
    "CM": "cm-iterative",
    "CM4IR": "cm4ir",
}
"""Names in the tables → rows of ``SOLVERS``. CoSIGN needs a network per task and is left out."""
FACTORS = 12
"""Draws of the sensitivity study."""


@dataclass(frozen=True)
class Domain:
    """Where a data set of the paper is replaced: ``paper`` is its name there."""

    paper: str
    prior: str
    data: DataSet
    tasks: dict[str, TaskRow]
    photo: bool = True
    own: bool = False
    """Whether prior and data are the user's: presets of the paper."""


def domains(prior: str | None = None, data: str | None = None) -> list[Domain]:
    """The data sets of the paper, or what stands for them here."""
    if (prior is None) != (data is None):
        given, other = ("prior", "data") if data is None else ("data", "prior")
        raise ArgumentError(f"{given} is given without {other}; give both, or none of them")
    if prior is not None and data is not None:
        tasks = PHOTO_TASKS | RELEASED
        return [Domain("celeba-hq", prior, DataSet(data, side=256, words=data), tasks, own=True)]
    if not place("PNPCM_DATA").is_dir():
        words = "bundled photographs of 128×128"
        bundled = DataSet(BUNDLED, side=128, words=words)
        return [Domain("lsun-bedroom", "natural", bundled, PHOTO_TASKS)]
    faces = DataSet("$PNPCM_DATA/faces_test", count=100, shrink=2, words="FairFace, 64×64")
    photos = DataSet("$PNPCM_DATA/natural_test", side=128, words="CBSD68, crops of 128×128")
    slices = {"jitter": 0.0, "only": {"subject": list(HELD_OUT)}}
    ixi = DataSet("$PNPCM_DATA/mri/ixi_t1_axial_128.npz", "magnitude", 100, options=slices,
                  words="IXI, held-out subjects, simulated coils")  # fmt: skip
    t1ce = DataSet("$PNPCM_DATA/mri_test/t1ce_mixed_planes_128_test.npz", "magnitude", 100,
                   options={"jitter": 0.0},
                   words="contrast-enhanced T1, simulated coils")  # fmt: skip
    return [
        Domain("celeba-hq", "faces", faces, PHOTO_TASKS),
        Domain("lsun-bedroom", "natural", photos, PHOTO_TASKS),
        Domain("fastmri-pd", "mri", ixi, SCANS, photo=False),
        Domain("fastmri-pdfs", "mri", t1ce, SCANS, photo=False),
    ]


# tables ------------------------------------------------------------------------------------------
def _spec(table: str, domain: Domain, methods: dict[str, MethodRow], **more: Any) -> Spec:
    tasks = more.pop("tasks", domain.tasks)
    metrics = ("psnr", "ssim", "lpips-vgg") if domain.photo else ("psnr", "ssim", "nmse")
    return Spec(
        name=f"{table}-{domain.paper}",
        data={domain.paper: domain.data},
        tasks=dict(tasks),
        methods=methods,
        priors=(domain.prior,),
        metrics=metrics,
        words=f"{table}: {domain.data.words}, prior {domain.prior}",
        **more,
    )


def _published_row(method: str, task: str) -> str | None:
    """The row of ``BASELINES`` with the numbers of the publication."""
    for origin in ("official", "fastmri", "lsun"):
        if f"{method}/{origin}/{task}" in BASELINES:
            return f"{method}/{origin}/{task}"
    return None


def main(domain: Domain) -> list[Spec]:
    """Every method on every task of a data set: tuned numbers, for PnP-CM also the published."""
    found = []
    for task, row in domain.tasks.items():
        methods = {}
        for label, method in METHODS.items():
            published = _published_row(method, task)
            tuned = f"{method}/{domain.prior}/{task}"
            if domain.own:
                if published is not None:
                    methods[label] = MethodRow(preset=published)
            elif tuned in BASELINES:
                methods[label] = MethodRow(preset=tuned, trials=12)
            if label == "PnP-CM" and not domain.own:
                methods["PnP-CM, shipped preset"] = MethodRow(preset=f"{domain.prior}/{task}")
                methods["PnP-CM, published numbers"] = MethodRow(preset=published)
                methods["pnpcm, default"] = MethodRow()
        found.append(replace(_spec("main", domain, methods, tasks={task: row}),
                             name=f"main-{domain.paper}-{task}"))  # fmt: skip
    return found


def ablation(domain: Domain) -> list[Spec]:
    """Injection × momentum with the other numbers of the full method fixed."""
    if not domain.photo:
        return []
    cells = {}
    for injection, scale in (("no injection", 0.0), ("injection", None)):
        for momentum, mu in (("no momentum", 0.0), ("momentum", None)):
            settings = {k: v for k, v in (("noise_scale", scale), ("mu", mu)) if v is not None}
            name = f"{injection}, {momentum}"
            cells[name] = MethodRow(preset="pnp-cm/official/{task}", settings=settings)
    tasks = {task: domain.tasks[task] for task in LINEAR}
    return [_spec("ablation", domain, cells, tasks=tasks)]


def momentum(domain: Domain) -> list[Spec]:
    """Momentum against the number of evaluations, R = 8."""
    if domain.paper != "fastmri-pd":
        return []
    cells = {
        "no momentum": MethodRow(preset="fastmri/pd-r8", settings={"mu": 0.0}),
        "momentum": MethodRow(preset="fastmri/pd-r8"),
        "no momentum, shipped preset": MethodRow(preset="mri/r8", settings={"mu": 0.0}),
        "momentum, shipped preset": MethodRow(preset="mri/r8"),
    }
    return [_spec("momentum", domain, cells, tasks={"r8": SCANS["r8"]}, steps=(4, 10, 20))]


def nfe_noise(domain: Domain) -> list[Spec]:
    """Evaluations × noise of the linear tasks."""
    if not domain.photo:
        return []
    tasks = {task: domain.tasks[task] for task in LINEAR}
    row = MethodRow(preset="celeba-hq/{task}") if domain.own else MethodRow(method="pnp-cm")
    methods = {"PnP-CM": row}
    return [
        _spec("nfe-noise", domain, methods, tasks=tasks, steps=(2, 4, 8), sigma_y=(0.025, 0.05))
    ]


def sensitivity(domain: Domain) -> list[Spec]:
    """Deblurring with all nine hyperparameters multiplied by random factors up to ±25 %."""
    if domain.paper not in ("celeba-hq", "lsun-bedroom"):
        return []
    preset = PRESETS["celeba-hq/deblur-gauss"].solver
    methods = {"published": MethodRow(preset="celeba-hq/deblur-gauss")}
    generator = np.random.default_rng(0)
    for k in range(FACTORS):
        largest = (k + 1) / FACTORS * 0.25
        f = 1 + generator.uniform(-largest, largest, 9)
        changed = PnPCMConfig.from_paper(
            round(100 * f[0]),
            0.1 * f[1],
            tuple(float(d * g) for d, g in zip(preset.deltas, f[2:6], strict=True)),
            rho=(-4 * f[6], 6.5 * f[7]),
            mu=float(0.1 * f[8]),
        )
        values = {name: getattr(changed, name) for name in ("sigmas", "deltas", "rhos", "mu")}
        name = f"up to ±{100 * largest:.0f} %"
        methods[name] = MethodRow(preset="celeba-hq/deblur-gauss", settings=values)
    tasks = {"deblur-gauss": domain.tasks["deblur-gauss"]}
    return [_spec("sensitivity", domain, methods, tasks=tasks)]


def figures(domain: Domain) -> list[Spec]:
    """The rows of the main table, with more pictures; before it, since rows are computed once."""
    return [replace(spec, pictures=4) for spec in main(domain)]


def theorem(domain: Domain) -> list[Spec]:
    """No rows: ``bench/theorem.py`` compares the iterations of runs, not their results."""
    return []


TABLES: Table[Callable[[Domain], list[Spec]]] = Table(
    "table",
    {
        "figures": figures,
        "main": main,
        "ablation": ablation,
        "momentum": momentum,
        "nfe-noise": nfe_noise,
        "sensitivity": sensitivity,
        "theorem": theorem,
    },
)


def specs(table: str, *, prior: str | None = None, data: str | None = None) -> list[Spec]:
    """The specs of a table, or of ``all``."""
    names = list(TABLES) if table == "all" else [table]
    where = domains(prior, data)
    return [spec for name in names for domain in where for spec in TABLES[name](domain)]


def merged(name: str, parts: Sequence[Spec]) -> dict[str, Any]:
    """One spec, as a dictionary, that contains the names of all ``parts``, for their report."""
    found: dict[str, Any] = {"name": name, "words": "Tables of the PnP-CM paper"}
    for spec in (part.to_dict() for part in parts):
        for key in ("data", "tasks", "methods"):
            found[key] = found.get(key, {}) | spec[key]
        for key in ("priors", "metrics", "sigma_y", "steps", "seeds"):
            found[key] = list(dict.fromkeys((*found.get(key, ()), *spec[key])))
    return found


# beside the published numbers --------------------------------------------------------------------
@dataclass(frozen=True)
class Beside:
    """A published cell and ours: means over ``count`` images, None if it was not computed."""

    published: Published
    psnr: float | None
    second: float | None
    count: int
    nfe: int | None = None


def beside(table: str, rows: Iterable[dict[str, Any]]) -> list[Beside]:
    """Published cells of a table with the means of the stored rows of the same name."""
    wanted: Sequence[Published] = [p for p in PUBLISHED if p.table == table]
    prefix = f"{table}-"
    own: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["failed"] is None and row["spec"].startswith(prefix):
            key = (row["data"], row["task"], row["method"], row["sigma_y"], row["steps"])
            own.setdefault(key, []).append(row)
    found = []
    for cell in wanted:
        scan = cell.data.startswith("fastmri")
        level = 0.005 if scan else cell.sigma_y
        steps = cell.nfe if table in ("momentum", "nfe-noise") else None
        rows_of = own.get((cell.data, cell.task, cell.method, level, steps), [])
        means = {
            name: float(np.mean([r["scores"][name] for r in rows_of]))
            for name in ("psnr", "ssim" if scan else "lpips-vgg")
            if rows_of and all(name in r["scores"] for r in rows_of)
        }
        nfe = rows_of[0]["nfe"] if rows_of else None
        second = means.get("ssim" if scan else "lpips-vgg")
        found.append(Beside(cell, means.get("psnr"), second, len(rows_of), nfe))
    return found


def markdown(table: str, cells: Sequence[Beside]) -> str:
    """A table with one line per method (and steps, noise), ours before the published numbers."""
    lines = []
    for data in dict.fromkeys(c.published.data for c in cells):
        some = [c for c in cells if c.published.data == data]
        tasks = list(dict.fromkeys(c.published.task for c in some))
        lines += [f"## {table}, {data} in the paper", ""]
        lines += [
            f"| method | NFE, ours / paper | {' | '.join(tasks)} |",
            "|---" * (len(tasks) + 2) + "|",
        ]
        keys = list(dict.fromkeys((c.published.method, _condition(table, c)) for c in some))
        for method, condition in keys:
            own = [
                c for c in some if (c.published.method, _condition(table, c)) == (method, condition)
            ]
            entries = {c.published.task: _entry(c) for c in own}
            ours = (
                "/".join(str(n) for n in sorted({c.nfe for c in own if c.nfe is not None})) or "–"
            )
            name = f"{method}, {condition}" if condition else method
            texts = " | ".join(entries.get(task, "") for task in tasks)
            lines.append(f"| {name} | {ours} / {own[0].published.nfe} | {texts} |")
        lines.append("")
    return "\n".join(lines)


def _condition(table: str, cell: Beside) -> str:
    p = cell.published
    if table == "nfe-noise":
        return f"N = {p.nfe}, σ_y = {p.sigma_y:g}"
    return f"N = {p.nfe}" if table == "momentum" else ""


def _entry(cell: Beside) -> str:
    p = cell.published
    ours = "–" if cell.psnr is None else f"{cell.psnr:.2f}"
    if cell.second is not None:
        ours += f" / {cell.second:.3f}"
    return f"{ours} (paper {p.psnr:.2f} / {p.second:.3f})"
