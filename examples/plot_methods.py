"""
Compare methods
===============

All solvers have one interface, so that operator, measurement, prior and seed are the same. Each
runs with the parameters that a search of equal size found for the shipped prior.
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
# ``method`` is a row of ``pnpcm.SOLVERS``; None is the default of the library.

methods = ["wiener", "tv", "dpir", "cm4ir", None]
rows = {m or "pnp-cm": pnpcm.restore(y, task, sigma_y=0.05, method=m) for m in methods}
figure, axes = plt.subplots(1, len(rows) + 1, figsize=(11, 2.4), layout="constrained")
for axis, (name, row) in zip(axes, rows.items(), strict=False):
    axis.imshow(to_picture(row.x[0]))
    axis.set_title(f"{name}, {row.result.nfe} NFE\n{float(psnr(row.x, x_true)):.2f} dB")
axes[-1].imshow(to_picture(x_true[0]))
axes[-1].set_title("true")
for axis in axes:
    axis.axis("off")
best = max(rows, key=lambda name: float(psnr(rows[name].x, x_true)))
print(
    f"On this one crop {best} has the highest PSNR, {float(psnr(rows[best].x, x_true)):.2f} dB. "
    "One image ranks no methods: the page of results has means over held-out images."
)
