"""Search of parameters: presets of PnP-CM, and every method with the same budget."""

from pnpcm.tune.fair import Fair, fair_tune
from pnpcm.tune.methods import METHODS, Method, Setting

__all__ = ["METHODS", "Fair", "Method", "Setting", "fair_tune"]
