"""Simulated raw data as a file in fastMRI's layout."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, MissingExtraError
from pnpcm.io.files import write_atomically
from pnpcm.mri.scan import Size
from pnpcm.mri.simulate import phantom, simulate_scan
from pnpcm.transforms import fft2c, ifft2c

HEADER = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding>
<trajectory>cartesian</trajectory>
<encodedSpace><matrixSize><x>{readout}</x><y>{width}</y><z>1</z></matrixSize>
<fieldOfView_mm><x>{wide}</x><y>{fov_w}</y><z>5</z></fieldOfView_mm></encodedSpace>
<reconSpace><matrixSize><x>{height}</x><y>{width}</y><z>1</z></matrixSize>
<fieldOfView_mm><x>{fov_h}</x><y>{fov_w}</y><z>5</z></fieldOfView_mm></reconSpace>
<encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>{last}</maximum>
<center>{centre}</center></kspace_encoding_step_1></encodingLimits>
</encoding></ismrmrdHeader>
"""


def phantoms(n_slices: int, size: Size) -> Tensor:
    """A head of ``n`` slices ``(n, H, W)``: the phantom, smaller towards both ends."""
    if n_slices < 1:
        raise ArgumentError(f"n_slices must be at least 1, got {n_slices}")
    places = [(k + 0.5) / n_slices * 1.6 - 0.8 for k in range(n_slices)]
    return torch.stack([phantom(size, zoom=math.sqrt(1 - z * z)) for z in places])


def write_simulated(
    path: str | Path,
    magnitude: Tensor,
    *,
    n_coils: int = 8,
    noise_std: float = 0.0,
    mask: Tensor | None = None,
    seed: int = 0,
) -> None:
    """Write k-space of magnitude images ``(slices, H, W)`` in fastMRI's layout, slice by slice.

    With twofold readout oversampling, a header and the RSS reference image. With a ``mask``
    ``(W,)`` the file is undersampled and has no reference, like fastMRI's test files. Coil maps,
    smooth phase and correlated coil noise are those of :func:`simulate_scan`, with seed + i for
    slice i; ``noise_std`` is per real and imaginary part, before oversampling, for images up to 1.
    """
    path = Path(path)
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("writing .h5 needs h5py; pip install 'pnpcm[mri]'") from error
    n, height, width = magnitude.shape
    readout = 2 * height
    header = HEADER.format(
        readout=readout,
        height=height,
        width=width,
        wide=2 * height,
        fov_h=height,
        fov_w=width,
        last=width - 1,
        centre=width // 2,
    )

    def write(temporary: Path) -> None:
        with h5py.File(temporary, "w") as file:
            shape = (n, n_coils, readout, width)
            kspace = file.create_dataset("kspace", shape, dtype="complex64")
            file["ismrmrd_header"] = header
            if mask is not None:
                file["mask"] = mask.numpy().astype("uint8")
            references = []
            for i, image in enumerate(magnitude):
                raw = _raw(image, n_coils, noise_std, seed + i)
                references.append(ifft2c(raw).abs().square().sum(0).sqrt())
                wide = fft2c(_widened(ifft2c(raw)))
                kspace[i] = (wide if mask is None else wide * mask).numpy()
            if mask is None:
                _reference(file, torch.stack(references))

    write_atomically(path, write)


def _raw(image: Tensor, n_coils: int, noise_std: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return simulate_scan(image, n_coils=n_coils, noise_std=noise_std, generator=generator).kspace


def _widened(image: Tensor) -> Tensor:
    """Twice the field of view along the readout, empty outside."""
    coils, height, width = image.shape
    wide = image.new_zeros(coils, 2 * height, width)
    first = height - height // 2
    wide[:, first : first + height] = image
    return wide


def _reference(file: Any, rss: Tensor) -> None:
    file["reconstruction_rss"] = rss.numpy()
    file.attrs["max"] = float(rss.max())
    file.attrs["norm"] = float(torch.linalg.vector_norm(rss))
