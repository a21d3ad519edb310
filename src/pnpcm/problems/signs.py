"""Signs of the channels, which phase retrieval cannot see: decided by a reference or the prior."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.operators import PhaseRetrieval
from pnpcm.rng import randn_like

LEVEL = 0.3


def resolve_signs(
    operator: PhaseRetrieval, x: Tensor, reference: Tensor | None, prior: Prior
) -> tuple[Tensor, str]:
    """``x`` with its signs turned to fit ``reference``, or else to please the prior most."""
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


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean square of the difference, one number per image."""
    return (a - b).square().flatten(1).mean(1)
