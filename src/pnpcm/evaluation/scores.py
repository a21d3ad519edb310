"""Denoising scores of a prior, and the consistency error of a consistency model.

For each clean image x and level σ the prior denoises x + σn, not clipped. The noise of image i has
the seed plus i: the same n for every level, every prior and any batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pnpcm.core import Prior, ValueRange
from pnpcm.errors import ArgumentError
from pnpcm.io.files import Picture, stack, strip
from pnpcm.metrics import psnr, ssim
from pnpcm.names import Table
from pnpcm.rng import generators, randn_like
from pnpcm.training.pictures import visible

GRID = 40
"""Number of levels of the Karras grid on which neighbouring levels are one step apart."""


@dataclass(frozen=True)
class Score:
    """Means over images at one level. ``sigma``: as requested; ``level``: as passed to the prior.

    ``psnr_noisy``: PSNR of the noisy image; ``consistency_error``: only of consistency models.
    """

    sigma: float
    level: float
    psnr_noisy: float
    psnr: float
    ssim: float
    consistency_error: float | None


class Sight(NamedTuple):
    """One image at one level for display, ``(1 or 3, H, W)`` each, and its score."""

    clean: Tensor
    noisy: Tensor
    denoised: Tensor
    psnr: float


@dataclass(frozen=True)
class Evaluation:
    """Scores of one prior, and the first image at each level."""

    name: str
    kind: str
    images: int
    scores: tuple[Score, ...]
    sights: tuple[Sight, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, which has no infinity."""
        scores = [
            {k: v if v is None or math.isfinite(v) else None for k, v in asdict(score).items()}
            for score in self.scores
        ]
        return {"name": self.name, "kind": self.kind, "images": self.images, "scores": scores}


@torch.no_grad()
def evaluate(
    prior: Prior,
    images: Iterable[Tensor],
    sigmas: Sequence[float],
    *,
    unit: float = 255,
    seed: int = 0,
    name: str = "prior",
) -> Evaluation:
    """Mean PSNR and SSIM of prior(x + σn, σ) over ``images`` in [-1, 1].

    ``sigmas`` are in units where white − black is ``unit``: 25 of 255 is level 2·25/255 for a prior
    on [-1, 1]. For consistency models also √mean (f(x + tn, t) − f(x + sn, s))², s the next lower
    level. The two channels of complex images are scored on the prior's whole range, not as a
    magnitude.
    """
    levels = [_level(prior, sigma, unit) for sigma in sigmas]
    kind = str(getattr(prior, "kind", "denoiser"))
    low, high = reach = prior.value_range
    sums = torch.zeros(len(levels), 4, dtype=torch.float64)
    sights, count = [], 0
    for i, image in enumerate(images):
        x = low + (image + 1) * (high - low) / 2
        noise = randn_like(x, generators([seed + i]))
        for k, level in enumerate(levels):
            noisy = x + level * noise
            denoised = prior(noisy, level)
            score = float(psnr(denoised, x, value_range=reach))
            sums[k, 0] += float(psnr(noisy, x, value_range=reach))
            sums[k, 1] += score
            sums[k, 2] += float(ssim(denoised, x, value_range=reach))
            if kind == "consistency":
                near = next_level(prior, level)
                sums[k, 3] += float((denoised - prior(x + near * noise, near)).square().mean())
            if i == 0:
                sights.append(
                    Sight(_shown(x, reach), _shown(noisy, reach), _shown(denoised, reach), score)
                )
        count += 1
    if count == 0:
        raise ArgumentError("images is empty; give at least one")
    scores = []
    for sigma, level, means in zip(sigmas, levels, (sums / count).tolist(), strict=True):
        before, after, similarity, square = means
        error = math.sqrt(square) if kind == "consistency" else None
        scores.append(Score(sigma, level, before, after, similarity, error))
    return Evaluation(name, kind, count, tuple(scores), tuple(sights))


