"""The steps of JPEG as plain functions: tables, colour, chroma sampling, 8×8 DCT, rounding.

Colour planes are ``(B, C, H, W)`` on the 0…255 scale, luminance shifted by −128 and chrominance
centred at 0, so that every step from the colour matrix to the DCT is linear. Source: ITU-T T.81,
Annexes A and K; the smooth steps follow Reich et al., Differentiable JPEG (WACV 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.io.reading import reading
from pnpcm.operators import jpeg_codec as codec

Factors = tuple[int, int]
"""Number of luminance rows and columns per chrominance sample."""
Map = Callable[[Tensor], Tensor]
Sampler = Callable[[Tensor, Factors], Tensor]

SUBSAMPLING: dict[str, Factors] = {
    "4:4:4": (1, 1),
    "4:2:2": (1, 2),
    "4:4:0": (2, 1),
    "4:2:0": (2, 2),
}

LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)

# RGB → (Y, Cb, Cr) without offsets, with the digits of each of the two operators
COLOUR_CODEC = torch.tensor(
    ((0.299, 0.587, 0.114), (-0.1687, -0.3313, 0.5), (0.5, -0.4187, -0.0813)),
    dtype=torch.float64,
)
COLOUR_SMOOTH = torch.tensor(
    ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312)),
    dtype=torch.float64,
)


# tables ----------------------------------------------------------------------------------------
def raw_tables(quality: int) -> Tensor:
    """⌊(S Q + 50)/100⌋ before the clip to 1…255, S = ⌊5000/q⌋ for q < 50, else 200 − 2q."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return (scale * torch.tensor((LUMINANCE, CHROMINANCE)) + 50) // 100


def quality_tables(quality: int) -> Tensor:
    """Luminance and chrominance table of a quality 1…100, ``(2, 8, 8)`` in natural order."""
    return raw_tables(quality).clamp(1, 255)


def soft_tables(quality: int) -> Tensor:
    """The tables of the smooth operator: softly clipped, so 255 is up to 0.955 larger at q = 5."""
    return soft_clip(raw_tables(quality).double(), 1.0, 255.0)


# rounding and clipping -------------------------------------------------------------------------
def soft_round(v: Tensor) -> Tensor:
    """r + (v − r)³ with r = round(v): right at integers, derivative 3 (v − r)²."""
    r = v.detach().round()
    return r + (v - r) ** 3


def soft_clip(v: Tensor, low: float, high: float) -> Tensor:
    """Identity on [low, high], slope 1e-3 outside, where a hard clip has no gradient."""
    inside = v.clamp(low, high)
    return inside + 1e-3 * (v - inside)


# chroma ----------------------------------------------------------------------------------------
def decimate(plane: Tensor, factors: Factors) -> Tensor:
    """Keep the first row and column of each cell, unfiltered."""
    return plane[..., :: factors[0], :: factors[1]]


def replicate(plane: Tensor, factors: Factors) -> Tensor:
    """Repeat each sample over its cell."""
    return plane.repeat_interleave(factors[0], -2).repeat_interleave(factors[1], -1)


def smooth_down(plane: Tensor, factors: Factors) -> Tensor:
    """3-tap Gaussian (σ = 0.5, mirrored border) along each reduced axis, then the cell's mean."""
    for axis, factor in zip((-2, -1), factors, strict=True):
        plane = _halved(plane, axis) if factor > 1 else plane
    return plane


def _halved(plane: Tensor, axis: int) -> Tensor:
    """(w p[2i−1] + (1 + w)(p[2i] + p[2i+1]) + w p[2i+2]) / (2 + 4w), w = e⁻²: filter and mean.

    As sums of even and odd samples: ``conv2d`` is slow for planes of one channel.
    """
    w = math.exp(-2.0)
    even, odd = torch.unflatten(plane, axis, (-1, 2)).unbind(axis)
    before = torch.cat((odd.narrow(axis, 0, 1), odd.narrow(axis, 0, odd.shape[axis] - 1)), axis)
    after = torch.cat((even.narrow(axis, 1, even.shape[axis] - 1), even.narrow(axis, -1, 1)), axis)
    halved: Tensor = ((1 + w) / (2 + 4 * w)) * (even + odd) + (w / (2 + 4 * w)) * (before + after)
    return halved


def cell_mean(plane: Tensor, factors: Factors) -> Tensor:
    """The mean of each cell, as libjpeg samples chroma."""
    return F.avg_pool2d(plane, factors) if max(factors) > 1 else plane


