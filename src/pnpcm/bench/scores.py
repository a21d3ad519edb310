"""METRICS: scores of a reconstruction against the true image, each with its convention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from pnpcm.bench.scans import Measured
from pnpcm.linalg import to_complex
from pnpcm.metrics import psnr, ssim, ssim_gaussian
from pnpcm.metrics.lpips import available, lpips
from pnpcm.mri.scores import paper_scores
from pnpcm.names import Table
from pnpcm.training.pictures import visible

LEAST_SIDE = {"ssim": 7, "ssim-gaussian": 11, "lpips-vgg": 16, "lpips-alex": 31}


@dataclass(frozen=True)
class Metric:
    """``score(x, x_true)`` → one number per image; the ``convention`` of its numbers.

    ``digits``: decimals in tables. ``colour``: defined for photographs only.
    """

    score: Callable[[Tensor, Tensor], Tensor]
    convention: str
    larger_is_better: bool = True
    digits: int = 3
    unit: str = ""
    colour: bool = False


def nmse(x: Tensor, x_true: Tensor) -> Tensor:
    """‖x − x_true‖² / ‖x_true‖² of images in [-1, 1] mapped to [0, 1]."""
    a, b = (((t + 1) / 2).flatten(1) for t in (x, x_true))
    return (a - b).square().sum(1) / b.square().sum(1)


METRICS: Table[Metric] = Table(
    "metric",
    {
        "psnr": Metric(psnr, "clamped to [0, 1], range 1, all channels, no crop", True, 2, "dB"),
        "ssim": Metric(
            ssim,
            "scikit-image's default: uniform 7×7 window, sample covariance, range 1, mean over "
            "channels and the valid region",
        ),
        "ssim-gaussian": Metric(
            ssim_gaussian,
            "Wang et al.: Gaussian 11×11 window, σ 1.5, population covariance, range 1, mean over "
            "channels and the valid region",
        ),
        "lpips-vgg": Metric(
            lambda x, x_true: lpips(x, x_true), "version 0.1, VGG-16, no resizing", False,
            colour=True,
        ),
        "lpips-alex": Metric(
            lambda x, x_true: lpips(x, x_true, network="alex"), "version 0.1, AlexNet, no resizing",
            False, colour=True,
        ),
        "nmse": Metric(nmse, "on [0, 1] (scans: magnitudes), not clamped", False, 4),
    },
)  # fmt: skip


def conventions(metrics: Sequence[str]) -> dict[str, str]:
    """What the numbers of the metrics mean. Scans are compared by their magnitudes."""
    return {name: METRICS[name].convention for name in metrics}


@torch.no_grad()
def score(
    x: Tensor, x_true: Tensor, metrics: Sequence[str], measured: Measured | None = None
) -> dict[str, float]:
    """Scores of one image ``(1, C, H, W)``; without those that are not defined for it.

    ``measured``: of a scan that is scored by the paper's convention, see ``paper_scores``.
    """
    if measured is not None:
        paper = asdict(paper_scores(to_complex(x), to_complex(x_true), measured.support[None]))
        return {name: paper[name] for name in metrics if name in ("psnr", "ssim", "nmse")}
    found = {}
    scan = x_true.shape[1] == 2
    x, x_true = visible(x), visible(x_true)
    for name in metrics:
        metric = METRICS[name]
        small = min(x.shape[-2:]) < LEAST_SIDE.get(name, 1)
        if small or (metric.colour and (scan or not available())):
            continue
        found[name] = float(metric.score(x, x_true)[0])
    return found
