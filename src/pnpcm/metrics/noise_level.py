"""Estimation of the noise level of an image, for an unknown ``sigma_y``."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError

DAUBECHIES2 = tuple(
    c / (4 * math.sqrt(2))
    for c in (math.sqrt(3) - 1, 3 - math.sqrt(3), -3 - math.sqrt(3), 1 + math.sqrt(3))
)
"""High-pass of the second Daubechies wavelet: zero on linear ramps; squares sum to 1."""
HAAR = (1 / math.sqrt(2), -1 / math.sqrt(2))
ENOUGH = 500
"""Windows below which the Daubechies filter is replaced by Haar's, which is four times smaller."""
FEWEST = 50
"""Windows below which no estimate is given: its error would be at least 20 %."""
CLIPPED = 1e-3
"""Share of pixels at one end of the range above which they may be clipped there."""
QUARTILE = 0.6744897501960817
"""Median of |n|, n ~ N(0, 1)."""


def estimate_noise_std(y: Tensor, mask: Tensor | None = None) -> float:
    r"""Standard deviation of white noise on ``y`` ``(B, C, H, W)``, on the scale of ``y``.

    .. math::
        \hat\sigma = \operatorname{median} |d_i| / 0.6745, \qquad d = (g\, g^T) * y

    with d the finest diagonal coefficients of Daubechies' second wavelet g, where photographs have
    little but noise, here at every pixel instead of every second. Donoho and Johnstone (1994).
    Returns the mean over channels and images, each estimated separately. Fine texture increases the
    estimate: for the photographs in ``pnpcm/data`` it is 0.3 to 1.4 % of the range before noise is
    added, and 3 to 10 % too large for noise of 5 %.

    ``mask`` (1: known, broadcast to y): only coefficients of known pixels are used, with Haar's
    wavelet (2×2 pixels) if fewer than 500 windows of 4×4 are complete.

    Coefficients without information on the noise are not used: those that contain a clipped pixel
    (at the smallest or largest value of its channel, if more than one in 1000 pixels have it, and
    more than the neighbouring value: a saturated sky), and those of constant windows (padding, flat
    backgrounds), unless three quarters are constant, as in a drawing. A constant image gives 0.
    """
    y, known = _checked(y, mask)
    planes = [_plane(p, k) for p, k in zip(y.flatten(0, 1), known.flatten(0, 1), strict=True)]
    found = [std for std in planes if std is not None]
    if found:
        return sum(found) / len(found)
    values = [p[k] for p, k in zip(y.flatten(0, 1), known.flatten(0, 1), strict=True)]
    if all(v.numel() >= FEWEST and bool((v == v[0]).all()) for v in values):
        return 0.0
    raise ArgumentError(
        f"y is {y.shape[-2]}×{y.shape[-1]} with {int(known[0, 0].sum())} known pixels per channel; "
        f"fewer than {FEWEST} windows of 2×2 are complete and not clipped, too few to estimate the "
        "noise; give sigma_y"
    )


def _checked(y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    if y.ndim != 4 or y.numel() == 0:
        raise ShapeError(f"y has shape {tuple(y.shape)}, expected an image (B, C, H, W)")
    if y.is_complex():
        raise ArgumentError(f"y has dtype {y.dtype}, expected real numbers; give y.real or y.abs()")
    known = torch.ones_like(y, dtype=torch.bool)
    if mask is not None:
        try:
            spread = mask.to(y.device).broadcast_to(y.shape)
        except RuntimeError as error:
            raise ShapeError(
                f"mask has shape {tuple(mask.shape)}, which does not fit y, {tuple(y.shape)}"
            ) from error
        known = spread == 1
        if not bool((known | (spread == 0)).all()):
            raise ArgumentError("mask has values other than 0 and 1, expected 1 where y is known")
    if not bool(torch.isfinite(y[known]).all()):
        raise ArgumentError("y has values that are not finite (nan or inf) where it is known")
    return y.detach(), known


def _plane(y: Tensor, known: Tensor) -> float | None:
    """The estimate for one channel ``(H, W)``; None if too few pixels are known."""
    y = torch.where(known, y.double(), 0)
    seen = y[known]
    if seen.numel() == 0:
        return None
    usable = known
    for sign in (1, -1):
        end = (sign * seen).max()
        at_end = sign * y == end
        count = int((at_end & known).sum())
        inner = sign * seen[sign * seen < end]
        # clipped values are frequent; at the end of a noise tail the next value is more frequent
        next_count = int((inner == inner.max()).sum()) if inner.numel() else 0
        if count > max(CLIPPED * seen.numel(), next_count):
            usable = usable & ~at_end
    for taps, needed in ((DAUBECHIES2, ENOUGH), (HAAR, FEWEST)):
        if min(y.shape) < len(taps):
            continue
        d = _coefficients(y, usable, taps)
        if d.numel() >= needed:
            return float(d.abs().median()) / QUARTILE
    return None


def _coefficients(y: Tensor, usable: Tensor, taps: tuple[float, ...]) -> Tensor:
    """(g gᵀ) * y where all pixels of the filter window are usable, without constant windows."""
    side = len(taps)
    g = y.new_tensor(taps)
    d = F.conv2d(F.conv2d(y[None, None], g.view(1, 1, 1, -1)), g.view(1, 1, -1, 1))[0, 0]

    def smallest(x: Tensor) -> Tensor:
        return -F.max_pool2d(-x[None, None], side, stride=1)[0, 0]

    whole = smallest(usable.double()) == 1
    varied = whole & (smallest(y) != -smallest(-y))
    return d[varied] if 4 * int(varied.sum()) > int(whole.sum()) else d[whole]
