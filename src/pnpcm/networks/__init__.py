"""Networks F(x, c_noise), independent of noise levels, value ranges and solvers."""

from pnpcm.networks.unet import UNet, UNetConfig

__all__ = ["UNet", "UNetConfig"]
