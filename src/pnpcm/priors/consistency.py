"""Consistency models: one evaluation takes any noise level to a clean image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pnpcm.core import ValueRange
from pnpcm.linalg import expand
from pnpcm.priors.base import (
    Network,
    NetworkPrior,
    check_c_noise,
    check_sigma_data,
    consistency_scalings,
    levels,
)


class ConsistencyModel(NetworkPrior):
    r"""The consistency function of a network F, a ``Prior``.

    .. math:: f_\theta(v, \sigma) = c_{skip}(\sigma)\, v + c_{out}(\sigma)\,
              F_\theta(c_{in}(\sigma)\, v,\ c_{noise}(\sigma)),
              \qquad f_\theta(v, \sigma_{min}) = v

    ``network(x, c_noise)`` is any module; ours is ``networks.UNet``. ``c_noise``: its noise input,
    "openai" (250 ln σ) or "edm" (ln σ / 4), see ``base``. Song et al. (2023), eq. 5.
    """

    kind = "consistency"

    def __init__(
        self,
        network: Network,
        *,
        sigma_data: float = 0.5,
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        value_range: ValueRange = (-1.0, 1.0),
        any_size: bool = False,
        c_noise: str = "openai",
    ) -> None:
        super().__init__(
            network,
            sigma_min=sigma_min,
            sigma_max=sigma_max,
            value_range=value_range,
            any_size=any_size,
        )
        self.sigma_data = check_sigma_data(sigma_data)
        self.c_noise = check_c_noise(c_noise)

    def forward(
        self, x: Tensor, sigma: float | Tensor, *, time_sigma: float | Tensor | None = None
    ) -> Tensor:
        """f(x, σ). ``time_sigma``: level of the noise input, if it differs from the scalings'."""
        c = consistency_scalings(
            levels(sigma, x), self.sigma_data, self.sigma_min, c_noise=self.c_noise
        )
        c_skip, c_out, c_in = (expand(s.to(x.dtype), x) for s in c[:3])
        c_noise = c.c_noise
        if time_sigma is not None:
            c_noise = consistency_scalings(levels(time_sigma, x), c_noise=self.c_noise).c_noise
        return c_skip * x + c_out * self.run_network(c_in * x, c_noise)[:, : x.shape[1]]

    @classmethod
    def example(cls) -> ConsistencyModel:
        """A tiny prior with a fixed smooth network, for the laws."""
        return cls(SmoothNetwork())


class SmoothNetwork(nn.Module):
    """A network without weights for tests and examples: F(x, c_noise) = tanh(x)."""

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        return torch.tanh(x)
