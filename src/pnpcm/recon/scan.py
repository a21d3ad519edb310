"""Reconstruct: from a raw scan to a volume, some slices at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.mri.preparation import SliceOptions, Slices
from pnpcm.mri.scan import Scan, crop_centre, geometry_of
from pnpcm.mri.scores import Scores, fastmri_scores, paper_scores
from pnpcm.mri.writers import Volume
from pnpcm.priors import with_sets
from pnpcm.recon.scan_plan import ScanPlan, plan_scan
from pnpcm.recon.timing import timed
from pnpcm.rng import generators
from pnpcm.solvers import PnPCM, PnPCMConfig

Solve = Callable[[Slices, list[torch.Generator]], Tensor]
"""From slices and one generator each to images ``(B, 2, H, W)``: where other methods come in."""


def reconstruct(
    scan: Scan,
    prior: str | Path | Prior = "mri",
    *,
    options: SliceOptions | None = None,
    sigma_y: float | None = None,
    steps: int | None = None,
    preset: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    samples: int = 1,
    slices: Sequence[int] | None = None,
    batch: int = 4,
    seed: int = 0,
    solve: Solve | None = None,
    callback: Callable[[int], None] | None = None,
) -> Volume:
    """Reconstruct the slices of ``scan``; the volume is in the scan's own units and phase.

    >>> reconstruct(read_scan("knee.h5"), options=SliceOptions(mask=mask)).record["scores"]

    ``sigma_y``: noise on the prior's [0, 1] scale; None: estimated at the edge of k-space.
    ``batch`` slices are solved at once, which changes nothing but time and memory: each slice has
    its own coil maps, scale, CG steps and generator (seed + its index). ``samples``: the mean of so
    many reconstructions, and their standard deviation as ``.std``. ``solve``: another method in
    place of PnP-CM. ``callback`` is told how many slices are done.
    """
    stages: dict[str, float] = {}
    with timed(stages, "plan"):
        plan = plan_scan(
            scan,
            prior,
            options=options,
            sigma_y=sigma_y,
            steps=steps,
            preset=preset,
            settings=settings,
            samples=samples,
            slices=slices,
        )
    solve = solve or _pnp_cm(plan.prior, plan.chosen.config)
    pages: list[dict[str, Tensor | None]] = []
    empty = []
    for start in range(0, len(plan.slices), batch):
        indices = list(plan.slices[start : start + batch])
        with timed(stages, "read"):
            kspace = scan.slices(indices)
        lit = [i for i, k in zip(indices, kspace, strict=True) if bool(k.any())]
        empty += [i for i in indices if i not in lit]
        done: dict[int, dict[str, Tensor | None]] = {}
        lit_rows = [indices.index(i) for i in lit]
        for some in plan.preparation.groups(kspace[lit_rows], lit):
            with timed(stages, "maps and scale"):
                rows = [indices.index(i) for i in some]
                prepared = plan.preparation(kspace[rows], some)
            with timed(stages, "solve"):
                done |= _solved(plan, prepared, some, samples, seed, solve)
        pages += [done.get(i, _blank(plan)) for i in indices]
        if callback is not None:
            callback(start + len(indices))
    notes = [*scan.notes, *plan.preparation.notes]
    if empty:
        notes.append(f"slices without signal, left empty: {', '.join(map(str, empty))}")
    return _volume(plan, pages, samples, seed, batch, stages, notes)


def _solved(
    plan: ScanPlan, part: Slices, indices: list[int], samples: int, seed: int, solve: Solve
) -> dict[int, dict[str, Tensor | None]]:
    """The pages of some slices: cropped images in raw units."""
    drawn = []
    for k in range(samples):
        seeds = generators([seed + i + k * plan.scan.n_slices for i in indices])
        drawn.append(part.image(solve(part, seeds)))
    mean = torch.stack(drawn).mean(0)
    std = None
    if samples > 1:
        spread = torch.stack(drawn) - mean
        std = (spread.abs().square().sum(0) / (samples - 1)).sqrt()
    found: dict[str, Tensor | None] = {
        "image": mean,
        "std": std,
        "reference": part.reference,
        "rss": part.rss,
        "support": part.full_support,
    }
    size = plan.preparation.crop
    cropped = {k: None if t is None else crop_centre(t, size) for k, t in found.items()}
    return {
        i: {k: None if t is None else t[row] for k, t in cropped.items()}
        for row, i in enumerate(indices)
    }


def _pnp_cm(prior: Prior, config: PnPCMConfig) -> Solve:
    def solve(part: Slices, seeds: list[torch.Generator]) -> Tensor:
        fitting = with_sets(prior, part.operator.map_sets)
        return PnPCM(fitting, config)(part.y, part.operator, generator=seeds).x

    return solve


def _blank(plan: ScanPlan) -> dict[str, Tensor | None]:
    size = plan.preparation.crop
    zero = torch.zeros(size)
    full = plan.preparation.options.mask is not None
    return {
        "image": torch.zeros(size, dtype=torch.complex64),
        "std": zero,
        "reference": torch.zeros(size, dtype=torch.complex64) if full else None,
        "rss": zero if full else None,
        "support": zero.bool() if full else None,
    }


def _volume(
    plan: ScanPlan,
    pages: list[dict[str, Tensor | None]],
    samples: int,
    seed: int,
    batch: int,
    stages: dict[str, float],
    notes: list[str],
) -> Volume:
    def stacked(name: str) -> Tensor | None:
        each = [t for p in pages if (t := p[name]) is not None]
        return torch.stack(each) if len(each) == len(pages) else None

    image = stacked("image")
    assert image is not None
    with timed(stages, "scores"):
        scores = _scores(plan, image, stacked("support"), stacked("reference"), stacked("rss"))
    reference = stacked("reference")
    record = plan.to_dict() | {
        "samples": samples,
        "seed": seed,
        "batch": batch,
        "slices": list(plan.slices),
        "scores": [asdict(s) for s in scores],
        "seconds": {k: round(v, 3) for k, v in stages.items()},
        "notes": notes,
    }
    return Volume(
        image=image,
        mask=plan.mask,
        name=plan.scan.name,
        std=stacked("std") if samples > 1 else None,
        reference=None if reference is None else reference.abs(),
        geometry=geometry_of(plan.scan.geometry, plan.scan.n_slices, plan.slices),
        record=record,
    )


def _scores(
    plan: ScanPlan,
    image: Tensor,
    support: Tensor | None,
    reference: Tensor | None,
    rss: Tensor | None,
) -> list[Scores]:
    """By both conventions where the scan is full; by fastMRI's where the file has a reference."""
    scan = plan.scan
    found = []
    if reference is not None and support is not None and bool(reference.any()):
        found.append(paper_scores(image, reference, support))
    if scan.target is not None and plan.preparation.raw_units:
        target = torch.stack([scan.target(i) for i in plan.slices])
        rss = target if target.shape == image.shape else rss
    if rss is not None and bool(rss.any()):
        found.append(fastmri_scores(image, rss))
    return found
