"""The DDPM table, Karras' levels and the index rows of published samplers, in NumPy.

Expected values come from here and not from ``pnpcm.schedules``, which the solvers use.
"""

from __future__ import annotations

import numpy as np

ALPHA_BAR: list[float] = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000)).tolist()
"""ᾱ of the 1000 indices: β rises linearly from 1e-4 to 0.02."""

LEVELS: list[float] = np.sqrt(1 / np.array(ALPHA_BAR) - 1).tolist()
"""σ = √((1 − ᾱ)/ᾱ): 0.0100 … 157.4."""


def skipping(n: int) -> list[int]:
    """DDIM, DDRM, DDS, PiGDM: every ⌊1000/n⌋-th index from 0 on, read backwards."""
    return (np.arange(n) * (1000 // n))[::-1].tolist()


def spread(n: int) -> list[int]:
    """DPS on fewer steps: even between 999 and 0, rounded."""
    return np.rint(np.linspace(999, 0, n)).astype(int).tolist()


def quadratic(n: int) -> list[int]:
    """DiffPIR: roots of even numbers up to 1000², counted from the noisy end."""
    roots = np.sqrt(np.linspace(0, 1000**2, n)).astype(int)
    return (999 - np.minimum(roots, 999)).tolist()


def karras(n: int, low: float = 0.002, high: float = 80.0) -> list[float]:
    """Levels even in σ^(1/7), Karras et al. (2022), eq. 5."""
    return (np.linspace(high ** (1 / 7), low ** (1 / 7), n) ** 7).tolist()
