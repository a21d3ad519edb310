"""Solvers. Adding one: a file with a frozen configuration and a class, and a line in the table."""

from typing import Any

from pnpcm.solvers.config import PnPCMConfig
from pnpcm.solvers.data_steps import CGStep, GradientStep, ProxStep
from pnpcm.solvers.pnp_cm import PnPCM
from pnpcm.solvers.project_step import ProjectStep
from pnpcm.solvers.strip_step import StripStep
from pnpcm.tables import Table

SOLVERS: Table[type[Any]] = Table("solver", {"pnp-cm": PnPCM})

__all__ = [
    "SOLVERS",
    "CGStep",
    "GradientStep",
    "PnPCM",
    "PnPCMConfig",
    "ProjectStep",
    "ProxStep",
    "StripStep",
]
