"""
Several samples and their spread
================================

With injected noise each run is another image that explains the measurement. Their mean is closer to
the truth, and their standard deviation shows where the measurement does not determine the image.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import torch

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr
from pnpcm.problems import SuperRes

photo = "friends_by_Aitzol_Berasategi.png"
x_true = read_image(files("pnpcm") / "data" / photo)[..., 56:152, 56:152]
task = SuperRes(factor=4)
operator = task.operator(tuple(x_true.shape[1:]))
y = pnpcm.measure(operator, x_true, sigma_y=0.05, generator=torch.Generator().manual_seed(0))

# %%
restoration = pnpcm.restore(
    y, task, sigma_y=0.05, samples=6, preset="natural/superres-4", settings={"noise_scale": 1.0}
)
error = (restoration.x - x_true).abs().mean(1)[0]
spread = restoration.std.mean(1)[0]
figure, axes = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
panels = {"one sample": restoration.sample, "mean": restoration.x, "true": x_true}
for axis, (title, image) in zip(axes, panels.items(), strict=False):
    axis.imshow(to_picture(image[0]))
    axis.set_title(title)
for axis, (title, values) in zip(
    axes[3:], {"std": spread, "|mean − true|": error}.items(), strict=True
):
    axis.imshow(values, cmap="magma", vmin=0)
    axis.set_title(title)
for axis in axes:
    axis.axis("off")
together = torch.corrcoef(torch.stack([spread.flatten(), error.flatten()]))[0, 1]
print(
    f"One sample has {float(psnr(restoration.sample, x_true)):.2f} dB, the mean of 6 "
    f"{float(psnr(restoration.x, x_true)):.2f} dB; spread and error of the pixels correlate by "
    f"{float(together):.2f}. The spread is no calibrated interval."
)
