"""`restore` with operators that have only A and Aᵀ, beside interpolation.

    python benchmarks/studies/own_operators.py [--data natural_test] [--crops 10]

Operators of the kind that users write: a Bayer colour filter array, every second row, random
masks, means of 2×2 and 4×4 pixels, a motion blur, a Gaussian blur, a quarter of the coefficients of
a cosine transform. Centre crops of 128² of a folder of $PNPCM_DATA (default: CBSD68, not used in
training or tuning), noise of crop i by seed i. "smooth": the image at which `restore` starts,
which for the first rows interpolates the missing values. PSNR (dB), means over the crops.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import pnpcm
from images import crops, markdown, pictures
from pnpcm.linalg import smooth_fit
from pnpcm.metrics import psnr
from pnpcm.places import existing
from pnpcm.transforms import dct2

SIDE = 128


class Own:
    """A as a function of an image, Aᵀ by automatic differentiation."""

    def __init__(self, A: Callable[[Tensor], Tensor]) -> None:
        self.A = A

    def A_adjoint(self, y: Tensor) -> Tensor:
        x = torch.zeros(len(y), 3, SIDE, SIDE)
        return torch.func.vjp(self.A, x)[1](y)[0]


def bayer() -> Callable[[Tensor], Tensor]:
    colour = torch.zeros(3, SIDE, SIDE)
    colour[0, ::2, ::2] = colour[1, ::2, 1::2] = colour[1, 1::2, ::2] = colour[2, 1::2, 1::2] = 1
    return lambda x: (colour * x).sum(1, keepdim=True)


def kept(share: float) -> Tensor:
    return (torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(0)) < share).float()


def blur(kernel: Tensor, axes: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    def A(x: Tensor) -> Tensor:
        for axis in axes:
            shifted = (torch.roll(x, i - len(kernel) // 2, axis) for i in range(len(kernel)))
            x = torch.stack([w * s for w, s in zip(kernel, shifted, strict=True)]).sum(0)
        return x

    return A


def operators() -> dict[str, Own]:
    gauss = torch.exp(-(torch.arange(-4.0, 5.0) ** 2) / 8)
    coefficients = kept(0.25)
    coefficients[:8, :8] = 1
    return {
        "Bayer": Own(bayer()),
        "every second row": Own(lambda x: x[..., ::2, :]),
        "30 % of the pixels": Own(lambda x: kept(0.3) * x),
        "70 % of the pixels": Own(lambda x: kept(0.7) * x),
        "means of 2×2": Own(lambda x: F.avg_pool2d(x, 2)),
        "means of 4×4": Own(lambda x: F.avg_pool2d(x, 4)),
        "motion blur, 9 pixels": Own(blur(torch.ones(9) / 9, (-1,))),
        "Gaussian blur, 2 pixels": Own(blur(gauss / gauss.sum(), (-1, -2))),
        "a quarter of the cosines": Own(lambda x: coefficients * dct2(x)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="natural_test")
    parser.add_argument("--crops", type=int, default=10)
    parser.add_argument("--aim", default="fidelity")
    options = parser.parse_args()
    images = crops(pictures(existing(f"$PNPCM_DATA/{options.data}")), options.crops, SIDE)
    lines = []
    for name, operator in operators().items():
        for sigma_y in (0.0, 0.01, 0.05):
            scores, verdicts = [], 0
            for i, x in enumerate(images):
                y = operator.A(x)
                generator = torch.Generator().manual_seed(i)
                y = y + 2 * sigma_y * torch.randn(y.shape, generator=generator)
                start = smooth_fit(lambda v, a=operator: a.A_adjoint(a.A(v)), operator.A_adjoint(y))
                done = pnpcm.restore(y, operator, sigma_y=sigma_y, seed=i, aim=options.aim)
                scores.append([float(psnr(z.clamp(-1, 1), x)) for z in (start, done.x)])
                verdicts += not done.check.warnings
            smooth, restored = torch.tensor(scores).mean(0)
            lines.append([name, f"{sigma_y}", f"{smooth:.2f}", f"{restored:.2f}", f"{verdicts}"])
            print(*lines[-1], sep=" | ", flush=True)
    head = ("operator", "sigma_y", "smooth", "restore", f"passed the self-check, of {len(images)}")
    print(markdown(head, lines))


if __name__ == "__main__":
    main()
