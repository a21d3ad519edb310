"""Files of plain arrays: which array is k-space, and what its axes are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri.readers.opening import Array, check_layout, listed

AXES = ("slice", "coil", "row", "col")
ONE = "1"
"""Word for an axis of length 1 that means nothing."""
DEFAULTS = {3: "(coils, H, W)", 4: "(slices, coils, H, W)"}


@dataclass(frozen=True)
class Layout:
    """``key``: name of the array, None: kspace. ``axes``: a word of ``AXES`` (or "1") per axis.

    Rows are along the readout, columns along the phase encoding. ``slice`` and ``coil`` may be
    missing. Without ``axes``: coil, row, col; of four axes the first one is the slice.
    """

    key: str | None = None
    axes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.axes is None:
            return
        named = [word for word in self.axes if word != ONE]
        unknown = [word for word in named if word not in AXES]
        if unknown or len(set(named)) < len(named) or not {"row", "col"} <= set(named):
            raise ArgumentError(
                f"axes is {','.join(self.axes)!r}; expected row and col, at most once each of "
                f"{', '.join(AXES)}, and {ONE} for axes of length 1, e.g. axes=coil,row,col"
            )

    @classmethod
    def of(cls, key: str | None, axes: str | Sequence[str] | None) -> Layout:
        """From words, or a text with commas between them."""
        words = axes.split(",") if isinstance(axes, str) else axes
        return cls(key, None if words is None else tuple(word.strip() for word in words))

    @property
    def name(self) -> str:
        """Name of the array of k-space."""
        return self.key or "kspace"

    def kspace(self, arrays: Mapping[str, Array], path: Path, names: Iterable[str]) -> Array:
        """K-space (slices, coils, H, W) among the ``arrays`` of a file that holds ``names``."""
        if self.name not in arrays:
            raise ArgumentError(
                f"{path} has no {self.name}, it holds {listed(names)}; give the name of its "
                f"k-space, key=NAME"
            )
        values = arrays[self.name]
        if self.axes is None:
            check_layout(path, values.shape, values.dtype, DEFAULTS)
            return self._with_coils(path, values)
        if values.ndim != len(self.axes):
            raise ShapeError(
                f"axes is {','.join(self.axes)!r}, {len(self.axes)} axes, but {self.name} of "
                f"{path} has shape {values.shape}; name each of its {values.ndim} axes"
            )
        check_layout(path, values.shape, values.dtype, {values.ndim: ", ".join(self.axes)})
        return _ordered(path, values, self.axes)

    def _with_coils(self, path: Path, values: Array) -> Array:
        """(slices, coils, H, W); an error if the coil axis seems to be another one."""
        n_coils, height, width = values.shape[-3:]
        if n_coils > 2 * min(height, width):
            raise ShapeError(
                f"{self.name} of {path} has shape {values.shape}, {n_coils} coils of "
                f"{height} × {width}; expected {DEFAULTS[values.ndim]}: move the coil axis, or "
                f"name the axes in their order, axes=row,col,coil"
            )
        return values if values.ndim == 4 else values[None]

    def maps(self, path: Path, values: Array) -> Array:
        """Coil maps of the same file: with the axes of k-space, or those without the slice."""
        if self.axes is None:
            return values
        for axes in (self.axes, tuple(word for word in self.axes if word != "slice")):
            if values.ndim == len(axes):
                found = _ordered(path, values, axes)
                return found if "slice" in axes else found[0]
        return values

    def mask(self, values: Array) -> Array:
        """A mask of the same file as (H, W), if it has two axes in the order of k-space."""
        if self.axes is None or values.ndim != 2 or 1 in values.shape:
            return values
        return values if self.axes.index("row") < self.axes.index("col") else values.T


def _ordered(path: Path, values: Array, axes: Sequence[str]) -> Array:
    """``values`` with ``axes`` in the order of ``AXES``; missing ones get the length 1."""
    for word, n in zip(axes, values.shape, strict=True):
        if word == ONE and n != 1:
            raise ShapeError(
                f"axes is {','.join(axes)!r}, but an axis called {ONE} of shape "
                f"{values.shape} in {path} has length {n}; cut one out, or name it"
            )
    values = values.reshape([n for word, n in zip(axes, values.shape, strict=True) if word != ONE])
    named = [word for word in axes if word != ONE]
    values = values.transpose([named.index(word) for word in AXES if word in named])
    return values[tuple(slice(None) if word in named else None for word in AXES)]
