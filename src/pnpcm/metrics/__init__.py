"""How good an image is: PSNR, SSIM, LPIPS, noise estimates, denoising scores."""

from pnpcm.metrics.quality import psnr, ssim

__all__ = ["psnr", "ssim"]
