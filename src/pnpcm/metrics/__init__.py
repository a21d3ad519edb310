"""Image metrics: PSNR, SSIM, LPIPS, noise estimation, denoising scores."""

from pnpcm.metrics.quality import psnr, ssim

__all__ = ["psnr", "ssim"]
