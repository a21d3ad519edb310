"""BART's ``.cfl`` and ``.hdr`` files: complex64 in column-major order, sizes in a text file.

Dimensions 0, 1, 2 are readout, phase and partitions, 3 the coils, 13 the slices.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.io.files import write_atomically, write_text
from pnpcm.io.reading import Budget, read_text, reading
from pnpcm.mri.readers.lines import check_unbroken
from pnpcm.mri.readers.opening import (
    HELD,
    Array,
    Choice,
    checked,
    choose,
    existing,
    ifft1c,
    only_first,
)
from pnpcm.mri.scan import Scan

FORMAT = "BART"
COILS, SLICES = 3, 13
CHOSEN = {5: "contrast", 10: "repetition", 11: "phase"}  # BART's TE, TIME and TIME2


def read_cfl(path: Path, choice: Choice, budget: Budget) -> Scan:
    """Open a pair of files, given either of them or their name without suffix.

    Dimension 2 is the partition axis and is transformed to slices. If there is only one readout
    sample, it is the second phase axis of a 2-D k-space, as in BART's examples.
    """
    data = _mapped(path)
    only_first(path, {name: n for name, n in choice.items() if name not in CHOSEN.values()})
    index: list[slice | int] = [slice(None)] * data.ndim
    for axis, n in enumerate(data.shape):
        if axis in CHOSEN:
            index[axis] = choose(path, CHOSEN[axis], range(n), choice.get(CHOSEN[axis]))
        elif axis not in (0, 1, 2, COILS, SLICES):
            if n > 1:
                raise ArgumentError(
                    f"dimension {axis} of {path} has length {n}; expected 1: cut one out with "
                    f"bart slice {axis} 0"
                )
            index[axis] = 0
    kspace = data[tuple(index)]  # readout, phase, partitions, coils, slices
    notes = []
    if kspace.shape[0] == 1 and kspace.shape[2] > 1:
        kspace = kspace.transpose(1, 2, 0, 3, 4)
        notes.append("dimension 0 has length 1: dimensions 1 and 2 are the rows and columns")
    height, width, partitions, n_coils, slices = kspace.shape
    if partitions > 1:
        if slices > 1:
            raise ArgumentError(
                f"{path} has {partitions} partitions and {slices} slices; expected one of the two: "
                f"cut one slice out with bart slice {SLICES} 0"
            )
        seen = np.asarray(kspace[height // 2, :, :, 0, 0]) != 0
        check_unbroken(path, seen, "run bart fft -i 1 and read the slices along dimension 0")
        notes.append(f"3-D: {partitions} partitions transformed to slices")

    def load(i: int) -> Tensor:
        if partitions == 1:
            return _tensor(kspace[:, :, 0, :, i])
        return volume()[..., i]

    @lru_cache(maxsize=1)
    def volume() -> Tensor:
        return ifft1c(_tensor(kspace[..., 0].transpose(0, 1, 3, 2)), -1)

    n_slices = slices * partitions
    budget.check(path, (n_coils, height, width, partitions), "samples in a slice or slab")
    return Scan(
        name=path.stem if path.suffix in (".cfl", ".hdr") else path.name,
        format=FORMAT,
        n_slices=n_slices,
        n_coils=n_coils,
        size=(height, width),
        crop=(height, width),
        kspace=checked(path, n_slices, load),
        notes=tuple(notes),
    )


def read_maps(path: Path) -> Tensor:
    """Coil maps as of BART's ecalib: complex ``(slices, sets, coils, H, W)``.

    Dimension 4 is the set; partitions (dimension 2) and slices (13) are both slices of images.
    """
    with reading(path, FORMAT):
        data = _mapped(path)
    Budget(HELD).check(path, data.shape, "numbers")
    others = [axis for axis in range(5, data.ndim) if axis != SLICES]
    long = next((axis for axis in others if data.shape[axis] > 1), None)
    if long is not None:
        raise ArgumentError(
            f"dimension {long} of {path} has length {data.shape[long]}; expected coil maps with "
            f"the dimensions 0 to 4 and {SLICES}: cut one out with bart slice {long} 0"
        )
    kept = (SLICES, 2, 4, COILS, 0, 1)
    maps = data.transpose(*kept, *others).reshape([data.shape[axis] for axis in kept])
    if maps.shape[4] == 1 and maps.shape[1] > 1:  # as in read_cfl: dimensions 1 and 2 are the image
        maps = maps.transpose(0, 4, 2, 3, 5, 1)
    slices, partitions = maps.shape[:2]
    merged = maps.reshape(slices * partitions, *maps.shape[2:])
    return torch.from_numpy(np.array(merged, dtype=np.complex64, order="C"))


def write_cfl(path: str | Path, array: Array | Tensor) -> None:
    """Write an array as ``.cfl`` and ``.hdr``; its axes are BART's dimensions 0, 1, …"""
    values = np.asarray(array.detach().cpu() if isinstance(array, Tensor) else array)
    if not 1 <= values.ndim <= 16:
        raise ArgumentError(f"array has {values.ndim} dimensions; a .cfl file has 1 to 16")
    header, data = (_base(Path(path), suffix) for suffix in (".hdr", ".cfl"))
    sizes = (*values.shape, *(1,) * (16 - values.ndim))
    content = values.astype(np.complex64).tobytes(order="F")
    write_atomically(data, lambda temporary: _write_bytes(temporary, content))
    write_text(header, f"# Dimensions\n{' '.join(map(str, sizes))}\n")


def _base(path: Path, suffix: str) -> Path:
    """The file of the pair with this suffix; other dots are part of the name."""
    name = path.stem if path.suffix in (".cfl", ".hdr") else path.name
    return path.with_name(name + suffix)


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _mapped(path: Path) -> Array:
    """The data as an array of 16 dimensions, mapped from the file."""
    header, data = existing(_base(path, ".hdr")), existing(_base(path, ".cfl"))
    text = read_text(header).splitlines()
    titles = [k for k, line in enumerate(text[:-1]) if line.split() == ["#", "Dimensions"]]
    words = text[titles[0] + 1].split() if titles else []
    sizes = [int(word) for word in words if word.isdigit()]
    if not words or len(sizes) < len(words) or len(sizes) > 16 or min(sizes) < 1:
        raise ArgumentError(
            f"{header} has no line of up to 16 sizes after '# Dimensions'; write the pair of files "
            f"again with BART or write_cfl"
        )
    expected = 8 * math.prod(sizes)
    if data.stat().st_size != expected:
        raise ArgumentError(
            f"{data} has {data.stat().st_size} bytes, but the sizes {' '.join(words)} in "
            f"{header.name} need {expected}; copy both files again"
        )
    mapped: Array = np.memmap(
        data, np.dtype("<c8"), "r", shape=(*sizes, *(1,) * (16 - len(sizes))), order="F"
    )
    return mapped


def _tensor(block: Array) -> Tensor:
    """Coils first, in memory; the other axes keep their order (readout, phase, …)."""
    axes = (2, 0, 1) if block.ndim == 3 else (2, 0, 1, 3)
    return torch.from_numpy(np.array(block.transpose(axes), dtype=np.complex64, order="C"))