def smooth_up(plane: Tensor, factors: Factors) -> Tensor:
    """Bilinear interpolation with half-pixel centres: libjpeg's "fancy upsampling"."""
    size = (plane.shape[-2] * factors[0], plane.shape[-1] * factors[1])
    return F.interpolate(plane, size=size, mode="bilinear", align_corners=False)


# blocks ----------------------------------------------------------------------------------------
def dct_matrix() -> Tensor:
    """Orthonormal DCT-II of length 8: D[u, i] = c_u cos((2i + 1) u π/16)."""
    u, i = torch.arange(8.0, dtype=torch.float64)[:, None], torch.arange(8.0, dtype=torch.float64)
    scale = torch.full((8, 1), 0.5, dtype=torch.float64)
    scale[0] = math.sqrt(0.125)
    return scale * torch.cos((2 * i + 1) * u * math.pi / 16)


def coefficients(plane: Tensor, dct: Tensor) -> Tensor:
    """D p Dᵀ of each 8×8 block p, ``(B, C, H/8, W/8, 8, 8)``; sides are multiples of 8."""
    batch, channels, height, width = plane.shape
    cells = plane.reshape(batch, channels, height // 8, 8, width // 8, 8)
    return dct @ cells.transpose(-3, -2) @ dct.T


def plane_of(c: Tensor, dct: Tensor) -> Tensor:
    """Dᵀ c D of each block put back in its place: the inverse of :func:`coefficients`."""
    batch, channels, rows, columns = c.shape[:4]
    cells = (dct.T @ c @ dct).transpose(-3, -2)
    return cells.reshape(batch, channels, 8 * rows, 8 * columns)


def code_plane(plane: Tensor, table: Tensor, dct: Tensor, rounding: Map) -> Tensor:
    """Dᵀ (Q · rounding(D p Dᵀ / Q)) D for each 8×8 block p; sides are multiples of 8."""
    return plane_of(table * rounding(coefficients(plane, dct) / table), dct)


def mean_in_cell(c: Tensor, k: Tensor, std: Tensor) -> Tensor:
    """Mean of N(c, std²) within [k − ½, k + ½]; all in steps of the table.

    Computed in double precision in the lower tail, to which the upper one is mirrored; ``std`` is
    kept in [1e-3, 1e3], where this is exact to 1e-6 (1e-3: the nearest point, 1e3: the centre).
    """
    s = std.double().clamp(1e-3, 1e3)
    d = c.double() - k.double()
    side = torch.where(d < 0, -1.0, 1.0)  # mirrored to d ≥ 0: the mean lies below c
    b, a = (0.5 - d.abs()) / s, (-0.5 - d.abs()) / s
    log_b = torch.special.log_ndtr(b)
    log_mass = log_b + torch.log1p(-torch.exp(torch.special.log_ndtr(a) - log_b))
    shift = torch.exp(_log_normal(a) - log_mass) - torch.exp(_log_normal(b) - log_mass)
    mean = (d.abs() + s * shift).clamp(-0.5, 0.5)
    return k + (side * mean).to(c.dtype)


def _log_normal(t: Tensor) -> Tensor:
    """ln φ(t), the density of N(0, 1)."""
    return -t.square() / 2 - math.log(2 * math.pi) / 2


def pad_to_cells(v: Tensor, factors: Factors) -> Tensor:
    """Replicate the last row and column until the sides hold whole coded cells."""
    down, right = -v.shape[-2] % (8 * factors[0]), -v.shape[-1] % (8 * factors[1])
    return F.pad(v, (0, right, 0, down), mode="replicate") if down or right else v


# whole numbers ---------------------------------------------------------------------------------
def eight_bit(v: Tensor, tables: Tensor, factors: Factors) -> Tensor:
    """The result of libjpeg for pixels ``v``, integers 0…255, grey or RGB, in the same form.

    Every stage rounds as in libjpeg (jccolor, jcsample, jfdctint, jcdctmgr, jidctint, jdsample,
    jdcolor): chroma is the mean of its cell, interpolated linearly after decoding; coefficients
    are integer eighths before they are divided by the table. About one coefficient in a thousand
    differs, whose integer DCT is on the other side of a half.
    """
    height, width = v.shape[-2:]
    dct, tables = dct_matrix().to(v.device), tables.double()
    grey = v.shape[1] == 1
    factors = (1, 1) if grey else factors
    planes = pad_to_cells(v.double(), factors)
    if not grey:
        planes = torch.einsum("dc,bchw->bdhw", COLOUR_SMOOTH.to(v.device), planes)
        planes[:, 1:] -= 4 * _TIE  # chroma rounds its halves down
        planes = _round(planes)
    luma = _code_whole(planes[:, :1] - 128, tables[0], dct) + 128
    if grey:
        return luma[..., :height, :width].to(v.dtype)
    chroma = _code_whole(_mean_whole(planes[:, 1:], factors), tables[1], dct)
    planes = torch.cat((luma, _up_whole(chroma, factors)), 1)[..., :height, :width]
    rgb = torch.einsum("dc,bchw->bdhw", COLOUR_SMOOTH.inverse().to(v.device), planes)
    return _round(rgb).clamp(0, 255).to(v.dtype)


_TIE = 1e-6  # largest error of float sums at a half


def _round(v: Tensor) -> Tensor:
    return torch.floor(v + (0.5 + _TIE))


def _code_whole(plane: Tensor, table: Tensor, dct: Tensor) -> Tensor:
    eighths = _round(8 * coefficients(plane, dct))
    steps = eighths.sign() * _round(eighths.abs() / (8 * table))  # halves away from 0
    decoded = dct.T @ (table * steps) @ dct
    return _round(decoded.transpose(-3, -2).reshape(plane.shape)).clamp(-128, 127)


def _mean_whole(plane: Tensor, factors: Factors) -> Tensor:
    """⌊(Σ + bias)/n⌋ with a bias that alternates between columns, so that its mean is zero."""
    n = factors[0] * factors[1]
    if n == 1:
        return plane
    odd = torch.arange(plane.shape[-1] // factors[1], device=plane.device) % 2
    bias = {(2, 2): odd + 1, (1, 2): odd, (2, 1): 1 + 0 * odd}[factors]
    return torch.floor(cell_mean(plane, factors) + bias / n + _TIE)


def _up_whole(plane: Tensor, factors: Factors) -> Tensor:
    """The interpolation in sixteenths (quarters along one axis), halves up and down in turns."""
    if factors == (1, 1):
        return plane
    fine = smooth_up(plane, factors)
    axis = -1 if factors[1] > 1 else -2
    odd = (torch.arange(fine.shape[axis], device=plane.device) % 2).to(fine.dtype)
    odd = odd if axis == -1 else odd[:, None]
    half = (8 - odd) / 16 if factors == (2, 2) else (1 + odd) / 4
    return torch.floor(fine + half + _TIE)


def read_header(path: Path) -> tuple[list[Any], str]:
    """Tables (natural order) and chroma sampling of a JPEG file, by Pillow."""
    if not path.is_file():
        raise FileNotFoundError(f"path is {str(path)!r}, which is not a file")
    with reading(path, "JPEG"):
        return _header(path)


def _header(path: Path) -> tuple[list[Any], str]:
    from PIL import Image, JpegImagePlugin

    with Image.open(path) as image:
        # MPO, the format of many phones, is also a JpegImageFile
        if not isinstance(image, JpegImagePlugin.JpegImageFile):
            raise ArgumentError(
                f"path is {str(path)!r}, a {image.format} file, expected a JPEG; tables of a "
                "converted copy would describe the conversion, so give the original .jpg"
            )
        layers = [tuple(layer) for layer in image.layer]  # (id, columns, rows, table) each
        quantization = dict(image.quantization)
        mode, transform = image.mode, image.info.get("adobe_transform")
    if mode not in ("L", "RGB"):
        raise ArgumentError(
            f"path is {str(path)!r}, a JPEG in {mode}, expected grey or RGB; "
            "CMYK files are coded without YCbCr and cannot be modelled"
        )
    if mode == "RGB" and (transform == 0 or [layer[0] for layer in layers] == list(b"RGB")):
        raise ArgumentError(
            f"path is {str(path)!r}, a JPEG that stores R, G, B without YCbCr; give a file in YCbCr"
        )
    tables = [torch.tensor(quantization[layer[3]]).reshape(8, 8) for layer in layers]
    if mode == "L":
        return [tables[0], tables[0]], "4:4:4"
    cells = {(layers[0][2] / rows, layers[0][1] / columns) for _, columns, rows, _ in layers[1:]}
    names = [name for name, factors in codec.SUBSAMPLING.items() if cells == {factors}]
    if not names or not torch.equal(tables[1], tables[2]):
        raise ArgumentError(
            f"path is {str(path)!r}, whose components (id, columns, rows, table) are {layers}; "
            f"expected one chrominance table and sampling {', '.join(codec.SUBSAMPLING)}"
        )
    return tables[:2], names[0]
