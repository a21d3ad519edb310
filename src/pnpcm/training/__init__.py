"""Training of priors: EDM, then distillation, consistency training or tuning to a CM.

To add a loss: a frozen class with the interface of ``step.Loss`` and a row of ``LOSSES``; a source
of images: a class in ``sources`` and a row of ``SOURCES``.
"""

from pnpcm.training.data import SOURCES, Samples
from pnpcm.training.estimate import estimate
from pnpcm.training.loop import DivergedError, train
from pnpcm.training.losses import LOSSES
from pnpcm.training.recipe import Recipe, read_recipe

__all__ = [
    "LOSSES",
    "SOURCES",
    "DivergedError",
    "Recipe",
    "Samples",
    "estimate",
    "read_recipe",
    "train",
]
