"""Laws over every row of PRIORS, on its ``example()``: a prior of RGB images of 16×20."""

import pytest
import torch

from golden import gen, relative
from pnpcm import PRIORS
from pnpcm.counted import check_prior
from pnpcm.errors import ArgumentError
from pnpcm.rng import randn_like

KINDS = ("edm", "vp", "consistency")
OF_THE_PACKAGE = (
    *("consistency", "controlled", "diffusion", "gaussian"),
    *("gaussian-stationary", "gaussian-mixture", "tiled"),
)


@pytest.mark.parametrize("name", PRIORS)
def test_prior_law(name: str) -> None:
    prior = PRIORS[name].example()
    check_prior(prior)
    assert prior.kind in KINDS
    assert prior.value_range[0] < prior.value_range[1]
    assert 0 <= prior.sigma_min < prior.sigma_max
    x = randn_like(torch.zeros(3, 3, 16, 20), gen())
    before = x.clone()
    levels = torch.tensor([0.01, 0.5, 20.0]).clamp(prior.sigma_min, prior.sigma_max)
    together = prior(x, levels)
    for i in range(3):
        alone = prior(x[i : i + 1], float(levels[i]))
        assert relative(together[i : i + 1], alone) < 1e-5
    assert torch.equal(x, before)
    assert prior(x.double(), float(levels[1])).dtype == torch.float64
    if prior.kind == "consistency":  # it is never clamped, either: x leaves the range
        assert torch.allclose(prior(x, prior.sigma_min), x, atol=1e-6)
    with pytest.raises(ArgumentError, match="sigma"):
        prior(x, torch.tensor([0.1, 0.2]))
    with pytest.raises(ArgumentError, match="sigma must be ≥ 0"):
        prior(x, -0.1)


@pytest.mark.parametrize("name", OF_THE_PACKAGE)
def test_levels_and_range_of_our_examples(name: str) -> None:
    prior = PRIORS[name].example()
    assert (prior.sigma_min, prior.sigma_max) == (0.002, 80.0)
    assert prior.value_range == (-1.0, 1.0)
