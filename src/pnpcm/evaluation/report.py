"""Table of an evaluation with published rows, and images of the results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from pnpcm.evaluation.scores import Evaluation
from pnpcm.io.files import Picture, stack, strip
from pnpcm.tables import Table

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
