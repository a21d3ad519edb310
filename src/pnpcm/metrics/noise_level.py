"""Noise of an image: its level, for an unknown ``sigma_y``, and whether it is white."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError

PATCH = 7
"""Side of the patches of the weak-texture estimate."""
MOST = 60_000
"""Patches per channel; larger images are sampled on a grid."""
STRENGTH = 102.0
"""Chi-square quantile: ‖q‖² of a patch of white noise of variance 1 is larger once in 10⁶."""
PER_DIRECTION = 4
"""Patches per eigenvalue below which a covariance is too uncertain."""
SQUARE = 32
"""Side in pixels of the squares that form the two halves."""
SHARED = (0.4, 0.95)
"""Ratios of the joint estimate of the channels to the separate ones that are texture: lower ones
may be noise that the channels share, higher ones are within the error."""
GROUPS = 5
"""Groups of patches by brightness; the flattest patches are a share of 1 / GROUPS."""
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
        \hat\sigma^2 = \lambda_{\min}\bigl(\operatorname{Cov}\{q_i : \|q_i\|^2 \le \tau
        \hat\sigma^2\}\bigr), \qquad q = Q^T p

    over patches p of 7×7 pixels without their quadratic trend (Q: 43 orthonormal directions). In
    weakly textured patches the image varies in fewer directions than the noise. τ is a quantile of
    ‖Qᵀn‖² for noise n of variance 1; three iterations, from all patches. After Liu, Tanaka and
    Okutomi, IEEE TIP 22 (2013), who measure the texture by gradients. The smallest eigenvalue of a
    sample is too small; here its eigenvector is taken from one half of the patches, and the
    variance along it from the other.

    Noise that differs between the channels of a colour image is told from texture, which does not:
    see ``_joint``. Returns the mean over channels and images, each estimated separately.

    ``mask`` (1: known, broadcast to y): only patches of known pixels are used. Where they are too
    few (small images, scattered pixels): :func:`median_noise_std`.

    Patches without information on the noise are not used: those that contain a clipped pixel (at
    the smallest or largest value of its channel, if more than one in 1000 pixels have it, and more
    than the neighbouring value: a saturated sky), and constant ones (padding, flat backgrounds),
    unless three quarters are constant, as in a drawing. A constant image gives 0.
    """
    y, known = _checked(y, mask)
    found: list[float] = []
    for image, k in zip(y, known, strict=True):
        patches = [_patches(p, m) for p, m in zip(image.double(), k, strict=True)]
        weak = [
            None if p is None else _weak_texture(p.values[p.shows], p.half[p.shows])
            for p in patches
        ]
        factor = _joint(patches, weak)
        for std, plane, m in zip(weak, image, k, strict=True):
            level = _median(plane, m) if std is None else factor * std
            found += [] if level is None else [level]
    return _mean(found, y, known)


def median_noise_std(y: Tensor, mask: Tensor | None = None) -> float:
    r"""The noise of :func:`estimate_noise_std` from wavelet details, also of few pixels.

    .. math::
        \hat\sigma = \operatorname{median} |d_i| / 0.6745, \qquad d = (g\, g^T) * y

    with d the finest diagonal coefficients of Daubechies' second wavelet g, where photographs have
    little but noise, here at every pixel instead of every second; Haar's wavelet (2×2 pixels) if
    fewer than 500 windows of 4×4 are complete. Donoho and Johnstone (1994). Fine texture increases
    it.
    """
    y, known = _checked(y, mask)
    planes = zip(y.flatten(0, 1), known.flatten(0, 1), strict=True)
    return _mean([std for p, k in planes if (std := _median(p, k)) is not None], y, known)


@dataclass(frozen=True)
class NoiseProfile:
    """How the noise of an image differs from white noise of one level, on the scale of ``y``.

    ``brightness``, ``std``: mean value and level of five groups of patches, by brightness.
    ``offset``, ``slope``: least squares of std² = offset + slope · brightness. ``correlation``:
    of neighbouring pixels in the flat patches (at most twice the energy of the flattest fifth), 0
    for white noise; ``flat_std``: standard deviation there; ``spread``: energy of the median patch
    relative to the flattest fifth, below 2 for noise alone, large for texture.
    """

    brightness: tuple[float, ...]
    std: tuple[float, ...]
    offset: float
    slope: float
    correlation: float
    flat_std: float
    spread: float


