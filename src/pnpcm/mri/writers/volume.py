"""What a finished reconstruction is before it becomes files, and where its voxels lie."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pnpcm.errors import ArgumentError, MissingExtraError, ShapeError
from pnpcm.mri.scan import Geometry

Array = NDArray[np.float32]
NO_GEOMETRY = "no geometry in the input"


@dataclass(frozen=True)
class Volume:
    """A reconstructed volume in the units of the scan, scale and phase restored.

    ``image``: complex ``(slices, h, w)``. ``std``: its standard deviation, ``reference``: the
    magnitude it is compared with, both real ``(slices, h, w)``. ``mask``: sampled positions of
    k-space, boolean ``(W,)`` or ``(H, W)``. ``name``: what files are called, without an ending.
    ``record``: configuration, scores and timings, anything that JSON can hold.
    """

    image: Tensor
    mask: Tensor
    name: str
    std: Tensor | None = None
    reference: Tensor | None = None
    geometry: Geometry = field(default_factory=Geometry)
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


def to_array(values: Tensor) -> Array:
    """A real tensor as a float32 array."""
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float32)


def need(library: str, purpose: str) -> Any:
    """The module, or the error that says how to get it."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs {library}; pip install 'pnpcm[mri]'") from error
