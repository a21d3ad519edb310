"""The data side of MRI: masks and simulated scans."""

from pnpcm.mri.masks import acs_start, gaussian1d
from pnpcm.mri.scale import intensity_scale
from pnpcm.mri.simulate import SimulatedScan, birdcage_maps, phantom, simulate_scan, smooth_phase

__all__ = [
    "SimulatedScan",
    "acs_start",
    "birdcage_maps",
    "gaussian1d",
    "intensity_scale",
    "phantom",
    "simulate_scan",
    "smooth_phase",
]
