"""Common parts of the readers: checks of files and arrays with their errors, readout transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.reading import reading

Array = np.ndarray[Any, np.dtype[Any]]
Choice = Mapping[str, int | None]
"""Indices of contrast, repetition, set and phase given by the caller; None: not given."""

HELD = 32
"""Bytes of memory per sample of an array that is read as a whole: as stored, and transformed."""
NEED = 500
"""Bytes per sample of a slice that a reconstruction needs (``benchmarks/speed/mri_volume.py``)."""
SMALLEST, LARGEST = 1e-18, 1e18
"""Largest value of k-space from which images are right; 1e-25 and 1e20 gave none or wrong ones."""
OUTSIDE = "k-space outside the file's mask was set to zero"


def existing(path: str | Path) -> Path:
    """``path`` if it is a file that is not empty."""
    path = Path(path)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a file"
        raise ArgumentError(f"path is {path}, which is {what}; give a raw data file")
    if path.stat().st_size == 0:
        raise ArgumentError(f"{path} is empty (0 bytes); copy or download it again")
    return path


def listed(names: Iterable[str]) -> str:
    """The names of what a file holds, for a message: the first ones, cut to 40 characters."""
    found = sorted(names)
    return ", ".join(name[:40] for name in found[:20]) + ", …" * (len(found) > 20) or "nothing"


def missing(path: Path, wanted: str, found: Iterable[str]) -> ArgumentError:
    """The error for a file that lacks an array."""
    names = listed(found)
    return ArgumentError(f"{path} has no {wanted}, it holds {names}; expected {wanted}: rename it")


def check_layout(
    path: Path, shape: Sequence[int], dtype: np.dtype[Any], layouts: Mapping[int, str]
) -> None:
    """Refuse k-space that is not complex, is empty, or has the axes of none of ``layouts``."""
    shape = tuple(shape)
    expected = " or ".join(layouts.values())
    if len(shape) not in layouts:
        raise ShapeError(
            f"kspace of {path} has {len(shape)} dimensions, shape {shape}; expected {expected}: "
            f"reshape it, or name each of its axes, e.g. axes=row,col"
        )
    if 0 in shape:
        raise ShapeError(f"kspace of {path} has shape {shape}, an empty axis; expected {expected}")
    if dtype.kind != "c":
        raise ArgumentError(
            f"kspace of {path} is {dtype}, not complex; expected complex values: save "
            f"real + 1j·imaginary; an image must be transformed to k-space first"
        )


def choose(path: Path, name: str, found: Sequence[int], wanted: int | None) -> int:
    """The index to read; an error if there are several and ``wanted`` is None."""
    values = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
    if wanted is None:
        if len(found) == 1:
            return found[0]
        raise ArgumentError(
            f"{path} holds {len(found)} {name}s ({values}); choose one with {name}={found[0]}"
        )
    if wanted not in found:
        raise ArgumentError(f"{name} is {wanted}, but {path} holds only {values}; choose from them")
    return wanted


def only_first(path: Path, choice: Choice) -> None:
    """Refuse indices other than 0 for a format without contrasts, repetitions, sets, phases."""
    for name, wanted in choice.items():
        choose(path, name, [0], wanted)


def checked(
    path: Path, n_slices: int, load: Callable[[int], Tensor], mask: Tensor | None = None
) -> Callable[[int], Tensor]:
    """``load`` with checks of the index and for NaN; k-space outside ``mask`` is set to 0."""

    def kspace(i: int) -> Tensor:
        check_index(path, i, n_slices)
        with reading(path, "raw data"):
            slice_ = load(i).to(torch.complex64).contiguous()
        if not bool(torch.isfinite(torch.view_as_real(slice_)).all()):
            raise ArgumentError(
                f"kspace of {path} has NaN or infinite values in slice {i}; expected finite "
                f"values: leave the slice out or export the file again"
            )
        largest = float(slice_.abs().max()) if slice_.numel() else 0.0
        if largest > 0 and not SMALLEST <= largest <= LARGEST:
            raise _out_of_range(path, i, largest)
        return slice_ if mask is None else torch.where(mask, slice_, 0)

    return kspace


def as_complex64(path: Path, i: int, values: Array) -> Tensor:
    """Slice i of an array in single precision; refused if nothing is left of its values."""
    kspace = np.array(values, dtype=np.complex64)
    if values.dtype != kspace.dtype and not kspace.any() and values.any():
        raise _out_of_range(path, i, float(np.abs(values).max()))
    return torch.from_numpy(kspace)


def _out_of_range(path: Path, i: int, largest: float) -> ArgumentError:
    return ArgumentError(
        f"the largest value of kspace of {path} in slice {i} is {largest:.3g}, expected "
        f"{SMALLEST:g} to {LARGEST:g}, whose squares are numbers of single precision; multiply "
        "k-space by a constant"
    )


def check_index(path: Path, i: int, n_slices: int) -> None:
    """Refuse the index of a slice that does not exist."""
    if not 0 <= i < n_slices:
        raise ArgumentError(f"slice is {i}, but {path} has slices 0 to {n_slices - 1}")


def as_mask(path: Path, values: Array, size: tuple[int, int]) -> Tensor:
    """The mask in a file as boolean ``(W,)`` or ``(H, W)``; axes of length 1 are dropped."""
    height, width = size
    mask = values.squeeze()
    if mask.dtype.kind == "c":
        mask = mask.real
    if mask.shape not in ((width,), (height, width)):
        raise ShapeError(
            f"mask of {path} has shape {values.shape}; expected ({width},) or "
            f"({height}, {width}) to fit kspace: save one mask for all slices"
        )
    if not np.isin(mask, (0, 1)).all():
        raise ArgumentError(f"mask of {path} has values other than 0 and 1; save it as boolean")
    if not mask.any():
        raise ArgumentError(f"mask of {path} is all zero; expected 1 where k-space was measured")
    return torch.from_numpy(mask.astype(bool))


# readout -----------------------------------------------------------------------------------------
def fft1c(x: Tensor, dim: int) -> Tensor:
    """Centred orthonormal FFT of one axis: the origin is index n//2 on both sides."""
    x = torch.fft.ifftshift(x, dim=dim)
    k: Tensor = torch.fft.fftshift(torch.fft.fft(x, dim=dim, norm="ortho"), dim=dim)
    return k


def ifft1c(k: Tensor, dim: int) -> Tensor:
    """Inverse of :func:`fft1c`."""
    k = torch.fft.ifftshift(k, dim=dim)
    x: Tensor = torch.fft.fftshift(torch.fft.ifft(k, dim=dim, norm="ortho"), dim=dim)
    return x


def centre(x: Tensor, keep: int, dim: int) -> Tensor:
    """The central ``keep`` samples of an axis: index n//2 becomes keep//2."""
    return x.narrow(dim, x.shape[dim] // 2 - keep // 2, keep)


def remove_oversampling(kspace: Tensor, keep: int) -> Tensor:
    """K-space ``(…, readout, phase)`` of the central ``keep`` image rows.

    F P F⁻¹ along the readout, F the orthonormal FFT and P the crop: white noise keeps its
    standard deviation, and columns of zeros stay exact zeros.
    """
    if keep >= kspace.shape[-2]:
        return kspace
    return fft1c(centre(ifft1c(kspace, -2), keep, -2), -2)
