"""
The iterations of PnP-CM
========================

One run of Algorithm 1, step by step: the data step z, the result x of the consistency model, and
the three schedules. :doc:`/guide/how` explains them.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import torch

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr
from pnpcm.operators import SuperResolution

# %%
# A callback receives every iteration: its number k, sigma and rho, and the tensors x, z and u.

photo = "friends_by_Aitzol_Berasategi.png"
x_true = read_image(files("pnpcm") / "data" / photo)[..., 40:168, 40:168]
operator = SuperResolution(tuple(x_true.shape[1:]), factor=4)
generator = torch.Generator().manual_seed(0)
y = pnpcm.measure(operator, x_true, sigma_y=0.05, generator=generator)
config = pnpcm.PRESETS["celeba-hq/superres-4"].solver  # the schedule of the paper
steps: list[pnpcm.Step] = []
solver = pnpcm.PnPCM(pnpcm.load_prior("natural"), config)
result = solver(y, operator, generator=generator, callback=steps.append)

# %%
# Rows: the data step z, and the result x of the prior. The first data step explains the
# measurement; the prior adds what the measurement does not determine.

figure, axes = plt.subplots(2, len(steps), figsize=(9, 4.8), layout="constrained")
for column, step in zip(axes.T, steps, strict=True):
    for axis, name in zip(column, ("z", "x"), strict=True):
        image = getattr(step, name)
        axis.imshow(to_picture(image[0]))
        axis.set_title(f"${name}_{step.k}$: {float(psnr(image, x_true)):.2f} dB")
        axis.axis("off")
print(
    f"{len(steps)} iterations: x goes from {float(psnr(steps[0].x, x_true)):.2f} to "
    f"{float(psnr(result.x, x_true)):.2f} dB (schedule of the paper, shipped prior)."
)

# %%
# The schedules: the injected noise and the level told to the prior fall, the penalty rises, and the
# summed movement of x, z and u decreases.

figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
k = range(1, config.n_steps + 1)
axes[0].semilogy(k, config.sigmas, "o-", label=r"injected $\sigma_k$")
axes[0].semilogy(k, config.told, "s--", label=r"told $(1+\delta_k)\sigma_k$")
axes[0].legend()
axes[1].semilogy(k, config.rhos, "o-")
axes[2].semilogy(k, result.residuals[:, 0].cpu(), "o-")
for axis, title in zip(axes, ("noise", r"penalty $\rho_k$", r"residual $\Delta_k$"), strict=True):
    axis.set(title=title, xlabel="iteration k", xticks=list(k))
print(
    f"The injected noise falls from {config.sigmas[0]:.3f} to {config.sigmas[-1]:.3f}, the penalty "
    f"rises from {config.rhos[0]:.3f} to {config.rhos[-1]:.2f}."
)
