"""Sampling of k-space: mask from exact zeros, its description, and the calibration region."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri.espirit import KERNELS
from pnpcm.transforms import ifft2c

STRAY_ZEROS = 0.01
"""Largest share of exact zeros inside measured columns that is attributed to quantisation."""

NEARLY_ALL = 0.95
"""From this share of the symmetric range on, empty edges do not count as partial Fourier."""


@dataclass(frozen=True)
class Sampling:
    """Description of a mask. Lines are counted along the phase axis, 0 to ``width`` − 1.

    ``acceleration``: number of grid samples per measured sample. ``acs``: number of lines of the
    fully sampled central block; of a 2-D mask, the side of the central square. ``first``, ``last``:
    outermost measured lines. ``partial_fourier``: measured share of the symmetric range, or None.
    """

    acceleration: float
    acs: int
    first: int
    last: int
    width: int
    partial_fourier: float | None
    columns: bool

    @property
    def sentence(self) -> str:
        """The description as one sentence."""
        if self.columns and self.acs == self.width:
            return f"all {self.width} phase lines were measured"
        shape = (
            f"{self.acs} central lines" if self.columns else f"a central {self.acs} × {self.acs}"
        )
        text = f"{1 / self.acceleration:.1%} of k-space was measured (acceleration "
        text += f"{self.acceleration:.2g}), with {shape} fully sampled"
        before, after = self.first, self.width - 1 - self.last
        if self.columns and (before or after):
            text += f"; {before} lines at the start and {after} at the end of the range are empty"
        if self.partial_fourier is not None:
            text += f"; partial Fourier of {self.partial_fourier:.0%}"
        return text


def infer_mask(kspace: Tensor) -> Tensor:
    """The mask of ``kspace``, (coils, H, W) or (B, coils, H, W): True where any coil is not 0.

    Boolean ``(W,)`` if columns were measured as a whole (up to 1 % of single zeros), else
    ``(H, W)``. All slices of a batch must have the same mask.
    """
    if kspace.ndim not in (3, 4):
        raise ShapeError(
            f"kspace has shape {tuple(kspace.shape)}; expected (coils, H, W) or (B, coils, H, W)"
        )
    seen = (kspace if kspace.ndim == 4 else kspace[None]).ne(0).any(1)
    columns = seen.any(1)
    empty = ~columns.any(1)
    if bool(empty.any()):
        where = f" in slice {int(empty.nonzero()[0])}" if kspace.ndim == 4 else ""
        raise ArgumentError(f"kspace is all zero{where}, so nothing was measured; leave it out")
    mask = columns[0]
    if float((seen & mask).sum()) < (1 - STRAY_ZEROS) * len(seen) * seen.shape[1] * int(mask.sum()):
        mask, columns = seen[0], seen
    different = (columns != mask).flatten(1).float().mean(1) > (
        0 if mask.ndim == 1 else STRAY_ZEROS
    )
    if bool(different.any()):
        raise ArgumentError(
            f"slices 0 and {int(different.nonzero()[0])} of kspace were sampled differently; "
            f"infer the mask of each slice on its own"
        )
    return columns.any(0)


def describe_mask(mask: Tensor) -> Sampling:
    """Acceleration, calibration block and empty edges of a mask ``(W,)`` or ``(H, W)``."""
    mask = _boolean(mask)
    lines = mask if mask.ndim == 1 else mask.any(0)
    measured = lines.nonzero().flatten()
    first, last, width = int(measured[0]), int(measured[-1]), len(lines)
    gap = int(measured.diff().max()) if len(measured) > 1 else width
    if mask.ndim == 1:
        start, stop = _run(mask)
        acs = stop - start
    else:
        acs = _square(mask)
    return Sampling(
        acceleration=mask.numel() / int(mask.sum()),
        acs=acs,
        first=first,
        last=last,
        width=width,
        partial_fourier=partial_fourier(first, last, width, gap),
        columns=mask.ndim == 1,
    )


def partial_fourier(first: int, last: int, width: int, gap: int = 1) -> float | None:
    """The share that ``first`` to ``last`` cover of the range of lines symmetric about width//2.

    None if this share is at least 95 %, or if the asymmetry is at most twice the ``gap`` between
    neighbouring lines, which undersampling alone can cause.
    """
    before, after = width // 2 - first, last - width // 2 + 1
    if min(before, after) < 0 or abs(before - after) <= 2 * gap:
        return None
    fraction = (last - first + 1) / (2 * max(before, after))
    return fraction if fraction < NEARLY_ALL else None


def calibration(
    kspace: Tensor, mask: Tensor, width: int = 24, *, kernel: int | None = None
) -> Tensor:
    """The fully sampled centre ``(coils, h, w)`` of one slice, at most ``width`` on a side.

    Raises :class:`ArgumentError` if it is narrower than ``kernel`` (None: than the smallest kernel
    of ``fit_kernel``), or if it is all zero.
    """
    if kspace.ndim != 3:
        raise ShapeError(f"kspace has shape {tuple(kspace.shape)}; expected (coils, H, W)")
    height, columns = kspace.shape[-2:]
    mask = _boolean(mask).to(kspace.device)
    if tuple(mask.shape) not in ((columns,), (height, columns)):
        raise ShapeError(
            f"mask has shape {tuple(mask.shape)}; expected ({columns},) or ({height}, {columns}) "
            f"to fit kspace"
        )
    rows, cols = _centre(mask, (height, columns), width)
    block = kspace[:, rows, cols]
    found = min(block.shape[-2:])
    automatic = KERNELS[-1][0] if len(kspace) > 1 else 1
    least = automatic if kernel is None else kernel
    if found < least:
        what = "measure more central lines" if kernel is None else "give a smaller kernel"
        raise ArgumentError(
            f"the fully sampled centre of k-space is {found} samples wide, but calibration needs "
            f"at least {least}; {what}, or give coil_maps"
        )
    if not bool(block.any()):
        raise ArgumentError(
            f"the central {tuple(block.shape[-2:])} of k-space is all zero, although the mask is 1 "
            f"there; check that k-space is centred and that the mask belongs to it"
        )
    return block


def low_resolution(kspace: Tensor, mask: Tensor, width: int = 24) -> Tensor:
    """Coil images ``(B, coils, H, W)`` of the fully sampled centre alone, with reduced ringing.

    The centre, at most ``width`` on a side, is weighted by a Hamming window. If it is narrower than
    two samples, the zero-filled images of all samples are returned.
    """
    size = (kspace.shape[-2], kspace.shape[-1])
    rows, cols = _centre(_boolean(mask).to(kspace.device), size, width)
    h, w = rows.stop - rows.start, cols.stop - cols.start
    if min(h, w) < 2:
        return ifft2c(kspace * mask.to(kspace))
    down, across = (
        torch.hamming_window(n, periodic=n % 2 == 0, device=kspace.device) for n in (h, w)
    )
    weights = kspace.real.new_zeros(size)
    weights[rows, cols] = down[:, None] * across
    return ifft2c(kspace * weights)


def _centre(mask: Tensor, size: tuple[int, int], width: int) -> tuple[slice, slice]:
    """Rows and columns of the fully sampled centre, at most ``width`` on a side."""
    height, columns = size
    if mask.ndim == 1:
        rows, (start, stop) = _middle(height, width), _run(mask)
        wanted = _middle(columns, width)
        cols = (max(start, wanted[0]), max(start, min(stop, wanted[1])))
    else:
        side = min(width, _square(mask))
        rows, cols = _middle(height, side), _middle(columns, side)
    return slice(*rows), slice(*cols)


def _boolean(mask: Tensor) -> Tensor:
    if mask.ndim not in (1, 2):
        raise ShapeError(f"mask has shape {tuple(mask.shape)}; expected (W,) or (H, W)")
    mask = mask != 0
    if not bool(mask.any()):
        raise ArgumentError("mask is all zero; expected True where k-space was measured")
    return mask


def _run(mask: Tensor) -> tuple[int, int]:
    """Start and stop of the contiguous block of lines through the centre."""
    values, middle = mask.tolist(), len(mask) // 2
    if not values[middle]:
        return middle, middle
    start = stop = middle
    while start > 0 and values[start - 1]:
        start -= 1
    while stop < len(values) and values[stop]:
        stop += 1
    return start, stop


def _square(mask: Tensor) -> int:
    """Side of the largest centred square that is fully sampled."""
    side = 0
    for s in range(1, min(mask.shape) + 1):
        (top, bottom), (left, right) = (_middle(n, s) for n in mask.shape)
        if not bool(mask[top:bottom, left:right].all()):
            break
        side = s
    return side


def _middle(n: int, width: int) -> tuple[int, int]:
    """Start and stop of the central ``width`` of ``n``: index n//2 stays the centre."""
    width = min(n, width)
    start = n // 2 - width // 2
    return start, start + width
