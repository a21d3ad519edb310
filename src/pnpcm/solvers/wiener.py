"""Wiener: the linear MMSE reconstruction of Gaussian images, a baseline without a learned prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pnpcm.arguments import check_count, check_number
from pnpcm.core import Config, Operator
from pnpcm.errors import ArgumentError
from pnpcm.linalg import cg, expand, inner, normal_map
from pnpcm.solvers.base import Run, SolverBase, unless_linear
from pnpcm.transforms import dct2, idct2

RGB_POWER = (0.012, 8e-4, 2e-4)
"""Power of the axes grey, red−blue, green−magenta; fitted to photographs in [-1, 1]."""


@dataclass(frozen=True)
class WienerConfig(Config):
    """The image model: mean, and the spectrum power/(f² + corner²), f in cycles per pixel.

    Three powers are for the axes grey, red−blue, green−magenta of RGB; other images have the mean
    of the powers in every channel. ``n_iter``: largest number of CG iterations, which stop at a
    residual of 1e-7. The defaults are for photographs; for complex images set ``mean=0``.
    """

    noise_std: float = 0.1
    power: float | tuple[float, ...] = RGB_POWER
    corner: float = 0.0015
    mean: float = -0.1
    n_iter: int = 100

    def __post_init__(self) -> None:
        powers = self.power if isinstance(self.power, tuple) else (self.power,)
        if len(powers) not in (1, 3) or not all(0 < p < math.inf for p in powers):
            raise ArgumentError(f"power must be one or three positive numbers, got {self.power}")
        check_number("corner", self.corner, 0, open_low=True)
        check_number("noise_std", self.noise_std, 0, open_low=True)
        check_number("mean", self.mean, -1, 1)
        check_count("n_iter", self.n_iter)

    @property
    def nfe(self) -> int:
        """Network evaluations of a run: none."""
        return 0

    @classmethod
    def example(cls) -> WienerConfig:
        """A short run for the laws."""
        return cls(n_iter=10)


class Wiener(SolverBase[WienerConfig]):
    r"""Posterior mean for Gaussian images with a 1/f² spectrum and Gaussian noise.

    .. math::
        x &= m + L w, \qquad C = L L^T, \quad L = \text{colours}^T\, \text{cosines}^T\, S \\
        (L^T A^T A L + \sigma_n^2)\, w &= L^T A^T (y - A m)

    with σ_n = ``noise_std`` and S² the spectrum. In the whitened variable w the system is
    well scaled; conjugate gradients, one step length per image, are preconditioned by
    (a S² + σ_n²)⁻¹ with a = ‖Ag‖²/‖g‖², g = Aᵀ(y − Am), which is exact for A = √a I.

    Costs up to ``n_iter`` applications of AᵀA, no prior call. Source: Wiener (1949); the spectrum
    is that of natural images, Field (1987).

    >>> result = Wiener(None, WienerConfig(noise_std=0.1))(y, operator)
    """

    name = "wiener"
    config_type = WienerConfig
    takes_prior = False

    def refusal(self, operator: Operator) -> str | None:
        return unless_linear(operator, "the adjoint")

    def _solve(self, run: Run) -> Tensor:
        operator: Any = run.operator
        variance, normal = self.config.noise_std**2, normal_map(operator)
        model = Spectrum(self.config, run.middle)
        m = torch.full_like(run.middle, self.config.mean)
        g = operator.A_adjoint(run.residual(m))

        square = inner(g, g).clamp_min(torch.finfo(g.dtype).tiny)
        gain = expand(inner(g, normal(g)) / square, g)
        weights = 1 / (gain * model.std**2 + variance)
        w = cg(
            lambda w: model.whiten(normal(model.colour(w))) + variance * w,
            model.whiten(g),
            max_iter=self.config.n_iter,
            tol=1e-7,
            precondition=lambda r: weights * r,
        )
        x = m + model.colour(w)
        run.record(1, self.config.noise_std, x)
        return x


class Spectrum:
    """L and Lᵀ of the image model, for images like ``x``."""

    def __init__(self, config: WienerConfig, x: Tensor) -> None:
        powers = config.power if isinstance(config.power, tuple) else (config.power,)
        self.axes: Tensor | None = None
        if len(powers) == 3 and x.shape[1] == 3:
            axes = torch.tensor([[1.0, 1, 1], [1, 0, -1], [1, -2, 1]]).to(x)
            self.axes = axes / axes.norm(dim=1, keepdim=True)
        else:
            powers = (sum(powers) / len(powers),)
        fy, fx = (torch.arange(n, device=x.device).to(x) / (2 * n) for n in x.shape[-2:])
        square = fy[:, None] ** 2 + fx[None, :] ** 2 + config.corner**2
        self.std = (x.new_tensor(powers)[:, None, None] / square).sqrt()

    def colour(self, w: Tensor) -> Tensor:
        """L w: from white coefficients to an image."""
        x = idct2(self.std * w)
        return x if self.axes is None else torch.einsum("ij,bihw->bjhw", self.axes, x)

    def whiten(self, x: Tensor) -> Tensor:
        """Lᵀ x."""
        if self.axes is not None:
            x = torch.einsum("ij,bjhw->bihw", self.axes, x)
        return self.std * dct2(x)