def noise_profile(y: Tensor, mask: Tensor | None = None) -> NoiseProfile | None:
    r"""The :class:`NoiseProfile` of ``y`` ``(B, C, H, W)``; None if too few patches are complete.

    The correlation r₁/r₀ comes from the autocovariance r that is nearest, in least squares, to
    the covariance of the patches without their trend:

    .. math::
        \operatorname{Cov}(q) \approx \sum_k r_k\, Q^T T_k Q, \qquad
        (T_k)_{ij} = 1 \text{ if pixels } i, j \text{ have the squared distance } k
    """
    y, known = _checked(y, mask)
    planes = zip(y.double().flatten(0, 1), known.flatten(0, 1), strict=True)
    patches = [p for plane, k in planes if (p := _patches(plane, k)) is not None]
    if not patches:
        return None
    values = torch.cat([p.values[p.shows] for p in patches])
    half = torch.cat([p.half[p.shows] for p in patches])
    mean = values.mean((1, 2))
    order = mean.argsort()
    found = []
    for group in order.chunk(GROUPS):
        std = _weak_texture(values[group], half[group])
        if std is None:
            return None
        found.append((float(mean[group].mean()), std))
    brightness, stds = zip(*found, strict=True)
    slope, offset = _line(brightness, [s**2 for s in stds])
    q = values.flatten(1) @ _directions().to(values)
    energy = q.square().sum(1)
    level = energy.sort().values[: max(1, len(energy) // GROUPS)].mean()
    flat = q[energy <= 2 * level]
    r = _autocovariance(flat.T.cov())
    return NoiseProfile(
        brightness=brightness,
        std=stds,
        offset=offset,
        slope=slope,
        correlation=float(r[1] / r[0]) if float(r[0]) > 0 else 0.0,
        flat_std=math.sqrt(max(float(r[0]), 0.0)),
        spread=float(energy.median() / level) if float(level) > 0 else math.inf,
    )


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and offset of the least-squares line."""
    x0, y0 = sum(x) / len(x), sum(y) / len(y)
    square = sum((a - x0) ** 2 for a in x)
    slope = sum((a - x0) * (b - y0) for a, b in zip(x, y, strict=True)) / square if square else 0.0
    return slope, y0 - slope * x0


def _autocovariance(covariance: Tensor) -> Tensor:
    """r at the squared distances 0, 1, 2, 4, 5 and 8, from the covariance of q."""
    i = torch.arange(PATCH**2)
    rows, columns = i // PATCH, i % PATCH
    square = (rows[:, None] - rows) ** 2 + (columns[:, None] - columns) ** 2
    q = _directions()
    basis = torch.stack([(q.T @ (square == k).double() @ q).flatten() for k in (0, 1, 2, 4, 5, 8)])
    r: Tensor = torch.linalg.lstsq(basis.T, covariance.cpu().flatten()[:, None]).solution[:, 0]
    return r


def _mean(found: list[float], y: Tensor, known: Tensor) -> float:
    """The mean of the channels' levels; refuses an image without any."""
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


def _usable(y: Tensor, known: Tensor) -> Tensor:
    """The known pixels of a channel that are not clipped."""
    seen = y[known]
    usable = known
    if seen.numel() == 0:
        return usable
    for sign in (1, -1):
        end = (sign * seen).max()
        at_end = sign * seen == end
        count = int(at_end.sum())
        if count <= CLIPPED * seen.numel():
            continue
        inner = sign * seen[~at_end]
        # clipped values are frequent; at the end of a noise tail the next value is more frequent
        if not inner.numel() or count > int((inner == inner.max()).sum()):
            usable = usable & (sign * y != end)
    return usable


@dataclass(frozen=True)
class _Patches:
    """Patches ``(N, 7, 7)`` of a channel on a grid. ``shows``: those that show the noise; ``half``:
    0 or 1, in squares like those of a chessboard.
    """

    values: Tensor
    shows: Tensor
    half: Tensor


def _patches(y: Tensor, known: Tensor) -> _Patches | None:
    """The patches of a channel ``(H, W)``; None if it is smaller than a patch."""
    if min(y.shape) < PATCH:
        return None
    step = math.ceil(math.sqrt(y.numel() / MOST))
    y = torch.where(known, y, 0)
    usable = _usable(y, known)
    values = y.unfold(0, PATCH, step).unfold(1, PATCH, step)
    whole = (-F.max_pool2d(-usable.double()[None], PATCH, step)[0]).flatten() == 1
    rows, columns = (torch.arange(n, device=y.device) * step // SQUARE for n in values.shape[:2])
    half = ((rows[:, None] + columns) % 2).flatten()
    values = values.reshape(-1, PATCH, PATCH)
    varied = whole & (values.amax((1, 2)) > values.amin((1, 2)))
    return _Patches(values, varied if 4 * int(varied.sum()) > int(whole.sum()) else whole, half)


def _weak_texture(values: Tensor, half: Tensor) -> float | None:
    """The level of the patches ``(N, 7, 7)``, in two halves; None if they are too few."""
    q = values.flatten(1) @ _directions().to(values)
    energy = q.square().sum(1)
    variance = _smallest(q, half)
    for _ in range(3):
        weak = energy <= STRENGTH * (variance or 0.0)
        found = _smallest(q[weak], half[weak])
        if found is None:
            break
        variance = found
    if variance is None:
        return None
    rounding = 1e-13 * float(values.square().mean())  # of float32
    return math.sqrt(variance) if variance > rounding else 0.0


@cache
def _directions() -> Tensor:
    """Orthonormal columns ``(49, 43)``: the patches without a quadratic trend."""
    i = torch.arange(PATCH, dtype=torch.float64) - PATCH // 2
    rows, columns = torch.meshgrid(i, i, indexing="ij")
    trend = [rows**a * columns**b for a in range(3) for b in range(3 - a)]
    whole, _ = torch.linalg.qr(torch.stack(trend, -1).flatten(0, 1), mode="complete")
    rest: Tensor = whole[:, len(trend) :]
    return rest


def _smallest(vectors: Tensor, half: Tensor) -> float | None:
    """Smallest eigenvalue of the covariance: direction from one half, variance from the other."""
    halves = [vectors[half == i] for i in (0, 1)]
    if min(len(v) for v in halves) < PER_DIRECTION * vectors.shape[1]:
        return None
    covariances = [v.T.cov() for v in halves]
    directions = [torch.linalg.eigh(c).eigenvectors[:, 0] for c in covariances]
    found = [float(v @ c @ v) for v, c in zip(directions, reversed(covariances), strict=True)]
    return sum(found) / 2


def _joint(patches: list[_Patches | None], stds: list[float | None]) -> float:
    r"""Factor of the levels of a colour image's channels, for texture that they share.

    Chen, Zhu and Heng (ICCV 2015): of the eigenvalues of the covariance of colour patches (4×4,
    here in units of the channels' levels), the largest belong to the image; those left when their
    mean has come down to their median are the variance of the noise. This assumes independent
    noise in the channels. If they share it (grey pictures in colour, JPEG), the ratio is below
    the range ``SHARED``, and nothing is corrected.
    """
    if len(patches) < 2 or any(p is None for p in patches) or not all(stds):
        return 1.0
    found = [p for p in patches if p is not None]
    shows = torch.stack([p.shows for p in found]).all(0)
    side = PATCH // 2 + 1
    parts = [
        p.values[shows, :side, :side].flatten(1) / (std or 1.0)
        for p, std in zip(found, stds, strict=True)
    ]
    vectors = torch.cat(parts, 1)
    if len(vectors) < PER_DIRECTION * vectors.shape[1]:
        return 1.0
    eigenvalues = torch.linalg.eigvalsh(vectors.T.cov())
    count = len(eigenvalues)
    while count > 1 and float(eigenvalues[:count].mean()) > float(eigenvalues[:count].median()):
        count -= 1
    factor = math.sqrt(max(float(eigenvalues[:count].mean()), 0.0))
    return factor if SHARED[0] <= factor <= SHARED[1] else 1.0


def _median(y: Tensor, known: Tensor) -> float | None:
    """:func:`median_noise_std` of one channel ``(H, W)``; None if too few pixels are known."""
    y = torch.where(known, y.double(), 0)
    usable = _usable(y, known)
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
