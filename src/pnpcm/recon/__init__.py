"""Reconstruction of photographs and scans, by the same steps.

``Options`` (choices of the user) → ``plan`` (prior, method, noise, parameters) → ``run`` (the
solver) → ``check`` (self-check of the result) → ``record`` (``NAME.result.json``). The entry points
are in ``photo`` and ``scan``.
"""

from pnpcm.recon.options import AIMS, Options
from pnpcm.recon.photo import Restoration, restore
from pnpcm.recon.scan import reconstruct

__all__ = ["AIMS", "Options", "Restoration", "reconstruct", "restore"]
