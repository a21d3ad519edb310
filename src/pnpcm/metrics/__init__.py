"""Image metrics: PSNR, SSIM, LPIPS, noise estimation, denoising scores."""

from pnpcm.metrics.quality import psnr, ssim, ssim_gaussian

__all__ = ["psnr", "ssim", "ssim_gaussian"]
