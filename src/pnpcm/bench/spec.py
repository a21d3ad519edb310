"""Spec of a benchmark: methods × tasks × priors × noise levels × steps × images × seeds.

A spec is a YAML file. Paths in it start from its own folder or from ``$PNPCM_DATA``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.baselines import BASELINES
from pnpcm.bench.scans import Measured, Scans
from pnpcm.bench.scores import METRICS
from pnpcm.core import Config
from pnpcm.errors import ArgumentError
from pnpcm.io.yaml_files import build, read_mapping
from pnpcm.mri import birdcage_maps
from pnpcm.mri.masks import MASKS
from pnpcm.names import Table
from pnpcm.operators import MultiCoilMRI
from pnpcm.places import existing
from pnpcm.presets import PRESETS
from pnpcm.problems import TASKS, Custom, Problem, Task
from pnpcm.problems.choice import build as build_task
from pnpcm.solvers import SOLVERS
from pnpcm.training.data import SOURCES as TRAINING_SOURCES
from pnpcm.training.sources import Folder

LARGEST_SIDE = 4096
SOURCES: Table[Any] = Table("source", TRAINING_SOURCES | {"scans": Scans})
"""Sources of training images, and measured scans."""
BEFORE = "before"
"""The image before reconstruction as a method: enlarged, holes filled, or y itself."""


@dataclass(frozen=True)
class DataSet(Config):
    """Images of a source (row of ``SOURCES``: folder, npz, lmdb, fastmri, magnitude, scans).

    ``count``: number of images, evenly spaced; None: all. ``shrink``: means of n×n pixels first.
    ``side``: centre crop. ``words``: what the images are, for captions.
    """

    path: str
    source: str = "folder"
    count: int | None = None
    shrink: int = 1
    side: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    words: str = ""

    def __post_init__(self) -> None:
        _ = SOURCES[self.source]  # raises, with the nearest name
        for name, most in (("count", None), ("shrink", LARGEST_SIDE), ("side", LARGEST_SIDE)):
            value = getattr(self, name)
            if value is not None and (value < 1 or (most is not None and value > most)):
                end = "from 1 on" if most is None else f"from 1 to {most}"
                raise ArgumentError(f"{name} of a data set must be {end}, got {value}")
        if self.source == "scans" and (self.shrink > 1 or self.side is not None):
            raise ArgumentError(
                "shrink or side is given for measured scans, whose k-space does not change; use "
                "options: {size: …}"
            )


@dataclass(frozen=True, eq=False)
class Scan(Custom):
    """A simulated scan; the image before reconstruction is the zero-filled one, Aᴴy."""

    baseline_name = "zero-filled"

    def baseline(self, problem: Problem) -> Tensor:
        return cast(MultiCoilMRI, problem.operator).A_adjoint(problem.y)


@dataclass(frozen=True)
class TaskRow(Config):
    """A task (row of ``TASKS``, or "mri": simulated coils) with its ``options``.

    ``sigma_y``: noise levels of this task; empty: those of the spec.
    """

    task: str
    options: dict[str, Any] = field(default_factory=dict)
    sigma_y: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.task == "mri":
            _scan((2, 8, 320), **self.options)
        else:
            build_task(TASKS[self.task], self.options)

    def of(self, shape: tuple[int, int, int], coil_maps: Tensor | None = None) -> Task:
        """The task for images of this shape; ``coil_maps``: of a scan, not simulated ones."""
        if self.task == "mri":
            return Scan(_scan(shape, coil_maps=coil_maps, **self.options))
        return build_task(TASKS[self.task], self.options)


@dataclass(frozen=True)
class MethodRow(Config):
    """How a reconstruction is made; fields as in ``Options``. None: as ``pnpcm restore`` chooses.

    ``method``: row of ``SOLVERS``, or ``BEFORE``. ``preset``: row of ``PRESETS`` or ``BASELINES``.
    ``control``: ControlNet of the prior, for CoSIGN. "{prior}" and "{task}" in these two are
    replaced by the names of the prior and of the task in the spec. ``steps``: numbers of
    evaluations of this method; empty: those of the spec. ``tasks``: tasks of the spec that it is
    computed for; empty: all. ``trials``: number of trials of the search that its numbers come from,
    for tables; None: not stated.
    """

    method: str | None = None
    preset: str | None = None
    aim: str = "fidelity"
    settings: dict[str, Any] = field(default_factory=dict)
    samples: int = 1
    control: str | None = None
    steps: tuple[int | None, ...] = ()
    tasks: tuple[str, ...] = ()
    trials: int | None = None

    def __post_init__(self) -> None:
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in self.settings.items()}
        object.__setattr__(self, "settings", plain)
        if self.method == BEFORE:
            others = (self.preset, self.control, self.settings, self.steps, self.trials)
            if any(others) or self.samples != 1 or self.aim != "fidelity":
                raise ArgumentError(f"method is {BEFORE!r}, which has no other field than tasks")
        elif self.method is not None:
            _ = SOLVERS[self.method]

    @property
    def choices(self) -> dict[str, Any]:
        """What a result depends on, without the number of steps, which a row states."""
        return self.to_dict() | {"trials": None, "tasks": None, "steps": None}

    def serves(self, task: str) -> bool:
        """Whether the method is computed for this task of the spec."""
        return not self.tasks or task in self.tasks

    def preset_for(self, prior: str, task: str) -> str | None:
        """The name of the preset, of a row that exists."""
        name = _filled("preset", self.preset, prior, task)
        if name is not None and name not in BASELINES:
            _ = PRESETS[name]  # raises, with the nearest name
        return name

    def control_for(self, prior: str, task: str) -> str | None:
        """The name of the ControlNet."""
        return _filled("control", self.control, prior, task)


def _filled(field_name: str, text: str | None, prior: str, task: str) -> str | None:
    try:
        return None if text is None else text.format(prior=prior, task=task)
    except (KeyError, ValueError, IndexError) as error:
        raise ArgumentError(
            f"{field_name} is {text!r}, in which only {{prior}} and {{task}} are replaced"
        ) from error


@dataclass(frozen=True)
class Row:
    """One reconstruction of a benchmark: names of the parts of a spec, and the image's number."""

    data: str
    image: int
    task: str
    sigma_y: float
    seed: int
    prior: str
    method: str
    steps: int | None = None

    @property
    def measurement(self) -> tuple[Any, ...]:
        """What the measurement depends on: rows with the same value share it."""
        return (self.data, self.image, self.task, self.sigma_y, self.seed)

    @property
    def name(self) -> str:
        """The row in words, for filters and messages."""
        steps = "" if self.steps is None else f"@n{self.steps}"
        where = f"{self.data}/{self.image}/{self.task}/s{self.sigma_y:g}/{self.prior}"
        return f"{where}/{self.method}{steps}/{self.seed}"


