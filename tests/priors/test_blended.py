"""BlendedPrior: a mean of two priors, on the levels that both have."""

import pytest
import torch

from golden import gen
from pnpcm import GaussianPrior
from pnpcm.errors import ArgumentError
from pnpcm.priors import BlendedPrior
from pnpcm.rng import randn_like


def test_the_mean_of_a_gaussian_denoiser_and_its_consistency_function() -> None:
    """D = S²/(S² + σ²) x and f = √((S² + σ_min²)/(S² + σ²)) x for a zero mean, by hand."""
    denoiser, flow = (GaussianPrior(0.0, 0.5, kind=kind) for kind in ("edm", "consistency"))
    x = randn_like(torch.zeros(2, 3, 4, 5, dtype=torch.float64), gen())
    found = BlendedPrior(denoiser, flow, 0.25)(x, 1.2)
    power = 0.5**2 + 1.2**2
    factor = 0.75 * 0.5**2 / power + 0.25 * ((0.5**2 + flow.sigma_min**2) / power) ** 0.5
    assert torch.allclose(found, factor * x, rtol=1e-6)


def test_costs_levels_and_refusals() -> None:
    denoiser, flow = (GaussianPrior(0.0, 0.5, kind=kind) for kind in ("edm", "consistency"))
    both = BlendedPrior(denoiser, flow, 0.5)
    assert both.nfe_per_call == 2
    assert both.sigma_min == max(denoiser.sigma_min, flow.sigma_min)
    assert both.sigma_max == min(denoiser.sigma_max, flow.sigma_max)
    with pytest.raises(ArgumentError, match=r"share is 1\.5"):
        BlendedPrior(denoiser, flow, 1.5)
