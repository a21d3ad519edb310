"""The four scalings between a noisy image and a bare network, as functions of the noise level.

``f(v, σ) = c_skip v + c_out F(c_in v, c_noise)``, Karras et al. (2022) Table 1, with the boundary
condition of Song et al. (2023) for consistency models. The network depends on the noise level only
through these functions.

``c_noise`` is a convention of the code that trained the network, and the weights do not show it:

========== ================ ==========================================================
"openai"   250 ln σ         guided-diffusion, OpenAI's consistency models and their EDM
                            teachers, the PnP-CM authors' networks, all priors of pnpcm
"edm"      ln σ / 4         NVlabs' EDM networks, diffusers' EDM schedulers; Karras et
                            al. (2022), Table 1
========== ================ ==========================================================

The first is the second times 1000, the number of indices that a DDPM network distinguishes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError

C_NOISE = {"openai": 250.0, "edm": 0.25}
"""Conventions of the noise input of a network: c_noise = factor · ln σ."""


class Scalings(NamedTuple):
    c_skip: Tensor
    c_out: Tensor
    c_in: Tensor
    c_noise: Tensor


def check_c_noise(c_noise: str) -> str:
    """``c_noise`` if it is the name of a convention."""
    if c_noise not in C_NOISE:
        raise ArgumentError(
            f"c_noise must be 'openai' (250 ln σ) or 'edm' (ln σ / 4), got {c_noise!r}"
        )
    return c_noise


def edm_scalings(sigma: Tensor, sigma_data: float = 0.5, *, c_noise: str = "openai") -> Scalings:
    """c_skip = σ_d²/(σ² + σ_d²), c_out = σ σ_d/√(σ² + σ_d²)."""
    return consistency_scalings(sigma, sigma_data, sigma_min=0.0, c_noise=c_noise)


def consistency_scalings(
    sigma: Tensor, sigma_data: float = 0.5, sigma_min: float = 0.002, *, c_noise: str = "openai"
) -> Scalings:
    """c_skip = σ_d²/((σ − σ_min)² + σ_d²), c_out = σ_d (σ − σ_min)/√(σ² + σ_d²).

    The root of c_out holds σ, not σ − σ_min, as in the released networks. At σ_min: c_skip = 1
    and c_out = 0 exactly. c_noise = ``C_NOISE[c_noise]`` ln σ; the 1e-44 only avoids ln 0.
    """
    total = torch.sqrt(sigma**2 + sigma_data**2)
    return Scalings(
        c_skip=sigma_data**2 / ((sigma - sigma_min) ** 2 + sigma_data**2),
        c_out=sigma_data * (sigma - sigma_min) / total,
        c_in=1 / total,
        c_noise=C_NOISE[c_noise] * torch.log(sigma + 1e-44),
    )
