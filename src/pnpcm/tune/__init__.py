"""Hyperparameter search: presets of PnP-CM, and the fair tuning of all methods."""

from pnpcm.tune.fair import Fair, fair_tune
from pnpcm.tune.methods import METHODS, Method, Setting

__all__ = ["METHODS", "Fair", "Method", "Setting", "fair_tune"]
