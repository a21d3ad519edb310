"""Self-check of a result without ground truth.

Data residual relative to the noise and its correlation, noise that is left in the result, share of
clipped values, similarity to the prior's training images, and (for scans) warnings about the input
and the coil maps. What it cannot see: an operator for which another image explains the data as
well, e.g. a kernel that is too narrow (the result stays blurred) or another factor of
super-resolution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError
from pnpcm.metrics.domain import Domain
from pnpcm.metrics.noise_level import estimate_noise_std
from pnpcm.operators.traits import EIGHT_BIT_STD, Misfit
from pnpcm.rng import randn_like

PROBE_SIGMA = 0.1
"""Noise level at which the prior denoises the result."""
PROBE_SIDE = 192
"""Side of the centre crop that it denoises: an evaluation of a large image takes minutes."""
STRANGE = 1.5
"""Denoising error relative to that on the training domain above which an image is atypical."""
EDGE = 0.82
"""Distance of the statistics, relative to the limit, above which an image is at the edge of the
domain: about 3 % of the training images of ``mri`` and ``natural`` are. A simulated phantom that
was scanned at R = 4 and 8 is at 0.90 to 0.97, measured brains at 0.6."""
LEFT = 0.02
"""Noise of a result, on [0, 1], above which it may be left over; clean training crops of 128² have
0.007 in the median and 0.024 at most, where fine texture is taken for noise."""
LEFT_STRANGE = 1.3
"""Denoising error that it must have too: noise of 0.02 increases it to 1.4 times the usual one."""
UNEXPLAINED = "the result does not explain the data"
LAGS = ((0, 1), (1, 0), (1, 1))
OVERSTATED = 0.7
"""Noise of y relative to sigma_y below which sigma_y is too high."""
CORRELATED = 0.1
"""Correlation of neighbouring residuals above which they are not noise. A round number, chosen on
crops of training photographs with a few tasks (the cases of ``benchmarks/studies/self_check.py``)
between their right and their wrong ones; for other operators and images it was not measured."""


@dataclass(frozen=True)
class Check:
    """The self-check of a result.

    ``ratio``: ‖A(x) − y‖ / expected, with expected in ``unit``. ``clipped``: share of values at
    the ends of the range; None if the range has no ends. ``prior_ratio``: error of the prior when
    it denoises this image, relative to its error on its training domain. ``domain_ratio``: distance
    of the statistics of the image from those of the training images, relative to the limit (see
    ``metrics.domain``). Both are None if the prior's file does not store what they need.
    ``tolerance``: largest ``ratio`` that is no fault. ``correlation``: largest correlation of
    neighbouring values of y − A(x). ``noise_left``: estimated noise of the result, ``noise_y``: of
    y, if sigma_y was given; both on [0, 1]. They are None where they cannot be measured (no image,
    no noise). ``warnings``: sentences about these, the input or the coil maps. ``ok``: no value is
    out of its bounds and there is no warning.
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
    tolerance: float = 1.3
    correlation: float | None = None
    noise_left: float | None = None
    noise_y: float | None = None

    @property
    def ok(self) -> bool:
        foreign = _foreign(self.prior_ratio, self.domain_ratio)
        return self.ratio <= self.tolerance and not foreign and not self.warnings

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
        noise = [] if self.noise_left is None else [f"{self.noise_left:.2g} left in the result"]
        if self.correlation is not None:
            noise.append(f"neighbouring residuals correlated by {self.correlation:.2f}")
        if noise:
            found.append(f"noise: {', '.join(noise)}")
        if self.clipped is not None:
            found.append(f"clipped: {100 * self.clipped:.1f} % of values")
        return [*found, *(f"warning: {w}" for w in self.warnings)]


