"""
MRI from a raw file
===================

A simulated multi-coil scan is written as a fastMRI file, undersampled by 4 and reconstructed. Coil
maps, scale and parameters are estimated from the undersampled data.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import pnpcm

# %%
# A phantom of 96×96 pixels in 8 coils, with correlated noise and a smooth phase.

folder = tempfile.TemporaryDirectory()
full = Path(folder.name) / "full.h5"
pnpcm.mri.write_simulated(full, pnpcm.mri.phantoms(1, (96, 96)), n_coils=8)
generator = torch.Generator().manual_seed(0)
mask = pnpcm.mri.gaussian1d(96, 4, 16, generator=generator)  # 24 of 96 lines, 16 in the middle
scan = pnpcm.mri.read_scan(full)

# %%
# The zero-filled image, root sum of squares over the coils, and the reconstruction.

kspace = scan.kspace(0) * mask
shifted = torch.fft.ifftshift(kspace, dim=(-2, -1))
coils = torch.fft.fftshift(torch.fft.ifft2(shifted, norm="ortho"), dim=(-2, -1))
zero_filled = coils.abs().square().sum(0).sqrt()
volume = pnpcm.reconstruct(scan, mask=mask)
for score in volume.record["scores"]:
    print(f"{score['convention']}: PSNR {score['psnr']:.1f} dB, SSIM {score['ssim']:.3f}")

# %%
image, reference = volume.image[0].abs(), volume.reference[0]
top = float(reference.max())
figure, axes = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
panels = {
    "lines": mask.float().expand(96, 96) * top,
    "zero-filled": zero_filled,
    "pnpcm": image,
    "full scan": reference,
    "error × 5": 5 * (image - reference).abs(),
}
for axis, (title, values) in zip(axes, panels.items(), strict=True):
    axis.imshow(values, cmap="gray", vmin=0, vmax=top)
    axis.set_title(title)
    axis.axis("off")


def error(values: torch.Tensor) -> float:
    """Distance to the full scan in percent of its norm, after the best scaling."""
    scale = (values * reference).sum() / values.square().sum()
    return 100 * float((scale * values - reference).norm() / reference.norm())


print(
    f"{int(mask.sum())} of {mask.numel()} lines: the error is {error(zero_filled):.1f} % of the "
    f"full scan for zero filling and {error(image):.1f} % for pnpcm."
)
