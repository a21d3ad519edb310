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

from pnpcm.core import Operator

PROX: Mapping[str, Any] = {"type": "ProxStep"}
EIGHT_BIT_STD = 2 / 255 / math.sqrt(12)
"""Rounding error of an image in [-1, 1] at 8 bits: the smallest error of y from a file."""


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
    is not determined. ``method``: the solver that is ahead for fidelity, with a denoiser at the
    same cost.
    """

    data_step: Mapping[str, Any] = field(default_factory=lambda: PROX)
    init: str = "auto"
    clamp: bool = True
    steps: int = 4
    noise: str = "image"
    strips: bool = False
    signs: bool = False
    method: str = "pnp-cm"


@dataclass(frozen=True)
class Misfit:
    """Distance of A(x) from y, and the distance that noise alone would give, in ``unit``."""

    residual: float
    expected: float
    unit: str

    @property
    def ratio(self) -> float:
        return self.residual / self.expected if self.expected > 0 else math.inf


def traits_of(operator: Operator, noise_std: float) -> Traits:
    """The operator's own traits, or the defaults of a linear or nonlinear operator."""
    if hasattr(operator, "traits"):
        own: Traits = operator.traits(noise_std)
        return own
    linear = hasattr(operator, "A_adjoint") and getattr(operator, "linear", True)
    return Traits(data_step=PROX if linear else lbfgs())


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
    residual = float(torch.linalg.vector_norm((operator.A(x) - y).flatten()))
    floor = 0.0 if y.is_complex() else EIGHT_BIT_STD
    return Misfit(residual, max(noise_std, floor) * math.sqrt(n_measured), "noise_std √m")
