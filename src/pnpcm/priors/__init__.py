"""Priors. To add one: a file with a class that has ``example``, and a row of ``PRIORS``."""

from typing import Any

from pnpcm.names import Table
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.controlled import ControlledModel
from pnpcm.priors.denoiser import DenoiserPrior
from pnpcm.priors.diffusion import DiffusionModel
from pnpcm.priors.gaussian import GaussianPrior, StationaryGaussianPrior
from pnpcm.priors.mixture import GaussianMixturePrior
from pnpcm.priors.wrappers import BlendedPrior, GreyPrior, SetsPrior, TiledPrior, with_sets

PRIORS: Table[type[Any]] = Table(
    "prior",
    {
        "consistency": ConsistencyModel,
        "controlled": ControlledModel,
        "denoiser": DenoiserPrior,
        "diffusion": DiffusionModel,
        "gaussian": GaussianPrior,
        "gaussian-stationary": StationaryGaussianPrior,
        "gaussian-mixture": GaussianMixturePrior,
        "tiled": TiledPrior,
    },
)

__all__ = [
    "PRIORS",
    "BlendedPrior",
    "ConsistencyModel",
    "ControlledModel",
    "DenoiserPrior",
    "DiffusionModel",
    "GaussianMixturePrior",
    "GaussianPrior",
    "GreyPrior",
    "SetsPrior",
    "StationaryGaussianPrior",
    "TiledPrior",
    "with_sets",
]
