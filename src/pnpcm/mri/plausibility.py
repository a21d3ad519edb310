"""Is this k-space? Sentences about what looks wrong in a raw slice."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.mri.sampling import calibration, infer_mask
from pnpcm.transforms import ifft2c

CENTRE = 4
"""The centre is a square of 1/4 of each side: 6 % of k-space, where most of a scan's energy is."""
LEAST_CENTRAL = 0.35
"""Share of a scan's energy in that centre below which something is wrong."""
GHOST = 0.08
"""Amplitude of a ghost, relative to the object, from which on it is reported."""
GHOST_LINES = 48
"""Size of the centre of k-space in which ghosts are sought."""
FEWEST_LINES = 8
STEP = math.pi / 48
"""Grid of phases, in radians."""
CLEARER = 0.03
"""Share by which the right phase must lower the sum of magnitudes."""


def kspace_warnings(kspace: Tensor) -> list[str]:
    """What is implausible about one slice ``(coils, H, W)`` of raw data, in sentences.

    The energy of k-space is concentrated in its centre, that of an image is not: an image passed
    as k-space has it the other way round. A copy of the object, shifted by half the field of view,
    is the ghost of echo-planar imaging whose odd and even lines differ in phase.
    """
    central = _central_share(kspace)
    if central >= LEAST_CENTRAL:
        return _ghost_warnings(kspace)
    inside = _central_share(ifft2c(kspace))
    if inside > central and inside >= LEAST_CENTRAL:
        return [
            f"the input looks like an image, not k-space: {100 * central:.0f} % of its energy is "
            f"in the centre, {100 * inside:.0f} % of that of its Fourier transform; transform it "
            "to k-space first"
        ]
    return [
        f"only {100 * central:.0f} % of the energy of k-space is in its centre (usual: 60 % and "
        "more): is it shifted, or sampled in an order that the file does not tell?"
    ]


def _central_share(x: Tensor) -> float:
    """Share of the energy in the central square of 1/4 of each side."""
    energy = x.abs().square().sum(0)
    (height, width), (top, left) = energy.shape, (n // 2 - n // (2 * CENTRE) for n in energy.shape)
    total = float(energy.sum())
    if total == 0:
        return 1.0
    inner = energy[top : top + height // CENTRE, left : left + width // CENTRE]
    return float(inner.sum()) / total


def _ghost_warnings(kspace: Tensor) -> list[str]:
    """A sentence if odd and even lines differ in phase."""
    amplitude = ghost_amplitude(kspace)
    if amplitude < GHOST:
        return []
    return [
        f"odd and even phase-encode lines differ in phase, which leaves a copy of the object with "
        f"{100 * amplitude:.0f} % of its intensity, shifted by half the field of view: the ghost "
        "of echo-planar imaging (EPI); correct the phases first"
    ]


def ghost_amplitude(kspace: Tensor) -> float:
    """Amplitude tan a of the copy of the object that phases ±a(x) of the lines leave.

    The image of one slice ``(coils, H, W)`` is x cos a + i S x sin a, S a shift by half the field
    of view. Of all a(x) = φ + θx, x along the readout, the right one is taken to be that with the
    smallest sum of magnitudes: a copy spreads the same energy over more pixels. 0 where it is not
    smaller than that of a = 0 by ``CLEARER``, or where less than ``FEWEST_LINES`` lines of the
    centre were measured.
    """
    try:
        block = calibration(kspace, infer_mask(kspace), GHOST_LINES, kernel=FEWEST_LINES)
    except ArgumentError:
        return 0.0
    loudest = block.abs().square().sum((1, 2)).topk(min(len(block), 4)).indices
    lines = _centred_ifft(block[loudest], -2)
    along = torch.linspace(-1, 1, lines.shape[-2])[:, None]
    sign = torch.ones(lines.shape[-1])
    sign[1::2] = -1

    def spread(constant: float, slope: float) -> float:
        turned = lines * torch.polar(torch.ones(1), (constant + slope * along) * sign)
        return float(_centred_ifft(turned, -1).abs().square().sum(0).sqrt().sum())

    phases = [(c * STEP, s * STEP) for c in range(-12, 13) for s in range(-6, 7)]
    best = min(phases, key=lambda phase: spread(*phase))
    if spread(*best) > (1 - CLEARER) * spread(0.0, 0.0):
        return 0.0
    middle = math.hypot(best[0], best[1] / 3**0.5)  # root mean square of a(x)
    return math.tan(min(middle, 1.5))


def _centred_ifft(x: Tensor, dim: int) -> Tensor:
    image: Tensor = torch.fft.fftshift(
        torch.fft.ifft(torch.fft.ifftshift(x, dim=dim), dim=dim, norm="ortho"), dim=dim
    )
    return image