def next_level(prior: Prior, sigma: float, exponent: float = 7.0) -> float:
    """The level one step below ``sigma`` on the prior's Karras grid of 40 levels, or its last."""
    low, high = (s ** (1 / exponent) for s in (prior.sigma_min, prior.sigma_max))
    root = sigma ** (1 / exponent) - (high - low) / (GRID - 1)
    return float(max(root, low) ** exponent)


def _level(prior: Prior, sigma: float, unit: float) -> float:
    low, high = prior.value_range
    level = sigma * (high - low) / unit
    if not prior.sigma_min < level <= prior.sigma_max:
        raise ArgumentError(
            f"sigma is {sigma:g} of {unit:g}, level {level:g}, but this prior takes levels above "
            f"{prior.sigma_min:g} up to {prior.sigma_max:g}; choose another sigma or unit"
        )
    return level


def _shown(x: Tensor, value_range: ValueRange) -> Tensor:
    low, high = value_range
    return visible(2 * (x - low) / (high - low) - 1)[0]


# table with published rows, and images -----------------------------------------------------------
Published = Mapping[str, Mapping[float, float]]

PUBLISHED: Table[Published] = Table(
    "published table",
    {
        "cbsd68": {
            "CBM3D": {15.0: 33.52, 25.0: 30.71, 50.0: 27.38},
            "DnCNN": {15.0: 33.90, 25.0: 31.24, 50.0: 27.95},
            "DRUNet": {15.0: 34.30, 25.0: 31.69, 50.0: 28.51},
        }
    },
)
"""PSNR per σ in units of 255 on colour images: values from the literature, not measured here."""


def rows(evaluations: Sequence[Evaluation], published: Published) -> list[list[str]]:
    """Cells of the table without its header: name, kind, then one cell for each level."""
    first, cells, images = evaluations[0].scores, [], None
    for e in evaluations:
        noisy = ["noisy", "", *(f"{s.psnr_noisy:.2f}" for s in e.scores)]
        if noisy != images:  # of another size, or complex
            cells.append(noisy)
            images = noisy
        cells.append([e.name, e.kind, *(f"{s.psnr:.2f} / {s.ssim:.4f}" for s in e.scores)])
        if e.kind == "consistency":
            errors = (f"{s.consistency_error:.4f}" for s in e.scores)
            cells.append([e.name, "consistency error", *errors])
    for method, values in published.items():
        found = (f"{values[s.sigma]:.2f}" if s.sigma in values else "–" for s in first)
        cells.append([method, "published", *found])
    return cells


def markdown(
    evaluations: Sequence[Evaluation],
    published: Published,
    *,
    settings: Mapping[str, Any],
    notes: Sequence[str],
) -> str:
    """The table as Markdown: PSNR (dB) and SSIM of each prior per σ; published rows: PSNR only."""
    scores = evaluations[0].scores
    head = ["prior", "kind", *(f"σ = {s.sigma:g} (level {s.level:.4f})" for s in scores)]
    lines = ["# Denoising: PSNR (dB) / SSIM", ""]
    lines += [", ".join(f"{key} {value}" for key, value in settings.items()), ""]
    lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(evaluations, published)]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]).rstrip() + "\n"


def comparison(evaluations: Sequence[Evaluation], k: int) -> Picture:
    """Clean, noisy and denoised by each prior at the k-th level; a row for each image shape."""
    strips: dict[tuple[int, ...], list[tuple[str, Tensor]]] = {}
    for evaluation in evaluations:
        sight, score = evaluation.sights[k], evaluation.scores[k]
        panels = strips.setdefault(tuple(sight.clean.shape), [])
        if not panels:
            panels += [("clean", sight.clean), (f"noisy, sigma {score.sigma:g}", sight.noisy)]
        kind = "cm" if evaluation.kind == "consistency" else evaluation.kind
        panels.append((f"{evaluation.name} {kind} {sight.psnr:.2f} dB", sight.denoised))
    return stack([strip(panels, side=_side(shape[-2])) for shape, panels in strips.items()])


def _side(height: int) -> int:
    """Displayed height of an image: an integer multiple if it is small, its own up to 512."""
    return min(height * math.ceil(256 / height), 512)
