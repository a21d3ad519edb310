"""Traits of an operator in a reconstruction: data step, start, noise estimate, misfit.

Operators of pnpcm have the methods ``traits``, ``preset_options`` and ``misfit``; for others
(deepinv physics, your own classes) the functions here return defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import Operator, has_adjoint

PROX: Mapping[str, Any] = {"type": "ProxStep"}
EIGHT_BIT_STD = 2 / 255 / math.sqrt(12)
"""Rounding error of an image in [-1, 1] at 8 bits: the smallest error of y from a file."""
CLOSE_STD = 0.02
"""1 % of the range: a smaller residual of an image is no fault, however small its noise is."""


def lbfgs(n_iter: int = 10) -> Mapping[str, Any]:
    """The data step of a nonlinear operator, as plain values."""
    return {"type": "GradientStep", "optimizer": "lbfgs", "n_iter": n_iter}


@dataclass(frozen=True)
class Traits:
    """Defaults of a reconstruction with an operator.

    ``data_step``: a data step as plain values (``Config.from_dict``). ``init``: start of a solver,
    see ``PnPCMConfig``. ``clamp``: whether images are clamped to [-1, 1]. ``steps``: default number
    of network evaluations. ``noise``: how an unknown noise level is estimated: "image" (from y,
    which is an image), "exact" (0 unless an estimate is asked for; the result then contains the
    measured values, ``operator.with_known(x, y)``), "none" (y has no noise), "unknown". ``strips``:
    whether the data step can be solved in strips of rows. ``signs``: whether the sign of a channel
    is not determined.
    """

    data_step: Mapping[str, Any] = field(default_factory=lambda: PROX)
    init: str = "auto"
    clamp: bool = True
    steps: int = 4
    noise: str = "image"
    strips: bool = False
    signs: bool = False


@dataclass(frozen=True)
class Misfit:
    """Distance of A(x) from y, and the distance that noise alone would give, in ``unit``.

    ``tolerance``: ratio up to which the result explains the data. ``noisy``: whether ``expected``
    is that of noise; False: of rounding only. ``error``: y − A(x), if y is an image with noise; 0
    where nothing was measured.
    """

    residual: float
    expected: float
    unit: str
    tolerance: float = 1.3
    noisy: bool = True
    error: Tensor | None = field(default=None, compare=False, repr=False)

    @property
    def ratio(self) -> float:
        return self.residual / self.expected if self.expected > 0 else math.inf


def traits_of(operator: Operator, noise_std: float) -> Traits:
    """The operator's own traits, or the defaults of a linear or nonlinear operator."""
    if hasattr(operator, "traits"):
        own: Traits = operator.traits(noise_std)
        return own
    return Traits(data_step=PROX if has_adjoint(operator) else lbfgs())


def misfit_of(operator: Operator, x: Tensor, y: Tensor, noise_std: float) -> Misfit:
    """The operator's own misfit, or ‖A(x) − y‖ against noise_std √m."""
    if hasattr(operator, "misfit"):
        own: Misfit = operator.misfit(x, y, noise_std)
        return own
    return usual_misfit(operator, x, y, noise_std, y.numel() * (2 if y.is_complex() else 1))


def usual_misfit(
    operator: Operator, x: Tensor, y: Tensor, noise_std: float, n_measured: int
) -> Misfit:
    """‖A(x) − y‖ against noise_std √m, where real images have at least the rounding of 8 bits."""
    error = y - operator.A(x)
    residual = float(torch.linalg.vector_norm(error.flatten()))
    floor = 0.0 if y.is_complex() else EIGHT_BIT_STD
    std = max(noise_std, floor)
    how = traits_of(operator, noise_std).noise
    image = y.ndim == 4 and not y.is_complex() and how in ("image", "exact")
    return Misfit(
        residual,
        std * math.sqrt(n_measured),
        "noise_std √m",
        tolerance=max(1.3, CLOSE_STD / std) if image else 1.3,
        noisy=noise_std > floor,
        error=error if image and noise_std > floor else None,
    )
