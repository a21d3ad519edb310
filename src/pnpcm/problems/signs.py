"""Signs of the channels, which phase retrieval does not determine: chosen by reference or prior."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.metrics.lpips import available, lpips
from pnpcm.operators import PhaseRetrieval
from pnpcm.priors.generate import consistency_sample
from pnpcm.rng import randn_like

LEVEL = 0.3


def resolve_signs(
    operator: PhaseRetrieval, x: Tensor, reference: Tensor | None, prior: Prior
) -> tuple[Tensor, str]:
    """``x`` with the signs nearest to ``reference``, else those that the prior denoises best.

    An operator with ``reference=True`` uses the rule of the paper's code: the smallest LPIPS to
    ``reference``, else to one sample of the prior. The second value is a note for the record.
    """
    if operator.reference:
        return _as_released(operator, x, reference, prior)
    if reference is not None:
        turned = operator.resolve_signs(x, reference.to(x), squared_distance)
        return turned, "signs of the channels: those of the reference"
    noise = LEVEL * randn_like(x[:1], torch.Generator().manual_seed(0))

    def surprise(candidate: Tensor, _: Tensor) -> Tensor:
        return squared_distance(prior(candidate + noise, LEVEL), candidate)

    turned = operator.resolve_signs(x, x, surprise)
    return turned, (
        "signs of the channels: those that the prior denoises best, which may be wrong "
        "(give a reference to determine them)"
    )


def _as_released(
    operator: PhaseRetrieval, x: Tensor, reference: Tensor | None, prior: Prior
) -> tuple[Tensor, str]:
    image = "the reference"
    if reference is None:
        generator = torch.Generator().manual_seed(0)
        reference = consistency_sample(prior, (1, *x.shape[1:]), generator=generator)
        image = "a sample of the prior, as in the paper's code; they may be wrong"
    distance, name = (lpips, "LPIPS") if available() else (squared_distance, "squared distance")
    turned = operator.resolve_signs(x, reference.to(x), distance)
    return turned, f"signs of the channels: those of the smallest {name} to {image}"


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared difference of each image ``(B,)``."""
    return (a - b).square().flatten(1).mean(1)
