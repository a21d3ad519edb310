"""The steps of JPEG as plain functions: tables, colour, chroma sampling, 8×8 DCT, rounding.

Colour planes are ``(B, C, H, W)`` on the 0…255 scale, luminance shifted by −128 and chrominance
centred at 0, so that every step from the colour matrix to the DCT is linear. Source: ITU-T T.81,
Annexes A and K; the smooth steps follow Reich et al., Differentiable JPEG (WACV 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Factors = tuple[int, int]
"""How many luminance rows and columns share one chrominance sample."""
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
    """The tables of the smooth operator: clipped softly, so 255 is up to 0.955 more at q = 5."""
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
    side = math.exp(-2.0)
    taps = plane.new_tensor((side, 1.0, side)) / (1 + 2 * side)
    flat = plane.flatten(0, 1).unsqueeze(1)
    if factors[0] > 1:
        flat = F.conv2d(F.pad(flat, (0, 0, 1, 1), mode="reflect"), taps.reshape(1, 1, 3, 1))
    if factors[1] > 1:
        flat = F.conv2d(F.pad(flat, (1, 1, 0, 0), mode="reflect"), taps.reshape(1, 1, 1, 3))
    return F.avg_pool2d(flat, factors).reshape(*plane.shape[:2], *_reduced(plane, factors))


def smooth_up(plane: Tensor, factors: Factors) -> Tensor:
    """Bilinear interpolation with half-pixel centres."""
    size = (plane.shape[-2] * factors[0], plane.shape[-1] * factors[1])
    return F.interpolate(plane, size=size, mode="bilinear", align_corners=False)


def _reduced(plane: Tensor, factors: Factors) -> Factors:
    return plane.shape[-2] // factors[0], plane.shape[-1] // factors[1]


# blocks ----------------------------------------------------------------------------------------
def dct_matrix() -> Tensor:
    """Orthonormal DCT-II of length 8: D[u, i] = c_u cos((2i + 1) u π/16)."""
    u, i = torch.arange(8.0, dtype=torch.float64)[:, None], torch.arange(8.0, dtype=torch.float64)
    scale = torch.full((8, 1), 0.5, dtype=torch.float64)
    scale[0] = math.sqrt(0.125)
    return scale * torch.cos((2 * i + 1) * u * math.pi / 16)


def code_plane(plane: Tensor, table: Tensor, dct: Tensor, rounding: Map) -> Tensor:
    """Dᵀ (Q · rounding(D p Dᵀ / Q)) D for each 8×8 block p; sides are multiples of 8."""
    batch, channels, height, width = plane.shape
    cells = plane.reshape(batch, channels, height // 8, 8, width // 8, 8)
    blocks = cells.transpose(-3, -2)  # (B, C, H/8, W/8, 8, 8)
    coefficients = table * rounding(dct @ blocks @ dct.T / table)
    decoded = dct.T @ coefficients @ dct
    return decoded.transpose(-3, -2).reshape(plane.shape)


def pad_to_cells(v: Tensor, factors: Factors) -> Tensor:
    """Replicate the last row and column until the sides hold whole coded cells."""
    down, right = -v.shape[-2] % (8 * factors[0]), -v.shape[-1] % (8 * factors[1])
    return F.pad(v, (0, right, 0, down), mode="replicate") if down or right else v
