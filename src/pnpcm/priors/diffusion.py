"""Diffusion models as denoisers D(x, σ) ≈ E[x₀ | x₀ + σn = x]: EDM and VP (DDPM) networks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pnpcm.core import ValueRange
from pnpcm.errors import ArgumentError
from pnpcm.linalg import expand
from pnpcm.priors.base import (
    Network,
    NetworkPrior,
    check_c_noise,
    check_sigma_data,
    edm_scalings,
    levels,
)
from pnpcm.priors.consistency import SmoothNetwork
from pnpcm.schedules import vp_levels


class DiffusionModel(NetworkPrior):
    r"""The denoiser of a diffusion network, a ``Prior``.

    ``kind="edm"``: D(x, σ) = c_skip x + c_out F(c_in x, c_noise(σ)), Karras et al. (2022).
    ``c_noise``: "openai" (250 ln σ, the default) or "edm" (ln σ / 4, NVlabs' networks), see
    ``precond``.

    ``kind="vp"``: ε-prediction on the discrete DDPM table with β linear from 1e-4 to 0.02,
    D(x, σ) = x − σ ε(x/√(1+σ²), t(σ)), where t is the (fractional) index whose level
    √((1 − ᾱ_t)/ᾱ_t) is σ; it takes no ``c_noise``. Outputs beyond the image channels (a learned
    variance) are dropped.
    """

    def __init__(
        self,
        network: Network,
        *,
        kind: str = "edm",
        sigma_data: float = 0.5,
        sigma_min: float | None = None,
        sigma_max: float | None = None,
        value_range: ValueRange = (-1.0, 1.0),
        any_size: bool = False,
        c_noise: str | None = None,
    ) -> None:
        if kind not in ("edm", "vp"):
            raise ArgumentError(f"kind must be 'edm' or 'vp', got {kind!r}")
        if kind == "vp" and c_noise is not None:
            raise ArgumentError(
                f"c_noise is {c_noise!r}, but a network of kind 'vp' takes its index in the DDPM "
                "table; leave c_noise out"
            )
        table = vp_levels()
        low, high = (0.002, 80.0) if kind == "edm" else (table[0], table[-1])
        super().__init__(
            network,
            sigma_min=low if sigma_min is None else sigma_min,
            sigma_max=high if sigma_max is None else sigma_max,
            value_range=value_range,
            any_size=any_size,
        )
        self.kind = kind
        self.sigma_data = check_sigma_data(sigma_data)
        self.c_noise: str | None = None
        if kind == "edm":
            self.c_noise = check_c_noise("openai" if c_noise is None else c_noise)

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        level = levels(sigma, x)
        return self._edm(x, level) if self.kind == "edm" else self._vp(x, level)

    def _edm(self, x: Tensor, level: Tensor) -> Tensor:
        assert self.c_noise is not None  # of kind "edm"
        c = edm_scalings(level, self.sigma_data, c_noise=self.c_noise)
        c_skip, c_out, c_in = (expand(s.to(x.dtype), x) for s in c[:3])
        return c_skip * x + c_out * self.run_network(c_in * x, c.c_noise)[:, : x.shape[1]]

    def _vp(self, x: Tensor, level: Tensor) -> Tensor:
        s = expand(level.to(x.dtype), x)
        noise = self.run_network(x / torch.sqrt(1 + s**2), vp_index(level))
        return x - s * noise[:, : x.shape[1]]

    @classmethod
    def example(cls) -> DiffusionModel:
        """A tiny prior with a fixed smooth network, for the laws."""
        return cls(SmoothNetwork())


def vp_index(sigma: Tensor) -> Tensor:
    """Index t(σ) in the DDPM table, linear in ln σ between its entries and exact on them."""
    table = np.log(vp_levels())
    index = np.interp(np.log(sigma.detach().cpu().double().numpy()), table, np.arange(len(table)))
    return torch.as_tensor(index, dtype=sigma.dtype, device=sigma.device)
