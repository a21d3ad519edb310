"""reproduce: the tables of the paper as specs, and ours beside the published numbers.

With nothing given, the shipped priors are used on images of ``$PNPCM_DATA`` or, without it, on the
bundled photographs. With a checkpoint and the data of a domain (``prior``, ``data``) it is the
experiment of the paper: its presets and masks, the operators of the released code, its number of
images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pnpcm.baselines import BASELINES, LINEAR
from pnpcm.bench.run import Chosen, priors_of
from pnpcm.bench.sensitivity import UNCHANGED, variants
from pnpcm.bench.spec import DataSet, MethodRow, Spec, TaskRow
from pnpcm.catalogue import controls, is_name
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.names import Table
from pnpcm.places import place
from pnpcm.solvers import SOLVERS

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
KNEES = {
    f"r{r}": TaskRow("mri", {"acceleration": r, "lines": lines, "reference": True}, (0.0,))
    for r, lines in ((4, 24), (8, 12))
}
"""Measured scans with the masks of the released code; no noise is added."""
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
    "CoSIGN": "cosign",
    "CM4IR": "cm4ir",
}
"""Names in the tables → rows of ``SOLVERS``."""
OTHERS = {"DPIR": "dpir", "PnP-ADMM": "pnp-admm"}
"""Methods that are not in the tables of the paper; computed with shipped priors."""
PAPER = {
    "celeba-hq": "CelebA-HQ",
    "lsun-bedroom": "LSUN bedroom",
    "fastmri-pd": "fastMRI knee, PD",
    "fastmri-pdfs": "fastMRI knee, PD-FS",
}
"""Data sets of the paper, in the columns of the store and in words."""
IMAGES = 300
"""Photographs per data set in the paper; of scans 10 volumes without 5 slices at both ends."""
SIDES = {"photo": 256, "scan": 320}
"""Sides of the images in the paper, in pixels."""
FEW = 2
"""Images per data set with shipped priors, whose scores are not comparable anyway."""


@dataclass(frozen=True)
class Domain:
    """A data set of the paper (``paper``) and what is used: the data ``name`` and ``prior``.

    ``teacher``: prior of the methods that need a diffusion model; None: ``prior`` has both kinds,
    or there is none.
    """

    paper: str
    name: str
    prior: str
    data: DataSet
    tasks: dict[str, TaskRow]
    photo: bool = True
    own: bool = False
    """Whether prior and data are the user's: presets of the paper."""
    teacher: str | None = None


def domains(
    prior: str | None = None,
    data: str | None = None,
    *,
    domain: str | None = None,
    teacher: str | None = None,
    kernel_wizard: str | None = None,
) -> list[Domain]:
    """The data sets of the paper, or what stands for them here.

    ``domain``: one of ``PAPER``; with ``prior`` and ``data`` None is celeba-hq. ``teacher``: prior
    of the methods that need a diffusion model. ``kernel_wizard``: file of the paper's blur network.
    """
    if domain is not None and domain not in PAPER:
        raise UnknownNameError("domain", domain, PAPER)
    if (prior is None) != (data is None):
        given, other = ("prior", "data") if data is None else ("data", "prior")
        raise ArgumentError(f"{given} is given without {other}; give both, or none of them")
    if prior is not None and data is not None:
        real = _real(domain or "celeba-hq", prior, Path(data), teacher)
        if kernel_wizard is None:
            return [real]
        blur = TaskRow("nonlinear-deblur", {"kernel_wizard": str(Path(kernel_wizard).absolute())})
        return [replace(real, tasks=real.tasks | {"nonlinear-deblur": blur})]
    for name, value in (("teacher", teacher), ("kernel_wizard", kernel_wizard)):
        if value is not None:
            raise ArgumentError(f"{name} is {value!r}, but prior and data are not given; give them")
    found = _shipped()
    if domain is not None and domain not in [one.paper for one in found]:
        raise ArgumentError(f"domain is {domain!r}, which needs PNPCM_DATA, or prior and data")
    return [one for one in found if domain in (None, one.paper)]


def _real(paper: str, prior: str, data: Path, teacher: str | None) -> Domain:
    """The experiment of the paper with its own data."""
    if not data.exists():
        raise ArgumentError(f"data is {data}, which does not exist; see docs/reproduce.md")
    kinds = priors_of(Chosen(teacher)).kinds if teacher is not None else ("edm",)
    if not {"edm", "vp"} & set(kinds):
        raise ArgumentError(
            f"teacher is {teacher!r} of kind {kinds[0]}, expected a diffusion model; state the "
            f"kind of a .pt file: pnpcm priors convert {teacher} teacher.safetensors --kind edm "
            "(or vp)"
        )
    path = str(data.absolute())
    if paper.startswith("fastmri"):
        options = {"contrast": paper.partition("-")[2], "size": SIDES["scan"]}
        scans = DataSet(path, "scans", options=options, words=PAPER[paper])
        return Domain(paper, paper, prior, scans, KNEES, photo=False, own=True, teacher=teacher)
    source = "lmdb" if (data / "data.mdb").is_file() else "folder"
    side = SIDES["photo"]
    words = f"{PAPER[paper]}, {side}×{side}"
    photos = DataSet(path, source, count=IMAGES, options={"size": side}, words=words)
    return Domain(paper, paper, prior, photos, PHOTO_TASKS | RELEASED, own=True, teacher=teacher)


