"""What a reconstruction of a scan will do, decided before any slice is solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm import __version__
from pnpcm.catalogue import named_prior
from pnpcm.core import Prior
from pnpcm.errors import ArgumentError
from pnpcm.mri.preparation import Preparation, SliceOptions, Slices
from pnpcm.mri.sampling import describe_mask
from pnpcm.mri.scan import Scan
from pnpcm.problems import Custom, Problem
from pnpcm.recon.parameters import Choice, choose, with_injection


@dataclass(frozen=True)
class ScanPlan:
    """What a reconstruction will do, decided on the middle slice."""

    scan: Scan
    prior: Prior
    prior_name: str
    preparation: Preparation
    sigma_y: float
    chosen: Choice
    slices: tuple[int, ...]
    mask: Tensor

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        scan = self.scan
        return {
            "versions": {"pnpcm": __version__, "torch": torch.__version__},
            "scan": {
                "name": scan.name,
                "format": scan.format,
                "slices": scan.n_slices,
                "coils": scan.n_coils,
                "kspace": list(scan.size),
                "output": list(self.preparation.crop),
            },
            "sampling": describe_mask(self.mask).sentence,
            "prior": self.prior_name,
            "sigma_y": self.sigma_y,
            "parameters_from": self.chosen.source,
            "solver": self.chosen.config.to_dict(),
            "preparation": self.preparation.describe(),
        }


def plan_scan(
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
) -> ScanPlan:
    """What :func:`reconstruct` would do with these arguments."""
    chosen_slices = tuple(range(scan.n_slices)) if slices is None else tuple(slices)
    for i in chosen_slices:
        if not 0 <= i < scan.n_slices:
            raise ArgumentError(f"slices holds {i}, but {scan.name} has 0…{scan.n_slices - 1}")
    if not chosen_slices or samples < 1:
        raise ArgumentError(f"slices is {slices} and samples {samples}; give at least one of each")
    loaded, name = named_prior(prior)
    if getattr(getattr(loaded, "network", None), "in_channels", 2) != 2:
        raise ArgumentError(
            f"prior {name!r} is not for complex images (2 channels); use --prior mri or your own"
        )
    convention = getattr(loaded, "info", {}).get("scale", "max")
    preparation = Preparation(scan, options or SliceOptions(), convention)
    first = _middle(scan, chosen_slices, preparation)
    if sigma_y is None:
        sigma_y = float(first.noise_std[0]) / 2
    one = first.operator.first_set()  # further sets make no other problem of it
    problem = Problem(first.y, one)
    choice = choose(
        Custom(one),
        problem,
        name,
        sigma_y,
        steps=steps,
        preset=preset,
        settings=settings,
    )
    choice = with_injection(choice, settings) if samples > 1 else choice
    return ScanPlan(scan, loaded, name, preparation, sigma_y, choice, chosen_slices, first.mask)


def _middle(scan: Scan, indices: tuple[int, ...], prepare: Preparation) -> Slices:
    """The slice nearest to the middle that has signal, prepared."""
    for i in sorted(indices, key=lambda i: abs(i - indices[len(indices) // 2])):
        kspace = scan.slices([i])
        if bool(kspace.any()):
            return prepare(kspace, [i])
    raise ArgumentError(f"{scan.name} holds no signal in any slice that was asked for")