@dataclass(frozen=True)
class Spec(Config):
    """A benchmark. ``steps``: numbers of evaluations; None: the method's own.

    ``pictures``: number of images of each data set whose results are kept for the report.
    ``threads``: of every process; with one, rows do not depend on the number of cores.
    ``skip``: patterns of rows (see ``Row.name``) that are left out. ``device``: of the solver.
    """

    name: str
    data: dict[str, DataSet]
    tasks: dict[str, TaskRow]
    methods: dict[str, MethodRow]
    priors: tuple[str, ...] = ("natural",)
    sigma_y: tuple[float, ...] = (0.05,)
    steps: tuple[int | None, ...] = (None,)
    seeds: tuple[int, ...] = (0,)
    metrics: tuple[str, ...] = ("psnr", "ssim", "lpips-vgg")
    pictures: int = 2
    threads: int = 1
    skip: tuple[str, ...] = ()
    words: str = ""
    folder: str = "."
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, cls in (("data", DataSet), ("tasks", TaskRow), ("methods", MethodRow)):
            object.__setattr__(self, name, _rows(name, getattr(self, name), cls))
        for name in ("priors", "sigma_y", "steps", "seeds", "metrics"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ArgumentError(
                    f"{name} of the spec is {list(values)}, expected at least one value, each once"
                )
        if self.threads < 1:
            raise ArgumentError(f"threads of the spec is {self.threads}, expected 1 or more")
        if not self.name or "/" in self.name:
            raise ArgumentError(f"name of the spec is {self.name!r}, expected a name for files")
        for metric in self.metrics:
            _ = METRICS[metric]
        for level in (*self.sigma_y, *(s for t in self.tasks.values() for s in t.sigma_y)):
            if not 0 <= level <= 1:
                raise ArgumentError(f"sigma_y must be from 0 to 1, got {level:g}")
        for row in self.methods.values():
            for prior, task in product(self.priors, row.tasks or self.tasks):
                _ = self.tasks[task]  # raises, with the nearest name
                row.preset_for(prior, task)
                row.control_for(prior, task)

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        for name in ("data", "tasks", "methods"):
            plain[name] = {key: row.to_dict() for key, row in getattr(self, name).items()}
        return plain

    @cached_property
    def _images(self) -> dict[str, Images]:
        return {name: Images(row, Path(self.folder)) for name, row in self.data.items()}

    def images(self, data: str) -> Images:
        """The images of a data set, opened at the first call."""
        return self._images[data]

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """All rows, those of one measurement in succession. ``limit``: images per data set."""
        if limit is not None and limit < 1:
            raise ArgumentError(f"limit is {limit}, expected 1 image per data set or more")
        for data in self.data:
            count = len(self.images(data))
            count = count if limit is None else min(limit, count)
            for image, (task, wanted), seed in product(
                range(count), self.tasks.items(), self.seeds
            ):
                for level in wanted.sigma_y or self.sigma_y:
                    for prior, (method, chosen) in product(self.priors, self.methods.items()):
                        for steps in (chosen.steps or self.steps) if chosen.serves(task) else ():
                            row = Row(data, image, task, level, seed, prior, method, steps)
                            if not matches(row, self.skip):
                                yield row


def matches(row: Row, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern occurs in the name of the row, or fits it with ``*`` and ``?``."""
    from fnmatch import fnmatchcase

    return any(fnmatchcase(row.name, f"*{pattern}*") for pattern in patterns)


def read_spec(path: str | Path) -> Spec:
    """The spec in a YAML file."""
    path = Path(path)
    values = read_mapping(path, "spec", "benchmarks/specs/")
    values = {"name": path.stem, "folder": str(path.parent)} | values
    if isinstance(values.get("methods"), list):
        values["methods"] = {name: {"method": name} for name in values["methods"]}
    found: Spec = build(Spec, values)
    return found


def _rows(name: str, rows: Any, cls: type[Config]) -> Table[Any]:
    if not isinstance(rows, dict) or not rows:
        raise ArgumentError(f"{name} of the spec must map names to fields, got {rows!r}")
    found = {}
    for key, values in rows.items():
        if not isinstance(values, cls | dict):
            wanted = ", ".join(f.name for f in fields(cls))
            raise ArgumentError(f"{name}.{key} is {values!r}, expected the fields {wanted}")
        found[str(key)] = build(cls, values) if isinstance(values, dict) else values
    return Table(name, found)


def _scan(
    shape: tuple[int, int, int],
    *,
    acceleration: int = 4,
    mask: str = "gaussian1d",
    lines: int | None = None,
    coils: int = 8,
    seed: int = 0,
    reference: bool = False,
    coil_maps: Tensor | None = None,
) -> MultiCoilMRI:
    """Coils, simulated ones by default, and a mask of columns.

    ``lines``: central ones, default 10 of 128. ``reference``: the mask of the released code.
    """
    size = (shape[1], shape[2])
    generator = torch.Generator().manual_seed(seed)
    lines = round(10 * size[1] / 128) if lines is None else lines
    more = {"reference": True} if reference else {}
    columns = MASKS[mask](size[1], acceleration, lines, generator=generator, **more)
    return MultiCoilMRI(birdcage_maps(coils, size) if coil_maps is None else coil_maps, columns)


# images ------------------------------------------------------------------------------------------
class Images:
    """The images of a data set, each with its name and a digest of its values."""

    def __init__(self, row: DataSet, folder: Path = Path()) -> None:
        self.row = row
        path = existing(row.path, folder)
        if not path.exists():
            raise ArgumentError(f"path of the data set is {path}, which does not exist")
        try:
            self._source = SOURCES[row.source](path, **row.options)
        except TypeError as error:
            raise ArgumentError(f"options of the source {row.source!r}: {error}") from error
        self._digests: dict[int, str] = {}
        self._last: tuple[int, Tensor] = (-1, torch.empty(0))
        total = len(self._source)
        count = total if row.count is None else min(row.count, total)
        self._numbers = [i * total // count for i in range(count)]

    def __len__(self) -> int:
        return len(self._numbers)

    def name(self, i: int) -> str:
        """The file of an image, or its number."""
        number, paths = self._numbers[i], getattr(self._source, "paths", None)
        if isinstance(self._source, Scans):
            return self._source.name(number)
        return str(number) if paths is None else paths[number].name

    def __getitem__(self, i: int) -> Tensor:
        """The i-th image ``(1, C, H, W)`` in [-1, 1]; the last one is kept."""
        if self._last[0] != i:
            self._last = i, self._read(i)
            if isinstance(self._source, Folder):
                self._source.forget()
        return self._last[1]

    def digest(self, i: int) -> str:
        """A hash of the values of the i-th image."""
        if i not in self._digests:
            source, options = self._source, self.row.options
            if isinstance(source, Scans):  # preparing a scan takes seconds, reading it does not
                self._digests[i] = digest(source.values(self._numbers[i]), options)
            else:
                self._digests[i] = digest(self[i])
        return self._digests[i]

    def measured(self, i: int) -> Measured | None:
        """The measurement of the i-th image; None if it is simulated."""
        source = self._source
        return source.measured(self._numbers[i]) if isinstance(source, Scans) else None

    def _read(self, i: int) -> Tensor:
        number = self._numbers[i]
        x = self._source.image(number, torch.Generator().manual_seed(number))
        x = x.float() / 127.5 - 1 if x.dtype == torch.uint8 else x.float()
        x = F.avg_pool2d(x[None], self.row.shrink) if self.row.shrink > 1 else x[None]
        side = self.row.side
        if side is None:
            return x
        if min(x.shape[-2:]) < side:
            raise ArgumentError(
                f"image {self.name(i)} is {x.shape[-2]}×{x.shape[-1]}, smaller than side {side}"
            )
        top, left = ((n - side) // 2 for n in x.shape[-2:])
        return x[..., top : top + side, left : left + side].contiguous()


def digest(*parts: Any) -> str:
    """A short hash of plain values and tensors."""
    found = hashlib.blake2b(digest_size=12)
    for part in parts:
        if isinstance(part, Tensor):
            found.update(repr((tuple(part.shape), str(part.dtype))).encode())
            found.update(part.detach().cpu().contiguous().numpy().tobytes())
        else:
            found.update(json.dumps(part, sort_keys=True, default=str).encode())
    return found.hexdigest()
