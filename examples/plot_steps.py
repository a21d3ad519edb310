"""
Number of evaluations
=====================

``with_steps`` distributes a preset over another number of network evaluations. The time grows in
proportion; the quality does not.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import torch

import pnpcm
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr
from pnpcm.operators import GaussianBlur

photo = "picosdeeuropa_by_Aitzol_Berasategi.png"
x_true = read_image(files("pnpcm") / "data" / photo)[..., 80:176, 80:176]
operator = GaussianBlur(tuple(x_true.shape[1:]))
y = pnpcm.measure(operator, x_true, sigma_y=0.05, generator=torch.Generator().manual_seed(0))
prior = pnpcm.load_prior("natural")
preset = pnpcm.PRESETS["natural/deblur-gauss"].solver

# %%
counts = [1, 2, 4, 8, 16]
results = [
    pnpcm.PnPCM(prior, preset.with_steps(n))(
        y, operator, generator=torch.Generator().manual_seed(0)
    )
    for n in counts
]
scores = [float(psnr(r.x, x_true)) for r in results]
figure, axis = plt.subplots(figsize=(5, 3), layout="constrained")
axis.plot(counts, scores, "o-")
axis.set(xscale="log", xlabel="network evaluations", ylabel="PSNR (dB)", xticks=counts)
axis.set_xticklabels(map(str, counts))
axis.minorticks_off()
print(
    f"PSNR of the blurred image {float(psnr(y, x_true)):.2f} dB; after "
    + ", ".join(f"{n}: {s:.2f}" for n, s in zip(counts, scores, strict=True))
    + " evaluations. The preset was tuned for 4."
)
