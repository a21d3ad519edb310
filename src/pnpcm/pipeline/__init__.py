"""Composition: priors by name, and restoration of what was measured."""

from pnpcm.pipeline.load import PRIOR_NAMES, load_prior
from pnpcm.pipeline.restoration import Restoration
from pnpcm.pipeline.restoring import restore

__all__ = ["PRIOR_NAMES", "Restoration", "load_prior", "restore"]
