"""ESPIRiT: coil sensitivity maps from the centre of k-space (Uecker et al., MRM 71:990, 2014).

The kernel×kernel blocks of the calibration data, one per row of a matrix, span a space with far
fewer dimensions than its columns; its right singular vectors v_j above the threshold are kernels
that reproduce the data. In the image they act on the coils of one pixel q alone,

    G(q) = 1/kernel² Σ_j a_j(q) a_j(q)ᴴ,    a_j = Σ_i v_j[i] exp(2πi q·i/N),

and the coil maps s(q) are what they leave alone: G(q) s(q) = λ(q) s(q) with λ = 1, the largest
eigenvalue there can be. Where nothing was imaged λ is smaller. Where the object is larger than the
field of view and folds over itself, two eigenvalues are 1 and one set of maps cannot describe the
data: soft-SENSE takes the eigenvectors of the M largest eigenvalues as M sets of maps.

It is fast because G is a trigonometric polynomial of (2·kernel − 1)² coefficients, so that two
small matrix products give it exactly on any grid. Eigenvectors are found on a coarse one, brought
to the image by interpolation and refined by power iteration with the G of every pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.reading import SHARE, memory

COARSE = 6
"""Coarse grid points per coefficient of G along an axis: an eigenvector bends more than G."""

POWERS = 5
"""G to the power 4⁵ has the dominant eigenvector in its columns, as 1024 iterations would."""

REFINEMENTS = 2
"""Power iterations at each pixel of the image, from the interpolated eigenvector."""

STILL = 3e-4
"""An eigenvector that the last iteration moved by more belongs to a matrix with two large
eigenvalues, as where the object folds over itself: there G is squared instead."""

STRIP = 4096
"""Pixels whose matrices are held at a time, at least one row of them."""

BLOCK = 32
"""Bytes for each sample of the blocks: they, their copy and their singular vectors."""
KERNELS = ((14, 6), (10, 5), (8, 4), (5, 3))
"""Fewest calibration lines for a kernel of this width; see :func:`fit_kernel`."""

FOLDED = 0.03
"""Share of the support with a second eigenvalue above ``crop`` from which on two sets are used.

