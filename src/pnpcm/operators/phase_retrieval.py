"""Phase retrieval: Fourier magnitudes of a coded, zero-padded image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Generators
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators.base import OperatorBase
from pnpcm.operators.traits import Traits, lbfgs
from pnpcm.rng import uniform_like

Distance = Callable[[Tensor, Tensor], Tensor]
"""``(candidate, reference)``, both ``(B, C, H, W)``, to one number per image ``(B,)``."""

_PLANE = (-2, -1)
_REFERENCE_SEED = 1234


class PhaseRetrieval(OperatorBase):
    r"""Magnitudes of the centred orthonormal Fourier transform, per channel.

    .. math:: A(x) = \sqrt{|F P (m \odot x)|^2 + \varepsilon}, \qquad \varepsilon = 10^{-12}

    with a code m in {−1, 0, 1} and zero padding P by ``int(oversampling / 8 · side)`` on each
    border; y is ``(B, C, H + 2 pad, W + 2 pad)``. A(x) does not change when channels change sign
    (see :meth:`resolve_signs`). Pixels where the code is 0 are not measured at all.

    code_mask: ``(H, W)`` shared by channels, or ``(1, H, W)``, ``(C, H, W)``.
    reference: start as in the paper's code (:meth:`z_start`); A is the same.

    Source: Gülle et al., PnP-CM, Section 4.
    """

    def __init__(
        self, code_mask: Any, oversampling: float = 4.0, *, reference: bool = False
    ) -> None:
        super().__init__()
        if not (math.isfinite(oversampling) and oversampling >= 0):
            raise ArgumentError(
                f"oversampling is {oversampling}, expected a finite number ≥ 0; 4 doubles each side"
            )
        self.code_mask = _checked_code(code_mask)
        self.oversampling = float(oversampling)
        self.reference = reference
        height, width = self.code_mask.shape[-2:]
        self.size = (height, width)
        self.pad = (int(oversampling / 8 * height), int(oversampling / 8 * width))
        self.padded_size = (height + 2 * self.pad[0], width + 2 * self.pad[1])

    def __repr__(self) -> str:
        return f"PhaseRetrieval({self.size[0]}×{self.size[1]}, oversampling={self.oversampling:g})"

    @classmethod
    def random(
        cls,
        size: tuple[int, int],
        generator: torch.Generator,
        *,
        oversampling: float = 4.0,
        reference: bool = False,
    ) -> PhaseRetrieval:
        """A code drawn per pixel: −1 and +1 with probability 1/8 each, 0 with 3/4."""
        r = torch.randint(8, tuple(size), generator=generator, device=generator.device)
        code = (r == 7).double() - (r == 0).double()
        return cls(code, oversampling, reference=reference)

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[PhaseRetrieval, Tensor]:
        x = 2 * torch.rand((batch, 3, *size), generator=generator) - 1
        return cls.random(size, generator), x

    # forward -----------------------------------------------------------------------------------
    def _A(self, x: Tensor) -> Tensor:
        # Position of padding and origin only change phases, and a real image has
        # |X(−k)| = |X(k)|: half a spectrum, padded at the end, is enough.
        spectrum = torch.fft.rfft2(self._like("code_mask", x) * x, s=self.padded_size, norm="ortho")
        half = (spectrum.real.square() + spectrum.imag.square() + 1e-12).sqrt()
        mirrored = half[..., 1 : (self.padded_size[1] + 1) // 2].flip(_PLANE).roll(1, -2)
        magnitudes: Tensor = torch.fft.fftshift(torch.cat((half, mirrored), -1), _PLANE)
        return magnitudes

    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        self._check_y(y)
        return (*y.shape[:2], *self.size)

    # start -------------------------------------------------------------------------------------
    def z_start(self, y: Tensor, generator: Generators | None = None) -> Tensor:
        """An image whose padded transform has the magnitudes y and random phases.

        X(k) = ȳ(k) e^{iφ(k)} with ȳ(k) = (y(k) + y(−k))/2, φ uniform and φ(−k) = −φ(k), so F⁻¹X
        is real; it is standardised per channel, passed through tanh and cropped. One phase map
        per image, shared by its channels. ``reference=True``: the start of the paper's code,
        which draws Gaussian phases from its own seed and mirrors them one sample off.
        """
        self._check_y(y)
        spectrum = self._spectrum_reference(y) if self.reference else self._spectrum(y, generator)
        image: Tensor = torch.fft.fftshift(torch.fft.ifft2(spectrum, norm="ortho").real, _PLANE)
        image = image - image.mean(_PLANE, keepdim=True)
        image = torch.tanh(image / image.std(_PLANE, keepdim=True).clamp_min(1e-6))
        (top, left), (height, width) = self.pad, self.size
        return image[..., top : top + height, left : left + width]

    def _spectrum(self, y: Tensor, generator: Generators | None) -> Tensor:
        """X(k), origin first, with X(−k) = conj X(k) exactly."""
        magnitude: Tensor = torch.fft.ifftshift(y, _PLANE)
        magnitude = (magnitude + _negate(magnitude)) / 2
        phase = math.pi * (2 * uniform_like(y[:, :1], generator) - 1)
        # Of each pair (k, −k) the first in memory keeps its phase.
        index = torch.arange(phase[0].numel(), device=y.device).reshape(self.padded_size)
        order = index - _negate(index)
        phase = torch.where(order < 0, phase, -_negate(phase)) * (order != 0)
        return torch.polar(torch.ones_like(phase), phase) * magnitude

    def _spectrum_reference(self, y: Tensor) -> Tensor:
        """½ (X(i) + conj X(N−1−i)) of centred indices: one off from Hermitian for even sides."""
        generator = torch.Generator().manual_seed(_REFERENCE_SEED)
        phase = 2 * math.pi * torch.randn(self.padded_size, generator=generator).to(y) - math.pi
        phase[self.padded_size[0] // 2, self.padded_size[1] // 2] = 0
        spectrum = torch.polar(torch.ones_like(phase), phase) * y
        spectrum = (spectrum + spectrum.flip(_PLANE).conj()) / 2
        origin_first: Tensor = torch.fft.ifftshift(spectrum, _PLANE)
        return origin_first

    # signs -------------------------------------------------------------------------------------
    def traits(self, noise_std: float) -> Traits:
        return Traits(data_step=lbfgs(40), steps=8, noise="unknown", signs=True)

    @property
    def preset_options(self) -> dict[str, Any]:
        named = {"reference": True} if self.reference else {}
        return {"oversampling": self.oversampling} | named

    def resolve_signs(self, x: Tensor, reference: Tensor, distance: Distance) -> Tensor:
        """Of the 2^C images with the same A(x) as ``x``, the one nearest to ``reference``.

        Candidates have no negated channel, then one, then more (000, 100, 010, 001, 011, 101, 110,
        111 for three); per image the first smallest ``distance(candidate, reference)`` is chosen,
        so ties keep ``x``. ``reference`` is ``(B, C, H, W)``, or one image for all.
        """
        self._check_x(x)
        if reference.shape not in (x.shape, (1, *x.shape[1:])):
            raise ShapeError(
                f"reference has shape {tuple(reference.shape)}, x has {tuple(x.shape)}; "
                "give one image of this size, or one for each"
            )
        reference = reference.expand_as(x)
        best, smallest = x, x.new_full((len(x),), math.inf)
        for signs in _sign_patterns(x.shape[1]):
            candidate = x * x.new_tensor(signs)[:, None, None]
            distances = torch.as_tensor(distance(candidate, reference)).to(smallest)
            value = distances.reshape(-1)
            if value.shape != smallest.shape:
                raise ShapeError(
                    f"distance returned shape {tuple(distances.shape)} for {len(x)} images, "
                    f"expected ({len(x)},); reduce over all but the batch"
                )
            better = value < smallest
            best = torch.where(better[:, None, None, None], candidate, best)
            smallest = torch.where(better, value, smallest)
        return best

    # shapes ------------------------------------------------------------------------------------
    def _check_x(self, x: Tensor, name: str = "x") -> None:
        code = self.code_mask
        channels = code.shape[0] if code.ndim == 3 and code.shape[0] > 1 else None
        fits = x.ndim == 4 and tuple(x.shape[-2:]) == self.size and channels in (None, x.shape[1])
        if not fits:
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, {self!r} takes "
                f"(B, {channels or 'C'}, {self.size[0]}, {self.size[1]}); "
                "build the operator for this image size"
            )
        if not x.is_floating_point():
            raise ArgumentError(
                f"{name} has dtype {x.dtype}, {self!r} takes real images; "
                "give float32 or float64 values in [-1, 1]"
            )

    def _check_y(self, y: Tensor) -> None:
        if y.ndim != 4 or tuple(y.shape[-2:]) != self.padded_size:
            raise ShapeError(
                f"y has shape {tuple(y.shape)}, {self!r} makes "
                f"(B, C, {self.padded_size[0]}, {self.padded_size[1]}): "
                "was y measured with another operator?"
            )


def _checked_code(code_mask: Any) -> Tensor:
    code = torch.as_tensor(code_mask).detach()
    if code.ndim not in (2, 3) or 0 in code.shape:
        raise ShapeError(
            f"code_mask has shape {tuple(code.shape)}, expected (H, W), (1, H, W) or (C, H, W); "
            "PhaseRetrieval.random((H, W), generator) draws one"
        )
    known = (code == 0) | (code == 1) | (code == -1)
    if not bool(known.all()):
        raise ArgumentError(
            f"code_mask holds {code[~known][0].item()}, expected only -1, 0 and 1; "
            "PhaseRetrieval.random((H, W), generator) draws such a code"
        )
    if not bool(code.any()):
        raise ArgumentError(
            f"code_mask {tuple(code.shape)} is 0 everywhere, so nothing would be measured; "
            "give a code with some -1 or 1, or draw again"
        )
    return code.to(torch.float64, copy=True)


def _negate(a: Tensor) -> Tensor:
    """a(−k) for a spectrum a(k) with its origin first, exact for even and odd sides."""
    return a.flip(_PLANE).roll((1, 1), _PLANE)


def _sign_patterns(channels: int) -> Iterator[list[float]]:
    """All sign patterns by number of negations; in the second half ordered by kept channels."""
    for negated in range(channels + 1):
        few = min(negated, channels - negated)
        rare, common = (-1.0, 1.0) if few == negated else (1.0, -1.0)
        for chosen in combinations(range(channels), few):
            yield [rare if c in chosen else common for c in range(channels)]
