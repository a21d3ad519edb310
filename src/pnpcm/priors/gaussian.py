"""Gaussian priors in closed form, without weights, for tests of solvers."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.core import ValueRange
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import expand
from pnpcm.priors.base import check_image, levels
from pnpcm.transforms import dct2, idct2

KINDS = ("consistency", "edm")


class GaussianPrior:
    r"""Independent Gaussian coordinates N(m, S²), in the pixel basis.

    .. math::
        \text{consistency:}\quad f(x, \sigma) &= m + (x - m)\sqrt{(S^2 + \sigma_{min}^2) /
        (S^2 + \sigma^2)} \\
        \text{edm:}\quad D(x, \sigma) &= m + (x - m)\, S^2 / (S^2 + \sigma^2)

    The first is the exact solution of the probability-flow ODE down to σ_min, the second the
    exact posterior mean. ``mean`` and ``std`` broadcast against ``(B, C, H, W)``.
    """

    nfe_per_call = 1

    def __init__(
        self,
        mean: Tensor | float = 0.0,
        std: Tensor | float = 0.5,
        *,
        kind: str = "consistency",
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        value_range: ValueRange = (-1.0, 1.0),
    ) -> None:
        if kind not in KINDS:
            raise ArgumentError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self.mean, self.std = (torch.as_tensor(t).detach().clone() for t in (mean, std))
        if not bool((self.std >= 0).all()):
            raise ArgumentError(f"std must be ≥ 0, got a minimum of {float(self.std.min()):g}")
        self.kind, self.value_range = kind, value_range
        self.sigma_min, self.sigma_max = float(sigma_min), float(sigma_max)

    @classmethod
    def example(cls) -> GaussianPrior:
        """A small prior for the laws."""
        return cls(0.1, 0.4)

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        self._check(x)
        level = expand(levels(sigma, x).to(x.dtype), x)
        mean = self.mean.to(x)
        return mean + self._synthesise(self.shrink(x, level) * self._analyse(x - mean))

    def _check(self, x: Tensor) -> None:
        check_image(x)
        for name, value in (("mean", self.mean), ("std", self.std)):
            sides = zip(reversed(value.shape), reversed(x.shape), strict=False)
            if value.ndim > x.ndim or any(n not in (1, side) for n, side in sides):
                raise ShapeError(
                    f"x has shape {tuple(x.shape)}, the prior's {name} {tuple(value.shape)}; "
                    "build the prior for this image size"
                )

    def shrink(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Factor on each coefficient; its largest value is the Lipschitz constant of the prior."""
        variance = self._std(x).to(x) ** 2
        if self.kind == "edm":
            return variance / (variance + sigma**2)
        return ((variance + self.sigma_min**2) / (variance + sigma**2)).sqrt()

    def _std(self, x: Tensor) -> Tensor:
        return self.std

    def _analyse(self, x: Tensor) -> Tensor:
        return x

    def _synthesise(self, c: Tensor) -> Tensor:
        return c


class StationaryGaussianPrior(GaussianPrior):
    r"""Gaussian images of any size with a 1/f² power spectrum, and decorrelated colours.

    .. math:: S^2(f) = p / (f^2 + f_0^2), \quad f \text{ in cycles per pixel}

    diagonal in the cosine basis (stationary up to mirrored borders). ``power``: one number for
    every channel, or three for the axes grey, red−blue, green−magenta of RGB images. The
    defaults were fitted by eye to the mean spectrum of 300 photographs at 256×256 in [-1, 1].
    """

    RGB_POWER = (0.012, 8e-4, 2e-4)

    def __init__(
        self,
        power: float | tuple[float, float, float] = RGB_POWER,
        *,
        corner: float = 0.0015,
        mean: float = -0.1,
        kind: str = "consistency",
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        value_range: ValueRange = (-1.0, 1.0),
    ) -> None:
        super().__init__(
            mean, kind=kind, sigma_min=sigma_min, sigma_max=sigma_max, value_range=value_range
        )
        powers = power if isinstance(power, tuple) else (power,)
        if not (corner > 0 and all(p > 0 for p in powers)):
            raise ArgumentError(f"power and corner must be positive, got {power} and {corner}")
        self.power, self.corner = power, corner
        axes = torch.tensor([[1.0, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64)
        self.axes = axes / axes.norm(dim=1, keepdim=True)

    @classmethod
    def example(cls) -> StationaryGaussianPrior:
        """The prior with default parameters."""
        return cls()

    def _std(self, x: Tensor) -> Tensor:
        fy, fx = (
            torch.arange(n, dtype=torch.float64, device=x.device) / (2 * n) for n in x.shape[-2:]
        )
        square = fy[:, None] ** 2 + fx[None, :] ** 2
        return (self._channel_power(x)[:, None, None] / (square + self.corner**2)).sqrt()

    def _channel_power(self, x: Tensor) -> Tensor:
        if isinstance(self.power, float | int):
            power: tuple[float, ...] = (float(self.power),)
        elif x.shape[1] == 3:
            power = self.power
        else:  # a single channel has its share of the grey axis
            power = (sum(self.power) / 3,)
        return torch.tensor(power, dtype=torch.float64, device=x.device)

    def _mix_colours(self, x: Tensor) -> bool:
        return isinstance(self.power, tuple) and x.shape[1] == 3

    def _analyse(self, x: Tensor) -> Tensor:
        if self._mix_colours(x):
            x = torch.einsum("ij,bjhw->bihw", self.axes.to(x), x)
        return dct2(x)

    def _synthesise(self, c: Tensor) -> Tensor:
        x = idct2(c)
        if self._mix_colours(x):
            x = torch.einsum("ij,bihw->bjhw", self.axes.to(x), x)
        return x
