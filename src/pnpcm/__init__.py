"""pnpcm: image reconstruction in 2 to 8 network evaluations (PnP-CM).

Names are imported at their first use, so that ``import pnpcm`` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pnpcm import operators as operators
    from pnpcm.catalogue import load_prior as load_prior
    from pnpcm.core import Prior as Prior
    from pnpcm.core import Result as Result
    from pnpcm.core import Step as Step
    from pnpcm.laws import check_operator as check_operator
    from pnpcm.operators import OPERATORS as OPERATORS
    from pnpcm.operators import measure as measure
    from pnpcm.presets import PRESETS as PRESETS
    from pnpcm.presets import Preset as Preset
    from pnpcm.priors import PRIORS as PRIORS
    from pnpcm.priors import ConsistencyModel as ConsistencyModel
    from pnpcm.priors import DenoiserPrior as DenoiserPrior
    from pnpcm.priors import DiffusionModel as DiffusionModel
    from pnpcm.priors import GaussianMixturePrior as GaussianMixturePrior
    from pnpcm.priors import GaussianPrior as GaussianPrior
    from pnpcm.priors import StationaryGaussianPrior as StationaryGaussianPrior
    from pnpcm.priors.checkpoint import save_prior as save_prior
    from pnpcm.problems import TASKS as TASKS
    from pnpcm.recon import Options as Options
    from pnpcm.recon import Restoration as Restoration
    from pnpcm.recon import reconstruct as reconstruct
    from pnpcm.recon import restore as restore
    from pnpcm.solvers import SOLVERS as SOLVERS
    from pnpcm.solvers import CellMeanStep as CellMeanStep
    from pnpcm.solvers import CGStep as CGStep
    from pnpcm.solvers import GradientStep as GradientStep
    from pnpcm.solvers import PnPCM as PnPCM
    from pnpcm.solvers import PnPCMConfig as PnPCMConfig
    from pnpcm.solvers import ProjectStep as ProjectStep
    from pnpcm.solvers import ProxStep as ProxStep
    from pnpcm.solvers import StripStep as StripStep

_NAMES = {
    "catalogue": ("load_prior",),
    "core": ("Prior", "Result", "Step"),
    "laws": ("check_operator",),
    "operators": ("OPERATORS", "measure"),
    "presets": ("PRESETS", "Preset"),
    "priors": (
        "PRIORS",
        "ConsistencyModel",
        "DenoiserPrior",
        "DiffusionModel",
        "GaussianMixturePrior",
        "GaussianPrior",
        "StationaryGaussianPrior",
    ),
    "priors.checkpoint": ("save_prior",),
    "problems": ("TASKS",),
    "recon": ("Options", "Restoration", "reconstruct", "restore"),
    "solvers": (
        "SOLVERS",
        "CGStep",
        "CellMeanStep",
        "GradientStep",
        "PnPCM",
        "PnPCMConfig",
        "ProjectStep",
        "ProxStep",
        "StripStep",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = (
    "baselines",
    "io",
    "problems",
    "recon",
    "training",
    "tune",
    "interop",
    "metrics",
    "mri",
    "operators",
    "priors",
    "rng",
    "schedules",
    "solvers",
)

__all__ = ["__version__", *_MODULE_OF, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"pnpcm.{_MODULE_OF[name]}"), name)
    if name in _MODULES:
        return import_module(f"pnpcm.{name}")
    raise AttributeError(f"module 'pnpcm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
