"""Scans: ``reconstruct`` computes a volume from raw k-space, in batches of slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm import __version__
from pnpcm.core import Prior, Step
from pnpcm.errors import ArgumentError
from pnpcm.io.reading import Budget
from pnpcm.io.staging import staging
from pnpcm.linalg import to_channels
from pnpcm.mri.masks import MaskChoice
from pnpcm.mri.plausibility import kspace_warnings
from pnpcm.mri.preparation import Preparation, SliceOptions, Slices
from pnpcm.mri.readers import HDF5_SUFFIXES, SUFFIXES, read_scan
from pnpcm.mri.sampling import describe_mask
from pnpcm.mri.scan import Scan, crop_centre, geometry_of
from pnpcm.mri.scores import Scores, fastmri_scores, paper_scores
from pnpcm.mri.writers import Volume, volume_files, write_formats
from pnpcm.names import count_of
from pnpcm.operators.traits import Misfit
from pnpcm.priors import with_sets
from pnpcm.problems import Custom, Problem
from pnpcm.recon.check import Check, check
from pnpcm.recon.inputs import find_inputs
from pnpcm.recon.options import Options
from pnpcm.recon.plan import Plan, Priors, plan, prior_words
from pnpcm.recon.record import Outcome, Request, Watch, publish_result, unwatched
from pnpcm.recon.run import rounded, run, timed
from pnpcm.transforms import ifft2c

DEFAULT_PRIOR = "mri"
SAMPLE = 40
"""Bytes per pixel of every sample of a batch: complex numbers in up to five copies."""
Solve = Callable[[Slices, list[list[int]]], Tensor]
"""From slices and ``seeds[sample][slice]`` to images ``(samples, B, 2, H, W)``."""
Page = dict[str, Tensor | None]
"""Results of one slice: image, std, reference, rss, support."""


def reconstruct(
    scan: Scan | str | Path,
    prior: str | Path | Prior | None = None,
    *,
    options: Options | None = None,
    preparation: SliceOptions | None = None,
    slices: Sequence[int] | None = None,
    solve: Solve | None = None,
    callback: Callable[[int], None] | None = None,
    **choices: Any,
) -> Volume:
    """Reconstruct the slices of ``scan``; the volume has the units and the phase of the scan.

    >>> pnpcm.reconstruct("knee.h5", mask=mask, steps=8).record["scores"]

    ``choices``: fields of :class:`Options` (``method``, ``steps``, ``samples``, …) and of
    :class:`SliceOptions` (``mask``, ``coil_maps``, …), or ``options`` and ``preparation`` as
    objects. ``sigma_y``: noise on the prior's [0, 1] scale; None: estimated at the edge of
    k-space. The number of slices in a ``batch`` changes only time and memory: each slice has its
    own coil maps, scale, CG steps and generator (seed + its index). ``solve``: function to use
    instead of the plan's solver. ``callback`` is called with the number of finished slices.
    """
    scan = read_scan(scan) if isinstance(scan, str | Path) else scan
    own = {f.name for f in fields(SliceOptions)}
    how = {k: choices.pop(k) for k in list(choices) if k in own}
    if preparation is not None and how:
        raise ArgumentError(f"preparation is given, and {', '.join(how)} as well; give one of them")
    if prior is not None:
        choices["prior"] = prior
    chosen = Options.of(options, choices)
    priors = Priors(DEFAULT_PRIOR if chosen.prior is None else chosen.prior, chosen.device)
    planned = _planned(scan, preparation or SliceOptions(**how), chosen, priors, slices)
    return _volume(*planned, solve=solve, callback=callback)


def _planned(
    scan: Scan,
    how: SliceOptions,
    options: Options,
    priors: Priors,
    slices: Sequence[int] | None,
) -> tuple[ScanPlan, dict[str, float]]:
    """The plan, and the seconds that it took."""
    seconds: dict[str, float] = {}
    before = priors.seconds
    with timed(seconds, "plan"):
        planned = plan_scan(scan, how, options, priors, slices)
    seconds["prior"] = priors.seconds - before
    seconds["plan"] -= seconds["prior"]
    return planned, seconds


@dataclass(frozen=True)
class ScanPlan:
    """The plan of a scan, made on the slice with signal that is nearest to the middle."""

    scan: Scan
    preparation: Preparation
    slices: tuple[int, ...]
    middle: int
    first: Slices
    """The middle slice, prepared."""
    warnings: tuple[str, ...]
    plan: Plan

    def to_dict(self) -> dict[str, Any]:
        """The part of the record that is known before the run."""
        scan = self.scan
        return self.plan.to_dict() | {
            "scan": {
                "name": scan.name,
                "format": scan.format,
                "slices": scan.n_slices,
                "coils": scan.n_coils,
                "kspace": list(scan.size),
                "output": list(self.preparation.crop),
                "protocol": scan.protocol.to_dict(),
            },
            "slices": list(self.slices),
            "sampling": describe_mask(self.first.mask).sentence,
            "preparation": self.preparation.describe(),
        }


def plan_scan(
    scan: Scan,
    how: SliceOptions,
    options: Options,
    priors: Priors,
    slices: Sequence[int] | None = None,
) -> ScanPlan:
    """The plan of :func:`reconstruct` with these arguments."""
    wanted = tuple(range(scan.n_slices)) if slices is None else tuple(slices)
    for i in wanted:
        if not 0 <= i < scan.n_slices:
            raise ArgumentError(f"slices holds {i}, but {scan.name} has 0…{scan.n_slices - 1}")
    if not wanted:
        raise ArgumentError(f"slices is {slices}; give at least one")
    prior = priors(())
    if getattr(getattr(prior, "network", None), "in_channels", 2) != 2:
        raise ArgumentError(
            f"prior {priors.name!r} does not take complex images (2 channels); use the prior mri "
            "or your own"
        )
    convention = getattr(prior, "info", {}).get("scale", "max")
    preparation = Preparation(scan, how, convention)
    middle, kspace = _middle(scan, wanted)
    first = preparation(kspace, [middle])
    one = first.operator.first_set()  # the numbers do not depend on further sets of coil maps
    planned = plan(
        Custom(one),
        Problem(first.y, one),
        options,
        priors,
        noise=float(first.noise_std[0]) / 2,
    )
    warnings = tuple(kspace_warnings(kspace[0]))
    return ScanPlan(scan, preparation, wanted, middle, first, warnings, planned)


@dataclass(frozen=True)
class ScanJob:
    """Reconstruction of the raw files of a run. ``max_pixels``: see :func:`read_scan`."""

    options: Options
    priors: Priors
    how: SliceOptions = field(default_factory=SliceOptions)
    mask: MaskChoice | None = None
    slices: str | None = None
    formats: tuple[str, ...] = ("h5", "nifti", "png", "html")
    reading: Mapping[str, Any] = field(default_factory=dict)
    max_pixels: int | None = None
    watch: Watch = unwatched

    def files(self, target: Path) -> list[str]:
        """Names of all files of a result, without its record."""
        return volume_files(target.stem, self.formats, several=self.options.samples > 1)

    def check(self, path: Path) -> None:
        """Accept all files: a scan may be as long as it is."""

    def unwatched(self) -> ScanJob:
        """The same job for another process."""
        return replace(self, watch=unwatched)

    def choices(self, path: Path) -> dict[str, Any]:
        """The request of the user; a result of another request is computed again."""
        mask = None if self.mask is None else dict(vars(self.mask))
        more = {"pnpcm": __version__, "slices": self.slices, "formats": list(self.formats)}
        given = dict(self.reading) | {k: v for k, v in vars(self.how).items() if k != "mask"}
        found = more | given | {"mask": mask} | self.options.to_dict()
        return found | {"prior": self.priors.name}

    def __call__(self, path: Path, target: Path, request: Request) -> tuple[dict[str, Any], str]:
        """Reconstruct one raw file to the folder of ``target``; returns its record and a report."""
        solved = self.solve(path, target.stem)
        return self.save(solved, target, request), volume_report(solved.volume)

    def solve(
        self, path: Path, name: str, callback: Callable[[Step], None] | None = None
    ) -> SolvedScan:
        """Read and reconstruct one raw file; ``name``: what the result is called.

        ``callback`` is called after each iteration of the solver.
        """
        self.watch(f"{name}, reading", 0, 0)
        scan = read_scan(path, **self.reading, max_pixels=self.max_pixels)
        self.watch(f"{name}, preparing", 0, 0)
        planned, seconds = self._plan(scan)
        volume = _volume(
            planned,
            seconds,
            steps=callback,
            watch=lambda done, total: self.watch(f"{name}, slice", done, total),
        )
        return SolvedScan(planned, replace(volume, name=name))

    def save(self, solved: SolvedScan, target: Path, request: Request) -> dict[str, Any]:
        """Write the files of a result, then its record, which is returned."""
        volume, name = solved.volume, target.stem
        self.watch(f"{name}, writing", 0, 0)
        seconds = volume.record["seconds"]
        with staging(target.parent) as inside:
            with timed(seconds, "write"):
                paths = write_formats(volume, inside, self.formats)
            seconds |= rounded({"write": seconds["write"]})
            content = volume.record | request.to_dict()
            return publish_result(target.parent, name, content, paths)

    def plan(self, path: Path) -> dict[str, Any]:
        """The plan for one file, as plain values."""
        scan = read_scan(path, **self.reading, max_pixels=self.max_pixels)
        planned, _ = self._plan(scan)
        return planned.to_dict() | {"input": str(path), "notes": list(scan.notes)}

    def _plan(self, scan: Scan) -> tuple[ScanPlan, dict[str, float]]:
        size = self.how.crop_first or scan.size
        samples, at_once = self.options.samples, min(self.options.batch, scan.n_slices)
        if samples > 1 and self.max_pixels is None:
            budget = Budget(SAMPLE, move="use fewer samples or a smaller batch")
            what = "pixels (samples × slices of a batch × sides)"
            budget.check(scan.name, (samples, at_once, *size), what)
        mask = None if self.mask is None else self.mask.draw(size)
        how = self.how if mask is None else replace(self.how, mask=mask)
        slices = parse_slices(self.slices, scan.n_slices)
        return _planned(scan, how, self.options, self.priors, slices)


@dataclass(frozen=True, eq=False)
class SolvedScan:
    """A reconstructed file: its plan and its volume."""

    planned: ScanPlan
    volume: Volume

    def before(self) -> Volume:
        """The middle slice without a prior, in the size of the result.

        It is the root of the sum of squares of the zero-filled coil images.
        """
        first = self.planned.first
        coils = ifft2c(first.y[:1]) / first.factor[:1, None, None, None]
        image = crop_centre(coils.abs().square().sum(1).sqrt(), self.planned.preparation.crop)
        slices = geometry_of(
            self.planned.scan.geometry, self.planned.scan.n_slices, (self.planned.middle,)
        )
        return replace(self.volume, image=image + 0j, std=None, reference=None, geometry=slices)


def find_scans(given: Sequence[Path]) -> tuple[list[Path], list[Outcome]]:
    """The files given, and the raw files of folders without results of earlier runs, sorted.

    Names of BART files may have no suffix. The second list are folders without raw files.
    """
    suffixes = (*HDF5_SUFFIXES, *(suffix for suffix in SUFFIXES if suffix != ".hdr"))
    inputs, passed = find_inputs(given, suffixes, what="raw scans", results=False)
    return [one.path for one in inputs], [one for one in passed if one.status == "failed"]


def scan_targets(inputs: Sequence[Path], out: Path) -> list[Path]:
    """The output path of each scan, without the suffix of a format."""
    names = [p.stem if p.suffix.lower() in (*SUFFIXES, *HDF5_SUFFIXES) else p.name for p in inputs]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(
                f"several inputs are called {name!r} and would have the same output name; "
                "reconstruct them into different folders (--out)"
            )
    return [out / f"{name}.scan" for name in names]


def parse_slices(text: str | None, count: int) -> list[int] | None:
    """The indices of ``3``, ``3:10`` or ``3:10:2`` among ``count`` slices; None: all."""
    if text is None:
        return None
    try:
        if ":" not in text:
            return [int(text)]
        found = list(range(count))[slice(*(int(p) if p else None for p in text.split(":")))]
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"slices is {text!r}, expected 3, 3:10 or 3:10:2") from error
    if not found:
        raise ArgumentError(f"slices is {text!r}, which is none of the slices 0…{count - 1}")
    return found


def volume_report(volume: Volume) -> str:
    """A summary of a few lines."""
    record, (slices, height, width) = volume.record, volume.shape
    judged, nfe = Check.from_dict(record["check"]), record["nfe"]
    evaluations = "" if nfe is None else f"{count_of(nfe, 'network evaluation')} per slice, "
    lines = [
        f"{volume.name}: {count_of(slices, 'slice')} of {height}×{width}, {record['sampling']}",
        f"method: {record['method']} ({record['method_from']}), {evaluations}"
        f"prior {prior_words(record['prior'], record['prior_kind'])}, aim {record['aim']}",
        f"noise: sigma_y = {record['sigma_y']:.4g} ({record['sigma_y_from']})",
        f"parameters: {record['parameters_from']}",
        *judged.lines(),
    ]
    for score in record["scores"]:
        lines.append(
            f"{score['convention']}: PSNR {score['psnr']:.2f} dB, SSIM {score['ssim']:.4f}, "
            f"NMSE {score['nmse']:.4f}"
        )
    lines.append("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in record["seconds"].items()))
    return "\n".join([*lines, *(f"note: {note}" for note in record["notes"])])


def _middle(scan: Scan, indices: tuple[int, ...]) -> tuple[int, Tensor]:
    """The slice nearest to the middle that has signal, and its k-space."""
    for i in sorted(indices, key=lambda i: abs(i - indices[len(indices) // 2])):
        kspace = scan.slices([i])
        if bool(kspace.any()):
            return i, kspace
    raise ArgumentError(f"{scan.name} has no signal in any of the selected slices")


def _volume(
    planned: ScanPlan,
    seconds: dict[str, float],
    *,
    solve: Solve | None = None,
    callback: Callable[[int], None] | None = None,
    steps: Callable[[Step], None] | None = None,
    watch: Callable[[float, int], None] = lambda done, total: None,
) -> Volume:
    """The volume; ``watch`` is told the slices done, with parts of the present ones, and all.

    ``callback`` is called with the number of finished slices, ``steps`` after each iteration.
    """
    options = planned.plan.options
    run_notes: dict[str, None] = {}
    nfe: int | None = None
    pages: dict[int, Page] = {}
    misfits: list[Misfit] = []
    probe = torch.empty(0)
    for part, indices in _parts(planned, seconds):
        with timed(seconds, "solve"):
            seeds = [
                [options.seed + i + k * planned.scan.n_slices for i in indices]
                for k in range(options.samples)
            ]
            if solve is not None:
                drawn = solve(part, seeds)
            else:  # a prior for as many images as there are sets of coil maps
                prior = planned.plan.prior and with_sets(planned.plan.prior, part.operator.map_sets)
                plan = replace(planned.plan, prior=prior)
                counts = (len(pages), len(indices), len(planned.slices))
                here = partial(_told, watch, counts)
                result, drawn = run(plan, part.y, part.operator, seeds, callback=steps, watch=here)
                run_notes |= dict.fromkeys(result.notes)
                nfe = max(nfe or 0, result.nfe)
        with timed(seconds, "check"):
            std = part.noise_std
            if options.given_sigma_y is not None:
                std = torch.full_like(std, 2 * options.given_sigma_y)
            noise_std = math.sqrt(float(std.square().mean()))
            misfits.append(part.operator.misfit(drawn[0], part.y, noise_std))
        if planned.middle in indices:  # sets of coil maps combined, in the prior's units
            row = [indices.index(planned.middle)]
            probe = to_channels(part.image(drawn[0])[row] * part.factor[row, None, None])
        pages |= _pages(planned, part, indices, drawn)
        if callback is not None:
            callback(len(pages))
    empty = [i for i in planned.slices if i not in pages]
    notes = [*planned.scan.notes, *planned.plan.notes, *planned.preparation.notes, *run_notes]
    if empty:
        notes.append(f"slices without signal, left empty: {', '.join(map(str, empty))}")
    warnings = [*planned.warnings, *planned.preparation.warnings]
    with timed(seconds, "check"):
        judged = check(probe, misfits, planned.plan.prior, clamped=False, warnings=warnings)
    rows = [pages.get(i) or _blank(planned) for i in planned.slices]

    def stacked(name: str) -> Tensor | None:
        each = [t for row in rows if (t := row[name]) is not None]
        return torch.stack(each) if len(each) == len(rows) else None

    image, reference = stacked("image"), stacked("reference")
    assert image is not None
    with timed(seconds, "scores"):
        scores = _scores(planned, image, stacked("support"), reference, stacked("rss"))
    record = planned.to_dict() | {
        "batch": options.batch,
        "nfe": nfe,  # of a slice, all samples; None for a solver of the user
        "scores": [asdict(s) for s in scores],
        "check": judged.to_dict(),
        "notes": notes,
        "seconds": rounded(seconds),
    }
    return Volume(
        image=image,
        mask=planned.first.mask,
        name=planned.scan.name,
        std=stacked("std") if options.samples > 1 else None,
        reference=None if reference is None else reference.abs(),
        geometry=geometry_of(planned.scan.geometry, planned.scan.n_slices, planned.slices),
        protocol=planned.scan.protocol,
        record=record,
    )


def _told(
    watch: Callable[[float, int], None], slices: tuple[int, int, int], done: float, steps: int
) -> None:
    """Tell ``watch`` the slices done; ``slices``: those before, now (at ``done``) and all."""
    before, now, number = slices
    watch(before + now * done / steps, number)


def _parts(planned: ScanPlan, seconds: dict[str, float]) -> Iterator[tuple[Slices, list[int]]]:
    """Prepared slices: the middle one, then batches of slices with the same mask."""
    yield planned.first, [planned.middle]
    rest = [i for i in planned.slices if i != planned.middle]
    batch = planned.plan.options.batch
    for start in range(0, len(rest), batch):
        indices = rest[start : start + batch]
        with timed(seconds, "read"):
            kspace = planned.scan.slices(indices)
        lit = [i for i, k in zip(indices, kspace, strict=True) if bool(k.any())]
        of = kspace[[indices.index(i) for i in lit]]
        for some in planned.preparation.groups(of, lit) if lit else ():
            with timed(seconds, "maps and scale"):
                part = planned.preparation(kspace[[indices.index(i) for i in some]], some)
            yield part, some


def _pages(planned: ScanPlan, part: Slices, indices: list[int], drawn: Tensor) -> dict[int, Page]:
    """Slices as images of the output size, in raw units."""
    images = torch.stack([part.image(x) for x in drawn])
    mean, samples = images.mean(0), len(images)
    std = None
    if samples > 1:
        std = ((images - mean).abs().square().sum(0) / (samples - 1)).sqrt()
    found: Page = {
        "image": mean,
        "std": std,
        "reference": part.reference,
        "rss": part.rss,
        "support": part.full_support,
    }
    size = planned.preparation.crop
    cropped = {k: None if t is None else crop_centre(t, size) for k, t in found.items()}
    return {
        i: {k: None if t is None else t[row] for k, t in cropped.items()}
        for row, i in enumerate(indices)
    }


def _blank(planned: ScanPlan) -> Page:
    size = planned.preparation.crop
    zero = torch.zeros(size)
    full = planned.preparation.options.mask is not None
    return {
        "image": torch.zeros(size, dtype=torch.complex64),
        "std": zero,
        "reference": torch.zeros(size, dtype=torch.complex64) if full else None,
        "rss": zero if full else None,
        "support": zero.bool() if full else None,
    }


def _scores(
    planned: ScanPlan,
    image: Tensor,
    support: Tensor | None,
    reference: Tensor | None,
    rss: Tensor | None,
) -> list[Scores]:
    """By both conventions where the scan is full; by fastMRI's where the file has a reference."""
    scan, found = planned.scan, []
    if reference is not None and support is not None and bool(reference.any()):
        found.append(paper_scores(image, reference, support))
    if scan.target is not None and planned.preparation.raw_units:
        target = torch.stack([scan.target(i) for i in planned.slices])
        rss = target if target.shape == image.shape else rss
    if rss is not None and bool(rss.any()):
        found.append(fastmri_scores(image, rss))
    return found
