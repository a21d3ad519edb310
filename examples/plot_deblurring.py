"""
Undo a motion blur
==================

A motion of 9 pixels blurs a photograph; sensors add noise. Outside of the measured image nothing
is known, so that a larger image is solved for and cropped.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import torch

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr
from pnpcm.problems import Deblur

# %%
# The blur is simulated on a larger crop, whose margin is then removed.

photo = "picosdeeuropa_by_Aitzol_Berasategi.png"
large = read_image(files("pnpcm") / "data" / photo)[..., 56:200, 56:200]
blur = Deblur(motion=(9, 30), boundary="reflect").operator(tuple(large.shape[1:]))
y = pnpcm.measure(blur, large, sigma_y=0.01, generator=torch.Generator().manual_seed(0))
y, x_true = y[..., 8:-8, 8:-8], large[..., 8:-8, 8:-8]
task = Deblur(motion=(9, 30))  # the boundary is unknown

# %%
# Wiener's filter is the classical solution with the spectrum of typical photographs as its prior.

results = {
    "Wiener": pnpcm.restore(y, task, sigma_y=0.01, method="wiener").x,
    "pnpcm": pnpcm.restore(y, task, sigma_y=0.01).x,
}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
panels = {"blurred": y} | results | {"true": x_true}
for axis, (title, image) in zip(axes, panels.items(), strict=True):
    axis.imshow(to_picture(image[0]))
    axis.set_title(f"{title}, {float(psnr(image, x_true)):.2f} dB" if title != "true" else title)
    axis.axis("off")
print(
    f"PSNR: blurred {float(psnr(y, x_true)):.2f} dB, Wiener "
    f"{float(psnr(results['Wiener'], x_true)):.2f} dB, pnpcm "
    f"{float(psnr(results['pnpcm'], x_true)):.2f} dB."
)
