"""Networks F(x, c_noise), independent of noise levels, value ranges and solvers."""

from pnpcm.networks.config import UNetConfig
from pnpcm.networks.unet import UNet

__all__ = ["UNet", "UNetConfig"]
