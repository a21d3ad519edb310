"""Multi-coil Cartesian MRI: sensitivities, centred Fourier transform, sampling mask."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pnpcm.arguments import Gamma, check_float
from pnpcm.core import Generators
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import BLOCK, like_form, to_channels, to_complex
from pnpcm.operators.base import LinearOperatorBase, as_constant
from pnpcm.operators.traits import Traits
from pnpcm.rng import randn_like
from pnpcm.transforms import fft2c

FACTORIZED = 1 << 22
"""Largest B·H·(M·W)² for which AᴴA is diagonalized row by row: 160², about 1 s on one core."""


class MultiCoilMRI(LinearOperatorBase):
    r"""``y_c = mask · F(Σ_m S_mc x_m)`` for each coil c, with the centred orthonormal FFT F.

    One set of maps S (M = 1): ``x`` is ``(B, 2, H, W)`` (real, imaginary) or complex
    ``(B, H, W)``; ``coil_maps`` complex ``(coils, H, W)`` or ``(B, coils, H, W)``. M > 1 sets
    (soft-SENSE, Uecker et al. 2014), for an object that is larger than the field of view: one
    image per set, ``x`` is ``(B, 2M, H, W)`` (real and imaginary part of set 1, then of set 2 …)
    or complex ``(B, M, H, W)``; ``coil_maps`` ``(B, M, coils, H, W)``, or ``(M, coils, H, W)``
    with ``map_sets=M``, since four axes without it are a batch.

    Results are complex or real as the input is; ``A_adjoint`` returns channels. ``y``: complex
    ``(B, coils, H, W)``; ``A_adjoint`` also takes deepinv's ``(B, 2, coils, H, W)``. ``mask``:
    ``(W,)`` for whole columns, ``(H, W)`` or ``(B, H, W)``. In AᴴA the shifts of F cancel and, for
    a column mask, so does the transform along columns: AᴴA then maps each row (of all sets) to
    itself. For images of moderate size it is diagonalized once, and ``prox_l2``, ``A_dagger`` and
    conditional draws are exact; otherwise they use CG.
    """

    def __init__(self, coil_maps: Tensor, mask: Tensor, *, map_sets: int | None = None) -> None:
        super().__init__()
        coil_maps, mask = as_constant("coil_maps", coil_maps), as_constant("mask", mask)
        self.maps = _with_sets(coil_maps, map_sets)
        if not bool(torch.isfinite(coil_maps).all()):
            raise ArgumentError("coil_maps hold NaN or infinity; recalibrate, or mask them to 0")
        size = tuple(coil_maps.shape[-2:])
        shapes = {1: size[1:], 2: size, 3: size}
        if mask.ndim not in shapes or tuple(mask.shape[-2:]) != shapes[mask.ndim]:
            raise ShapeError(
                f"mask has shape {tuple(mask.shape)}, coil_maps are for {size}: expected "
                f"(W,) = ({size[1]},), (H, W) = {size} or (B, H, W)"
            )
        if not bool(((mask == 0) | (mask == 1)).all()):
            raise ArgumentError(
                f"mask must be binary (1 = sampled), got values from {float(mask.min()):g} "
                f"to {float(mask.max()):g}"
            )
        per_image = mask[None] if mask.ndim < 3 else mask
        empty = (~per_image.bool().flatten(1).any(1)).nonzero().flatten().tolist()
        if empty:
            raise ArgumentError(
                f"mask samples nothing of image {empty[0]}; set at least one entry to 1"
            )
        full = mask.bool().expand(size) if mask.ndim == 1 else mask.bool()
        self.mask = full if full.ndim == 3 else full[None]
        if len(self.mask) > 1 and len(self.maps) not in (1, len(self.mask)):
            raise ShapeError(
                f"mask is for {len(self.mask)} images and coil_maps for {len(self.maps)}; "
                "give one of each per image, or one for all"
            )
        self.image_shape = (2 * self.map_sets, *size)
        # AᴴA without centring: maps and mask are shifted to the corner-origin layout once
        self.corner_maps = torch.fft.ifftshift(self.maps, dim=(-2, -1))
        self.corner_conj = self.corner_maps.conj().resolve_conj()
        self.corner_mask = torch.fft.ifftshift(self.mask, dim=(-2, -1))
        self.columns = bool((self.mask == self.mask[:, :1]).all())

    def traits(self, noise_std: float) -> Traits:
        """CG with warm start; no clamping, since the maximum of an MR image is not known."""
        step = {"type": "CGStep", "max_iter": 10, "start": "warm"}
        return Traits(data_step=step, clamp=False, noise="unknown")

    @property
    def preset_options(self) -> dict[str, Any]:
        return {"acceleration": round(1 / float(self.mask.float().mean()))}

    @property
    def map_sets(self) -> int:
        """Number M of sets of coil maps, and of images per slice."""
        return self.maps.shape[1]

    @property
    def coil_maps(self) -> Tensor:
        """``(B, coils, H, W)``; for several sets ``(B, M, coils, H, W)``."""
        return self.maps[:, 0] if self.map_sets == 1 else self.maps

    def first_set(self) -> MultiCoilMRI:
        """The operator with the first set of coil maps alone."""
        return self if self.map_sets == 1 else MultiCoilMRI(self.maps[:, 0], self.mask)

    @classmethod
    def example(
        cls,
        generator: torch.Generator,
        *,
        batch: int = 1,
        size: tuple[int, int] = (16, 20),
        map_sets: int = 1,
    ) -> tuple[MultiCoilMRI, Tensor]:
        shape = (4, *size) if map_sets == 1 else (1, map_sets, 4, *size)
        maps = torch.randn(shape, generator=generator, dtype=torch.complex64)
        maps = maps / maps.abs().square().sum(-3, keepdim=True).sqrt()
        mask = torch.rand(size[1], generator=generator) < 0.5
        mask[size[1] // 2] = True
        x = torch.randn((batch, 2 * map_sets, *size), generator=generator) * 0.4
        return cls(maps, mask), x

    def _A(self, x: Tensor) -> Tensor:
        images = _images(x)
        return self._mask(images) * fft2c(_seen(self._like("maps", images), images))

    def _A_adjoint(self, y: Tensor) -> Tensor:
        if y.ndim == 5:
            y = torch.complex(y[:, 0], y[:, 1])
        S_conj, mask = self._like("corner_conj", y), self._like("corner_mask", y).real
        total = y.new_zeros(len(y), self.map_sets, *y.shape[-2:])
        for part, S_c in zip(_blocks(y, y[:, 0]), _blocks(S_conj, y[:, 0]), strict=True):
            spectrum = torch.fft.ifftshift(part, dim=(-2, -1)).mul_(mask[:, None])
            _add_adjoint(total, S_c, torch.fft.ifft2(spectrum, norm="ortho"))
        return to_channels(torch.fft.fftshift(total, dim=(-2, -1)))

    def _mask(self, like: Tensor) -> Tensor:
        return self._like("mask", like)[:, None].real

    def A_adjoint_A(self, x: Tensor) -> Tensor:
        """Σ_c S̄_mc F⁻¹ mask F Σ_n S_nc x_n, with corner-origin FFTs along the masked axes only."""
        images = torch.fft.ifftshift(_images(x), dim=(-2, -1))
        S, S_conj = self._like("corner_maps", images), self._like("corner_conj", images)
        mask = self._like("corner_mask", images).real
        axes = (-1,) if self.columns else (-2, -1)
        total, one = torch.zeros_like(images), images[:, 0]
        for S_c, S_c_conj in zip(_blocks(S, one), _blocks(S_conj, one), strict=True):
            spectrum = torch.fft.fftn(_seen(S_c, images), dim=axes).mul_(mask[:, None])
            _add_adjoint(total, S_c_conj, torch.fft.ifftn(spectrum, dim=axes))
        return _in_form(torch.fft.fftshift(total, dim=(-2, -1)), x)

    def _prox_l2(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        right = like_form(self._A_adjoint(y), z)
        return z + self._solve_normal(gamma * (right - self.A_adjoint_A(z)), gamma)

    def _solve_normal(self, b: Tensor, gamma: Gamma) -> Tensor:
        """Q (1 + γλ)⁻¹ Qᴴ b by rows; CG if rows are coupled or too large to factorize."""
        if not self.row_wise:
            return super()._solve_normal(b, gamma)
        if isinstance(gamma, Tensor):
            gamma = gamma.real.reshape(-1, 1, 1)
        right = _images(b)
        return _in_form(self._in_rows(1 / (1 + gamma * self._like("row_values", right)), right), b)

    def _A_dagger(self, y: Tensor, reg: float) -> Tensor:
        """Q (λ + reg)⁻¹ Qᴴ Aᴴy by rows, or CG; λ below the rounding error are treated as 0."""
        if not self.row_wise:
            return super()._A_dagger(y, reg)
        right = _images(self._A_adjoint(y))
        values = self._like("row_values", right)
        floor = 30 * torch.finfo(right.dtype).eps * values.amax((1, 2), keepdim=True)
        damped = values + reg
        gain = torch.where(damped > floor, 1 / damped.clamp_min(floor), 0)
        return to_channels(self._in_rows(gain, right))

    def _in_rows(self, gain: Tensor, images: Tensor) -> Tensor:
        """Q gain Qᴴ images, with a separate Q for each row h of the complex images."""
        Q = self._like("row_vectors", images)
        rows = images.transpose(1, 2).flatten(2)  # (B, H, M·W): row h of all sets
        if len(Q) > 1:
            rows = (Q @ (gain[..., None] * (Q.mH @ rows[..., None])))[..., 0]
        else:  # the rows of a batch as columns of one matrix
            columns = rows.permute(1, 2, 0)
            rows = (Q[0] @ (gain.permute(1, 2, 0) * (Q[0].mH @ columns))).permute(2, 0, 1)
        return rows.reshape(*rows.shape[:2], self.map_sets, -1).transpose(1, 2)

    @property
    def row_wise(self) -> bool:
        """Whether AᴴA acts on each row alone, and rows are small enough to be diagonalized."""
        height, width = self.mask.shape[-2:]
        entries = max(len(self.maps), len(self.mask)) * height * (self.map_sets * width) ** 2
        return self.columns and entries <= FACTORIZED

    @property
    def row_values(self) -> Tensor:
        """Eigenvalues ``(B, H, M·W)`` of AᴴA, which maps each row of the images to itself."""
        return self._rows[0]

    @property
    def row_vectors(self) -> Tensor:
        """Their eigenvectors ``(B, H, M·W, M·W)``, as columns."""
        return self._rows[1]

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """For a column mask, with g = F⁻¹ mask:

        (AᴴA)_h[mw, nv] = g[w − v] Σ_c S̄_mc[h, w] S_nc[h, v].
        """
        S = self.maps.to(torch.complex128)
        place = torch.arange(S.shape[-1], device=S.device)
        g = torch.fft.ifft(self.corner_mask[:, 0].to(torch.float64))
        circulant = g[:, (place[:, None] - place) % len(place)]
        products = torch.einsum("bmchw,bnchv->bhmwnv", S.conj(), S)
        matrix = products * circulant[:, None, None, :, None, :]
        values, vectors = torch.linalg.eigh(matrix.flatten(4, 5).flatten(2, 3))
        return values.clamp_min(0), vectors

    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        self._check_y(y)
        return (y.shape[0], 2 * self.map_sets, *y.shape[-2:])

    def n_measured(self, y: Tensor) -> int:
        """Number of real values in y: two for each measured k-space point of each coil."""
        coils = self.maps.shape[2]
        return 2 * coils * int(self.mask.expand(len(y), *self.mask.shape[1:]).sum())

    def noise_like(self, y: Tensor, generator: Generators | None) -> Tensor:
        return self._mask(y) * randn_like(y, generator)

    def _check_x(self, x: Tensor, name: str = "x") -> None:
        channels, height, width = self.image_shape or (0, 0, 0)
        check_float(name, x)
        images = (height, width) if self.map_sets == 1 else (self.map_sets, height, width)
        expected = images if x.is_complex() else (channels, height, width)
        if tuple(x.shape[1:]) != expected or self._batch_differs(x):
            form = "(B, H, W)" if self.map_sets == 1 else f"(B, {self.map_sets}, H, W)"
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, {self!r} takes (B, {channels}, H, W) or "
                f"complex {form} with (H, W) = {(height, width)}{self._batch_note()}"
            )

    def _check_y(self, y: Tensor) -> None:
        coils, height, width = self.maps.shape[2:]
        pairs = y.ndim == 5 and tuple(y.shape[1:]) == (2, coils, height, width)
        plain = y.is_complex() and tuple(y.shape[1:]) == (coils, height, width)
        if not (pairs or plain) or self._batch_differs(y):
            raise ShapeError(
                f"y has shape {tuple(y.shape)} and dtype {y.dtype}, {self!r} makes complex "
                f"(B, {coils}, {height}, {width}){self._batch_note()}: was y measured with "
                "another operator?"
            )

    def _batch_differs(self, t: Tensor) -> bool:
        return any(n not in (1, t.shape[0]) for n in (len(self.maps), len(self.mask)))

    def _batch_note(self) -> str:
        batch = max(len(self.maps), len(self.mask))
        return f" and B = {batch}" if batch > 1 else ""


def _with_sets(coil_maps: Tensor, map_sets: int | None) -> Tensor:
    """Coil maps of any allowed shape as ``(B, M, coils, H, W)``."""
    shape = tuple(coil_maps.shape)
    if coil_maps.ndim not in (3, 4, 5) or not coil_maps.is_complex():
        raise ShapeError(
            f"coil_maps has shape {shape} and dtype {coil_maps.dtype}, expected complex "
            "(coils, H, W), (B, coils, H, W) or, of several sets, (B, sets, coils, H, W)"
        )
    if coil_maps.ndim == 4:
        several = map_sets is not None and map_sets > 1
        coil_maps = coil_maps[None] if several else coil_maps[:, None]
    elif coil_maps.ndim == 3:
        coil_maps = coil_maps[None, None]
    if map_sets not in (None, coil_maps.shape[1]):
        raise ShapeError(
            f"map_sets is {map_sets}, but coil_maps of shape {shape} hold {coil_maps.shape[1]} "
            "sets; give (sets, coils, H, W) or (B, sets, coils, H, W), or leave map_sets out"
        )
    return coil_maps


def _blocks(coils: Tensor, image: Tensor) -> tuple[Tensor, ...]:
    """Coils ``(…, coils, H, W)`` in blocks whose products fit into the cache.

    Without blocks, a batch of four 15-coil slices takes three times as long, since the memory of
    such large temporaries is mapped anew each time.
    """
    return torch.split(coils, max(BLOCK // image.numel(), 1), dim=-3)


def _seen(S: Tensor, images: Tensor) -> Tensor:
    """Coil images Σ_m S_mc x_m."""
    total = S[:, 0] * images[:, :1]
    for m in range(1, S.shape[1]):
        total = total + S[:, m] * images[:, m : m + 1]
    return total


def _add_adjoint(total: Tensor, S_conj: Tensor, coil_images: Tensor) -> None:
    """total_m += Σ_c S̄_mc v_c, in place; ``coil_images`` may be overwritten."""
    sets = S_conj.shape[1]
    for m in range(sets):
        last = m == sets - 1
        product = coil_images.mul_(S_conj[:, m]) if last else coil_images * S_conj[:, m]
        total[:, m] += product.sum(1)


def _images(x: Tensor) -> Tensor:
    """Real or complex images as complex ``(B, M, H, W)``."""
    image = to_complex(x)
    return image[:, None] if image.ndim == 3 else image


def _in_form(images: Tensor, like: Tensor) -> Tensor:
    """Complex ``(B, M, H, W)`` as real channels or complex images, as ``like`` is."""
    if not like.is_complex():
        return to_channels(images)
    return images[:, 0] if images.shape[1] == 1 else images
