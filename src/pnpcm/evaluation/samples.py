"""Samples of a prior, as a tensor and as one sheet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm.arguments import MOST_STEPS
from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.files import Picture, stack, strip
from pnpcm.io.reading import Budget
from pnpcm.priors.generate import consistency_sample, heun_sample
from pnpcm.rng import generators
from pnpcm.training.pictures import visible

BATCH = 16
NETWORK, PICTURE = 1200, 40
"""Bytes of memory per pixel of a batch (networks of the shipped priors) and of the picture."""
WIDTH = 384
"""Smallest width of a sheet, so that its label fits."""


@dataclass(frozen=True)
class Drawn:
    """Images ``(n, C, H, W)`` in the prior's range; image i depends only on seed + i."""

    x: Tensor
    kind: str
    method: str
    steps: int
    nfe: int
    seed: int


def draw(
    prior: Prior, n: int, *, steps: int | None = None, size: int | None = None, seed: int = 0
) -> Drawn:
    """``n`` samples, by Heun's method (denoisers) or consistency sampling (consistency models).

    ``steps=None``: 18 (2 · steps − 1 evaluations), or 1 for a consistency model (one evaluation
    per step). ``size=None``: the side that the prior was trained on, else 64.
    """
    for name, value in (("n", n), ("steps", steps), ("size", size)):
        if value is not None and value < 1:
            raise ArgumentError(f"{name} must be at least 1, got {value}")
    if steps is not None and steps > MOST_STEPS:
        raise ArgumentError(f"steps must be at most {MOST_STEPS}, got {steps}")
    network = getattr(prior, "network", None)
    trained = getattr(network, "image_size", None)
    side = size or trained or 64
    if trained not in (None, side) and not getattr(prior, "any_size", True):
        raise ShapeError(
            f"size is {size}, but the network was trained on {trained}×{trained} images; "
            f"give size {trained}"
        )
    _check_memory(n, side)
    tail = (getattr(network, "in_channels", 3), side, side)
    kind = str(getattr(prior, "kind", "edm"))
    consistent = kind == "consistency"
    steps = steps or (1 if consistent else 18)
    sample = consistency_sample if consistent else heun_sample
    parts = []
    for first in range(0, n, BATCH):  # in batches, to limit memory
        seeds = range(seed + first, seed + min(first + BATCH, n))
        each = generators(seeds)
        parts.append(sample(prior, (len(seeds), *tail), generator=each, n_steps=steps))
    return Drawn(
        x=torch.cat(parts),
        kind=kind,
        method="consistency sampling" if consistent else "heun",
        steps=steps,
        nfe=steps if consistent else 2 * steps - 1,
        seed=seed,
    )


def _check_memory(n: int, side: int) -> None:
    """Refuse more or larger images than the memory holds."""
    batch, shown = min(n, BATCH), max(side, WIDTH // _columns(n))
    for need, what, sides in (
        (NETWORK, "a batch", (batch, side, side)),
        (PICTURE, "the picture", (n, shown, shown)),
    ):
        budget = Budget(need, move="use fewer images or a smaller size", fixed=True)
        budget.check(f"n is {n} and size is {side}: {what}", sides)


def _columns(n: int) -> int:
    return min(8, math.ceil(math.sqrt(n)))


def sheet(samples: Drawn, prior: Prior, label: str) -> Picture:
    """The images in rows of up to eight, each row labelled with the seed of its first image."""
    low, high = prior.value_range
    x = visible(2 * (samples.x - low) / (high - low) - 1)
    columns = _columns(len(x))
    side = x.shape[-1] * math.ceil(WIDTH / (columns * x.shape[-1]))
    rows = []
    for first in range(0, len(x), columns):
        words = f"seed {samples.seed + first}" + (f", {label}" if first == 0 else "")
        images = x[first : first + columns]
        panels = [(words if i == 0 else "", image) for i, image in enumerate(images)]
        rows.append(strip(panels, side=side))
    return stack(rows)
