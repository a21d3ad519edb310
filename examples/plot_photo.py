"""
Enlarge a photograph
====================

A photograph is reduced by 4 and gets noise (``sigma_y`` 0.02 on the scale 0 to 1).
:func:`pnpcm.restore` enlarges it again. Noise level and parameters are chosen by the library.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import torch

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr
from pnpcm.problems import SuperRes

# %%
# The true image, and its measurement: images are tensors (batch, channel, row, column) in [-1, 1].

photo = "friends_by_Aitzol_Berasategi.png"
x_true = read_image(files("pnpcm") / "data" / photo)[..., 40:200, 40:200]
operator = SuperRes(factor=4).operator(tuple(x_true.shape[1:]))
y = pnpcm.measure(operator, x_true, sigma_y=0.02, generator=torch.Generator().manual_seed(0))

# %%
# One call restores it. The report states the method, the noise level, the origin of the parameters
# and the self-check.

restoration = pnpcm.restore(y, SuperRes(factor=4))
print(restoration.report())

# %%
# The pseudo-inverse is the smoothest image that explains the measurement.

before = operator.A_dagger(y)
panels = {"measured": y, "pseudo-inverse": before, "pnpcm": restoration.x, "true": x_true}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
for axis, (title, image) in zip(axes, panels.items(), strict=True):
    axis.imshow(to_picture(image[0]))
    axis.set_title(title)
    axis.axis("off")
print(
    f"PSNR rises from {float(psnr(before, x_true)):.2f} dB (pseudo-inverse) to "
    f"{float(psnr(restoration.x, x_true)):.2f} dB in {restoration.result.nfe} evaluations."
)
