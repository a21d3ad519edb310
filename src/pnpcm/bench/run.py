"""bench: computes the rows of a spec that are not in the store, here or on a dask cluster."""

from __future__ import annotations

import io
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pnpcm import __version__
from pnpcm.baselines import BASELINES, Baseline
from pnpcm.bench.scans import Measured
from pnpcm.bench.scores import conventions, score
from pnpcm.bench.spec import BEFORE, MethodRow, Row, Spec, TaskRow, digest, matches
from pnpcm.bench.store import LOST, Store
from pnpcm.catalogue import load_prior
from pnpcm.cluster import computed
from pnpcm.errors import ArgumentError, PnPCMError
from pnpcm.io.files import to_picture, write_atomically, write_json
from pnpcm.presets import PRESETS, Preset
from pnpcm.priors.controlled import fingerprint
from pnpcm.problems.measurement import Measurement, simulate
from pnpcm.recon import Options
from pnpcm.recon.photo import restore_with
from pnpcm.recon.plan import Priors
from pnpcm.training.pictures import visible

SOLVER_SEED = 7_000_000
"""Offset of the solver's seeds: its noise is independent of that of the measurement."""
MANY = 1_000_000
"""Image i of seed s is measured with seed MANY s + i."""
PICTURES = "pictures"


class Chosen(NamedTuple):
    """The prior of a row: its name, its ControlNet for CoSIGN, and its device."""

    name: str
    control: str | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Job:
    """All that one row needs on any machine: plain values, the true image, a measured scan."""

    row: Row
    key: str
    x: Tensor
    task: TaskRow
    method: MethodRow
    metrics: tuple[str, ...]
    picture: bool
    weights: tuple[str, ...]
    prior: Chosen
    threads: int = 1
    measured: Measured | None = None


@dataclass
class Progress:
    """Counts of a run, for ``watch``."""

    total: int
    done: int = 0
    failed: int = 0
    row: Row | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def remaining(self) -> float:
        """Expected seconds until the end."""
        elapsed = time.perf_counter() - self.started
        return elapsed / self.done * (self.total - self.done) if self.done else float("nan")


