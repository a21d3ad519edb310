"""
Fill scratches with your own mask
=================================

A mask marks the pixels to be filled. Without noise the other pixels stay bit for bit.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image, ImageDraw

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr
from pnpcm.problems import Inpaint

# %%
# In Python a mask is true where a pixel is known. (In a file for ``--mask``, white is filled.)

x_true = read_image(files("pnpcm") / "data" / "Wine_by_Jakkub_Mede.png")[..., 64:192, 64:192]
drawing = Image.new("L", (128, 128))
pen = ImageDraw.Draw(drawing)
for i in range(6):
    pen.line((10 + 20 * i, 0, 127 - 15 * i, 127), fill=255, width=2)
pen.text((30, 50), "pnpcm", fill=255, font_size=22)
known = torch.from_numpy(np.array(drawing) == 0)
damaged = torch.where(known, x_true, torch.ones(()))

# %%
restoration = pnpcm.restore(damaged, Inpaint(mask=known))
kept = torch.equal(restoration.x[..., known], damaged[..., known])

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
panels = {"damaged": damaged, "filled": restoration.x, "true": x_true}
for axis, (title, image) in zip(axes, panels.items(), strict=True):
    axis.imshow(to_picture(image[0]))
    axis.set_title(title)
    axis.axis("off")
print(
    f"{100 * float((~known).float().mean()):.1f} % of the pixels are filled; PSNR "
    f"{float(psnr(damaged, x_true)):.2f} → {float(psnr(restoration.x, x_true)):.2f} dB; the other "
    f"pixels are {'unchanged' if kept else 'changed'}."
)
