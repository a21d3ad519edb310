"""Scores of MR images in two conventions that are not comparable: the paper's and fastMRI's.

- **paper**: the reference is the MVUE Σ_c S̄_c F⁻¹ k_c of the fully sampled slice. Magnitudes are
  compared inside the support of the coil maps and divided by the maximum of the reference; PSNR
  and SSIM with data range 1 per slice, mean ± standard deviation over slices. Maps and support are
  those of the full scan: maps of the undersampled scan may exclude parts of the object, whose
  errors would then not be counted.
- **fastMRI**: the reference is the root-sum-of-squares image. The data range is the maximum of the
  whole volume; NMSE and PSNR over the volume, SSIM as the mean over slices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pnpcm.errors import ShapeError
from pnpcm.metrics import psnr, ssim


@dataclass(frozen=True)
class Scores:
    """Scores and the name of their convention."""

    convention: str
    psnr: float
    ssim: float
    nmse: float
    psnr_std: float | None = None
    ssim_std: float | None = None

    def __str__(self) -> str:
        def number(value: float, std: float | None, digits: int) -> str:
            return f"{value:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")

        return (
            f"{self.convention}: PSNR {number(self.psnr, self.psnr_std, 2)} dB, "
            f"SSIM {number(self.ssim, self.ssim_std, 4)}, NMSE {self.nmse:.4f}"
        )


def paper_scores(image: Tensor, reference: Tensor, support: Tensor) -> Scores:
    """Scores of ``(slices, H, W)``; ``support``: where the coil maps of the full scan are not 0."""
    a, b = (t.abs() * support for t in _checked(image, reference))
    top = b.flatten(1).amax(1).clamp_min(torch.finfo(b.dtype).tiny)[:, None, None]
    a, b = (a / top)[:, None], (b / top)[:, None]
    each = [f(a, b, value_range=(0.0, 1.0), clamp=False).double() for f in (psnr, ssim)]
    lit = b.flatten(1).any(1)  # a slice without signal has no score
    db, similar = (t[lit] for t in each)
    several = len(db) > 1
    return Scores(
        "paper (MVUE, support, per slice)",
        float(db.mean()),
        float(similar.mean()),
        _nmse(a, b),
        float(db.std()) if several else None,
        float(similar.std()) if several else None,
    )


def fastmri_scores(image: Tensor, target: Tensor) -> Scores:
    """Magnitude or complex ``(slices, h, w)`` against the RSS ``target`` of the same size."""
    a, b = (t.abs() for t in _checked(image, target))
    top = float(b.max())
    whole = psnr(
        a.flatten()[None, None, None],
        b.flatten()[None, None, None],
        value_range=(0, top),
        clamp=False,
    )
    similar = ssim(a[:, None], b[:, None], value_range=(0, top), clamp=False)
    return Scores(
        "fastMRI (RSS, volume range)", float(whole), float(similar.double().mean()), _nmse(a, b)
    )


def _nmse(a: Tensor, b: Tensor) -> float:
    return float((a - b).double().square().sum() / b.double().square().sum())


def _checked(image: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    if image.shape != reference.shape or image.ndim != 3:
        raise ShapeError(
            f"image has shape {tuple(image.shape)} and the reference {tuple(reference.shape)}, "
            "expected two equal (slices, H, W)"
        )
    return image, reference
