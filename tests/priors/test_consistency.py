"""The noise level passed to a consistency network."""

import torch

from golden import gen
from pnpcm import ConsistencyModel


def test_time_sigma_reaches_the_network_alone() -> None:
    def network(x: torch.Tensor, c_noise: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + c_noise[:, None, None, None] / 100)

    prior = ConsistencyModel(network)
    x = torch.randn((2, 1, 4, 4), generator=gen()).double()
    assert torch.equal(prior(x, 0.5, time_sigma=None), prior(x, 0.5))
    assert torch.equal(prior(x, 0.5, time_sigma=0.5), prior(x, 0.5))
    c_skip = 0.25 / (0.498**2 + 0.25)
    c_out, c_in = 0.5 * 0.498 / 0.5**0.5, 0.5**-0.5
    time = 250 * torch.tensor([0.7, 2.0]).double().log()[:, None, None, None]
    expected = c_skip * x + c_out * torch.tanh(c_in * x + time / 100)
    told = prior(x, 0.5, time_sigma=torch.tensor([0.7, 2.0]))
    assert torch.allclose(told, expected, rtol=0, atol=1e-6)
