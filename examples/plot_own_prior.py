"""
Your own prior
==============

A prior is a callable ``(x, sigma)``. Here a denoiser of ten lines replaces the trained network: it
shrinks the coefficients of the cosine transform, for all shifts of its blocks.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import torch
from torch import nn

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr
from pnpcm.operators import Inpainting

# %%
# A denoiser on [0, 1], as those of deepinv: the mean over all blocks of 8×8 pixels, each with
# cosine coefficients below 2.7 sigma removed.

n = torch.arange(8.0)
dct = torch.cos(torch.pi * (n[None] + 0.5) * n[:, None] / 8) * 0.5
dct[0] *= 0.5**0.5
filters = torch.einsum("ai,bj->abij", dct, dct).reshape(64, 1, 8, 8)


def shrink(x: torch.Tensor, sigma: float) -> torch.Tensor:
    b, c, h, w = x.shape
    padded = nn.functional.pad(x, (7, 7, 7, 7), mode="reflect").reshape(b * c, 1, h + 14, w + 14)
    coefficients = nn.functional.conv2d(padded, filters)
    coefficients[:, 1:] *= coefficients[:, 1:].abs() > 2.7 * sigma
    summed = nn.functional.conv_transpose2d(coefficients, filters)[..., 7:-7, 7:-7]
    return (summed / 64).reshape(b, c, h, w)


prior = pnpcm.load_prior(shrink, sigma_max=0.5)
print(prior.kind, prior.value_range)

# %%
# The same measurement with both priors: half of the pixels are missing.

photo = "seeding_by_Clements_Engelhardt.png"
x_true = read_image(files("pnpcm") / "data" / photo)[..., 64:192, 64:192]
generator = torch.Generator().manual_seed(0)
operator = Inpainting.random((128, 128), missing=0.5, generator=generator)
y = pnpcm.measure(operator, x_true, sigma_y=0.02, generator=generator)
config = pnpcm.PnPCMConfig.geometric((0.4, 0.03), n=8, noise_std=0.04, noise_scale=0.0)
results = {
    "cosine shrinkage": pnpcm.PnPCM(prior, config)(y, operator, generator=generator),
    "natural": pnpcm.PnPCM(pnpcm.load_prior("natural", kind="edm"), config)(
        y, operator, generator=generator
    ),
}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
panels = {"measured": y} | {name: r.x for name, r in results.items()} | {"true": x_true}
for axis, (title, image) in zip(axes, panels.items(), strict=True):
    axis.imshow(to_picture(image[0]))
    axis.set_title(title)
    axis.axis("off")
scores = {name: float(psnr(r.x, x_true)) for name, r in results.items()}
print("; ".join(f"{name}: {score:.2f} dB" for name, score in scores.items()) + ", the same loop.")
