"""Scan: a raw scan independent of its file format, with k-space slices, geometry and notes.

K-space of a slice is always complex ``(coils, H, W)``, with H the readout and W the phase-encode
axis, centred (zero frequency at n//2); the image is its centred orthonormal inverse FFT.
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
    """Position, orientation and size of the voxels in millimetres (DICOM's LPS patient axes).

    ``position``: of the pixel (H//2, W//2) in the middle of the slices. ``readout``, ``phase``,
    ``slice``: unit vectors in the direction of increasing H, W and slice index. ``known`` is False
    if the file has no orientation; voxels are then 1 mm unless it has their size, and the axes are
    those of the patient.
    """

    voxel: Vector = (1.0, 1.0, 1.0)  # along H, W, slices
    position: Vector = (0.0, 0.0, 0.0)
    readout: Vector = (0.0, 1.0, 0.0)
    phase: Vector = (1.0, 0.0, 0.0)
    slice: Vector = (0.0, 0.0, 1.0)
    known: bool = False


@dataclass(frozen=True)
class Protocol:
    """How the scan was measured, as far as the file tells; None: not told.

    Times in milliseconds, ``flip_angle`` in degrees, ``field_strength`` in tesla, ``study_date``
    as YYYYMMDD, ``patient_position`` in DICOM's words (HFS: head first, supine).
    """

    repetition_time: float | None = None
    echo_time: float | None = None
    flip_angle: float | None = None
    field_strength: float | None = None
    manufacturer: str | None = None
    model: str | None = None
    study_date: str | None = None
    patient_position: str | None = None

    def to_dict(self) -> dict[str, str | float]:
        """What the file tells, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Scan:
    """An opened raw file. Each slice is read on access, so that large volumes can be streamed.

    ``kspace(i)``: complex64 ``(coils, H, W)`` of slice i, without readout oversampling, exact
    zeros where nothing was measured. ``size``: its (H, W); W is the full phase-encode width.
    ``crop``: (height, width) of the output image, at most ``size``. ``mask``: the mask in the
    file, boolean ``(W,)`` or ``(H, W)``; None: to be inferred from the zeros. ``noise``:
    complex ``(coils, samples)`` of a noise-only measurement. ``target(i)``: real ``(h, w)``
    reference image of the file (fastMRI's ``reconstruction_rss``). ``coil_maps(i)``: complex
    ``(coils, H, W)``. ``protocol``: parameters of the measurement. ``notes``: sentences about
    choices and changes made while reading.
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
    protocol: Protocol = field(default_factory=Protocol)
    notes: tuple[str, ...] = ()
    attributes: dict[str, str | float] = field(default_factory=dict)

    def slices(self, indices: list[int] | range) -> Tensor:
        """K-space ``(B, coils, H, W)`` of several slices."""
        return torch.stack([self.kspace(i) for i in indices])


def geometry_of(geometry: Geometry, n_slices: int, chosen: Sequence[int]) -> Geometry:
    """The geometry of the ``chosen`` slices of a volume, with their own centre and spacing.

    If the slices are not evenly spaced, they have no common grid and the geometry is unknown.
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
    """The central ``size`` of the last two axes; index n//2 remains the centre."""
    top, left = (n // 2 - s // 2 for n, s in zip(image.shape[-2:], size, strict=True))
    return image[..., top : top + size[0], left : left + size[1]]