Simulated scans of training slices (``benchmarks/studies/mri_map_rule.py``), from 12 calibration
lines on: at most 0.03 where the object fits into the field of view (0.05 with 8 lines, 0.23 with
6), and 0.1 to 0.2 in the median where it folds over itself. A second set that is not needed costs
time and less than 0.05 dB.
"""

GRID = 36
"""Points per side of the grid on which that share is counted."""

TINY = 1e-30


def fit_kernel(
    lines: int, *, kernel: int | None = None, crop: float | None = None
) -> tuple[int, float]:
    """Kernel width and crop that ``lines`` calibration lines support; given values stay.

    The blocks of the calibration region must span the whole space of kernels, and a region of few
    lines has few blocks side by side (a longer readout changes nothing). If they do not, λ falls
    below the crop inside the object, which is then cut off; a small kernel or crop takes in air.
    Chosen on simulated scans of training slices (``benchmarks/studies/mri_map_rule.py``: kernels
    3 … 7, crops 0.8 … 0.97). Mean loss in dB of CG-SENSE against the best pair of each slice, loops
    at least 1.0 / 0.9 of half the field of view from its centre, and the loss on the worst slice:

        =====  ===========================  ========================================
        lines  kernel 6, crop 0.95          this rule
        =====  ===========================  ========================================
        6      not possible                 0.78, worst 1.88         (kernel 3, 0.9)
        8      10.36 / 10.84, worst 18.19   0.67 / 0.46, worst 1.76  (kernel 4, 0.9)
        10     0.78 / 1.38, worst 4.71      0.66 / 0.57, worst 1.66  (kernel 5, 0.9)
        14     – / 0.42, worst 1.11         – / 0.30, worst 0.54     (kernel 6, 0.925)
        16     0.40, worst 0.67             the same                 (kernel 6, 0.95)
        24     0.30, worst 0.59             the same                 (kernel 6, 0.95)
        =====  ===========================  ========================================

    Crop 0.95 everywhere would gain 0.05 to 0.4 dB for 6 to 10 lines there; but it cuts up to 10 %
    off measured brains, whose maps are less smooth, and tissue that is lost is worse than air.
    """
    if kernel is None:
        kernel = next((width for least, width in KERNELS if lines >= least), None)
        if kernel is None:
            raise ArgumentError(
                f"the fully sampled centre of k-space is {lines} samples wide, but calibration "
                f"needs at least {KERNELS[-1][0]}; give coil_maps, or an explicit kernel"
            )
    if crop is None:
        spare = (lines / kernel - 2) / (8 / 3 - 2)  # 0 … 1 from twice the kernel to 8/3 of it
        crop = round(0.9 + 0.05 * min(max(spare, 0.0), 1.0), 4)
    return kernel, crop


def espirit(
    calibration: Tensor,
    size: tuple[int, int],
    *,
    kernel: int | None = None,
    threshold: float = 0.02,
    crop: float | None = None,
    map_sets: int = 1,
) -> Tensor:
    """Coil maps, complex64 ``(B, coils, H, W)``, of images of ``size`` (H, W).

    ``calibration``: fully sampled centre of k-space ``(B, coils, h, w)``, zero frequency at n//2;
    24×24 is usual. Without B the maps have none either. ``kernel``, ``crop``: None fits them to
    the width of the calibration, see :func:`fit_kernel`. ``threshold``: kernels are kept whose
    singular value exceeds this share of the largest. Maps are exact zeros wherever λ(q) ≤ crop;
    elsewhere their root-sum-of-squares is 1, and coil 0 is real and not negative.
    ``map_sets`` M > 1: ``(B, M, coils, H, W)``, each set orthogonal to those before it and zero
    where its own eigenvalue is ≤ crop; :func:`count_sets` says how many there are. A single coil
    has nothing to be compared with: its map is one everywhere.
    """
    kernel, crop = _checked(calibration, size, kernel, threshold, crop)
    coils = calibration.shape[-3]
    if not 1 <= map_sets <= coils:
        raise ArgumentError(
            f"map_sets is {map_sets}, but there are {coils} coils; give a number from 1 to {coils}"
        )
    slices = calibration.detach() if calibration.ndim == 4 else calibration.detach()[None]
    if coils == 1:
        maps = torch.ones(len(slices), 1, 1, *size, dtype=torch.complex64, device=slices.device)
    else:
        maps = _per_slice(
            lambda one: _maps(_spectrum(_kernels(one, kernel, threshold)), size, crop, map_sets),
            slices,
        )
    maps = maps if map_sets > 1 else maps[:, 0]
    return maps if calibration.ndim == 4 else maps[0]


def count_sets(
    calibration: Tensor,
    *,
    kernel: int | None = None,
    threshold: float = 0.02,
    crop: float | None = None,
) -> int:
    """How many sets of maps the calibration ``(coils, h, w)`` of one slice asks for: 1 or 2.

    2 where the second eigenvalue exceeds ``crop`` in more than ``FOLDED`` of the support.
    """
    kernel, crop = _checked(calibration, (GRID, GRID), kernel, threshold, crop)
    if len(calibration) < 3:  # two eigenvalues of 1 among two coils explain any data
        return 1
    G = _on_grid(_spectrum(_kernels(calibration.detach(), kernel, threshold)), (GRID, GRID))
    above = (torch.linalg.eigvalsh(G) > crop).sum((0, 1))
    return 2 if int(above[-2]) > FOLDED * int(above[-1]) else 1


def coherence(a: Tensor, b: Tensor) -> Tensor:
    """|aᴴb| / (‖a‖ ‖b‖) over the coils of ``(…, coils, H, W)``: 1 is the same map up to a factor.

    0 where either map is zero.
    """
    product = (a.conj() * b).sum(-3).abs()
    norms = torch.linalg.vector_norm(a, dim=-3) * torch.linalg.vector_norm(b, dim=-3)
    return torch.where(norms > 0, product / norms, 0.0)


def _per_slice(work: Callable[[Tensor], Tensor], slices: Tensor) -> Tensor:
    """``work`` on as many slices at a time as torch has threads, one thread for each.

    Torch's own threads would meet after every small product; on busy cores, where they wait for
    each other to be scheduled, that took seventeen times as long.
    """
    if slices.device.type != "cpu":
        return torch.stack([work(one) for one in slices])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that start now inherit it
    try:
        if threads == 1 or len(slices) == 1:
            return torch.stack([work(one) for one in slices])
        with ThreadPoolExecutor(threads) as pool:
            return torch.stack(list(pool.map(work, slices)))
    finally:
        torch.set_num_threads(threads)


def _kernels(calibration: Tensor, kernel: int, threshold: float) -> Tensor:
    """Kernels ``(K, coils, kernel, kernel)``: an orthonormal basis of the calibration's blocks."""
    coils = calibration.shape[0]
    data = (calibration / calibration.abs().max()).to(torch.complex64)
    blocks = data.unfold(1, kernel, 1).unfold(2, kernel, 1)  # coils, rows, columns, kernel, kernel
    matrix = blocks.permute(1, 2, 0, 3, 4).reshape(-1, coils * kernel**2)
    _, values, vectors = torch.linalg.svd(matrix, full_matrices=False)
    kept: Tensor = vectors[values > threshold * values[0]]
    return kept.reshape(-1, coils, kernel, kernel)


