"""Conversion to and from other libraries: deepinv, diffusers, Hugging Face Hub."""

from pnpcm.interop.deepinv import as_denoiser, as_reconstructor, from_denoiser
from pnpcm.interop.diffusers import (
    DiffusersNetwork,
    diffusers_config,
    load_diffusers,
    to_diffusers_state,
)

__all__ = [
    "DiffusersNetwork",
    "as_denoiser",
    "as_reconstructor",
    "diffusers_config",
    "from_denoiser",
    "load_diffusers",
    "to_diffusers_state",
]
