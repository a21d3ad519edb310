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
from pnpcm.mri.coils import combine_sets, compression, mix, phase_factor, whitening
from pnpcm.mri.espirit import count_sets, espirit, fit_kernel
from pnpcm.mri.sampling import calibration, infer_mask, low_resolution
from pnpcm.mri.scale import intensity_scale, kspace_noise_std
from pnpcm.mri.scan import Scan, Size, crop_centre
from pnpcm.names import count_of
from pnpcm.operators import MultiCoilMRI
from pnpcm.transforms import fft2c, ifft2c

SCALES = ("cg", "zero-filled", "oracle")
MAPS_FROM = ("sampled", "scan")

LITTLE_COVERED = 0.9
"""Share of the signal energy that coil maps should cover; below it a note says so."""

NOTHING_COVERED = 0.05
"""A scan of which no slice has more is refused: nearly all of it lies outside the coil maps."""


@dataclass(frozen=True)
class SliceOptions:
    """How raw slices become problems.

    ``mask``: retrospective undersampling of a fully sampled scan, ``(W,)`` or ``(H, W)``.
    ``coil_maps``: the user's own, ``(coils, H, W)`` or ``(slices, coils, H, W)``; of several sets
    ``(slices, sets, coils, H, W)``, or ``(sets, coils, H, W)`` with ``map_sets``. None: the
    file's, else ESPIRiT with ``calibration``, ``kernel``, ``threshold`` and ``crop`` (sigpy's
    names; None: fitted to the number of calibration lines, see ``espirit.fit_kernel``).
    ``map_sets``: number of sets of maps; None: 1, or 2 for a slice whose object is larger than
    the field of view, by its eigenvalues.
    ``maps_from``: "sampled" calibrates on what ``mask`` keeps, "scan" on the whole scan, as the
    paper does. ``n_coils``: number of virtual coils after compression. ``scale``: first image that
    intensities are taken from: CG with 5 iterations, the zero-filled one, or (oracle, the paper's)
    the fully sampled one. ``crop_first``: crop coil images to this size before undersampling, as
    the paper does. ``whiten``: use the scan's noise measurement where there is one.
    """

    mask: Tensor | None = None
    coil_maps: Tensor | None = None
    maps_from: str = "sampled"
    calibration: int = 24
    kernel: int | None = None
    threshold: float = 0.02
    crop: float | None = None
    map_sets: int | None = None
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

    def check(self) -> None:
        """Refuse what needs a fully sampled scan where nothing is undersampled in retrospect."""
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
    imaginary part. ``support`` ``(B, H, W)``: where any coil map is not 0; outside it the operator
    sees nothing. ``covered`` ``(B,)``: share of the signal energy inside it, estimated on a
    low-resolution image. Where the scan is fully sampled: ``reference``, its complex MVUE image
    ``(B, H, W)``, ``rss``, both in raw units, and ``full_support``, the support of the coil maps
    of the full scan, none of which depends on ``mask`` or on the maps that are used.
    """

    y: Tensor
    operator: MultiCoilMRI
    mask: Tensor
    factor: Tensor
    noise_std: Tensor
    support: Tensor
    covered: Tensor
    reference: Tensor | None
    rss: Tensor | None
    full_support: Tensor | None

    def image(self, x: Tensor) -> Tensor:
        """A solver's x ``(B, 2M, H, W)`` as complex images ``(B, H, W)`` in raw units.

        Sets of coil maps are combined. Outside the support x means nothing, since A does not see
        it. There the image is the zero-filled one of what the coil maps do not explain,

            Σ_c l̄_c/‖l‖ F⁻¹(y − A x)_c    with low-resolution coil images l,

        so that nothing is lost without a trace: noise, where there is air.
        """
        images = to_complex(x)
        if images.ndim == 4:  # a set means nothing where its own maps are 0
            images = images * (self.operator.maps.abs().amax(2) > 0)
        inside = combine_sets(images)
        if not bool(self.support.all()):
            rest = ifft2c(self.y - self.operator.A(x))
            outside = (_directions(low_resolution(self.y, self.mask)).conj() * rest).sum(1)
            inside = torch.where(self.support, inside, outside)
        return inside / self.factor[:, None, None]


class Preparation:
    """Turns slices of ``scan`` into problems; what is the same for all of them is done once."""

    def __init__(self, scan: Scan, options: SliceOptions, convention: str) -> None:
        options.check()
        self.scan, self.options, self.convention = scan, options, convention
        self._notes: list[str] = []
        self._whitening = None
        if scan.noise is not None and options.whiten:
            self._whitening = whitening(scan.noise)
            self._notes.append("coils pre-whitened with the scan's noise: units are those of noise")
        self._compression: Tensor | None = None
        self._counted: dict[int, int] = {}
        self._maps_of: dict[int, dict[str, Any]] = {}
        self.size = options.crop_first or scan.size
        if any(n > s for n, s in zip(self.size, scan.size, strict=True)):
            raise ShapeError(f"crop_first is {self.size}, but the scan has only {scan.size}")
        self.crop: Size = (
            min(scan.crop[0], self.size[0]),
            min(scan.crop[1], self.size[1]),
        )

    def __call__(self, kspace: Tensor, indices: list[int]) -> Slices:
        """Raw k-space ``(B, coils, H, W)`` of the slices ``indices`` as a problem.

        They must have been sampled alike and need equally many sets of coil maps; see ``groups``.
        """
        o = self.options
        kspace, acquired = self._full_size(kspace)
        mask = self._sampled(acquired)
        maps = self._maps(kspace, acquired if o.maps_from == "scan" else mask, indices)
        operator = MultiCoilMRI(maps, mask)
        y = kspace * operator.mask[:, None]
        support = maps.abs().amax((1, 2)) > 0
        covered = self._covered(y, mask, support, indices)
        full = None if o.mask is None else self._full_operator(kspace, acquired)
        reference = None if full is None else combine_sets(to_complex(full.A_adjoint(kspace)))
        first = combine_sets(self._first_image(operator, y, reference))
        factor = intensity_scale(to_channels(first), self.convention)
        noise = kspace_noise_std(y, mask) if self._whitening is None else torch.ones(len(y))
        return Slices(
            y * factor[:, None, None, None],
            operator,
            mask,
            factor,
            noise * factor,
            support,
            covered,
            reference,
            None if full is None else ifft2c(kspace).abs().square().sum(1).sqrt(),
            None if full is None else full.maps.abs().amax((1, 2)) > 0,
        )

    def groups(self, kspace: Tensor, indices: list[int]) -> list[list[int]]:
        """``indices`` in groups that one call serves: sampled alike, equally many sets of maps."""
        found: dict[tuple[Any, ...], list[int]] = {}
        for one, i in zip(kspace, indices, strict=True):
            mask = infer_mask(one) if self.scan.mask is None else self.scan.mask
            key = (mask.shape, mask.numpy(force=True).tobytes(), self._sets(one[None], i))
            found.setdefault(key, []).append(i)
        return list(found.values())

    def _full_size(self, kspace: Tensor) -> tuple[Tensor, Tensor]:
        """K-space of the coils and the size to solve for, and which of it was acquired."""
        kspace = self._virtual_coils(kspace)
        acquired = self.scan.mask if self.scan.mask is not None else infer_mask(kspace)
        self._check_full(acquired)
        if self.options.crop_first is None:
            return kspace, acquired
        kspace = fft2c(crop_centre(ifft2c(kspace), self.options.crop_first))
        return kspace, torch.ones(self.size[1], dtype=torch.bool)  # of a full scan: all is known

    def _virtual_coils(self, kspace: Tensor) -> Tensor:
        if self._whitening is not None:
            kspace = mix(kspace, self._whitening)
        if self.options.n_coils not in (None, kspace.shape[1]):
            if self._compression is None:
                self._compression = compression(kspace, self.options.n_coils)
                self._notes.append(
                    f"{count_of(self.scan.n_coils, 'coil')} compressed to {self.options.n_coils}"
                )
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

    def _given_maps(self, indices: list[int]) -> Tensor | None:
        """The user's or the file's own maps ``(B, M, coils, H, W)``, or None."""
        given = self.options.coil_maps
        if given is None and self.scan.coil_maps is not None:
            given = torch.stack([self.scan.coil_maps(i) for i in indices])
        elif given is not None and given.ndim == 4 and (self.options.map_sets or 1) > 1:
            given = given.expand(len(indices), *given.shape)
        elif given is not None and given.ndim > 3:
            if len(given) != self.scan.n_slices:
                raise ShapeError(
                    f"coil_maps have shape {tuple(given.shape)}, {len(given)} slices, but "
                    f"{self.scan.name} has {self.scan.n_slices}; give maps of every slice, or "
                    "(coils, H, W) for all of them"
                )
            given = given[indices]
        if given is None:
            return None
        given = given if given.ndim > 3 else given.expand(len(indices), *given.shape)
        return given if given.ndim == 5 else given[:, None]

    def _sets(self, kspace: Tensor, index: int) -> int:
        """Number of sets of coil maps of one slice of raw k-space ``(1, coils, H, W)``."""
        o, given = self.options, self._given_maps([index])
        if given is not None:
            return given.shape[1]
        if o.map_sets is not None or index in self._counted:
            return o.map_sets or self._counted[index]
        kspace, acquired = self._full_size(kspace)
        mask = acquired if o.maps_from == "scan" else self._sampled(acquired)
        return self._count(calibration(kspace[0], mask, o.calibration, kernel=o.kernel), index)

    def _count(self, block: Tensor, index: int) -> int:
        o = self.options
        if o.map_sets is not None:
            return o.map_sets
        if index not in self._counted:
            self._counted[index] = count_sets(
                block, kernel=o.kernel, threshold=o.threshold, crop=o.crop
            )
        return self._counted[index]

    def _maps(self, kspace: Tensor, mask: Tensor, indices: list[int]) -> Tensor:
        """Coil maps ``(B, M, coils, H, W)``."""
        given = self._given_maps(indices)
        if given is None:
            return self._estimated(kspace, mask, indices)
        if self._whitening is not None or self._compression is not None:
            raise ArgumentError(
                "coil_maps are given for the raw coils, but these are whitened or compressed; "
                "leave n_coils out and give whiten=False"
            )
        if tuple(given.shape[2:]) != tuple(kspace.shape[1:]):
            raise ShapeError(
                f"coil_maps have shape {tuple(given.shape[2:])}, k-space {tuple(kspace.shape[1:])}"
            )
        for i in indices:
            self._maps_of[i] = {"map_sets": given.shape[1]}
        return given.to(torch.complex64)

    def _estimated(self, kspace: Tensor, mask: Tensor, indices: list[int]) -> Tensor:
        o = self.options
        block = torch.stack([calibration(k, mask, o.calibration, kernel=o.kernel) for k in kspace])
        fit: dict[str, Any] = {"kernel": o.kernel, "threshold": o.threshold, "crop": o.crop}
        sets = {self._count(b, i) for b, i in zip(block, indices, strict=True)}
        if len(sets) > 1:
            raise ArgumentError(
                f"slices {indices} need different numbers of sets of coil maps; give map_sets, or "
                "prepare the slices of each of Preparation.groups on their own"
            )
        lines, map_sets = min(block.shape[-2:]), sets.pop()
        if block.shape[1] > 1:
            fit["kernel"], fit["crop"] = fit_kernel(lines, kernel=o.kernel, crop=o.crop)
        maps = espirit(block, self.size, map_sets=map_sets, **fit)
        for i in indices:
            self._maps_of[i] = {"lines": lines, "map_sets": map_sets, **fit}
        return maps if map_sets > 1 else maps[:, None]

    def _full_operator(self, kspace: Tensor, acquired: Tensor) -> MultiCoilMRI:
        """With coil maps of the full scan, whatever ``mask`` and the options of ESPIRiT are."""
        block = torch.stack([calibration(k, acquired) for k in kspace])
        counts = torch.tensor([count_sets(one) for one in block])
        maps = kspace.new_zeros(len(kspace), int(counts.max()), *kspace.shape[1:])
        for sets in set(counts.tolist()):
            found = espirit(block[counts == sets], self.size, map_sets=sets)
            maps[counts == sets, :sets] = found if sets > 1 else found[:, None]
        return MultiCoilMRI(maps, acquired)

    def _covered(self, y: Tensor, mask: Tensor, support: Tensor, indices: list[int]) -> Tensor:
        """Share of the signal energy inside the support, ``(B,)``.

        Next to nothing is refused, unless other slices of the scan (the middle one comes first)
        are covered: one bad slice, e.g. at the end of a volume, is noted and does not stop it.
        """
        energy = low_resolution(y, mask).abs().square().sum(1)
        total = energy.sum((1, 2)).clamp_min(torch.finfo(energy.dtype).tiny)
        covered = (energy * support).sum((1, 2)) / total
        for i, share in zip(indices, covered.tolist(), strict=True):
            self._maps_of[i]["covered"] = round(share, 4)
        if all(m["covered"] < NOTHING_COVERED for m in self._maps_of.values()):
            i, share = indices[0], float(covered[0])
            raise ArgumentError(
                f"the coil maps of slice {i} cover {share:.1%} of its signal energy, so that "
                f"there is nothing to reconstruct; {self._remedy(i)}"
            )
        return covered

    def _remedy(self, index: int) -> str:
        """What to do about coil maps that cover too little."""
        found = self._maps_of[index]
        if "kernel" not in found:
            return "check that the coil maps belong to this scan"
        return (
            f"they come from {found['lines']} calibration lines with kernel {found['kernel']} and "
            f"crop {found['crop']:g}: take more lines (--acs), or a smaller --kernel or --crop"
        )

    @property
    def warnings(self) -> list[str]:
        """A sentence where the coil maps cover too little of a slice, about all slices so far."""
        found = {i: m["covered"] for i, m in self._maps_of.items() if "covered" in m}
        poor = {i: share for i, share in found.items() if share < LITTLE_COVERED}
        if not poor:
            return []
        worst = min(poor, key=lambda i: poor[i])
        more = f" and too little of {len(poor) - 1} more" if len(poor) > 1 else ""
        return [
            f"the coil maps cover only {poor[worst]:.0%} of the signal energy of slice {worst}"
            f"{more}; outside them the image is the zero-filled one, without the prior; "
            + self._remedy(worst)
        ]

    @property
    def notes(self) -> list[str]:
        """Sentences on what was changed or looks wrong, about all slices so far."""
        notes = [*self._notes, *self.warnings]
        several = [m for m in self._maps_of.values() if "kernel" in m and m["map_sets"] > 1]
        if several and self.options.map_sets is None:
            notes.append(
                f"two sets of coil maps were used for {len(several)} of {len(self._maps_of)} "
                "slices: two eigenvalues are near 1, as where the object is larger than the field "
                "of view (--map-sets 1 uses one)"
            )
        return notes

    def _first_image(self, operator: MultiCoilMRI, y: Tensor, reference: Tensor | None) -> Tensor:
        """Complex, ``(B, H, W)`` or one image per set of coil maps."""
        if self.options.scale == "oracle" and reference is not None:
            return reference
        zero_filled = operator.A_adjoint(y)
        if self.options.scale == "zero-filled":
            return to_complex(zero_filled)
        # with one coil AᴴA is a projection, solved in one step: what follows is rounding
        return to_complex(cg(operator.A_adjoint_A, zero_filled, max_iter=5, rank_tol=1e-4))

    def describe(self) -> dict[str, Any]:
        """The options as plain values, and what was chosen for the slices so far."""
        o = self.options
        plain = {k: v for k, v in vars(o).items() if not isinstance(v, Tensor | None)}
        given = {k: "given" for k, v in vars(o).items() if isinstance(v, Tensor)}
        return plain | given | {"convention": self.convention, "maps": self._found()}

    def _found(self) -> dict[str, Any]:
        """Of the coil maps so far: values in use, and the smallest share that they cover."""
        every = self._maps_of.values()
        found: dict[str, Any] = {}
        for key in ("lines", "kernel", "threshold", "crop", "map_sets"):
            values = sorted({m[key] for m in every if m.get(key) is not None})
            if values:
                found[key] = values[0] if len(values) == 1 else values
        return found | {"covered": min((m["covered"] for m in every), default=None)}


def _directions(coil_images: Tensor) -> Tensor:
    """Unit vectors ``(B, coils, H, W)`` along the coils of each pixel; coil 0 is real."""
    norm = torch.linalg.vector_norm(coil_images, dim=1, keepdim=True)
    unit: Tensor = coil_images / norm.clamp_min(torch.finfo(norm.dtype).tiny)
    return unit * phase_factor(unit[:, :1]).conj()


def _gaps(acquired: Tensor) -> str:
    """Which lines inside the acquired range are missing, in words; empty: none."""
    lines = acquired if acquired.ndim == 1 else acquired.any(0)
    first, last = (int(i) for i in lines.nonzero().flatten()[[0, -1]])
    missing = int((~lines[first : last + 1]).sum())
    if missing:
        return f"{missing} of its {last - first + 1} phase-encode lines are missing"
    holes = 0 if acquired.ndim == 1 else int((~acquired[:, first : last + 1]).sum())
    return f"{holes} points are missing" if holes else ""