def check(
    x: Tensor,
    misfits: Sequence[Misfit],
    prior: Prior | None,
    *,
    clamped: bool = True,
    sigma_y: float | None = None,
    noise_y: float | None = None,
    warnings: Sequence[str] = (),
) -> Check:
    """The check of an image ``(1, C, H, W)`` of a result, with the misfits of all its images.

    ``sigma_y``: noise level that was used, ``noise_y``: an independent estimate of it from y.
    """
    residual, expected = (
        math.sqrt(sum(getattr(m, name) ** 2 for m in misfits)) for name in ("residual", "expected")
    )
    ratio = residual / expected if expected > 0 else math.inf
    prior_ratio, domain_ratio = (None, None) if prior is None else _likeness(x, prior)
    correlation, bound = _correlation(misfits[0].error)
    noise_left = _noise_of(x) if sigma_y is not None else None
    strange = prior_ratio is None or prior_ratio > LEFT_STRANGE
    limit = 2 * LEFT if prior_ratio is None else LEFT
    left = noise_left is not None and noise_left > limit and strange
    found = []
    if left:
        found.append(
            f"noise of about {noise_left:.2g} is left in the result: sigma_y is too low or the "
            "steps are too few"
        )
    if sigma_y and noise_y is not None and noise_y < OVERSTATED * sigma_y:
        found.append(
            f"the noise of y is about {noise_y:.2g}, sigma_y is {sigma_y:.2g}: detail is removed "
            "as noise"
        )
    if correlation is not None and correlation > bound:
        found.append(
            f"neighbouring values of y − A(x) are correlated ({correlation:.2f}): the operator "
            "(kernel, factor) is wrong, sigma_y is too high, or the noise is not white"
        )
    return Check(
        residual=residual,
        expected=expected,
        ratio=ratio,
        clipped=float((x.abs() >= 1 - 1e-4).float().mean()) if clamped else None,
        prior_ratio=prior_ratio,
        domain_ratio=domain_ratio,
        unit=misfits[0].unit,
        verdict=_verdict(ratio, misfits[0], noise_y is None),
        fit="not used by this method" if prior is None else _fit(prior_ratio, domain_ratio, left),
        warnings=(*warnings, *found),
        tolerance=misfits[0].tolerance,
        correlation=correlation,
        noise_left=noise_left,
        noise_y=noise_y,
    )


def _verdict(ratio: float, misfit: Misfit, noise_unknown: bool) -> str:
    """``noise_unknown``: whether there is no estimate of the noise of y beside sigma_y."""
    if ratio == 0:
        return "the result contains the data exactly"
    if not misfit.noisy:
        if ratio <= 1.3:
            return "the result explains the data up to rounding"
        if ratio <= misfit.tolerance:
            percent = 50 * ratio * EIGHT_BIT_STD
            return f"the result explains the data up to {percent:.1g} % of the range"
        return f"{UNEXPLAINED}: the operator or the steps are wrong, or y has noise"
    if ratio > max(2, misfit.tolerance):
        return f"{UNEXPLAINED}: operator, noise level or steps are wrong"
    if ratio > misfit.tolerance:
        return "the data residual is larger than the noise"
    if ratio < 0.5:
        smaller = "the data residual is smaller than the noise: sigma_y may be too high"
        return smaller if noise_unknown else "the data residual is smaller than sigma_y"
    return "the result explains the data up to the noise"


def _correlation(error: Tensor | None) -> tuple[float | None, float]:
    """Largest correlation of neighbours (right, below, diagonal) in y − A(x), and its bound.

    Values that are exactly 0 were not measured. The bound is at least four standard deviations of
    the correlation of white noise, 1/√m for m pairs.
    """
    found = [(0.0, 0)] if error is None else [_shifted(error, *lag) for lag in LAGS]
    largest, pairs = max(found)
    if pairs == 0:
        return None, CORRELATED
    return largest, max(CORRELATED, 4 / math.sqrt(pairs))


def _shifted(error: Tensor, down: int, right: int) -> tuple[float, int]:
    """Σ a b / √(Σ a² Σ b²) over the measured pairs (a, b) at a distance, and their number."""
    height, width = error.shape[-2:]
    a, b = error[..., : height - down, : width - right], error[..., down:, right:]
    both = (a != 0) & (b != 0)
    a, b = a[both].double(), b[both].double()
    norm = float((a.square().sum() * b.square().sum()).sqrt())
    return (float((a * b).sum()) / norm, a.numel()) if norm > 0 else (0.0, 0)


def _noise_of(x: Tensor) -> float | None:
    """Estimated white noise of a real image, on [0, 1]; None for complex and very small ones."""
    try:
        return estimate_noise_std(x) / 2 if x.shape[1] in (1, 3) else None
    except ArgumentError:
        return None


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


def _fit(prior_ratio: float | None, domain_ratio: float | None, noisy: bool) -> str:
    if noisy and (domain_ratio or 0.0) <= 1:
        return "not judged, since noise is left in the result"
    if prior_ratio is None and domain_ratio is None:
        return "unknown: the prior's file stores nothing about its training images"
    if _foreign(prior_ratio, domain_ratio):
        return "the image is unlike those the prior was trained on: do not trust fine detail"
    if (domain_ratio or 0.0) > EDGE:
        return "the image is at the edge of those the prior was trained on: check fine detail"
    return "the image is like those the prior was trained on"
