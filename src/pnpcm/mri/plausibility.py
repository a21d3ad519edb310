"""Is this k-space? Sentences about what looks wrong in a raw slice."""

from __future__ import annotations

from torch import Tensor

from pnpcm.transforms import ifft2c

CENTRE = 4
"""The centre is a square of 1/4 of each side: 6 % of k-space, where most of a scan's energy is."""
LEAST_CENTRAL = 0.35
"""Share of a scan's energy in that centre below which something is wrong."""


def kspace_warnings(kspace: Tensor) -> list[str]:
    """What is implausible about one slice ``(coils, H, W)`` of raw data, in sentences.

    The energy of k-space is concentrated in its centre, that of an image is not: an image passed
    as k-space has it the other way round.
    """
    central = _central_share(kspace)
    if central >= LEAST_CENTRAL:
        return []
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
