"""JPEG compression: the exact codec for measuring and a differentiable surrogate for solvers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from pnpcm.core import Generators
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators import jpeg_codec as codec
from pnpcm.operators.base import OperatorBase
from pnpcm.operators.jpeg_codec import read_header
from pnpcm.operators.traits import Misfit, Traits, lbfgs

Chroma = Literal["smooth", "codec", "libjpeg"]

SAMPLERS: dict[str, tuple[codec.Sampler, codec.Sampler]] = {
    "smooth": (codec.smooth_down, codec.smooth_up),
    "codec": (codec.decimate, codec.replicate),
    "libjpeg": (codec.cell_mean, codec.smooth_up),
}
"""Down- and upsampling of chroma for each value of ``JPEG(chroma=…)``."""
QUALITY_5_ERROR = 0.126
"""Root mean square error of quality 5, measured on photographs in [-1, 1] (24 dB)."""


class JPEG(OperatorBase):
    r"""JPEG at a quality, with given tables, or as in a given file.

    .. math:: A(x) = C^{-1}\, U\, D^\top Q\, r\big(Q^{-1} D\, S\, C x\big), \quad
        r(v) = [v] + (v - [v])^3

    with colour transform C (RGB to YCbCr), chroma sampling S and U, 8×8 DCT D, tables Q and the
    cubic surrogate r of rounding; the result is softly clipped. ``acquire`` rounds exactly, takes
    every other chroma sample and replicates it (the codec of the paper's code), without clipping:
    its values are floats that may leave [-1, 1]. Grey images use luminance only. Sides are padded
    by replication to whole cells (8 or 16 pixels) and cropped again.

    ``quality``: 1…100, the scale of libjpeg; ``tables`` replace it. ``tables``: luminance and
    chrominance, 8×8 integers in natural (not zigzag) order. ``subsampling``: "4:4:4", "4:2:2",
    "4:4:0" or "4:2:0". ``chroma``: "smooth": A filters chroma before sampling and interpolates
    after it, as in the paper's code; "codec": A samples chroma as ``acquire`` does; "libjpeg": both
    use the mean of each cell and linear interpolation, as real encoders and decoders do, for real
    files. ``eight_bit``: ``acquire`` returns the result of libjpeg, 8-bit values of 8-bit pixels,
    for any ``chroma``.

    Source: Gülle et al., PnP-CM, Section 4; tables of ITU-T T.81, Annex K.
    """

    def __init__(
        self,
        quality: int = 5,
        *,
        tables: Sequence[Any] | Tensor | None = None,
        subsampling: str = "4:2:0",
        chroma: Chroma = "smooth",
        eight_bit: bool = False,
    ) -> None:
        super().__init__()
        if subsampling not in codec.SUBSAMPLING:
            raise ArgumentError(
                f"subsampling is {subsampling!r}, expected one of {', '.join(codec.SUBSAMPLING)}; "
                "JPEG.from_file reads it from a file"
            )
        if chroma not in get_args(Chroma):
            raise ArgumentError(
                f"chroma is {chroma!r}, expected 'smooth' (as in the paper's code), 'codec' "
                "(as in its codec) or 'libjpeg' (as in real files)"
            )
        self.subsampling = subsampling
        self.chroma = chroma
        self.eight_bit = eight_bit
        self.quality = _checked_quality(quality) if tables is None else None
        if self.quality is None:
            self.tables = _checked_tables(tables)
            self._soft_tables = self.tables.double()
        else:
            self.tables = codec.quality_tables(self.quality)
            self._soft_tables = codec.soft_tables(self.quality)
        self._dct = codec.dct_matrix()
        self._factors = codec.SUBSAMPLING[subsampling]
        self._colour_codec, self._rgb_codec = codec.COLOUR_CODEC, codec.COLOUR_CODEC.inverse()
        self._colour_smooth, self._rgb_smooth = codec.COLOUR_SMOOTH, codec.COLOUR_SMOOTH.inverse()

    def __repr__(self) -> str:
        source = "tables" if self.quality is None else f"quality={self.quality}"
        return f"JPEG({source}, {self.subsampling})"

    @classmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[JPEG, Tensor]:
        x = 2 * torch.rand((batch, 3, *size), generator=generator) - 1
        return cls(quality=50), x

    @classmethod
    def from_file(
        cls, path: str | Path, *, chroma: Chroma = "smooth", eight_bit: bool = False
    ) -> JPEG:
        """The operator with the tables and the chroma sampling of a file."""
        tables, subsampling = read_header(Path(path))
        return cls(tables=tables, subsampling=subsampling, chroma=chroma, eight_bit=eight_bit)

    # how rows depend on each other -------------------------------------------------------------
    @property
    def row_cell(self) -> int:
        """Number of rows of a coded cell; rows of cells are coded independently."""
        return 8 * self._factors[0]

    @property
    def row_margin(self) -> int:
        """Number of rows beyond a row of cells that it depends on: chroma is interpolated between
        cells, and the filter before "smooth" sampling reaches into the next but one.
        """
        reach = {"codec": 0, "libjpeg": 1, "smooth": 2}[self.chroma]
        return 0 if self._factors[0] == 1 else reach * self.row_cell

    def _A(self, x: Tensor) -> Tensor:
        tables, samplers = self._like("_soft_tables", x), SAMPLERS[self.chroma]
        decoded = self._code(x, "smooth", tables, codec.soft_round, *samplers)
        return codec.soft_clip(decoded, 0.0, 255.0) / 127.5 - 1

    def acquire(self, x: Tensor) -> Tensor:
        """The decoded image of the exact codec, as floats or ``eight_bit``; not differentiable."""
        self._check_x(x)
        with torch.no_grad():
            if self.eight_bit:
                v = ((x.double() + 1) * 127.5).round().clamp(0, 255)
                decoded = codec.eight_bit(v, self._like("tables", v), self._factors)
                return (decoded / 127.5 - 1).to(x.dtype)
            real = self.chroma == "libjpeg"
            digits, samplers = ("smooth", "libjpeg") if real else ("codec", "codec")
            tables = self._like("tables", x)
            decoded = self._code(x, digits, tables, torch.round, *SAMPLERS[samplers])
        return decoded / 127.5 - 1

    def cells(self, x: Tensor) -> Tensor:
        """Q⁻¹ D S C x, the coefficients in steps of their tables before rounding, ``(B, n)``."""
        self._check_x(x)
        return torch.cat([steps.flatten(1) for steps in self._steps(self._planes(x))], 1)

    def traits(self, noise_std: float) -> Traits:
        """Without noise the data step is a mean in the cells of y, started at the decoded image.

        From a grey image it would return a flat image in the cells.
        """
        step: Mapping[str, Any] = {"type": "CellMeanStep"} if noise_std == 0 else lbfgs()
        return Traits(data_step=step, init="z_start", noise="none", strips=True)

    @property
    def reference(self) -> bool:
        """Whether this is the codec of the authors' released code."""
        return self.chroma == "smooth" and not self.eight_bit

    @property
    def preset_options(self) -> dict[str, Any]:
        return {} if self.quality is None else {"quality": int(self.quality)}

    def misfit(self, x: Tensor, y: Tensor, noise_std: float) -> Misfit:
        """In steps of the tables, against the rounding error of a uniform cell."""
        cells = self.cells(x) - self.cells(y)
        rms = float(cells.square().mean().sqrt())
        return Misfit(rms, math.sqrt(1 / 12), "quantisation steps", noisy=False)

    @property
    def rounding_std(self) -> float:
        """Root mean square error of a decoded photograph in [-1, 1], about.

        It decreases with the square root of the mean table of luminance, since most discarded
        coefficients are small.
        """
        coarse = codec.quality_tables(5)[0].double().mean()
        return QUALITY_5_ERROR * math.sqrt(float(self.tables[0].double().mean() / coarse))

    def project(self, v: Tensor, y: Tensor) -> Tensor:
        """The image nearest to ``v`` whose coefficients lie in the quantisation cells of ``y``.

        Each coefficient is moved into [k − ½, k + ½] steps around the integer k of ``y``; for
        chroma all pixels of a cell are moved alike. The distance is measured in Y, Cb and Cr.
        """
        return self._move(v, y, lambda c, k, table: c.clamp(k - 0.5, k + 0.5))

    def mean_in_cells(self, v: Tensor, y: Tensor, std: float) -> Tensor:
        r"""The mean of the images N(v, std²) whose coefficients lie in the cells of ``y``.

        .. math:: E[c] = v + s\,\frac{\varphi(a) - \varphi(b)}{\Phi(b) - \Phi(a)}, \quad
            a, b = (k \mp \tfrac12 - v) / s

        for each coefficient v, in steps of its table, with s = std in these steps. std → 0 is
        :meth:`project`, std → ∞ the centre of the cell. In Y, Cb and Cr, as there.
        """
        pixels = 127.5 * std
        return self._move(v, y, lambda c, k, table: codec.mean_in_cell(c, k, pixels / table))

    def _move(self, v: Tensor, y: Tensor, into: Callable[..., Tensor]) -> Tensor:
        """``v`` with each coefficient c replaced by ``into(c, k, table)``, k the integer of y."""
        self._check_x(v)
        height, width = v.shape[-2:]
        planes = self._planes(v)
        steps = zip(self._steps(planes), self._steps(self._planes(y)), strict=True)
        moved = []
        for i, (c, of_y) in enumerate(steps):
            table = self._like("tables", v)[i]
            change = table * (into(c, of_y.round(), table) - c)
            plane = codec.plane_of(change, self._like("_dct", v))
            moved.append(planes[i] + codec.replicate(plane, self._cell_of(v) if i else (1, 1)))
        pixels = (
            moved[0] if len(moved) == 1 else _mix(self._like("_rgb_smooth", v), torch.cat(moved, 1))
        )
        return pixels[..., :height, :width] / 127.5 - 1

    def _planes(self, x: Tensor) -> list[Tensor]:
        """Grey, or Y and the pair Cb, Cr, on the 0…255 scale, padded to whole cells."""
        v = codec.pad_to_cells((x + 1) * 127.5, self._cell_of(x))
        if x.shape[1] == 1:
            return [v]
        ycc = _mix(self._like("_colour_smooth", x), v)
        return [ycc[:, :1], ycc[:, 1:]]

    def _steps(self, planes: list[Tensor]) -> list[Tensor]:
        """Coefficients of planes in steps of their tables."""
        dct, tables = self._like("_dct", planes[0]), self._like("tables", planes[0])
        found = [codec.coefficients(planes[0] - 128, dct) / tables[0]]
        for chroma in planes[1:]:
            small = SAMPLERS[self.chroma][0](chroma, self._factors)
            found.append(codec.coefficients(small, dct) / tables[1])
        return found

    def _cell_of(self, x: Tensor) -> codec.Factors:
        return self._factors if x.shape[1] == 3 else (1, 1)

    def approx_inverse(self, y: Tensor) -> Tensor:
        """``y``, which is an image: the approximate inverse for methods that need one."""
        return y

    def z_start(self, y: Tensor, generator: Generators | None = None) -> Tensor:
        """The start of the first data step: the decoded image. Draws no random numbers."""
        return y.clone()

    def _code(
        self,
        x: Tensor,
        digits: str,
        tables: Tensor,
        rounding: codec.Map,
        down: codec.Sampler,
        up: codec.Sampler,
    ) -> Tensor:
        """The encoded and decoded image, from [-1, 1] to the 0…255 scale."""
        height, width = x.shape[-2:]
        dct = self._like("_dct", x)
        factors = self._cell_of(x)
        v = codec.pad_to_cells((x + 1) * 127.5, factors)
        if x.shape[1] == 1:
            decoded = codec.code_plane(v - 128, tables[0], dct, rounding) + 128
            return decoded[..., :height, :width]
        planes = _mix(self._like(f"_colour_{digits}", x), v)
        luma = codec.code_plane(planes[:, :1] - 128, tables[0], dct, rounding) + 128
        chroma = codec.code_plane(down(planes[:, 1:], factors), tables[1], dct, rounding)
        planes = torch.cat((luma, up(chroma, factors)), 1)[..., :height, :width]
        return _mix(self._like(f"_rgb_{digits}", x), planes)

    def _check_x(self, x: Tensor, name: str = "x") -> None:
        super()._check_x(x, name)
        if x.shape[1] not in (1, 3) or 0 in x.shape:
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, {self!r} takes (B, 1 or 3, H, W); "
                "give grey or RGB images without alpha"
            )