def _spectrum(kernels: Tensor) -> Tensor:
    """Fourier coefficients of G, ``(m, m, coils, coils)`` with m = 2·kernel − 1.

    m² samples of G determine it; there Σ_j a_j a_jᴴ is one product of matrices.
    """
    side = kernels.shape[-1]
    m = 2 * side - 1
    a = torch.fft.ifft2(kernels, s=(m, m), norm="forward").permute(2, 3, 1, 0)
    spectrum: Tensor = torch.fft.fft2(a @ a.mH, dim=(0, 1), norm="forward")
    return spectrum / side**2


def _maps(spectrum: Tensor, size: tuple[int, int], crop: float, map_sets: int) -> Tensor:
    """Maps ``(M, coils, H, W)`` from the coefficients of G, strip by strip of rows."""
    m, coils = spectrum.shape[1:3]
    height, width = size
    grid = (min(height, COARSE * m), min(width, COARSE * m))
    start = _upsample(_dominant(_on_grid(spectrum, grid)), width, dim=1)
    waves = _waves(height, spectrum), _waves(width, spectrum)
    rows = (waves[0] @ spectrum.reshape(m, -1)).reshape(height, m, coils**2)

    maps = spectrum.new_empty(map_sets, coils, height, width)
    step = max(1, STRIP // width)
    for top in range(0, height, step):
        strip = slice(top, top + step)
        G = (waves[1] @ rows[strip]).reshape(-1, width, coils, coils)
        s = _upsample(start, height, dim=0, part=strip)
        for _ in range(REFINEMENTS):
            before, (s, eigenvalue) = s, _unit((G @ s[..., None])[..., 0])
        inside = eigenvalue > crop
        moving = inside & (_unit(s - before)[1] > STILL)
        s[moving] = _dominant(G[moving])
        maps[0, :, strip] = _phased(s, inside)
        if map_sets > 1:
            maps[1:, :, strip] = _further(G, s, crop, map_sets - 1)
    return maps


def _further(G: Tensor, s: Tensor, crop: float, count: int) -> Tensor:
    """Maps ``(count, coils, h, w)`` of the largest eigenvalues of G among what is orthogonal to s.

    Only where they can exceed ``crop``: the squares of all eigenvalues add up to ‖G‖².
    """
    first = (G @ s[..., None])[..., 0]
    rest = torch.view_as_real(G).square().sum((-3, -2, -1)) - _unit(first)[1].square()
    where = rest > (0.99 * crop) ** 2  # s may be slightly less than dominant
    maps = G.new_zeros(count, G.shape[-1], *where.shape)
    G, s = G[where], s[where]
    for k in range(count):
        G = _deflated(G, s)
        s, eigenvalue = _unit((G @ _dominant(G)[..., None])[..., 0])
        maps[k][:, where] = _phased(s, eigenvalue > crop)
    return maps


def _deflated(G: Tensor, s: Tensor) -> Tensor:
    """(1 − s sᴴ) G (1 − s sᴴ): G on what is orthogonal to the unit vectors ``s``."""
    s = s[..., None]
    Gs = G @ s
    return G - Gs @ s.mH - s @ Gs.mH + (s.mH @ Gs) * (s @ s.mH)


def _phased(s: Tensor, inside: Tensor) -> Tensor:
    """Unit vectors ``(…, coils)`` as maps ``(coils, …)``: coil 0 is real and not negative."""
    first = s[..., :1]
    s = s * torch.where(first == 0, 1, first.sgn().conj())
    return torch.where(inside[..., None], s, 0).movedim(-1, 0)


def _waves(n: int, spectrum: Tensor) -> Tensor:
    """exp(2πi (p − n//2) d / n) for pixels p and coefficients d = 0 … kernel−1, 1−kernel … −1."""
    m = spectrum.shape[0]
    d = torch.fft.fftfreq(m, 1 / m, dtype=torch.float64, device=spectrum.device)
    p = (torch.arange(n, device=spectrum.device) - n // 2) / n
    angle = 2 * math.pi * p[:, None] * d
    return torch.polar(torch.ones_like(angle), angle).to(spectrum.dtype)


def _on_grid(spectrum: Tensor, size: tuple[int, int]) -> Tensor:
    """G ``(H, W, coils, coils)`` at every pixel of a grid of ``size`` over the field of view."""
    m, _, coils, _ = spectrum.shape
    rows = (_waves(size[0], spectrum) @ spectrum.reshape(m, -1)).reshape(-1, m, coils**2)
    return (_waves(size[1], spectrum) @ rows).reshape(*size, coils, coils)


def _dominant(G: Tensor) -> Tensor:
    """Dominant eigenvectors ``(…, coils)``, of any phase, by squaring G again and again."""
    for _ in range(POWERS):
        trace = G.diagonal(dim1=-2, dim2=-1).real.sum(-1).clamp_min(TINY)
        G = _scale(G, 1 / trace[..., None, None])
        G = G @ G
        G = G @ G
    best = G.diagonal(dim1=-2, dim2=-1).real.argmax(-1)  # the column v v̄_c that is longest
    return _unit(torch.take_along_dim(G, best[..., None, None], dim=-1)[..., 0])[0]


def _upsample(v: Tensor, n: int, dim: int, part: slice = slice(None)) -> Tensor:
    """Unit vectors ``(…, coils)`` on ``n`` points instead of ``v.shape[dim]``, or a part of them.

    Between neighbours u and v the projectors are interpolated, ((1 − t) u uᴴ + t v vᴴ) u, not the
    vectors: their phases are arbitrary, and no coil serves as a reference everywhere.
    """
    coarse = v.shape[dim]
    position = (torch.arange(n, dtype=torch.float64, device=v.device)[part] - n // 2) / n * coarse
    position = position + coarse // 2
    low = position.floor()
    t = (position - low).float().reshape([-1 if i == dim else 1 for i in range(v.ndim)])
    left = v.index_select(dim, low.long() % coarse)
    right = v.index_select(dim, (low.long() + 1) % coarse)
    s = (1 - t) * left + t * right * (right.conj() * left).sum(-1, keepdim=True)
    return _unit(s)[0]


def _unit(v: Tensor) -> tuple[Tensor, Tensor]:
    """``v`` with unit norm along the last axis, and the norm it had."""
    norm = torch.linalg.vector_norm(torch.view_as_real(v).flatten(-2), dim=-1)
    return _scale(v, 1 / norm.clamp_min(TINY)[..., None]), norm


def _scale(v: Tensor, factor: Tensor) -> Tensor:
    """Complex times real, part by part: many times faster than torch's own, which promotes."""
    return torch.view_as_complex(torch.view_as_real(v) * factor[..., None])


def _checked(
    calibration: Tensor,
    size: tuple[int, int],
    kernel: int | None,
    threshold: float,
    crop: float | None,
) -> tuple[int, float]:
    """The kernel and the crop to use, after a look at all arguments."""
    shape = tuple(calibration.shape)
    if calibration.ndim not in (3, 4) or not calibration.is_complex() or 0 in shape:
        raise ShapeError(
            f"calibration is {calibration.dtype} of shape {shape}, expected complex k-space "
            "(coils, h, w) or (B, coils, h, w); torch.complex joins real and imaginary parts"
        )
    if len(size) != 2 or min(size) < 1:
        raise ArgumentError(f"size is {size}, expected (H, W) of the image; give both, at least 1")
    if kernel is not None and not 1 <= kernel <= min(shape[-2:]):
        raise ArgumentError(
            f"calibration is {shape[-2]}×{shape[-1]}, but needs at least the kernel of "
            f"{kernel}×{kernel} samples; give a larger centre of k-space or a smaller kernel ≥ 1"
        )
    if shape[-3] == 1:  # a single coil needs no kernel
        kernel = kernel or 1
    kernel, crop = fit_kernel(min(shape[-2:]), kernel=kernel, crop=crop)
    if not (0 <= threshold < 1 and 0 <= crop < 1):
        raise ArgumentError(
            f"threshold is {threshold} and crop is {crop}, expected both in [0, 1); "
            "0.02 and 0.95 suit most scans"
        )
    blocks = math.prod(n - kernel + 1 for n in shape[-2:])
    needed, most = BLOCK * blocks * shape[-3] * kernel**2, int(SHARE * memory())
    if needed > most:
        raise ArgumentError(
            f"kernel is {kernel}, whose blocks of a calibration of {shape[-2]}×{shape[-1]} with "
            f"{shape[-3]} coils need {needed / 2**30:.3g} GiB, expected at most "
            f"{most / 2**30:.3g}; give a smaller kernel or a narrower calibration"
        )
    largest = calibration.abs().flatten(-3).amax(-1).reshape(-1)
    for i, value in enumerate(largest.tolist()):
        if not math.isfinite(value) or value == 0:
            what = "all zero" if value == 0 else "not finite (NaN or infinity)"
            raise ArgumentError(
                f"calibration of slice {i} is {what}, expected the measured centre of k-space; "
                "leave that slice out or check where the scan was read"
            )
    return kernel, crop
