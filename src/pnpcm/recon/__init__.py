"""Reconstruction, one path for photographs and scans.

``Options`` (what the user chose) → ``plan`` (prior, method, noise, numbers) → ``run`` (the solver)
→ ``check`` (what the result says about itself) → ``record`` (``NAME.result.json``). ``photo`` and
``scan`` are the two entries.
"""

from pnpcm.recon.options import AIMS, Options
from pnpcm.recon.photo import Restoration, restore
from pnpcm.recon.scan import reconstruct

__all__ = ["AIMS", "Options", "Restoration", "reconstruct", "restore"]
