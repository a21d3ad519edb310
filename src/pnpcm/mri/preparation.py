"""From slices of raw k-space to a problem that a solver takes: coils, mask, maps, scale.

The order matters: noise is whitened before coils are compressed; maps come from what was measured;
the scale comes from a first image, because the prior knows intensities and the scanner does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import cg, to_channels, to_complex
from pnpcm.mri.coils import compression, mix, whitening
from pnpcm.mri.espirit import espirit
from pnpcm.mri.noise import kspace_noise_std
from pnpcm.mri.sampling import calibration, infer_mask
from pnpcm.mri.scale import intensity_scale
from pnpcm.mri.scan import Scan, Size, crop_centre
from pnpcm.operators import MultiCoilMRI
from pnpcm.transforms import fft2c, ifft2c

SCALES = ("cg", "zero-filled", "oracle")
MAPS_FROM = ("sampled", "scan")


@dataclass(frozen=True)
class SliceOptions:
    """How raw slices become problems.

    ``mask``: retrospective undersampling of a fully sampled scan, ``(W,)`` or ``(H, W)``.
    ``coil_maps``: the user's own, ``(coils, H, W)`` or ``(slices, coils, H, W)``; None: the file's,
    else ESPIRiT with ``calibration``, ``kernel``, ``threshold`` and ``crop`` (sigpy's names).
    ``maps_from``: "sampled" calibrates on what ``mask`` keeps, "scan" on the whole scan, as the
    paper does. ``n_coils``: compress to so many. ``scale``: first image that intensities are taken
    from: CG with 5 iterations, the zero-filled one, or (oracle, the paper's) the fully sampled
    one. ``crop_first``: crop coil images to this size before undersampling, as the paper does.
    ``whiten``: use the scan's noise measurement where there is one.
    """

    mask: Tensor | None = None
    coil_maps: Tensor | None = None
    maps_from: str = "sampled"
    calibration: int = 24
    kernel: int = 6
    threshold: float = 0.02
    crop: float = 0.95
    n_coils: int | None = None
    scale: str = "cg"
    crop_first: Size | None = None
    whiten: bool = True

    def __post_init__(self) -> None:
        for name, value, known in (
            ("scale", self.scale, SCALES),
            ("maps_from", self.maps_from, MAPS_FROM),
        ):
            if value not in known:
                raise ArgumentError(f"{name} is {value!r}, expected one of {', '.join(known)}")
        for name in ("scale", "maps_from"):
            if self.mask is None and getattr(self, name) in ("oracle", "scan"):
                raise ArgumentError(
                    f"{name} is {getattr(self, name)!r}, which needs a fully sampled scan that is "
                    "undersampled in retrospect; give mask, or leave it out"
                )
        if self.mask is None and self.crop_first is not None:
            raise ArgumentError(
                "crop_first would destroy the sampling of a scan that is already undersampled; "
                "give mask (retrospective study of a full scan), or leave it out: the output is "
                "cropped anyway"
            )


@dataclass(frozen=True)
class Slices:
    """Some slices as a problem: y ``(B, coils, H, W)`` in the prior's units, and the way back.

    ``factor`` ``(B,)``: y is the raw k-space times it. ``noise_std`` ``(B,)``: on y, per real and
    imaginary part. ``reference``: complex MVUE image ``(B, H, W)`` and ``rss``, both in raw units,
    where the scan is fully sampled. ``support``: where any coil sees something.
    """

    y: Tensor
    operator: MultiCoilMRI
    mask: Tensor
    factor: Tensor
    noise_std: Tensor
    support: Tensor
    reference: Tensor | None
    rss: Tensor | None


class Preparation:
    """Turns slices of ``scan`` into problems; what is the same for all of them is done once."""

    def __init__(self, scan: Scan, options: SliceOptions, convention: str) -> None:
        self.scan, self.options, self.convention = scan, options, convention
        self.notes: list[str] = []
        self._whitening = None
        if scan.noise is not None and options.whiten:
            self._whitening = whitening(scan.noise)
            self.notes.append("coils pre-whitened with the scan's noise: units are those of noise")
        self._compression: Tensor | None = None
        self.size = options.crop_first or scan.size
        if any(n > s for n, s in zip(self.size, scan.size, strict=True)):
            raise ShapeError(f"crop_first is {self.size}, but the scan has only {scan.size}")
        self.crop: Size = (
            min(scan.crop[0], self.size[0]),
            min(scan.crop[1], self.size[1]),
        )

    def __call__(self, kspace: Tensor, indices: list[int]) -> Slices:
        """Raw k-space ``(B, coils, H, W)`` of the slices ``indices`` as a problem."""
        o = self.options
        kspace = self._virtual_coils(kspace)
        acquired = self.scan.mask if self.scan.mask is not None else infer_mask(kspace)
        self._check_full(acquired)
        if o.crop_first is not None:  # of a full scan: afterwards every line of the crop is known
            kspace = fft2c(crop_centre(ifft2c(kspace), o.crop_first))
            acquired = torch.ones(o.crop_first[1], dtype=torch.bool)
        mask = self._sampled(acquired)
        maps = self._maps(kspace, acquired if o.maps_from == "scan" else mask, indices)
        operator = MultiCoilMRI(maps, mask)
        y = kspace * operator.mask[:, None]
        full = MultiCoilMRI(maps, acquired) if o.mask is not None else None
        reference = None if full is None else to_complex(full.A_adjoint(kspace))
        factor = intensity_scale(self._first_image(operator, y, reference), self.convention)
        noise = kspace_noise_std(y, mask) if self._whitening is None else torch.ones(len(y))
        return Slices(
            y * factor[:, None, None, None],
            operator,
            mask,
            factor,
            noise * factor,
            maps.abs().amax(1) > 0,
            reference,
            None if full is None else ifft2c(kspace).abs().square().sum(1).sqrt(),
        )

    def _virtual_coils(self, kspace: Tensor) -> Tensor:
        if self._whitening is not None:
            kspace = mix(kspace, self._whitening)
        if self.options.n_coils is not None and self.options.n_coils < kspace.shape[1]:
            if self._compression is None:
                self._compression = compression(kspace, self.options.n_coils)
                self.notes.append(f"{self.scan.n_coils} coils compressed to {self.options.n_coils}")
            kspace = mix(kspace, self._compression)
        return kspace

    @property
    def raw_units(self) -> bool:
        """Whether images come out in the units and the size of the file's own reference."""
        o = self.options
        return self._whitening is None and self._compression is None and o.crop_first is None

    def _check_full(self, acquired: Tensor) -> None:
        gaps = _gaps(acquired)
        if self.options.mask is not None and gaps:
            raise ArgumentError(
                f"mask is given, but {self.scan.name} is already undersampled ({gaps}); "
                "leave mask out to reconstruct what was measured"
            )

    def _sampled(self, acquired: Tensor) -> Tensor:
        wanted = self.options.mask
        if wanted is None:
            return acquired
        if tuple(wanted.shape) not in (self.size[1:], self.size):
            raise ShapeError(
                f"mask has shape {tuple(wanted.shape)}, the k-space needs ({self.size[1]},) "
                f"or {self.size}"
            )
        if wanted.ndim != acquired.ndim:
            wanted, acquired = (
                m if m.ndim == 2 else m.expand(self.size) for m in (wanted, acquired)
            )
        return wanted.bool() & acquired

    def _maps(self, kspace: Tensor, mask: Tensor, indices: list[int]) -> Tensor:
        o = self.options
        given = o.coil_maps
        if given is None and self.scan.coil_maps is not None:
            given = torch.stack([self.scan.coil_maps(i) for i in indices])
        elif given is not None and given.ndim == 4:
            given = given[indices]
        if given is None:
            each = [calibration(k, mask, o.calibration, kernel=o.kernel) for k in kspace]
            block = torch.stack(each)
            return espirit(block, self.size, kernel=o.kernel, threshold=o.threshold, crop=o.crop)
        given = given if given.ndim == 4 else given.expand(len(kspace), *given.shape)
        if self._whitening is not None or self._compression is not None:
            raise ArgumentError(
                "coil_maps are given for the raw coils, but coils are whitened or compressed; "
                "leave n_coils out and set whiten to False"
            )
        if tuple(given.shape[1:]) != tuple(kspace.shape[1:]):
            raise ShapeError(
                f"coil_maps have shape {tuple(given.shape[1:])}, k-space {tuple(kspace.shape[1:])}"
            )
        return given.to(torch.complex64)

    def _first_image(self, operator: MultiCoilMRI, y: Tensor, reference: Tensor | None) -> Tensor:
        if self.options.scale == "oracle" and reference is not None:
            return to_channels(reference)
        zero_filled = operator.A_adjoint(y)
        if self.options.scale == "zero-filled":
            return zero_filled
        return cg(operator.A_adjoint_A, zero_filled, max_iter=5)

    def describe(self) -> dict[str, Any]:
        """The options as plain values."""
        o = self.options
        plain = {k: v for k, v in vars(o).items() if not isinstance(v, Tensor | None)}
        given = {k: "given" for k, v in vars(o).items() if isinstance(v, Tensor)}
        return plain | given | {"convention": self.convention}


def _gaps(acquired: Tensor) -> str:
    """Which lines inside the acquired range are missing, in words; empty: none."""
    lines = acquired if acquired.ndim == 1 else acquired.any(0)
    first, last = (int(i) for i in lines.nonzero().flatten()[[0, -1]])
    missing = int((~lines[first : last + 1]).sum())
    if missing:
        return f"{missing} of its {last - first + 1} phase-encode lines are missing"
    holes = 0 if acquired.ndim == 1 else int((~acquired[:, first : last + 1]).sum())
    return f"{holes} points are missing" if holes else ""
