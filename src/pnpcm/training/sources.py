"""SOURCES: sources of training images. A source has a length and returns image ``i``.

``source[i]`` is a raw ``(C, H, W)`` tensor: uint8 images, or real numbers in the range of the
prior. Crops, flips and random choices are made in :mod:`pnpcm.training.data`, except for the phase
of ``magnitude``, which uses the generator that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io import hdf5
from pnpcm.io.arrays import opened_npz
from pnpcm.io.lmdb import Database
from pnpcm.io.pictures import NEED, decoded
from pnpcm.io.reading import Budget
from pnpcm.mri import smooth_phase
from pnpcm.transforms import ifft2c

COMPLEX = 200
"""Bytes of memory per sample of the k-space of a slice, with its transform and coil images."""
ITEM = 8
"""Bytes of memory per number of an array of training images."""
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


class Source(Protocol):
    """Images by number. ``generator``: for sources with random parts."""

    def __len__(self) -> int: ...
    def image(self, i: int, generator: torch.Generator) -> Tensor: ...


class Folder:
    """Every image file below a folder, sorted by path, as RGB (or grey: ``channels=1``).

    ``size``: resize to that square as in OpenAI's recipes, see :func:`shrink`. ``start`` and
    ``stop`` select a part of the list, as in a slice: −50 counts from its end.
    """

    def __init__(
        self,
        path: Path,
        *,
        size: int | None = None,
        channels: int = 3,
        start: int | None = None,
        stop: int | None = None,
    ) -> None:
        if not path.is_dir():
            raise ArgumentError(f"path is {path}, which is not a folder; a source needs one")
        found = sorted(p for p in path.rglob("*") if p.suffix.lower() in PICTURES and p.is_file())
        self.paths = found[start:stop]
        if not self.paths:
            raise ArgumentError(f"path is {path}, where no image was found; expected {PICTURES}")
        self.size, self.channels = size, channels
        self._cache: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, i: int, generator: torch.Generator) -> Tensor:
        if i not in self._cache:
            self._cache[i] = decode(self.paths[i].read_bytes(), str(self.paths[i]), self.channels,
                                    self.size)  # fmt: skip
        return self._cache[i]

    def forget(self) -> None:
        """Release the decoded images, which are kept for the next epoch."""
        self._cache.clear()


class Lmdb:
    """Images in an LMDB database in the layout of LSUN: every value is an encoded image."""

    def __init__(self, path: Path, *, size: int | None = None, channels: int = 3) -> None:
        if not (path / "data.mdb").is_file():
            raise ArgumentError(f"path is {path}, which has no data.mdb; expected LSUN's layout")
        self._database = Database(path / "data.mdb")
        self.keys = self._database.keys
        if not self.keys:
            raise ArgumentError(f"path is {path}, an LMDB database without entries")
        self.size, self.channels = size, channels

    def __len__(self) -> int:
        return len(self.keys)

    def image(self, i: int, generator: torch.Generator) -> Tensor:
        name = self.keys[i].decode(errors="replace")
        return decode(self._database.value(i), name, self.channels, self.size)


class Npz:
    """Array ``key`` of an ``.npz`` file, ``(N, H, W)`` or ``(N, H, W, C)``: uint8 or [-1, 1].

    ``exclude={"subject": [5, 7]}`` drops the images whose entry in that array is listed,
    ``only`` keeps only these: the recipe names held-out subjects.
    """

    def __init__(
        self,
        path: Path,
        *,
        key: str = "images",
        exclude: Mapping[str, Sequence[Any]] | None = None,
        only: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        if not path.is_file():
            raise ArgumentError(f"path is {path}, which is not a file; expected an .npz")
        with opened_npz(path, "NumPy's .npz", Budget(ITEM)) as arrays:
            images = arrays[key]
            if images.ndim not in (3, 4) or images.dtype.kind not in "uif":
                raise ShapeError(
                    f"{path}[{key!r}] is {images.dtype} of shape {images.shape}, expected numbers "
                    "(N, H, W) or (N, H, W, C)"
                )
            keep = np.ones(len(images), dtype=bool)
            for name, values in (exclude or {}).items():
                keep &= ~np.isin(arrays[name], list(values))
            for name, values in (only or {}).items():
                keep &= np.isin(arrays[name], list(values))
        if images.ndim == 3:
            images = images[..., None]
        if images.size == 0 or not keep.any():
            raise ShapeError(
                f"{path}[{key!r}] has shape {images.shape} and {keep.sum()} images are kept; "
                "expected at least one of (N, H, W) or (N, H, W, C)"
            )
        self.images: NDArray[Any] = images[keep]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, i: int, generator: torch.Generator) -> Tensor:
        pixels = torch.from_numpy(self.images[i].copy()).permute(2, 0, 1)
        return pixels if pixels.dtype == torch.uint8 else pixels.float()


class Magnitude(Npz):
    """MRI magnitudes of an ``.npz`` file with a random smooth phase: two channels.

    Slices are divided by their 99.5th percentile and multiplied by ``level``; ``jitter``: std of a
    log-normal factor, since in use the scale is that of an undersampled image. The phase is a
    uniform constant plus a random polynomial (field inhomogeneity) of amplitude up to ``phase``,
    plus ``spots`` Gaussian spots of that amplitude (air beside tissue). ``zoom``: range of a random
    magnification, for other resolutions. ``contrast``: share, up to 1, of a random increasing
    intensity curve, for other contrasts.
    """

    def __init__(
        self,
        path: Path,
        *,
        level: float = 0.8,
        jitter: float = 0.1,
        phase: float = 1.5,
        spots: int = 0,
        zoom: Sequence[float] = (1.0, 1.0),
        contrast: float = 0.0,
        **npz: Any,
    ) -> None:
        super().__init__(path, **npz)
        if len(zoom) != 2 or not 0 < zoom[0] <= zoom[1] or not 0 <= contrast <= 1 or spots < 0:
            raise ArgumentError(
                f"zoom must be (smallest, largest) > 0, contrast in [0, 1] and spots ≥ 0, got "
                f"{tuple(zoom)}, {contrast}, {spots}"
            )
        self.level, self.jitter, self.phase, self.spots = level, jitter, phase, spots
        self.zoom, self.contrast = (float(zoom[0]), float(zoom[1])), contrast

    def image(self, i: int, generator: torch.Generator) -> Tensor:
        magnitude = torch.from_numpy(self.images[i][..., 0].astype(np.float32))
        if self.zoom != (1.0, 1.0):
            magnitude = zoomed(magnitude, self.zoom, generator)
        magnitude = magnitude / torch.quantile(magnitude, 0.995).clamp_min(1e-6)
        if self.contrast > 0:
            magnitude = recontrasted(magnitude, self.contrast, generator)
        u, v = torch.rand(2, generator=generator).tolist()
        gain = self.level * float(torch.exp(self.jitter * torch.randn((), generator=generator)))
        size = (magnitude.shape[0], magnitude.shape[1])
        phase = smooth_phase(size, generator=generator, amplitude=self.phase * u)
        for _ in range(self.spots):
            phase = phase + self.phase * spot(size, generator)
        image = torch.polar(magnitude * gain, phase + 2 * torch.pi * v)
        return torch.view_as_real(image).permute(2, 0, 1)


def zoomed(magnitude: Tensor, zoom: tuple[float, float], generator: torch.Generator) -> Tensor:
    """``magnitude`` ``(H, W)`` magnified by a log-uniform factor of the range ``zoom``."""
    u = float(torch.rand((), generator=generator))
    factor = zoom[0] * (zoom[1] / zoom[0]) ** u
    size = [round(n * factor) for n in magnitude.shape]
    found = F.interpolate(
        magnitude[None, None], size, mode="bicubic", align_corners=False, antialias=True
    )
    return found[0, 0].clamp_min(0)


def recontrasted(magnitude: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """``magnitude`` in about [0, 1] through (1 − s) m + s c(m), s uniform up to ``share``.

    c increases from 0 to 1 through seven knots with exponential increments; it is linear above 1.
    """
    s = share * float(torch.rand((), generator=generator))
    steps = -torch.log1p(-torch.rand(7, generator=generator)) + 0.05
    knots = torch.cat([torch.zeros(1), steps.cumsum(0) / steps.sum()])
    position = (magnitude * 7).clamp(0, 7)
    below = position.floor().clamp_max(6).long()
    curve = knots[below] + (position - below) * (knots[below + 1] - knots[below])
    curve = curve + (magnitude - 1).clamp_min(0)
    return (1 - s) * magnitude + s * curve


def spot(size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """A Gaussian spot of random place, width (5 to 20 % of the image) and sign, at most 1."""
    u, v, w, a = torch.rand(4, generator=generator).tolist()
    width = (0.05 * 4**w) * max(size)
    rows, columns = (torch.arange(n, dtype=torch.float32) for n in size)
    rows, columns = rows - u * size[0], columns - v * size[1]
    square = rows[:, None].square() + columns[None, :].square()
    bell: Tensor = torch.exp(-square / (2 * width**2))
    return float(2 * a - 1) * bell


def decode(data: bytes, name: str, channels: int = 3, size: int | None = None) -> Tensor:
    """An encoded image as uint8 ``(C, H, W)``."""
    picture = decoded(name, data, "RGB" if channels == 3 else "L", Budget(NEED))
    if size is not None:
        picture = shrink(picture, size)
    pixels = torch.from_numpy(np.asarray(picture).copy())
    return pixels.permute(2, 0, 1) if channels == 3 else pixels[None]


def shrink(picture: Image.Image, size: int) -> Image.Image:
    """``picture`` of size × size: halved by 2×2 means while twice as large, bicubic, centre."""
    while min(picture.size) >= 2 * size:
        half = (picture.width // 2, picture.height // 2)
        picture = picture.resize(half, Image.Resampling.BOX)
    scale = size / min(picture.size)
    sides = (round(picture.width * scale), round(picture.height * scale))
    picture = picture.resize(sides, Image.Resampling.BICUBIC)
    left, top = (picture.width - size) // 2, (picture.height - size) // 2
    return picture.crop((left, top, left + size, top + size))


# fastMRI volumes as complex images ----------------------------------------------------------------
class FastMRI:
    r"""Slices of fastMRI ``.h5`` volumes below a folder, two channels (real, imaginary).

    ``skip`` slices at both ends of each volume are omitted. Single-coil k-space is transformed to
    the image; coils are combined as Σ_c conj(S_c) x_c, with S_c the coil images of the central
    ``acs`` × ``acs`` of k-space, divided by their root-sum-of-squares. The central square of side
    ``size`` is divided by its largest magnitude, as in the authors' test images.
    """

    def __init__(self, path: Path, *, size: int = 320, skip: int = 5, acs: int = 24) -> None:
        self.size, self.skip, self.acs = size, skip, acs
        self.slices: list[tuple[Path, int]] = []
        for file in sorted(p for p in path.rglob("*.h5") if p.is_file()):
            with hdf5.opened(file, "fastMRI") as volume:
                if "kspace" not in volume:
                    raise ArgumentError(f"{file} has no array 'kspace'; it has {list(volume)}")
                data = hdf5.dataset(file, volume, "kspace")
                Budget(COMPLEX).check(file, data.shape[1:], "samples in a slice")
                n = len(data)
            self.slices += [(file, i) for i in range(skip, n - skip)]
        if not self.slices:
            raise ArgumentError(
                f"path is {path}, where no .h5 volume has more than {2 * skip} slices"
            )

    def __len__(self) -> int:
        return len(self.slices)

    def image(self, i: int, generator: torch.Generator) -> Tensor:
        file, number = self.slices[i]
        with hdf5.opened(file, "fastMRI") as volume:
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
