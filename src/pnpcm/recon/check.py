"""Self-check of a result without ground truth.

Data residual relative to the noise, share of clipped values, similarity to the prior's training
images, and (for scans) warnings about the input and the coil maps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.metrics.domain import Domain
from pnpcm.operators.traits import Misfit
from pnpcm.rng import randn_like

PROBE_SIGMA = 0.1
"""Noise level at which the prior denoises the result."""
PROBE_SIDE = 192
"""Side of the centre crop that it denoises: an evaluation of a large image takes minutes."""
STRANGE = 1.5
"""Denoising error relative to that on the training domain above which an image is atypical."""


@dataclass(frozen=True)
class Check:
    """The self-check of a result.

    ``ratio``: ‖A(x) − y‖ / expected, with expected in ``unit``. ``clipped``: share of values at
    the ends of the range; None if the range has no ends. ``prior_ratio``: error of the prior when
    it denoises this image, relative to its error on its training domain. ``domain_ratio``: distance
    of the statistics of the image from those of the training images, relative to the limit (see
    ``metrics.domain``). Both are None if the prior's file does not store what they need.
    ``warnings``: sentences about the input or the coil maps. ``ok``: no value is out of its bounds
    and there is no warning.
    """

    residual: float
    expected: float
    ratio: float
    clipped: float | None
    prior_ratio: float | None
    domain_ratio: float | None
    unit: str
    verdict: str
    fit: str
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        foreign = _foreign(self.prior_ratio, self.domain_ratio)
        return self.ratio <= 1.3 and not foreign and not self.warnings

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Check:
        rest = {k: v for k, v in values.items() if k != "ok"}
        return cls(**(rest | {"warnings": tuple(rest["warnings"])}))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"warnings": list(self.warnings), "ok": self.ok}

    def lines(self) -> list[str]:
        """The check as lines of text."""
        known = []
        if self.prior_ratio is not None:
            known.append(f"denoising error {self.prior_ratio:.2f} × usual")
        if self.domain_ratio is not None:
            known.append(f"distance of its statistics {self.domain_ratio:.2f} × the limit")
        found = [
            f"data: {self.verdict} (residual {self.ratio:.2f} × expected)",
            f"prior: {self.fit}" + (f" ({', '.join(known)})" if known else ""),
        ]
        if self.clipped is not None:
            found.append(f"clipped: {100 * self.clipped:.1f} % of values")
        return [*found, *(f"warning: {w}" for w in self.warnings)]


def check(
    x: Tensor,
    misfits: Sequence[Misfit],
    prior: Prior | None,
    *,
    clamped: bool = True,
    warnings: Sequence[str] = (),
) -> Check:
    """The check of an image ``(1, C, H, W)`` of a result, with the misfits of all its images."""
    residual, expected = (
        math.sqrt(sum(getattr(m, name) ** 2 for m in misfits)) for name in ("residual", "expected")
    )
    ratio = residual / expected if expected > 0 else math.inf
    prior_ratio, domain_ratio = (None, None) if prior is None else _likeness(x, prior)
    return Check(
        residual=residual,
        expected=expected,
        ratio=ratio,
        clipped=float((x.abs() >= 1 - 1e-4).float().mean()) if clamped else None,
        prior_ratio=prior_ratio,
        domain_ratio=domain_ratio,
        unit=misfits[0].unit,
        verdict=_verdict(ratio),
        fit=_fit(prior_ratio, domain_ratio),
        warnings=tuple(warnings),
    )


def _verdict(ratio: float) -> str:
    if ratio == 0:
        return "the result contains the data exactly"
    if ratio > 2:
        return "the result does not explain the data: operator, noise level or steps are wrong"
    if ratio > 1.3:
        return "the data residual is larger than the noise"
    if ratio < 0.5:
        return "the data residual is smaller than the noise: sigma_y may be too high"
    return "the result explains the data up to the noise"


@torch.no_grad()
def _likeness(x: Tensor, prior: Prior) -> tuple[float | None, float | None]:
    """``prior_ratio`` and ``domain_ratio`` of an image ``(1, C, H, W)``."""
    info = getattr(prior, "info", {})
    domain_ratio = None
    if "domain" in info and len(x[0]) <= 3:
        domain = Domain.from_dict(info["domain"])
        distance = domain.distance(x[0])
        domain_ratio = None if distance is None else distance / domain.limit
    training = info.get("training", [])
    usual = training[-1].get("psnr_by_sigma", {}).get(f"{PROBE_SIGMA:g}") if training else None
    if usual is None:
        return None, domain_ratio
    if getattr(getattr(prior, "network", None), "image_size", None) is None:
        top, left = (max(0, (n - PROBE_SIDE) // 2) for n in x.shape[-2:])
        x = x[..., top : top + PROBE_SIDE, left : left + PROBE_SIDE]
    noise = randn_like(x, torch.Generator().manual_seed(0))
    error = prior(x + PROBE_SIGMA * noise, PROBE_SIGMA) - x
    rms = float(error.square().mean().sqrt())
    return rms / (2 * 10 ** (-float(usual) / 20)), domain_ratio


def _foreign(prior_ratio: float | None, domain_ratio: float | None) -> bool:
    return (prior_ratio or 0.0) > STRANGE or (domain_ratio or 0.0) > 1


def _fit(prior_ratio: float | None, domain_ratio: float | None) -> str:
    if prior_ratio is None and domain_ratio is None:
        return "unknown: the prior's file stores nothing about its training images"
    if _foreign(prior_ratio, domain_ratio):
        return "the image is unlike those the prior was trained on: do not trust fine detail"
    return "the image is like those the prior was trained on"
