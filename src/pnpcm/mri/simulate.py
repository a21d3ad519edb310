"""Simulated multi-coil MRI for tests and demos: phantom, phase, coil maps, k-space, raw files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.arguments import check_number
from pnpcm.errors import ArgumentError, MissingExtraError, ShapeError
from pnpcm.io.files import write_atomically
from pnpcm.io.hdf5 import opened, text
from pnpcm.io.reading import Budget
from pnpcm.linalg import to_channels
from pnpcm.mri.scan import Size
from pnpcm.rng import randn
from pnpcm.transforms import fft2c, ifft2c

# Shepp & Logan (1974) with Toft's (1996) contrasts:
# intensity, half axes, centre (x, y), rotation in degrees
ELLIPSES = (
    (1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
    (-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    (-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
    (-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
    (0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
    (0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
    (0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
    (0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
    (0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
    (0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
)


@dataclass(frozen=True)
class SimulatedScan:
    """Noisy fully sampled k-space of one slice, with its true image and coil maps."""

    kspace: Tensor  # complex (coils, H, W)
    coil_maps: Tensor  # complex (coils, H, W), root-sum-of-squares 1
    image: Tensor  # complex (H, W), largest magnitude 1

    @property
    def x_true(self) -> Tensor:
        """The image as ``(1, 2, H, W)``."""
        return to_channels(self.image[None])


def phantom(size: tuple[int, int], *, zoom: float = 1.0) -> Tensor:
    """Magnitude image of the modified Shepp–Logan phantom in [0, 1], with edges one pixel wide."""
    p, q = (axis / zoom for axis in _grid(size))
    soft = 2.0 / min(size) / zoom
    image = torch.zeros(size)
    for intensity, a, b, x0, y0, angle in ELLIPSES:
        c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        u, v = q - x0, -p - y0
        radius = ((c * u + s * v) / a) ** 2 + ((-s * u + c * v) / b) ** 2
        distance = (1 - radius.sqrt()) * min(a, b)
        image += intensity * (0.5 + distance / soft).clamp(0, 1)
    return image.clamp(0, 1)


def smooth_phase(
    size: tuple[int, int], *, generator: torch.Generator, amplitude: float = 1.0
) -> Tensor:
    """Random second-order polynomial phase in radians, as caused by field inhomogeneity."""
    p, q = _grid(size)
    terms = torch.stack([torch.ones_like(p), p, q, p * q, p**2, q**2])
    weights = torch.randn(len(terms), generator=generator, device=generator.device)
    return amplitude * torch.einsum("t,thw->hw", weights, terms)


def birdcage_maps(
    n_coils: int, size: tuple[int, int], *, radius: float = 1.5, width: float = 1.0
) -> Tensor:
    """Smooth complex sensitivities of coils on a circle, root-sum-of-squares 1 everywhere."""
    if n_coils < 1:
        raise ArgumentError(f"n_coils must be at least 1, got {n_coils}")
    p, q = _grid(size)
    angle = 2 * math.pi * torch.arange(n_coils) / n_coils
    dp = p - radius * torch.sin(angle)[:, None, None]
    dq = q - radius * torch.cos(angle)[:, None, None]
    magnitude = torch.exp(-(dp**2 + dq**2) / (2 * width**2))
    maps = torch.polar(magnitude, torch.atan2(dp, -dq) + angle[:, None, None])
    return maps / maps.abs().square().sum(0).sqrt()


def simulate_scan(
    magnitude: Tensor,
    *,
    n_coils: int = 8,
    noise_std: float = 0.0,
    noise_correlation: float = 0.2,
    phase: float = 1.0,
    generator: torch.Generator,
) -> SimulatedScan:
    """Fully sampled multi-coil k-space of a magnitude image ``(H, W)``.

    ``noise_std``: per real and imaginary part of each coil; ``noise_correlation`` (below ½):
    correlation of the noise of neighbouring coils. ``phase``: amplitude of a random smooth phase.
    """
    if magnitude.ndim != 2 or not bool((magnitude >= 0).all()):
        raise ShapeError(f"magnitude must be (H, W) and ≥ 0, got shape {tuple(magnitude.shape)}")
    if not 0 <= noise_correlation < 0.5:
        raise ArgumentError(f"noise_correlation must lie in [0, 0.5), got {noise_correlation}")
    size = (magnitude.shape[0], magnitude.shape[1])
    scaled = magnitude.float() / magnitude.max().clamp_min(1e-12)
    image = torch.polar(scaled, smooth_phase(size, generator=generator, amplitude=phase))
    maps = birdcage_maps(n_coils, size)
    kspace = fft2c(maps * image)
    check_number("noise_std", noise_std, 0)
    if noise_std > 0:
        noise = torch.einsum(
            "cd,dhw->chw",
            _ring_mixing(n_coils, noise_correlation).to(kspace),
            randn((n_coils, *size), generator, kspace),
        )
        kspace = kspace + noise_std * noise
    return SimulatedScan(kspace, maps, image)


def _ring_mixing(n: int, correlation: float) -> Tensor:
    """L with L Lᵀ = unit variances and ``correlation`` between neighbours of a ring."""
    covariance = torch.eye(n, dtype=torch.float64)
    for i in range(n if n > 2 else n - 1):
        covariance[i, (i + 1) % n] = covariance[(i + 1) % n, i] = correlation
    factor: Tensor = torch.linalg.cholesky(covariance)
    return factor


def _grid(size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Coordinates (row, column) in [-1, 1), 0 at index n//2, broadcastable to ``size``."""
    height, width = size
    p = (torch.arange(height) - height // 2) / (height / 2)
    q = (torch.arange(width) - width // 2) / (width / 2)
    rows, columns = torch.meshgrid(p, q, indexing="ij")
    return rows, columns


# raw files in fastMRI's layout -------------------------------------------------------------------
SLICE, SAMPLE = 120, 60
"""Bytes of memory per pixel of a phantom, and per sample of the k-space of one slice."""
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
    Budget(SLICE, move="use fewer slices or a smaller size", fixed=True).check(
        f"n_slices is {n_slices} and size is {size[0]}×{size[1]}: the phantom", (n_slices, *size)
    )
    places = [(k + 0.5) / n_slices * 1.6 - 0.8 for k in range(n_slices)]
    return torch.stack([phantom(size, zoom=math.sqrt(1 - z * z)) for z in places])


def is_simulated(path: Path) -> bool:
    """Whether a file is one of :func:`write_simulated`, judged by its header."""
    begin = HEADER.partition("{")[0].encode()
    try:
        with opened(path, "HDF5") as file:
            header = text(path, file, "ismrmrd_header")
            return isinstance(header, bytes) and header.startswith(begin)
    except ArgumentError:
        return False


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
    Budget(SAMPLE, move="use fewer coils or a smaller size", fixed=True).check(
        f"n_coils is {n_coils}: one slice",
        (n_coils, max(readout * width, n_coils)),
        "samples",
    )
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
