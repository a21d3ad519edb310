"""Bare networks F(x, c_noise): they know nothing of noise levels, ranges or solvers."""

from pnpcm.networks.config import UNetConfig
from pnpcm.networks.unet import UNet

__all__ = ["UNet", "UNetConfig"]
