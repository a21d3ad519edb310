"""Reconstruction: from a measurement to an image with its record, for photographs and scans."""

from pnpcm.recon.photo import restore
from pnpcm.recon.record import Restoration

__all__ = ["Restoration", "restore"]
