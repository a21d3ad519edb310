"""The scalings against the table of docs/method.md §4."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ddpm import ALPHA_BAR, LEVELS
from golden import gen
from pnpcm import ConsistencyModel, DiffusionModel
from pnpcm.errors import ArgumentError
from pnpcm.priors.base import consistency_scalings, edm_scalings

ROWS = [
    (0.002, 1.000000, 0.000000, 1.999984, -1553.65202),
    (0.01, 0.999744, 0.007998, 1.999600, -1151.29255),
    (0.05, 0.990868, 0.047762, 1.990074, -748.93307),
    (0.1, 0.963005, 0.096097, 1.961161, -575.64627),
    (0.17644, 0.891490, 0.164498, 1.886017, -433.69360),
    (0.5, 0.502004, 0.352139, 1.414214, -173.28680),
    (1.0, 0.200641, 0.446319, 0.894427, 0.00000),
    (80.0, 0.000039, 0.499978, 0.012500, 1095.50666),
]


@pytest.mark.parametrize("row", ROWS)
def test_consistency_scalings(row: tuple[float, ...]) -> None:
    c = consistency_scalings(torch.tensor(row[0], dtype=torch.float64))
    assert [float(v) for v in c[:3]] == pytest.approx(row[1:4], abs=6e-7)
    assert float(c.c_noise) == pytest.approx(row[4], abs=6e-6)


def test_edm_scalings_are_those_of_karras() -> None:
    sigma = torch.tensor([0.002, 0.5, 80.0], dtype=torch.float64)
    c = edm_scalings(sigma)
    assert torch.allclose(c.c_skip, 0.25 / (sigma**2 + 0.25))
    assert torch.allclose(c.c_out, 0.5 * sigma / (sigma**2 + 0.25).sqrt())
    assert torch.allclose(c.c_in, (sigma**2 + 0.25) ** -0.5)
    assert torch.allclose(c.c_noise, 250 * sigma.log())


class Recorder:
    """F(x, c_noise) = c_noise everywhere; stores its arguments."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def __call__(self, x: Tensor, c_noise: Tensor) -> Tensor:
        self.told += c_noise.tolist()
        return c_noise.to(x.dtype)[:, None, None, None].expand_as(x)


# ln 0.002 = −6.2146081, ln 0.5 = −0.69314718, ln 80 = 4.3820266
TOLD = {
    "openai": [-1553.65202, -173.28680, 1095.50666],
    "edm": [-1.55365202, -0.17328680, 1.09550666],
}
PRIORS: dict[str, Callable[..., ConsistencyModel | DiffusionModel]] = {
    "consistency": ConsistencyModel,
    "edm": DiffusionModel,
}


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("c_noise", TOLD)
def test_each_convention_tells_the_network_its_number(c_noise: str, kind: str) -> None:
    network = Recorder()
    prior = PRIORS[kind](network, c_noise=c_noise)
    assert prior.c_noise == c_noise
    x = torch.ones((3, 1, 2, 2), dtype=torch.float64)
    prior(x, torch.tensor([0.002, 0.5, 80.0], dtype=torch.float64))
    assert network.told == pytest.approx(TOLD[c_noise], rel=1e-7)
    assert PRIORS[kind](network).c_noise == "openai"
    with pytest.raises(ArgumentError, match=r"'openai' \(250 ln σ\) or 'edm' .*got 'karras'"):
        PRIORS[kind](network, c_noise="karras")


def test_an_edm_network_of_nvlabs_as_a_denoiser() -> None:
    """At σ = σ_data = ½: c_skip = ½, c_out = 1/√8; D = ½ x + c_noise/√8."""
    x = torch.full((1, 1, 2, 2), 0.6, dtype=torch.float64)
    for c_noise, expected in (("edm", 0.2387338660), ("openai", -60.9661340)):
        out = DiffusionModel(Recorder(), c_noise=c_noise)(x, 0.5)
        assert out.flatten().tolist() == pytest.approx([expected] * 4, rel=1e-8)


def test_a_separate_level_for_the_network_follows_the_convention() -> None:
    network = Recorder()
    ConsistencyModel(network, c_noise="edm")(torch.zeros(1, 1, 2, 2), 0.5, time_sigma=80.0)
    assert network.told == pytest.approx([1.09550666], rel=1e-6)


def test_vp_networks_are_told_an_index_and_take_no_convention() -> None:
    network = Recorder()
    assert DiffusionModel(network, kind="vp").c_noise is None
    with pytest.raises(ArgumentError, match="takes its index in the DDPM table; leave c_noise out"):
        DiffusionModel(network, kind="vp", c_noise="openai")


def test_a_zero_network_leaves_the_skip_path() -> None:
    prior = ConsistencyModel(lambda x, c: torch.zeros_like(x))
    x = torch.randn((2, 3, 8, 8), generator=gen())
    assert torch.allclose(prior(x, 0.5), 0.502004 * x, atol=1e-6)
    assert torch.equal(prior(x, 0.002), x)


def test_levels_per_image() -> None:
    prior = ConsistencyModel(lambda x, c: torch.tanh(x + c[:, None, None, None] / 100))
    x = torch.randn((2, 3, 8, 8), generator=gen())
    both = prior(x, torch.tensor([0.1, 2.0]))
    assert torch.allclose(both[:1], prior(x[:1], 0.1), atol=1e-6)
    assert torch.allclose(both[1:], prior(x[1:], 2.0), atol=1e-6)


def test_vp_network_as_denoiser() -> None:
    """D(x, s) = (x_vp − √(1−ᾱ) ε)/√ᾱ with x_vp = √ᾱ x (docs/methods/README.md), on table levels."""
    from pnpcm.priors.diffusion import vp_index

    def network(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.sin(x + t[:, None, None, None]), 100 * x], dim=1)

    prior = DiffusionModel(network, kind="vp")
    x = torch.randn((1, 3, 8, 8), generator=gen(), dtype=torch.float64)
    levels = {0: 0.0100, 10: 0.0469, 100: 0.342, 500: 3.44, 929: 79.5, 999: 157.4}
    for index, level in levels.items():
        assert LEVELS[index] == pytest.approx(level, rel=5e-3)
        sigma, bar = LEVELS[index], ALPHA_BAR[index]
        assert float(vp_index(torch.tensor([sigma], dtype=torch.float64))) == pytest.approx(index)
        x_vp = bar**0.5 * x
        noise = torch.sin(x_vp + index)
        expected = (x_vp - (1 - bar) ** 0.5 * noise) / bar**0.5
        assert torch.allclose(prior(x, sigma), expected, rtol=1e-6, atol=1e-6)
    assert (prior.sigma_min, prior.sigma_max) == pytest.approx((0.01, 157.4), rel=1e-3)
