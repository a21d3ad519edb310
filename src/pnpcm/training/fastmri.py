"""fastMRI volumes as complex training images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, MissingExtraError, ShapeError
from pnpcm.transforms import ifft2c


class FastMRI:
    r"""Slices of fastMRI ``.h5`` volumes below a folder, two channels (real, imaginary).

    ``skip`` slices at both ends of each volume are omitted. Single-coil k-space is transformed to
    the image; coils are combined as Σ_c conj(S_c) x_c, with S_c the coil images of the central
    ``acs`` × ``acs`` of k-space, divided by their root-sum-of-squares. The central square of side
    ``size`` is divided by its largest magnitude, as in the authors' test images.
    """

    def __init__(self, path: Path, *, size: int = 320, skip: int = 5, acs: int = 24) -> None:
        self.size, self.skip, self.acs = size, skip, acs
        self._h5py = _h5py()
        self.slices: list[tuple[Path, int]] = []
        for file in sorted(path.rglob("*.h5")):
            with self._h5py.File(file, "r") as volume:
                if "kspace" not in volume:
                    raise ArgumentError(f"{file} has no array 'kspace'; it has {list(volume)}")
                n = len(volume["kspace"])
            self.slices += [(file, i) for i in range(skip, n - skip)]
        if not self.slices:
            raise ArgumentError(
                f"path is {path}, where no .h5 volume has more than {2 * skip} slices"
            )

    def __len__(self) -> int:
        return len(self.slices)

    def image(self, i: int, generator: torch.Generator) -> Tensor:
        file, number = self.slices[i]
        with self._h5py.File(file, "r") as volume:
            kspace = torch.from_numpy(np.asarray(volume["kspace"][number], dtype=np.complex64))
        return combine(kspace[None] if kspace.ndim == 2 else kspace, self.size, self.acs)


def combine(kspace: Tensor, size: int, acs: int) -> Tensor:
    """The image ``(2, size, size)`` of k-space ``(coils, H, W)``, with largest magnitude 1."""
    if kspace.ndim != 3 or min(kspace.shape[1:]) < size:
        raise ShapeError(
            f"kspace has shape {tuple(kspace.shape)}, expected (coils, H, W) with sides ≥ {size}"
        )
    images = ifft2c(kspace)
    if len(images) > 1:
        low = ifft2c(_centre_only(kspace, acs))
        maps = low / low.abs().square().sum(0).sqrt().clamp_min(1e-12)
        image = (maps.conj() * images).sum(0)
    else:
        image = images[0]
    top, left = ((n - size) // 2 for n in image.shape)
    image = image[top : top + size, left : left + size]
    image = image / image.abs().max().clamp_min(1e-12)
    return torch.view_as_real(image).permute(2, 0, 1).contiguous()


def _centre_only(kspace: Tensor, acs: int) -> Tensor:
    """The central acs × acs samples with a Hann window, against ringing in the maps."""
    windows = []
    for n in kspace.shape[-2:]:
        window = torch.zeros(n)
        start = max(n // 2 - acs // 2, 0)
        width = min(acs, n - start)
        window[start : start + width] = torch.hann_window(width + 2, periodic=False)[1:-1]
        windows.append(window)
    return kspace * windows[0][:, None] * windows[1][None, :]


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("fastMRI volumes need h5py; pip install pnpcm[mri]") from error
    return h5py