def _mix(matrix: Tensor, v: Tensor) -> Tensor:
    """Apply a 3×3 colour matrix to each pixel."""
    return torch.einsum("dc,bchw->bdhw", matrix, v)


def _checked_quality(quality: int) -> int:
    if isinstance(quality, bool) or not isinstance(quality, int) or not 1 <= quality <= 100:
        raise ArgumentError(
            f"quality is {quality!r}, expected a whole number 1…100; "
            "for other tables give tables=(luminance, chrominance)"
        )
    return quality


def _checked_tables(tables: Any) -> Tensor:
    try:
        luminance, chrominance = tables
        values = torch.stack([torch.as_tensor(t, device="cpu") for t in (luminance, chrominance)])
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            "tables must be a pair (luminance, chrominance) of 8×8 integers, got "
            f"{type(tables).__name__} ({error})"
        ) from error
    if values.shape != (2, 8, 8):
        raise ShapeError(
            f"tables have shape {tuple(values.shape)}, expected a pair of 8×8; "
            "reshape 64 values in natural order to 8×8"
        )
    # the first comparison refuses NaN, the second fractions
    if not bool(((values >= 1) & (values <= 65535)).all()) or bool((values != values.long()).any()):
        raise ArgumentError(
            f"tables must hold whole numbers 1…255 (16-bit tables: …65535), got values from "
            f"{values.min():g} to {values.max():g}; see JPEG(quality).tables for an example"
        )
    return values.long()