def _shipped() -> list[Domain]:
    """The shipped priors, on images that stand for those of the paper."""
    if not place("PNPCM_DATA").is_dir():
        bundled = DataSet(BUNDLED, side=128, words=_instead("photographs, 128×128", "lsun-bedroom"))
        return [Domain("lsun-bedroom", "bundled", "natural", bundled, PHOTO_TASKS)]
    faces = DataSet("$PNPCM_DATA/faces_test", count=100, shrink=2,
                    words=_instead("FairFace, 64×64", "celeba-hq"))  # fmt: skip
    photos = DataSet("$PNPCM_DATA/natural_test", side=128,
                     words=_instead("CBSD68, crops of 128×128", "lsun-bedroom"))  # fmt: skip
    slices = {"jitter": 0.0, "only": {"subject": list(HELD_OUT)}}
    held_out = _instead("IXI, held-out subjects, simulated coils", "fastmri-pd")
    ixi = DataSet("$PNPCM_DATA/mri/ixi_t1_axial_128.npz", "magnitude", 100, options=slices,
                  words=held_out)  # fmt: skip
    enhanced = _instead("contrast-enhanced T1, simulated coils", "fastmri-pdfs")
    t1ce = DataSet("$PNPCM_DATA/mri_test/t1ce_mixed_planes_128_test.npz", "magnitude", 100,
                   options={"jitter": 0.0}, words=enhanced)  # fmt: skip
    return [
        Domain("celeba-hq", "fairface", "faces", faces, PHOTO_TASKS),
        Domain("lsun-bedroom", "cbsd68", "natural", photos, PHOTO_TASKS),
        Domain("fastmri-pd", "ixi", "mri", ixi, SCANS, photo=False),
        Domain("fastmri-pdfs", "t1ce", "mri", t1ce, SCANS, photo=False),
    ]


def _instead(words: str, paper: str) -> str:
    return f"{words} (stands for {PAPER[paper]})"


# tables ------------------------------------------------------------------------------------------
def _spec(table: str, domain: Domain, methods: dict[str, MethodRow], **more: Any) -> Spec:
    tasks = more.pop("tasks", domain.tasks)
    metrics = ("psnr", "ssim", "lpips-vgg") if domain.photo else ("psnr", "ssim", "nmse")
    return Spec(
        name=f"{table}-{domain.name}",
        data={domain.name: domain.data},
        tasks=dict(tasks),
        methods=methods,
        priors=(domain.prior,),
        metrics=metrics,
        words=f"{table}: {domain.data.words}, prior {domain.prior}",
        **more,
    )


def _published_row(method: str, domain: Domain, task: str) -> str | None:
    """The row of ``BASELINES`` or ``PRESETS`` with the numbers of the publication for a domain."""
    if method == "pnp-cm" and domain.paper == "fastmri-pdfs":
        return f"fastmri/pdfs-{task}"
    origins = {"lsun-bedroom": ("lsun", "official")}.get(domain.paper, ("official",))
    for origin in origins if domain.photo else ("fastmri", "official"):
        if f"{method}/{origin}/{task}" in BASELINES:
            return f"{method}/{origin}/{task}"
    return None


def main(domain: Domain) -> list[Spec]:
    """Every method on every task of a data set: tuned numbers, for PnP-CM also the published."""
    found = []
    for task, row in domain.tasks.items():
        methods = _own_methods(domain, task) if domain.own else _tuned_methods(domain, task)
        for prior, some in methods.items():
            spec = _spec("main", replace(domain, prior=prior), some, tasks={task: row})
            more = "-diffusion" if prior != domain.prior else ""
            found.append(replace(spec, name=f"main-{domain.name}-{task}{more}"))
    return found


def _own_methods(domain: Domain, task: str) -> dict[str, dict[str, MethodRow]]:
    """Prior → methods with published numbers; those of diffusion models use ``teacher``."""
    found: dict[str, dict[str, MethodRow]] = {}
    for label, method in METHODS.items():
        preset, kinds = _published_row(method, domain, task), SOLVERS[method].kinds
        control = task if method == "cosign" else None
        if preset is None or (control and control not in _controls(domain.prior)):
            continue
        diffusion = bool(kinds) and "consistency" not in kinds
        prior = domain.teacher if diffusion and domain.teacher is not None else domain.prior
        found.setdefault(prior, {})[label] = MethodRow(preset=preset, control=control)
    return found


