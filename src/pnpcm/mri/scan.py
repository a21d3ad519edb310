"""What a raw scan is, whatever file it comes from: slices of k-space, geometry, what was noted.

Everywhere k-space of a slice is complex ``(coils, H, W)``: H is the readout, W the phase-encode
axis, centred (zero frequency at n//2), image = centred orthonormal inverse FFT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

Size = tuple[int, int]
Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Geometry:
    """Where the voxels lie, in millimetres of the patient (DICOM's LPS axes).

    ``position``: of the pixel (H//2, W//2) in the middle of the slices. ``readout``, ``phase``,
    ``slice``: unit vectors along rows, columns and slices, i.e. of growing H, W and slice index.
    ``known`` is False where the file says nothing: then voxels are 1 mm and axes the patient's.
    """

    voxel: Vector = (1.0, 1.0, 1.0)  # along H, W, slices
    position: Vector = (0.0, 0.0, 0.0)
    readout: Vector = (0.0, 1.0, 0.0)
    phase: Vector = (1.0, 0.0, 0.0)
    slice: Vector = (0.0, 0.0, 1.0)
    known: bool = False


@dataclass(frozen=True)
class Scan:
    """An opened raw file. Slices are read when they are asked for, so volumes can be streamed.

    ``kspace(i)``: complex64 ``(coils, H, W)`` of slice i, readout oversampling already removed,
    exact zeros where nothing was measured. ``size``: (H, W) of it; W is the full phase-encode
    width. ``crop``: (height, width) of the image that is wanted, at most ``size``. ``mask``: the
    file's own, boolean ``(W,)`` or ``(H, W)``; None: to be inferred from the zeros. ``noise``:
    complex ``(coils, samples)`` of a noise-only measurement. ``target(i)``: real ``(h, w)``
    reference image of the file (fastMRI's ``reconstruction_rss``). ``coil_maps(i)``: complex
    ``(coils, H, W)``. ``notes``: sentences on what was chosen or changed while reading.
    """

    name: str
    format: str
    n_slices: int
    n_coils: int
    size: Size
    crop: Size
    kspace: Callable[[int], Tensor]
    mask: Tensor | None = None
    noise: Tensor | None = None
    target: Callable[[int], Tensor] | None = None
    coil_maps: Callable[[int], Tensor] | None = None
    geometry: Geometry = field(default_factory=Geometry)
    notes: tuple[str, ...] = ()
    attributes: dict[str, str | float] = field(default_factory=dict)

    def slices(self, indices: list[int] | range) -> Tensor:
        """K-space ``(B, coils, H, W)`` of several slices."""
        return torch.stack([self.kspace(i) for i in indices])


def geometry_of(geometry: Geometry, n_slices: int, chosen: Sequence[int]) -> Geometry:
    """The geometry of some slices of a volume of ``n_slices``: its centre and spacing move.

    Slices that are not evenly spaced have no common grid: their geometry is not known.
    """
    gaps = {b - a for a, b in pairwise(chosen)} or {1}
    step = gaps.pop()
    if gaps or step < 1:
        return Geometry(voxel=geometry.voxel)
    thick = geometry.voxel[2]
    away = thick * ((chosen[0] + chosen[-1]) / 2 - (n_slices - 1) / 2)
    x, y, z = (p + away * d for p, d in zip(geometry.position, geometry.slice, strict=True))
    voxel = (*geometry.voxel[:2], thick * step)
    return replace(geometry, position=(x, y, z), voxel=voxel)


def crop_centre(image: Tensor, size: Size) -> Tensor:
    """The central ``size`` of the last two axes: index n//2 stays the centre."""
    top, left = (n // 2 - s // 2 for n, s in zip(image.shape[-2:], size, strict=True))
    return image[..., top : top + size[0], left : left + size[1]]
