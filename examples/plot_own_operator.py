"""
Your own operator
=================

Any object with ``A`` and ``A_adjoint`` is an operator. Here: a Bayer sensor, which measures one
colour per pixel.
"""

from functools import partial
from importlib.resources import files

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import conv2d

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr


class Bayer:
    """One channel (B, 1, H, W) with red, green, green and blue in each block of 2×2 pixels."""

    def __init__(self, height: int, width: int) -> None:
        pattern = torch.zeros(3, 2, 2)
        pattern[0, 0, 0] = pattern[1, 0, 1] = pattern[1, 1, 0] = pattern[2, 1, 1] = 1
        self.pattern = pattern.repeat(1, height // 2, width // 2)

    def A(self, x: torch.Tensor) -> torch.Tensor:
        return (self.pattern.to(x) * x).sum(1, keepdim=True)

    def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:
        return self.pattern.to(y) * y


# %%
# ``check_operator`` verifies the adjoint, linearity, the prox, batches and that no state changes.

photo = "Picture_1A_by_freespace.png"
x_true = read_image(files("pnpcm") / "data" / photo)[..., 64:192, 64:192]
operator = Bayer(128, 128)
generator = torch.Generator().manual_seed(0)
print(pnpcm.check_operator(operator, x_true, generator=generator))

# %%
# No preset knows this operator. ``restore`` measures how it acts on a random image, starts at a
# smooth image that explains the data, and chooses levels for the noise. Beside it: the mean of the
# measured neighbours of each colour.

y = pnpcm.measure(operator, x_true, sigma_y=0.02, generator=generator)
restored = pnpcm.restore(y, operator, sigma_y=0.02)
print(restored.report())

weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).expand(3, 1, 3, 3)
smooth = partial(conv2d, weight=weights, padding=1, groups=3)
neighbours = smooth(operator.A_adjoint(y)) / smooth(operator.pattern[None])

# %%
panels = {
    "measured": operator.A_adjoint(y),
    "neighbours": neighbours,
    "restored": restored.x,
    "true": x_true,
}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
for axis, (title, image) in zip(axes, panels.items(), strict=True):
    axis.imshow(to_picture(image[0]))
    axis.set_title(title)
    axis.axis("off")
scores = {name: f"{float(psnr(image, x_true)):.2f} dB" for name, image in panels.items()}
print(
    f"Mean of neighbours {scores['neighbours']}, restored {scores['restored']} in "
    f"{restored.result.nfe} evaluations."
)