def _tuned_methods(domain: Domain, task: str) -> dict[str, dict[str, MethodRow]]:
    """The shipped prior → methods with the numbers of the fair tuning."""
    methods = {}
    for label, method in (METHODS | OTHERS).items():
        control = "{task}" if method == "cosign" else None
        has_prior = control is None or task in _controls(domain.prior)
        if f"{method}/{domain.prior}/{task}" in BASELINES and has_prior:
            tuned = f"{method}/{{prior}}/{{task}}"
            methods[label] = MethodRow(preset=tuned, trials=12, control=control)
        if label == "PnP-CM":
            origin = "official" if domain.photo else "fastmri"
            published = f"{method}/{origin}/{{task}}"
            methods["PnP-CM, shipped preset"] = MethodRow(preset="{prior}/{task}")
            methods["PnP-CM, published numbers"] = MethodRow(preset=published)
            methods["pnpcm, default"] = MethodRow()
    return {domain.prior: methods}


def _controls(prior: str) -> dict[str, Path]:
    """ControlNets of a prior of the catalogue, by task."""
    return controls(prior) if is_name(prior) else {}


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
    return [_spec("ablation", domain, cells, tasks=tasks, pictures=1)]


def momentum(domain: Domain) -> list[Spec]:
    """Momentum against the number of evaluations, R = 8."""
    if domain.paper != "fastmri-pd":
        return []
    cells = {
        "no momentum": MethodRow(preset="fastmri/pd-r8", settings={"mu": 0.0}),
        "momentum": MethodRow(preset="fastmri/pd-r8"),
    }
    if not domain.own:
        cells |= {
            "no momentum, shipped preset": MethodRow(preset="mri/r8", settings={"mu": 0.0}),
            "momentum, shipped preset": MethodRow(preset="mri/r8"),
        }
    return [_spec("momentum", domain, cells, tasks={"r8": domain.tasks["r8"]}, steps=(4, 10, 20),
                  pictures=1)]  # fmt: skip


def nfe_noise(domain: Domain) -> list[Spec]:
    """Evaluations × noise of the linear tasks."""
    if not domain.photo:
        return []
    tasks = {task: domain.tasks[task] for task in LINEAR}
    row = MethodRow(preset="celeba-hq/{task}") if domain.own else MethodRow(method="pnp-cm")
    methods = {"PnP-CM": row}
    return [
        _spec(
            "nfe-noise",
            domain,
            methods,
            tasks=tasks,
            steps=(2, 4, 8),
            sigma_y=(0.025, 0.05),
            pictures=0,
        )
    ]


def sensitivity(domain: Domain) -> list[Spec]:
    """Deblurring with all nine hyperparameters multiplied by random factors up to ±25 %."""
    if domain.paper not in ("celeba-hq", "lsun-bedroom"):
        return []
    tasks = {"deblur-gauss": domain.tasks["deblur-gauss"]}
    return [_spec("sensitivity", domain, variants(), tasks=tasks, pictures=0)]


def figures(domain: Domain) -> list[Spec]:
    """The rows of the main table with more pictures; of both, ``all`` computes the first."""
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


def specs(
    table: str,
    *,
    prior: str | None = None,
    data: str | None = None,
    **own: str | None,
) -> list[Spec]:
    """The specs of a table, or of ``all``; ``own``: see :func:`domains`."""
    where = domains(prior, data, **own)
    found: dict[str, Spec] = {}
    for name in TABLES if table == "all" else (table,):
        for spec in (spec for one in where for spec in TABLES[name](one)):
            found.setdefault(spec.name, spec)  # main has the rows of figures
    return list(found.values())


REFERENCES = {
    "main": "PnP-CM",
    "ablation": "injection, momentum",
    "momentum": "momentum",
    "nfe-noise": "PnP-CM",
    "sensitivity": UNCHANGED,
}
"""The method of a table that the others are compared with; also the tables that have rows."""


def table_of(spec: Spec) -> str:
    """The table that a spec is a part of."""
    return next(name for name in REFERENCES if spec.name.startswith(f"{name}-"))


def merged(name: str, parts: Sequence[Spec]) -> dict[str, Any]:
    """One spec, as a dictionary, that contains the names of all ``parts``, for their report."""
    found: dict[str, Any] = {"name": name, "words": "Tables of the PnP-CM paper"}
    for spec in (part.to_dict() for part in parts):
        for key in ("data", "tasks", "methods"):
            found[key] = found.get(key, {}) | spec[key]
        for key in ("priors", "metrics", "sigma_y", "steps", "seeds"):
            found[key] = list(dict.fromkeys((*found.get(key, ()), *spec[key])))
    return found
