"""MRI data: raw files, masks, coil maps, intensity scales, scores, volumes, simulated scans."""

from pnpcm.mri.espirit import espirit
from pnpcm.mri.masks import MASKS, acs_start, calibration_lines, gaussian1d
from pnpcm.mri.readers import read_scan
from pnpcm.mri.scale import intensity_scale
from pnpcm.mri.scan import Geometry, Protocol, Scan
from pnpcm.mri.scores import Scores, fastmri_scores, paper_scores
from pnpcm.mri.simulate import (
    SimulatedScan,
    birdcage_maps,
    phantom,
    phantoms,
    simulate_scan,
    smooth_phase,
    write_simulated,
)
from pnpcm.mri.writers import WRITERS, Volume, write_volume

__all__ = [
    "read_scan",
    "Scan",
    "Geometry",
    "Protocol",
    "espirit",
    "MASKS",
    "gaussian1d",
    "acs_start",
    "calibration_lines",
    "intensity_scale",
    "Volume",
    "WRITERS",
    "write_volume",
    "Scores",
    "paper_scores",
    "fastmri_scores",
    "SimulatedScan",
    "simulate_scan",
    "birdcage_maps",
    "phantom",
    "phantoms",
    "write_simulated",
    "smooth_phase",
]
