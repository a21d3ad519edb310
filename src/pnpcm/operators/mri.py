"""Multi-coil Cartesian MRI: sensitivities, centred Fourier transform, sampling mask."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pnpcm.arguments import Gamma, check_float
from pnpcm.core import Generators
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import BLOCK, like_form
from pnpcm.operators.base import LinearOperatorBase
from pnpcm.operators.constants import as_constant
from pnpcm.operators.traits import Traits
from pnpcm.rng import randn_like
from pnpcm.transforms import fft2c

FACTORIZED = 1 << 22
"""Largest B·H·W² for which AᴴA is diagonalized row by row: 160², a second of one core."""


class MultiCoilMRI(LinearOperatorBase):
    r"""``y_c = mask · F(S_c x)`` for each coil c, with the centred orthonormal FFT F.

    ``x``: ``(B, 2, H, W)`` (real, imaginary) or complex ``(B, H, W)``; results come in the form
    of the input, ``A_adjoint`` gives two channels. ``y``: complex ``(B, coils, H, W)``; deepinv's
    ``(B, 2, coils, H, W)`` is taken by ``A_adjoint`` too. ``coil_maps``: complex
    ``(coils, H, W)`` or ``(B, coils, H, W)``. ``mask``: ``(W,)`` for whole columns, ``(H, W)`` or
    ``(B, H, W)``. In AᴴA the shifts of F cancel against each other and, for a column mask, the
    transform along columns cancels too: AᴴA then maps each row to itself, and for images that
    are not large it is diagonalized once and for all. ``prox_l2``, ``A_dagger`` and conditional
    draws are exact there, and CG elsewhere.
    """

    def __init__(self, coil_maps: Tensor, mask: Tensor) -> None:
        super().__init__()
        coil_maps, mask = as_constant("coil_maps", coil_maps), as_constant("mask", mask)
        if coil_maps.ndim not in (3, 4) or not coil_maps.is_complex():
            raise ShapeError(
                f"coil_maps has shape {tuple(coil_maps.shape)} and dtype {coil_maps.dtype}, "
                "expected complex (coils, H, W) or (B, coils, H, W)"
            )
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
        self.coil_maps = coil_maps if coil_maps.ndim == 4 else coil_maps[None]
        full = mask.bool().expand(size) if mask.ndim == 1 else mask.bool()
        self.mask = full if full.ndim == 3 else full[None]
        if len(self.mask) > 1 and len(self.coil_maps) not in (1, len(self.mask)):
            raise ShapeError(
                f"mask is for {len(self.mask)} images and coil_maps for {len(self.coil_maps)}; "
                "give one of each per image, or one for all"
            )
        self.image_shape = (2, *size)
        # AᴴA without centring: maps and mask moved to the corner-origin layout once and for all
        self.corner_maps = torch.fft.ifftshift(self.coil_maps, dim=(-2, -1))
        self.corner_conj = self.corner_maps.conj().resolve_conj()
        self.corner_mask = torch.fft.ifftshift(self.mask, dim=(-2, -1))
        self.columns = bool((self.mask == self.mask[:, :1]).all())

    def traits(self, noise_std: float) -> Traits:
        """CG that starts where the last one stopped; an MR image has no largest value known."""
        step = {"type": "CGStep", "max_iter": 10, "start": "warm"}
        return Traits(data_step=step, clamp=False, noise="unknown")

    @property
    def preset_options(self) -> dict[str, Any]:
        return {"acceleration": round(1 / float(self.mask.float().mean()))}

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[MultiCoilMRI, Tensor]:
        maps = torch.randn((4, *size), generator=generator, dtype=torch.complex64)
        maps = maps / maps.abs().square().sum(0).sqrt()
        mask = torch.rand(size[1], generator=generator) < 0.5
        mask[size[1] // 2] = True
        x = torch.randn((batch, 2, *size), generator=generator) * 0.4
        return cls(maps, mask), x

    def _A(self, x: Tensor) -> Tensor:
        image = to_complex(x)
        return self._mask(image) * fft2c(self._like("coil_maps", image) * image[:, None])

    def _A_adjoint(self, y: Tensor) -> Tensor:
        if y.ndim == 5:
            y = torch.complex(y[:, 0], y[:, 1])
        return to_channels(self._adjoint_complex(y))

    def _adjoint_complex(self, y: Tensor) -> Tensor:
        S_conj, mask = self._like("corner_conj", y), self._like("corner_mask", y).real
        total = torch.zeros_like(y[:, 0])
        for part, S_c in zip(_blocks(y, total), _blocks(S_conj, total), strict=True):
            spectrum = torch.fft.ifftshift(part, dim=(-2, -1)).mul_(mask[:, None])
            total += torch.fft.ifft2(spectrum, norm="ortho").mul_(S_c).sum(1)
        image: Tensor = torch.fft.fftshift(total, dim=(-2, -1))
        return image

    def _mask(self, like: Tensor) -> Tensor:
        return self._like("mask", like)[:, None].real

    def A_adjoint_A(self, x: Tensor) -> Tensor:
        """Σ_c S̄_c F⁻¹ mask F S_c x, with corner-origin FFTs along the masked axes only."""
        image = to_complex(x)
        S, S_conj = self._like("corner_maps", image), self._like("corner_conj", image)
        mask = self._like("corner_mask", image).real
        axes = (-1,) if self.columns else (-2, -1)
        image, total = torch.fft.ifftshift(image, dim=(-2, -1)), torch.zeros_like(image)
        for S_c, S_c_conj in zip(_blocks(S, image), _blocks(S_conj, image), strict=True):
            spectrum = torch.fft.fftn(S_c * image[:, None], dim=axes).mul_(mask[:, None])
            total += torch.fft.ifftn(spectrum, dim=axes).mul_(S_c_conj).sum(1)
        image = torch.fft.fftshift(total, dim=(-2, -1))
        return image if x.is_complex() else to_channels(image)

    def _prox_l2(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        right = like_form(self._A_adjoint(y), z)
        return z + self._solve_normal(gamma * (right - self.A_adjoint_A(z)), gamma)

    def _solve_normal(self, b: Tensor, gamma: Gamma) -> Tensor:
        """Q (1 + γλ)⁻¹ Qᴴ b by rows; CG where rows are coupled or too large to factorize."""
        if not self.row_wise:
            return super()._solve_normal(b, gamma)
        if isinstance(gamma, Tensor):
            gamma = gamma.real.reshape(-1, 1, 1)
        right = to_complex(b)
        solution = self._in_rows(1 / (1 + gamma * self._like("row_values", right)), right)
        return solution if b.is_complex() else to_channels(solution)

    def _A_dagger(self, y: Tensor, reg: float) -> Tensor:
        """Q (λ + reg)⁻¹ Qᴴ Aᴴy by rows, or CG likewise; λ that drown in rounding count as 0."""
        if not self.row_wise:
            return super()._A_dagger(y, reg)
        right = to_complex(self._A_adjoint(y))
        values = self._like("row_values", right)
        floor = 30 * torch.finfo(right.dtype).eps * values.amax((1, 2), keepdim=True)
        damped = values + reg
        gain = torch.where(damped > floor, 1 / damped.clamp_min(floor), 0)
        return to_channels(self._in_rows(gain, right))

    def _in_rows(self, gain: Tensor, image: Tensor) -> Tensor:
        """Q gain Qᴴ image, for each row h of the complex image its own Q."""
        Q = self._like("row_vectors", image)
        if len(Q) > 1:
            return (Q @ (gain[..., None] * (Q.mH @ image[..., None])))[..., 0]
        images = image.permute(1, 2, 0)  # those of a batch side by side, as columns
        return (Q[0] @ (gain.permute(1, 2, 0) * (Q[0].mH @ images))).permute(2, 0, 1)

    @property
    def row_wise(self) -> bool:
        """Whether AᴴA keeps to rows that are small enough to be diagonalized, once and for all."""
        rows = max(len(self.coil_maps), len(self.mask)) * self.mask[0].numel()
        return self.columns and rows * self.mask.shape[-1] <= FACTORIZED

    @property
    def row_values(self) -> Tensor:
        """Eigenvalues ``(B, H, W)`` of AᴴA, which maps each row of the image to itself."""
        return self._rows[0]

    @property
    def row_vectors(self) -> Tensor:
        """Their eigenvectors ``(B, H, W, W)``, as columns."""
        return self._rows[1]

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """For a column mask: (AᴴA)_h[w, v] = g[w − v] Σ_c S̄_c[h, w] S_c[h, v], g = F⁻¹ mask."""
        S = self.coil_maps.to(torch.complex128)
        place = torch.arange(S.shape[-1], device=S.device)
        g = torch.fft.ifft(self.corner_mask[:, 0].to(torch.float64))
        circulant = g[:, (place[:, None] - place) % len(place)]
        values, vectors = torch.linalg.eigh(
            torch.einsum("bchw,bchv->bhwv", S.conj(), S) * circulant[:, None]
        )
        return values.clamp_min(0), vectors

    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        self._check_y(y)
        return (y.shape[0], 2, *y.shape[-2:])

    def n_measured(self, y: Tensor) -> int:
        """Real numbers sampled: two for each measured k-space point of each coil."""
        coils = self.coil_maps.shape[1]
        return 2 * coils * int(self.mask.expand(len(y), *self.mask.shape[1:]).sum())

    def noise_like(self, y: Tensor, generator: Generators | None) -> Tensor:
        return self._mask(y) * randn_like(y, generator)

    def _check_x(self, x: Tensor, name: str = "x") -> None:
        expected = self.image_shape or ()
        check_float(name, x)
        channels = tuple(x.shape[1:]) == (expected[1:] if x.is_complex() else expected)
        if not channels or self._batch_differs(x):
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, {self!r} takes (B, 2, H, W) or complex "
                f"(B, H, W) with (H, W) = {expected[1:]}{self._batch_note()}"
            )

    def _check_y(self, y: Tensor) -> None:
        coils, height, width = self.coil_maps.shape[1:]
        pairs = y.ndim == 5 and tuple(y.shape[1:]) == (2, coils, height, width)
        plain = y.is_complex() and tuple(y.shape[1:]) == (coils, height, width)
        if not (pairs or plain) or self._batch_differs(y):
            raise ShapeError(
                f"y has shape {tuple(y.shape)} and dtype {y.dtype}, {self!r} makes complex "
                f"(B, {coils}, {height}, {width}){self._batch_note()}: was y measured with "
                "another operator?"
            )

    def _batch_differs(self, t: Tensor) -> bool:
        return any(n not in (1, t.shape[0]) for n in (len(self.coil_maps), len(self.mask)))

    def _batch_note(self) -> str:
        batch = max(len(self.coil_maps), len(self.mask))
        return f" and B = {batch}" if batch > 1 else ""


def _blocks(coils: Tensor, image: Tensor) -> tuple[Tensor, ...]:
    """Coils in blocks whose products stay in the cache.

    All at once, a batch of four 15-coil slices takes three times as long: every temporary is
    then large enough to be mapped and faulted in anew.
    """
    return torch.split(coils, max(BLOCK // image.numel(), 1), dim=1)


def to_complex(x: Tensor) -> Tensor:
    """``(B, 2, H, W)`` to complex ``(B, H, W)``; complex images pass."""
    return x if x.is_complex() else torch.complex(x[:, 0], x[:, 1])


def to_channels(image: Tensor) -> Tensor:
    """Complex ``(B, H, W)`` to ``(B, 2, H, W)``."""
    return torch.stack([image.real, image.imag], dim=1)
