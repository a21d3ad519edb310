"""What a finished reconstruction is before it becomes files, and where its voxels lie."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pnpcm.errors import ArgumentError, MissingExtraError, ShapeError
from pnpcm.mri.scan import Geometry, Protocol, Vector

Array = NDArray[np.float32]
NO_GEOMETRY = "no geometry in the input"


@dataclass(frozen=True)
class Volume:
    """A reconstructed volume in the units of the scan, scale and phase restored.

    ``image``: complex ``(slices, h, w)``. ``std``: its standard deviation, ``reference``: the
    magnitude it is compared with, both real ``(slices, h, w)``. ``mask``: sampled positions of
    k-space, boolean ``(W,)`` or ``(H, W)``. ``name``: what files are called, without an ending.
    ``protocol``: how it was measured. ``record``: configuration, scores and timings, anything that
    JSON can hold.
    """

    image: Tensor
    mask: Tensor
    name: str
    std: Tensor | None = None
    reference: Tensor | None = None
    geometry: Geometry = field(default_factory=Geometry)
    protocol: Protocol = field(default_factory=Protocol)
    record: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = tuple(self.image.shape)
        if len(shape) != 3 or not self.image.is_complex() or 0 in shape:
            raise ShapeError(
                f"image is {self.image.dtype} of shape {shape}, expected complex (slices, h, w)"
            )
        for key, values in (("std", self.std), ("reference", self.reference)):
            if values is not None and (tuple(values.shape) != shape or values.is_complex()):
                raise ShapeError(
                    f"{key} is {values.dtype} of shape {tuple(values.shape)}, "
                    f"expected real {shape} as the image has"
                )
        if self.mask.ndim not in (1, 2) or self.mask.numel() == 0:
            raise ShapeError(f"mask has shape {tuple(self.mask.shape)}, expected (W,) or (H, W)")
        if self.name in ("", ".", "..") or any(c in "/\\" or c < " " for c in self.name):
            raise ArgumentError(
                f"name is {self.name!r}, expected a file name without an ending; take the folder "
                "out of it"
            )
        self.record_json()

    @property
    def shape(self) -> tuple[int, int, int]:
        """(slices, h, w)."""
        slices, h, w = self.image.shape
        return slices, h, w

    def magnitude(self) -> Array:
        """|image| as a float32 array ``(slices, h, w)``."""
        return to_array(self.image.abs())

    def record_json(self, indent: int | None = None) -> str:
        """The record as JSON text."""
        try:
            return json.dumps(self.record, indent=indent, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"record holds what JSON cannot ({error}); turn it into numbers, text and lists"
            ) from error

    def affine(self) -> NDArray[np.float64]:
        """4 × 4 matrix from (row, column, slice, 1) to patient millimetres, DICOM's LPS axes.

        ``geometry.position`` is where the pixel (h//2, w//2) lies, the centre of the Fourier
        transform, halfway between the first and the last slice, index (slices − 1)/2:
        position + (i − h//2) v_h readout + (j − w//2) v_w phase + (k − (slices − 1)/2) v_s slice.
        """
        g, (slices, h, w) = self.geometry, self.shape
        if not g.known:
            g = Geometry(voxel=g.voxel)
        axes = np.array([g.readout, g.phase, g.slice], dtype=np.float64)
        gram = axes @ axes.T
        if not np.allclose([*gram.diagonal(), gram[0, 1]], [1, 1, 1, 0], atol=1e-3):
            raise ArgumentError(
                f"geometry has readout {g.readout}, phase {g.phase} and slice {g.slice}, expected "
                "unit vectors and readout ⟂ phase; set known=False to write without geometry"
            )
        if not (np.isfinite(g.voxel).all() and min(g.voxel) > 0):
            raise ArgumentError(f"geometry.voxel is {g.voxel}, expected millimetres above 0")
        affine = np.eye(4)
        affine[:3, :3] = (axes * np.array(g.voxel)[:, None]).T
        centre = np.array([h // 2, w // 2, (slices - 1) / 2])
        affine[:3, 3] = np.array(g.position) - affine[:3, :3] @ centre
        return affine


VIEWS = (
    ((0.0, 0.0, -1.0), (0.0, 1.0, 0.0)),  # sagittal: down to the feet, right to the back
    ((0.0, 0.0, -1.0), (1.0, 0.0, 0.0)),  # coronal: down to the feet, right to the patient's left
    ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0)),  # axial: down to the back, right to the patient's left
)
"""Directions of rows and columns on a screen, by the patient axis that is nearest to the normal."""


def upright(volume: Volume) -> Volume:
    """The volume as radiologists look at it: rows and columns exchanged and reversed as needed.

    Every voxel keeps its place in the patient. Without a known geometry nothing is changed.
    """
    g = volume.geometry
    if not g.known:
        return volume
    down, right = VIEWS[int(np.abs(g.slice).argmax())]
    if abs(_dot(g.readout, right)) + abs(_dot(g.phase, down)) > abs(_dot(g.readout, down)) + abs(
        _dot(g.phase, right)
    ):
        v, u, thick = g.voxel
        g = replace(g, readout=g.phase, phase=g.readout, voxel=(u, v, thick))
        volume = _changed(volume, g, lambda values: values.transpose(-1, -2))
    if _dot(g.readout, down) < 0:
        g = replace(
            g,
            readout=_scaled(g.readout, -1),
            position=_turned(g.position, g.readout, g.voxel[0], volume.shape[1]),
        )
        volume = _changed(volume, g, lambda values: values.flip(-2))
    if _dot(g.phase, right) < 0:
        g = replace(
            g,
            phase=_scaled(g.phase, -1),
            position=_turned(g.position, g.phase, g.voxel[1], volume.shape[2]),
        )
        volume = _changed(volume, g, lambda values: values.flip(-1))
    return volume


def _changed(volume: Volume, geometry: Geometry, change: Callable[[Tensor], Tensor]) -> Volume:
    """``change`` of all images of a volume, with its new geometry."""
    std, reference = (None if t is None else change(t) for t in (volume.std, volume.reference))
    image = change(volume.image)
    return replace(volume, image=image, std=std, reference=reference, geometry=geometry)


def _turned(position: Vector, direction: Vector, step: float, n: int) -> Vector:
    """Where index n//2 of an axis lies after its reversal: index n − 1 − n//2 before."""
    away = _scaled(direction, step * (n - 1 - 2 * (n // 2)))
    x, y, z = (p + d for p, d in zip(position, away, strict=True))
    return (x, y, z)


def _scaled(vector: Vector, factor: float) -> Vector:
    x, y, z = vector
    return (factor * x, factor * y, factor * z)


def _dot(a: Vector, b: Vector) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


def to_array(values: Tensor) -> Array:
    """A real tensor as a float32 array."""
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float32)


def need(library: str, purpose: str) -> Any:
    """The module, or the error that says how to get it."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs {library}; pip install 'pnpcm[mri]'") from error
