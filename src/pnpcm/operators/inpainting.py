"""Inpainting: some pixels are measured, the others are missing."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.arguments import Gamma
from pnpcm.core import Generators
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators.base import DecomposableOperator, as_constant
from pnpcm.operators.extension import extension
from pnpcm.operators.traits import Traits
from pnpcm.rng import randn_like, uniform_like


class Inpainting(DecomposableOperator):
    r"""Keep the pixels where ``mask`` is 1: ``A = diag(mask)``.

    ``y`` has the shape of the image and is 0 where nothing was measured. ``mask`` (1 = kept):
    ``(H, W)``, ``(C, H, W)`` or, one per image, ``(B, 1|C, H, W)``.

    .. math:: \operatorname{prox}(z) = \frac{\gamma y + z}{1 + \gamma} \text{ on kept pixels, }
              z \text{ elsewhere}

    >>> operator = Inpainting(torch.tensor([[1, 0], [0, 1]]))
    >>> operator.A(torch.ones(1, 3, 2, 2))[0, 0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        mask = as_constant("mask", mask)
        if mask.ndim not in (2, 3, 4):
            raise ShapeError(
                f"mask has shape {tuple(mask.shape)}, expected (H, W), (C, H, W) or (B, 1|C, H, W)"
            )
        if not bool(((mask == 0) | (mask == 1)).all()):
            raise ArgumentError(
                "mask must be binary (1 = kept, 0 = missing), got values from "
                f"{float(mask.min()):g} to {float(mask.max()):g}; threshold it first"
            )
        kept = mask.bool().clone().reshape((1,) * (4 - mask.ndim) + tuple(mask.shape))
        empty = (~kept.flatten(1).any(1)).nonzero().flatten().tolist()
        if empty:
            raise ArgumentError(
                f"mask keeps no pixel of image {empty[0]}; set at least one to 1 (1 = kept)"
            )
        self.mask = kept

    @classmethod
    def random(
        cls, size: tuple[int, int], *, missing: float = 0.7, generator: Generators
    ) -> Inpainting:
        """Inpainting that drops each pixel with probability ``missing``, for all channels alike.

        One generator: one mask for every image; a sequence of them: one mask per image.
        """
        if not 0 <= missing < 1:
            raise ArgumentError(
                f"missing must lie in [0, 1), got {missing}; it is the fraction that is dropped"
            )
        batch = 1 if isinstance(generator, torch.Generator) else len(generator)
        return cls(uniform_like(torch.empty(batch, 1, *size), generator) >= missing)

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[Inpainting, Tensor]:
        x = torch.rand((batch, 3, *size), generator=generator) * 2 - 1
        return cls.random(size, missing=0.6, generator=generator), x

    def traits(self, noise_std: float) -> Traits:
        """Defaults of a reconstruction: known pixels are exact; it starts at their extension.

        On 6 training crops with noise (30 and 70 % missing, denoiser of ``natural``, 24 schedules)
        the best schedule from the extension is 0.1 to 0.3 dB above the best from the median fill.
        """
        return Traits() if self.is_identity else Traits(noise="exact", init="extension")

    def __repr__(self) -> str:
        return "Denoising()" if self.is_identity else super().__repr__()

    @property
    def is_identity(self) -> bool:
        """Whether every pixel is kept, so that y is the image with additive noise."""
        return bool(self.mask.all())

    @property
    def preset_options(self) -> dict[str, Any]:
        """The share of missing pixels, in steps of 5 %."""
        return {"missing": round(20 * (1 - float(self.mask.float().mean()))) / 20}

    @property
    def singular_values(self) -> Tensor:
        return self.mask

    def U(self, c: Tensor) -> Tensor:
        return c

    def U_adjoint(self, y: Tensor) -> Tensor:
        return y

    def V(self, c: Tensor) -> Tensor:
        return c

    def V_adjoint(self, x: Tensor) -> Tensor:
        return x

    def _A(self, x: Tensor) -> Tensor:
        return self._like("mask", x) * x

    def _A_adjoint(self, y: Tensor) -> Tensor:
        return self._like("mask", y) * y

    def _prox_l2(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        return torch.addcmul(z, self._like("mask", z) * (gamma / (1 + gamma)), y - z)

    def _A_dagger(self, y: Tensor, reg: float) -> Tensor:
        return self._like("mask", y) * y / (1 + reg)

    def n_measured(self, y: Tensor) -> int:
        return int(self.mask.expand(y.shape).sum())

    def noise_like(self, y: Tensor, generator: Generators | None) -> Tensor:
        return self._like("mask", y) * randn_like(y, generator)

    def x_start(self, y: Tensor) -> Tensor:
        """The start of a solver: y with missing pixels replaced by medians of their neighbours."""
        self._check_y(y)
        return median_fill(y, self.mask.to(y.device))

    def x_extension(self, y: Tensor) -> Tensor:
        """A closer start for measurements without noise: the smooth extension of y."""
        self._check_y(y)
        return extension(y, self.mask)

    def with_known(self, x: Tensor, y: Tensor) -> Tensor:
        """``x`` with the known pixels of ``y``, bit for bit."""
        return torch.where(self.mask.to(y.device), y, x)

    def _check_x(self, x: Tensor, name: str = "x") -> None:
        super()._check_x(x, name)
        batch, channels, *size = self.mask.shape
        fits = batch in (1, x.shape[0]) and channels in (1, x.shape[1]) and [*x.shape[2:]] == size
        if not fits:
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, the mask is {tuple(self.mask.shape)}: "
                "sides must be equal, batch and channels equal or 1"
            )

    def _check_y(self, y: Tensor) -> None:
        self._check_x(y, "y")


def median_fill(y: Tensor, mask: Tensor, *, chunk: int = 1 << 19) -> Tensor:
    """``y`` with missing pixels replaced by the median of the known ones around them.

    Pass w = 2, 3, … uses (2w+1)² windows of the image before the pass; the median of an even
    number of values is the lower middle one. Ends when no pixel is missing; a plane without a
    known pixel becomes 0. Processes ``chunk`` missing pixels at a time.
    """
    height, width = y.shape[-2:]
    planes = y.reshape(-1, height, width)
    known = mask.bool().expand(y.shape).reshape(-1, height, width)
    together = max(8 * chunk // (height * width), 1)
    x = torch.empty_like(planes)
    for first in range(0, len(planes), together):
        part = slice(first, first + together)
        x[part] = _fill(planes[part], known[part], chunk)
    return x.reshape(y.shape)


def _fill(planes: Tensor, known: Tensor, chunk: int) -> Tensor:
    height, width = planes.shape[-2:]
    x = torch.where(known, planes, torch.nan)
    w = 2
    while not bool(known.all()) and w < 2 * max(height, width):
        near = F.max_pool2d(known[:, None].to(x.dtype), 2 * w + 1, stride=1, padding=w)[:, 0] > 0
        targets = (near & ~known).nonzero()
        padded = F.pad(x, (w, w, w, w), value=torch.nan)
        windows = padded.unfold(1, 2 * w + 1, 1).unfold(2, 2 * w + 1, 1)
        rows = max(chunk * 25 // (2 * w + 1) ** 2, 1)
        filled = [
            windows[p, i, j].flatten(1).nanmedian(1).values
            for p, i, j in (part.unbind(1) for part in torch.split(targets, rows))
        ]
        if filled:
            p, i, j = targets.unbind(1)
            x[p, i, j] = torch.cat(filled)
            known = known | near
        w += 1
    return torch.where(known, x, 0)
