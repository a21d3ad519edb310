"""Intensity scale of a prior, and the noise level of a scan from its own k-space."""

from __future__ import annotations

import math
import re
import warnings

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError

_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)=(\d+(?:\.\d+)?)")


def intensity_scale(image: Tensor, convention: str) -> Tensor:
    """Factor per image ``(B,)`` that brings complex images ``(B, 2, H, W)`` to a convention.

    ``"max"``: the largest magnitude becomes 1. ``"p99.5=0.8"``: the 99.5th percentile of the
    magnitude becomes 0.8. A prior's file names its convention under ``info["scale"]``; in use
    ``image`` is a first reconstruction of the measurement, and y is multiplied by the factor.
    An image without signal gets the factor 1 and a warning.
    """
    if image.ndim != 4 or image.shape[1] != 2:
        raise ArgumentError(f"image has shape {tuple(image.shape)}, expected (B, 2, H, W)")
    magnitude = torch.linalg.vector_norm(image, dim=1).flatten(1)
    match = _PERCENTILE.fullmatch(convention)
    if convention == "max":
        top, level = magnitude.amax(1), 1.0
    elif match is not None and float(match[1]) <= 100 and 0 < float(match[2]) < math.inf:
        top, level = torch.quantile(magnitude, float(match[1]) / 100, dim=1), float(match[2])
    else:
        raise ArgumentError(f"convention is {convention!r}, expected 'max' or e.g. 'p99.5=0.8'")
    empty = top <= 0
    if bool(empty.any()):
        warnings.warn("an image has no signal; its intensity is left as it is", stacklevel=2)
    return torch.where(empty, 1.0, level / top.clamp_min(torch.finfo(top.dtype).tiny))


EDGE = 0.85
"""Distance from the centre, relative to the edge, beyond which noise is larger than signal."""


def kspace_noise_std(kspace: Tensor, mask: Tensor) -> Tensor:
    """Noise per real and imaginary part of each slice ``(B,)``, of k-space ``(B, coils, H, W)``.

    Median of |Re| and |Im| over the measured samples near the edge of k-space, divided by 0.6745,
    which is the standard deviation of Gaussian noise (median absolute deviation). Signal at the
    edge makes it an upper estimate. A file with zeros there (an interpolated image) gives 0.
    """
    height, width = kspace.shape[-2:]
    sampled = mask.expand(height, width) if mask.ndim == 1 else mask
    p, q = ((torch.arange(n) - n // 2).abs() / (n / 2) for n in (height, width))
    outer = (torch.maximum(p[:, None], q[None]) > EDGE).to(kspace.device) & sampled
    if not bool(outer.any()):
        outer = sampled
    values = torch.view_as_real(kspace[..., outer].resolve_conj()).flatten(1).abs()
    return values.median(1).values / 0.6745
