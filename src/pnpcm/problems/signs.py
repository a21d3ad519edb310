"""Signs of the channels, which phase retrieval cannot see: set by a reference or the prior."""

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
    """``x`` with its signs turned to fit ``reference``, or else to please the prior most.

    An operator with ``reference=True`` gets the rule of the paper's code: the smallest LPIPS to
    ``reference``, or else to one sample of the prior.
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
        "signs of the channels: those that the prior denoises best; a guess, which may be wrong "
        "(give a reference to be sure)"
    )


def _as_released(
    operator: PhaseRetrieval, x: Tensor, reference: Tensor | None, prior: Prior
) -> tuple[Tensor, str]:
    image = "the reference"
    if reference is None:
        generator = torch.Generator().manual_seed(0)
        reference = consistency_sample(prior, (1, *x.shape[1:]), generator=generator)
        image = "a sample of the prior, as in the paper's code; a guess, which may be wrong"
    distance, name = (lpips, "LPIPS") if available() else (squared_distance, "squared distance")
    turned = operator.resolve_signs(x, reference.to(x), distance)
    return turned, f"signs of the channels: those of the smallest {name} to {image}"


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean square of the difference, one number per image."""
    return (a - b).square().flatten(1).mean(1)
