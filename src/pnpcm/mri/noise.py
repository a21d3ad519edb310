"""How noisy a scan is, from its own k-space."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.mri.scan import Size

EDGE = 0.85
"""Share of the way to the edge of k-space beyond which noise outweighs signal."""


def kspace_noise_std(kspace: Tensor, mask: Tensor) -> Tensor:
    """Noise per real and imaginary part of each slice ``(B,)``, of k-space ``(B, coils, H, W)``.

    Median of |Re| and |Im| over the measured samples near the edge of k-space, divided by 0.6745,
    which is the standard deviation of Gaussian noise (median absolute deviation). What signal is
    left there makes it an upper estimate. A file that holds zeros there (an interpolated image)
    tells nothing: 0.
    """
    height, width = kspace.shape[-2:]
    sampled = mask.expand(height, width) if mask.ndim == 1 else mask
    outer = _outer((height, width)).to(kspace.device) & sampled
    if not bool(outer.any()):
        outer = sampled
    values = torch.view_as_real(kspace[..., outer].resolve_conj()).flatten(1).abs()
    return values.median(1).values / 0.6745


def _outer(size: Size) -> Tensor:
    """The frequencies of which one coordinate, relative to the edge, exceeds ``EDGE``."""
    p, q = ((torch.arange(n) - n // 2).abs() / (n / 2) for n in size)
    return torch.maximum(p[:, None], q[None]) > EDGE
