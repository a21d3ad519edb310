"""The self-check of a result: does it explain the data, is it clipped, does the prior know it?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Operator, Prior
from pnpcm.operators import JPEG
from pnpcm.rng import randn_like

PROBE_SIGMA = 0.1
"""Level at which the prior is asked to denoise its own result."""
PROBE_SIDE = 192
"""Side of the centre it is asked about: an evaluation of a large image costs minutes."""


@dataclass(frozen=True)
class Check:
    """What a restoration can say about itself, without the truth.

    ``ratio``: ‖A(x) − y‖ / expected, where expected is noise_std √m, or for JPEG the rounding error
    of a uniform cell. ``clipped``: share of values at the ends of the range. ``prior_ratio``: error
    of the prior when it denoises this image, relative to its error on its own domain (None where
    the prior's file does not tell).
    """

    residual: float
    expected: float
    ratio: float
    clipped: float
    prior_ratio: float | None
    unit: str
    verdict: str
    fit: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check(x: Tensor, y: Tensor, operator: Operator, noise_std: float, prior: Prior | None) -> Check:
    """Judge the image ``x`` ``(1, C, H, W)`` against its measurement ``y``."""
    with torch.no_grad():
        residual, expected, unit = _residual(x, y, operator, noise_std)
        ratio = residual / expected if expected > 0 else math.inf
        clipped = float((x.abs() >= 1 - 1e-4).float().mean())
        prior_ratio = None if prior is None else _prior_ratio(x, prior)
    return Check(
        residual, expected, ratio, clipped, prior_ratio, unit, _verdict(ratio), _fit(prior_ratio)
    )


def _residual(
    x: Tensor, y: Tensor, operator: Operator, noise_std: float
) -> tuple[float, float, str]:
    if isinstance(operator, JPEG):
        cells = operator.cells(x) - operator.cells(y)
        return float(cells.square().mean().sqrt()), math.sqrt(1 / 12), "quantisation steps"
    r = (operator.A(x) - y).flatten().abs()
    residual = float(torch.linalg.vector_norm(r))
    count = operator.n_measured(y) if hasattr(operator, "n_measured") else y.numel()
    floor = 2 / 255 / math.sqrt(12)  # y itself was rounded to 8 bits
    return residual, max(noise_std, floor) * math.sqrt(count), "noise_std √m"


def _verdict(ratio: float) -> str:
    if ratio > 2:
        return "the result does not explain the data: operator, noise level or steps are wrong"
    if ratio > 1.3:
        return "the result leaves more of the data unexplained than the noise would"
    if ratio < 0.5:
        return "the result follows the data closer than its noise allows: sigma_y may be too high"
    return "the result explains the data up to its noise"


def _prior_ratio(x: Tensor, prior: Prior) -> float | None:
    story = getattr(prior, "info", {}).get("training", [])
    usual = story[-1].get("psnr_by_sigma", {}).get(f"{PROBE_SIGMA:g}") if story else None
    if usual is None:
        return None
    if getattr(getattr(prior, "network", None), "image_size", None) is None:
        top, left = (max(0, (n - PROBE_SIDE) // 2) for n in x.shape[-2:])
        x = x[..., top : top + PROBE_SIDE, left : left + PROBE_SIDE]
    noise = randn_like(x, torch.Generator().manual_seed(0))
    error = prior(x + PROBE_SIGMA * noise, PROBE_SIGMA) - x
    rms = float(error.square().mean().sqrt())
    return rms / (2 * 10 ** (-float(usual) / 20))


def _fit(prior_ratio: float | None) -> str:
    if prior_ratio is None:
        return "unknown: the prior's file does not say how well it denoises its own domain"
    if prior_ratio > 1.5:
        return "the image is unlike those the prior was trained on: do not trust fine detail"
    return "the image is like those the prior was trained on"