def bench(
    spec: Spec,
    out: Path,
    *,
    limit: int | None = None,
    only: Sequence[str] = (),
    shard: str | None = None,
    client: Any = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Store:
    """Compute the missing rows of ``spec`` and add them to the store in ``out``.

    ``limit``: images per data set. ``only``: patterns of rows. ``shard``: "i/n", every n-th
    measurement from the i-th on, into a file of its own. ``client``: of dask.distributed, which
    computes the rows on its workers; the store is written by this process. Rows are the same for
    every number of workers and shards.
    """
    part = shard_of(shard)
    store = Store(out, f"{part[0]}/{part[1]}")
    done = store.keys()
    rows = [(r, k) for r, k in planned(spec, limit=limit, only=only, part=part) if k not in done]
    jobs = (job_of(spec, row, key) for row, key in rows)  # images are read when they are needed
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{spec.name}.spec.json", spec.to_dict())
    progress = Progress(len(rows))
    watch(progress)
    with store.writing() as add:
        for job, found, lost in computed(client, compute, jobs):
            saved, pictures = found or (_not_computed(job, lost), {})
            for name, data in pictures.items():
                folder = out / PICTURES
                folder.mkdir(exist_ok=True)
                write_atomically(folder / name, lambda p, data=data: p.write_bytes(data))  # type: ignore[misc]
            add(saved | {"spec": spec.name, "image": spec.images(job.row.data).name(job.row.image)})
            progress.done += 1
            progress.failed += saved["failed"] is not None
            progress.row = job.row
            watch(progress)
    return store


def planned(
    spec: Spec,
    *,
    limit: int | None = None,
    only: Sequence[str] = (),
    part: tuple[int, int] = (0, 1),
) -> Iterator[tuple[Row, str]]:
    """Rows of the spec with their keys. Reads every image, for its hash."""
    number, chosen = -1, 0
    last: tuple[Any, ...] = ()
    for row in spec.rows(limit):
        if row.measurement != last:
            last, number = row.measurement, number + 1
        if only and not matches(row, tuple(only)):
            continue
        chosen += 1
        if number % part[1] == part[0]:
            yield row, key_of(spec, row)
    if not chosen:
        first = next(spec.rows(limit), None)
        example = "" if first is None else f"; names are like {first.name}"
        raise ArgumentError(f"only is {list(only)}, which fits no row of {spec.name}{example}")


def finished(
    spec: Spec, store: Store, *, limit: int | None = None, only: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Rows of the store that belong to the spec, in its order.

    The store may have other rows as well, e.g. those of earlier weights.
    """
    keys = [key for _, key in planned(spec, limit=limit, only=only)]
    wanted = set(keys)
    stored = {row["key"]: row for row in store.rows() if row["key"] in wanted}
    return [stored[key] for key in keys if key in stored]


def job_of(spec: Spec, row: Row, key: str) -> Job:
    """The job of a row."""
    return Job(
        row=row,
        key=key,
        x=spec.images(row.data)[row.image],
        task=spec.tasks[row.task],
        method=spec.methods[row.method],
        metrics=tuple(spec.metrics),
        picture=row.image < spec.pictures and row.seed == spec.seeds[0],
        threads=spec.threads,
        prior=prior_of(spec, row),
        weights=weights_of(prior_of(spec, row)),
        measured=spec.images(row.data).measured(row.image),
    )


def prior_of(spec: Spec, row: Row) -> Chosen:
    """The prior of a row."""
    return Chosen(row.prior, spec.methods[row.method].control_for(row.prior, row.task), spec.device)


def key_of(spec: Spec, row: Row) -> str:
    """Hash of the names of a row and of all that its result depends on.

    These are image, task, noise, seed, weights, numbers and metrics. Numbers that `pnpcm restore`
    chooses depend on the presets and tuned rows of the prior.
    """
    method = spec.methods[row.method]
    preset = method.preset_for(row.prior, row.task)
    return digest(
        row.name,
        spec.images(row.data).digest(row.image),
        spec.tasks[row.task].to_dict() | {"sigma_y": row.sigma_y},
        weights_of(prior_of(spec, row)),
        method.choices | {"steps": row.steps},
        _numbers_of(row.prior) if preset is None else _row_of(preset).solver.to_dict(),
        conventions(spec.metrics),
    )


def _row_of(preset: str) -> Baseline | Preset:
    return BASELINES[preset] if preset in BASELINES else PRESETS[preset]


@cache
def _numbers_of(prior: str) -> str:
    """Hash of the presets and tuned rows of a prior, of which `pnpcm restore` chooses."""
    presets = {n: p.solver.to_dict() for n, p in PRESETS.items() if p.prior == prior}
    rows = {n: b.solver.to_dict() for n, b in BASELINES.items() if b.tuned_on in (prior, None)}
    return digest(presets, rows)


def shard_of(text: str | None) -> tuple[int, int]:
    """ "i/n" as numbers; "auto": the task of a SLURM job array; None: everything."""
    if text is None:
        return 0, 1
    if text == "auto":
        try:
            first = int(os.environ.get("SLURM_ARRAY_TASK_MIN", "0"))
            i = int(os.environ["SLURM_ARRAY_TASK_ID"]) - first
            return i, int(os.environ["SLURM_ARRAY_TASK_COUNT"])
        except (KeyError, ValueError):
            raise ArgumentError(
                "shard is 'auto', but SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT are not set; "
                "run it in a job array, or give i/n"
            ) from None
    first_word, _, second = text.partition("/")
    if not (first_word.isdigit() and second.isdigit() and int(first_word) < int(second)):
        raise ArgumentError(f"shard is {text!r}, expected i/n with 0 ≤ i < n, e.g. 0/4")
    return int(first_word), int(second)


# computing ---------------------------------------------------------------------------------------
def compute(job: Job) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The row of the store, and PNG files by name. Failures are rows as well."""
    saved = _unsolved(job)
    pictures: dict[str, bytes] = {}
    with _threads(job.threads):
        try:
            _check_weights(job)
            measured = measured_of(job.row, job.x, job.task, job.measured)
            saved["y_hash"] = digest(torch.view_as_real(y) if (y := measured.y).is_complex() else y)
            more, pictures = _solve(job, measured)
            saved |= more
        except PnPCMError as error:  # refused or diverged: that is a result too
            saved["failed"] = str(error)
        except Exception as error:  # one faulty row must not end a run of thousands
            saved["failed"] = f"{LOST}{type(error).__name__}: {error}"
    saved["environment"] = environment(job.threads)
    saved["finished"] = _now()
    return saved, pictures


def _unsolved(job: Job) -> dict[str, Any]:
    """The columns that are known before the reconstruction."""
    row = job.row
    return {
        "key": job.key, "data": row.data, "number": row.image, "task": row.task,
        "sigma_y": row.sigma_y, "seed": row.seed, "prior": row.prior, "method": row.method,
        "steps": row.steps, "trials": job.method.trials, "failed": None,
    }  # fmt: skip


def _not_computed(job: Job, reason: str | None) -> dict[str, Any]:
    """The row of a job whose workers died, which the next run computes."""
    return _unsolved(job) | {"failed": f"{LOST}{reason}", "finished": _now()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_weights(job: Job) -> None:
    """The key of a row contains the weights: a worker with other ones computes another row."""
    try:
        found = weights_of(job.prior)
    except PnPCMError as error:
        raise RuntimeError(f"on {platform.node()}: {error}") from error
    if found != job.weights:
        raise RuntimeError(
            f"prior {job.row.prior!r} has other weights on {platform.node()}; install the same "
            "version of pnpcm and the same files on all machines"
        )


def _solve(job: Job, measured: Measurement) -> tuple[dict[str, Any], dict[str, bytes]]:
    row, wanted = job.row, job.method
    if wanted.method == BEFORE:
        return _before(job, measured)
    options = options_of(row, wanted, job.prior.device)
    iterates: list[Tensor] = []
    done = restore_with(
        measured.y,
        measured.task,
        options,
        priors_of(job.prior),
        reference=job.x.to(job.prior.device),
        callback=(lambda step: iterates.append(step.x.detach().clone())) if job.picture else None,
    )
    config = done.plan.config.to_dict()
    saved = {
        "scores": score(done.x.cpu(), job.x, job.metrics, job.measured),
        "nfe": done.result.nfe,
        "vjps": done.result.vjps,
        "seconds": {k: round(v, 4) for k, v in done.seconds.items()},
        "memory": _memory(),
        "residual": done.check.ratio,
        "solver": done.plan.method,
        "config": config,
        "config_hash": digest(config),
        "parameters_from": done.plan.parameters_from,
        "notes": list(done.notes),
    }
    return saved, _pictures(job, measured, done.x, iterates) if job.picture else {}


def _before(job: Job, measured: Measurement) -> tuple[dict[str, Any], dict[str, bytes]]:
    start = time.perf_counter()
    x = measured.task.baseline(measured.task.problem(measured.y))
    saved = {
        "scores": score(x, job.x, job.metrics),
        "nfe": 0,
        "vjps": 0,
        "seconds": {"solve": round(time.perf_counter() - start, 4)},
        "memory": _memory(),
        "solver": BEFORE,
        "parameters_from": measured.task.baseline_name,
    }
    return saved, _pictures(job, measured, x, ()) if job.picture else {}


def _pictures(
    job: Job, measured: Measurement, x: Tensor, iterates: Sequence[Tensor]
) -> dict[str, bytes]:
    """Result, truth, image before and iterates as PNG files by name."""
    before = measured.task.baseline(measured.task.problem(measured.y))
    shared = digest(*job.row.measurement)
    found = {
        f"{job.key}.png": _png(x),
        f"{shared}.truth.png": _png(job.x),
        f"{shared}.before.png": _png(before),
    }
    for k, iterate in enumerate(_some(iterates, 8)):
        if iterate.shape == x.shape:
            found[f"{job.key}.{k}.png"] = _png(iterate)
    return found


def options_of(row: Row, method: MethodRow, device: str = "cpu") -> Options:
    """What a user of `pnpcm restore` would choose for this row."""
    return Options(
        device=device,
        method=method.method,
        preset=method.preset_for(row.prior, row.task),
        aim=method.aim,
        settings=method.settings,
        samples=method.samples,
        steps=row.steps,
        sigma_y=row.sigma_y,
        seed=SOLVER_SEED + MANY * row.seed + row.image,
    )


def measured_of(
    row: Row, x: Tensor, task: TaskRow, measured: Measured | None = None
) -> Measurement:
    """The measurement of an image, a function of its seed: the same for all methods.

    Of a scan: the samples of its k-space that the mask keeps, without added noise.
    """
    shape = (x.shape[1], x.shape[2], x.shape[3])
    if measured is not None:
        scan = task.of(shape, measured.coil_maps)
        kept: Tensor = scan.operator(shape).mask  # type: ignore[attr-defined]
        return Measurement(measured.kspace * kept[:, None], scan, row.sigma_y)
    wanted = task.of(shape)
    return simulate(x, wanted, row.sigma_y, seed=MANY * row.seed + row.image)


@cache
def priors_of(chosen: Chosen) -> Priors:
    """The priors of a name, loaded once per process."""
    name, control, device = chosen
    if control is None:
        return Priors(name, device)
    return Priors(load_prior(name, control=control).to(device))  # type: ignore[attr-defined]


@cache
def weights_of(chosen: Chosen) -> tuple[str, ...]:
    """Fingerprints of the priors of a name."""
    priors = priors_of(chosen)
    each = [priors((kind,)) for kind in priors.kinds]
    return tuple(fingerprint(p) for p in each if isinstance(p, nn.Module))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def environment(threads: int) -> dict[str, str]:
    """Versions and machine of a row."""
    return {
        "pnpcm": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "threads": str(threads),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _memory() -> int:
    """Largest resident set of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _png(x: Tensor) -> bytes:
    file = io.BytesIO()
    to_picture(visible(x)[0].clamp(-1, 1)).save(file, "PNG")
    return file.getvalue()


def _some(items: Sequence[Tensor], count: int) -> Sequence[Tensor]:
    """At most ``count`` of the items, evenly spaced, the last one included."""
    if len(items) <= count:
        return items
    return [items[round(k * (len(items) - 1) / (count - 1))] for k in range(count)]
