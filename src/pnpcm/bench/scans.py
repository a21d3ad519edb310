"""Scans: measured slices of fastMRI volumes, prepared as in the experiments of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.io import hdf5
from pnpcm.mri.espirit import espirit
from pnpcm.mri.readers import HDF5_SUFFIXES, read_scan
from pnpcm.mri.sampling import calibration
from pnpcm.mri.scan import crop_centre
from pnpcm.operators import MultiCoilMRI
from pnpcm.transforms import fft2c, ifft2c

ACQUISITIONS = {"pd": "CORPD_FBK", "pdfs": "CORPDFS_FBK"}
"""Contrasts and the attribute ``acquisition`` of fastMRI's knee volumes."""
LINES, KERNEL, THRESHOLD, CROP = 24, 6, 0.02, 0.95
"""Of ESPIRiT, sigpy's defaults; the paper names sigpy and states no options."""


@dataclass(frozen=True)
class Measured:
    """A full slice: ``kspace`` and ``coil_maps`` ``(1, coils, H, W)``, ``support`` ``(H, W)``.

    K-space is divided by the largest magnitude of the image. ``support``: where the coil maps are
    not 0; scores are computed there.
    """

    kspace: Tensor
    coil_maps: Tensor
    support: Tensor


class Scans:
    r"""Slices of the fully sampled multi-coil ``.h5`` volumes below a folder, two channels.

    .. math:: x = \sum_c \overline{S_c}\, F^{-1} k_c \,/\, \max |\cdot|

    The images of the coils are cropped to ``size`` × ``size``, the maps S are ESPIRiT's of the full
    slice, and the scale is that of the full slice. ``contrast``: "pd" or "pdfs", by the attribute
    ``acquisition`` of a volume; None: all. ``volumes``: the first ones in the order of their names.
    ``skip``: slices that are omitted at both ends.
    """

    def __init__(
        self,
        path: Path,
        *,
        contrast: str | None = None,
        volumes: int = 10,
        skip: int = 5,
        size: int = 320,
    ) -> None:
        if contrast is not None and contrast not in ACQUISITIONS:
            raise ArgumentError(f"contrast is {contrast!r}, expected {' or '.join(ACQUISITIONS)}")
        self.size = size
        self._last: tuple[int, Measured, Tensor] | None = None
        self.slices: list[tuple[Path, int]] = []
        count = 0
        files = (p for p in path.rglob("*") if p.suffix in HDF5_SUFFIXES and p.is_file())
        for file in sorted(files):
            with hdf5.opened(file, "fastMRI") as volume:
                kind = str(volume.attrs.get("acquisition", ""))
                shape: tuple[int, ...] = ()
                if "kspace" in volume:
                    shape = hdf5.dataset(file, volume, "kspace").shape
            if len(shape) != 4 or (contrast is not None and kind != ACQUISITIONS[contrast]):
                continue
            self.slices += [(file, i) for i in range(skip, shape[0] - skip)]
            count += 1
            if count == volumes:
                break
        if not self.slices:
            wanted = "" if contrast is None else f" and the acquisition {ACQUISITIONS[contrast]}"
            raise ArgumentError(
                f"path is {path}, where no multi-coil .h5 volume has more than {2 * skip} slices"
                f"{wanted}; give the folder of fastMRI's multicoil_val"
            )

    def __len__(self) -> int:
        return len(self.slices)

    def name(self, i: int) -> str:
        """Volume and slice."""
        file, number = self.slices[i]
        return f"{file.stem}/{number}"

    def values(self, i: int) -> Tensor:
        """K-space as in the file, for a hash without preparing the slice."""
        file, number = self.slices[i]
        return torch.view_as_real(read_scan(file).slices([number]))

    def image(self, i: int, generator: torch.Generator) -> Tensor:
        return self._prepared(i)[1]

    def measured(self, i: int) -> Measured:
        """The measurement of slice i."""
        return self._prepared(i)[0]

    def _prepared(self, i: int) -> tuple[Measured, Tensor]:
        """The measurement and the image ``(2, H, W)`` of slice i; the last one is kept."""
        if self._last is None or self._last[0] != i:
            file, number = self.slices[i]
            size = (self.size, self.size)
            kspace = fft2c(crop_centre(ifft2c(read_scan(file).slices([number])), size))
            full = torch.ones(self.size, dtype=torch.bool)
            block = calibration(kspace[0], full, LINES, kernel=KERNEL)[None]
            maps = espirit(block, size, kernel=KERNEL, threshold=THRESHOLD, crop=CROP)
            mvue = MultiCoilMRI(maps, full).A_adjoint(kspace)
            top = torch.linalg.vector_norm(mvue, dim=1).max().clamp_min(1e-30)
            support = maps[0].abs().amax(0) > 0
            self._last = i, Measured(kspace / top, maps, support), mvue[0] / top
        return self._last[1:]
