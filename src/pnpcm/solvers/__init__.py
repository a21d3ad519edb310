"""Solvers. To add one: a file with a frozen configuration and a class, a row of ``_CLASSES``."""

from typing import Any

from pnpcm.names import Table
from pnpcm.solvers.base import SolverBase
from pnpcm.solvers.cm4ir import CM4IR, CM4IRConfig
from pnpcm.solvers.cm_iterative import CMIterative, CMIterativeConfig
from pnpcm.solvers.config import PnPCMConfig
from pnpcm.solvers.cosign import CoSIGN, CoSIGNConfig
from pnpcm.solvers.data_steps import (
    CellMeanStep,
    CGStep,
    GradientStep,
    ProjectStep,
    ProxStep,
    StripStep,
)
from pnpcm.solvers.ddrm import DDRM, DDRMConfig
from pnpcm.solvers.dds import DDS, DDSConfig
from pnpcm.solvers.diffpir import DiffPIR, DiffPIRConfig
from pnpcm.solvers.dpir import DPIR, DPIRConfig
from pnpcm.solvers.dpnp import DPnP, DPnPConfig
from pnpcm.solvers.dps import DPS, DPSConfig
from pnpcm.solvers.pigdm import PiGDM, PiGDMConfig
from pnpcm.solvers.pnp_admm import PnPADMM, PnPADMMConfig
from pnpcm.solvers.pnp_cm import PnPCM
from pnpcm.solvers.pnp_dm import PnPDM, PnPDMConfig
from pnpcm.solvers.total_variation import TV, TVConfig
from pnpcm.solvers.wiener import Wiener, WienerConfig

_CLASSES: tuple[type[SolverBase[Any]], ...] = (
    PnPCM,
    # with a diffusion model
    DPS,
    PiGDM,
    DiffPIR,
    DPnP,
    PnPDM,
    DDS,
    DDRM,
    PnPADMM,
    DPIR,
    # with a consistency model
    CMIterative,
    CM4IR,
    CoSIGN,
    # without a prior
    TV,
    Wiener,
)
SOLVERS: Table[type[SolverBase[Any]]] = Table("solver", {c.name: c for c in _CLASSES})

__all__ = [
    "CM4IR",
    "DDRM",
    "DDS",
    "DPIR",
    "DPS",
    "SOLVERS",
    "TV",
    "CGStep",
    "CM4IRConfig",
    "CMIterative",
    "CMIterativeConfig",
    "CellMeanStep",
    "CoSIGN",
    "CoSIGNConfig",
    "DDRMConfig",
    "DDSConfig",
    "DPIRConfig",
    "DPSConfig",
    "DPnP",
    "DPnPConfig",
    "DiffPIR",
    "DiffPIRConfig",
    "GradientStep",
    "PiGDM",
    "PiGDMConfig",
    "PnPADMM",
    "PnPADMMConfig",
    "PnPCM",
    "PnPCMConfig",
    "PnPDM",
    "PnPDMConfig",
    "ProjectStep",
    "ProxStep",
    "StripStep",
    "TVConfig",
    "Wiener",
    "WienerConfig",
]
