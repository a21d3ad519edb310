"""CoSIGN: its levels, its soft and hard constraint by hand, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from golden import TINY
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.networks import UNet
from pnpcm.networks.control import ControlNet
from pnpcm.operators import (
    JPEG,
    GaussianBlur,
    Inpainting,
    SuperResolution,
    measure,
)
from pnpcm.priors import ConsistencyModel, GaussianPrior
from pnpcm.priors.controlled import ControlledModel
from pnpcm.rng import generators, randn_like
from pnpcm.solvers.base import back_projection
from pnpcm.solvers.cosign import CoSIGN, CoSIGNConfig

S_MIN = 0.002


class Hinted:
    """f(x, σ, h) = 0.8 h + 0.3 tanh(x/σ): a known function of all arguments."""

    kind, takes_hint = "consistency", True
    value_range, sigma_min, sigma_max, nfe_per_call = (-1.0, 1.0), S_MIN, 80.0, 1

    def __init__(self, **task: Any) -> None:
        self.info = {"control": {"task": task}} if task else {}
        self.calls: list[tuple[float, Tensor]] = []

    def __call__(self, x: Tensor, sigma: float, *, hint: Tensor) -> Tensor:
        self.calls.append((sigma, hint))
        return 0.8 * hint + 0.3 * torch.tanh(x / sigma)


def problem() -> tuple[SuperResolution, Tensor]:
    operator = SuperResolution((3, 16, 16), 4)
    g = torch.Generator().manual_seed(0)
    x = torch.rand((2, 3, 16, 16), generator=g, dtype=torch.float64) * 2 - 1
    return operator, measure(operator, x, 0.05, generator=g)


def by_hand(
    config: CoSIGNConfig, operator: SuperResolution, y: Tensor
) -> tuple[Tensor, list[float]]:
    """The loop as docs/methods/cosign.md writes it."""
    gens = generators((5, 6))
    hint = operator.A_dagger(y)
    x = config.sigmas[0] * randn_like(torch.zeros(2, 3, 16, 16, dtype=torch.float64), gens)
    strengths = []
    for t, t2 in zip(config.sigmas, (*config.sigmas[1:], S_MIN), strict=True):
        x0 = (0.8 * hint + 0.3 * torch.tanh(x / t)).clamp(-1, 1)
        gam = t2
        if config.hard:
            lam = 1.0 if t2 >= config.noise_std else t2 / config.noise_std
            lam = lam if config.kappa is None else config.kappa
            gam = math.sqrt(t2**2 - config.noise_std**2) if t2 > config.noise_std else 0.0
            x0 = (x0 + lam * (operator.A_dagger(y) - operator.A_dagger(operator.A(x0)))).clamp(
                -1, 1
            )
            strengths.append(lam)
        spread = math.sqrt(max(gam, S_MIN) ** 2 - S_MIN**2)
        x = x0 + spread * randn_like(x0, gens) if spread > 0 else x0
    return x, strengths


def test_default_levels() -> None:
    assert CoSIGNConfig().sigmas == pytest.approx((80.0, 16.8, 4.37, 0.47), rel=5e-3)


@pytest.mark.parametrize(
    "config",
    [CoSIGNConfig(), CoSIGNConfig(hard=True), CoSIGNConfig(hard=True, kappa=0.3),
     CoSIGNConfig(sigmas=(80.0, 0.3, 0.05), hard=True)],
    ids=["soft", "hard", "kappa", "below the noise"],
)  # fmt: skip
def test_it_is_the_published_loop(config: CoSIGNConfig) -> None:
    operator, y = problem()
    prior = Hinted()
    result = CoSIGN(prior, config)(y, operator, generator=generators((5, 6)))
    expected, strengths = by_hand(config, operator, y)
    assert torch.allclose(result.x, expected, atol=1e-10)
    assert result.nfe == config.nfe == len(config.sigmas)
    assert result.vjps == 0
    assert [sigma for sigma, _ in prior.calls] == list(config.sigmas)
    assert all(torch.equal(hint, operator.A_dagger(y)) for _, hint in prior.calls)
    if config.hard and config.kappa is None:
        assert strengths[-1] == pytest.approx(0.02)  # the output is nearly the network's own


def test_strength_of_the_hard_constraint() -> None:
    config = CoSIGNConfig(noise_std=0.1)
    assert [config.strength(s) for s in (80.0, 0.1, 0.05, S_MIN)] == [1, 1, 0.5, 0.02]
    assert CoSIGNConfig(noise_std=0.05).strength(S_MIN) == pytest.approx(0.04)
    assert CoSIGNConfig(noise_std=0.0).strength(S_MIN) == 1
    assert CoSIGNConfig(kappa=0.7).strength(S_MIN) == 0.7


def test_without_noise_the_hard_constraint_holds() -> None:
    operator, _ = problem()
    x = torch.rand((1, 3, 16, 16), generator=torch.Generator().manual_seed(3)) - 0.5
    y = operator.A(x)
    config = CoSIGNConfig(hard=True, noise_std=0.0, clamp=False)
    result = CoSIGN(Hinted(), config)(y, operator, generator=generators([0]))
    assert torch.allclose(operator.A(result.x), y, atol=1e-5)
    soft = CoSIGN(Hinted(), CoSIGNConfig(clamp=False))(y, operator, generator=generators([0]))
    assert not torch.allclose(operator.A(soft.x), y, atol=1e-2)


def test_four_evaluations_of_a_real_network() -> None:
    operator, y = problem()
    prior = ControlledModel.example()
    result = CoSIGN(prior, CoSIGNConfig())(y.float(), operator, generator=generators((0, 1)))
    assert result.nfe == 4
    assert result.x.shape == (2, 3, 16, 16)
    assert result.x.abs().max() <= 1


def test_hints_are_images() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand((2, 3, 8, 8), generator=g)
    mask = Inpainting.random((8, 8), missing=0.7, generator=g)
    for operator in (mask, GaussianBlur((3, 8, 8), 3, 1.0), JPEG(10)):
        y = operator.A(x)
        assert torch.equal(back_projection(operator, y), y)
    small = SuperResolution((3, 8, 8), 2)
    assert torch.equal(back_projection(small, small.A(x)), small.A_dagger(small.A(x)))


def test_refusals() -> None:
    operator, y = problem()
    plain = GaussianPrior(torch.zeros(()), torch.ones(()), kind="consistency")
    with pytest.raises(ArgumentError, match=r"takes no hint.*control=PATH.*pnpcm train cosign"):
        CoSIGN(plain, CoSIGNConfig())
    with pytest.raises(OperatorError, match="is not linear"):
        CoSIGN(Hinted(), CoSIGNConfig())(y, JPEG(10), generator=generators((0, 1)))
    blur = Hinted(operator="gaussian-blur", options={"size": 5, "sigma": 10.0}, sigma_y=0.05)
    with pytest.raises(OperatorError, match="was trained for 'gaussian-blur'"):
        CoSIGN(blur, CoSIGNConfig())(y, operator, generator=generators((0, 1)))
    y5 = torch.zeros(1, 3, 8, 8)
    CoSIGN(blur, CoSIGNConfig())(y5, GaussianBlur((3, 8, 8)), generator=generators([0]))
    with pytest.raises(OperatorError, match=r"trained for sigma 10\.0, this has 1\.0"):
        CoSIGN(blur, CoSIGNConfig())(y5, GaussianBlur((3, 8, 8), 5, 1.0))
    twice = Hinted(operator="superresolution", options={"factor": 2})
    with pytest.raises(OperatorError, match="trained for factor 2, this has 4; train one"):
        CoSIGN(twice, CoSIGNConfig())(y, operator, generator=generators((0, 1)))
    holes = Hinted(operator="inpainting", options={"missing": 0.7})  # any mask will do
    CoSIGN(holes, CoSIGNConfig())(y5, Inpainting(torch.ones(8, 8)), generator=generators([0]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sigmas": ()}, "sigmas must decrease"),
        ({"sigmas": (1.0, 2.0)}, "sigmas must decrease"),
        ({"sigmas": (1.0, 0.002)}, "end above 0.002"),
        ({"sigmas": (math.inf, 1.0)}, "sigmas must decrease"),
        ({"noise_std": -0.1}, "noise_std must be ≥ 0"),
        ({"kappa": 1.5}, r"kappa must lie in \[0, 1\]"),
    ],
)
def test_bad_configurations(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        CoSIGNConfig(**fields)


def test_it_answers_to_the_network_it_was_given() -> None:
    """The hint of a network's own channels: two-channel images work like colour ones."""
    network = UNet(replace(TINY, in_channels=2))
    prior = ControlledModel(ConsistencyModel(network), ControlNet.beside(network))
    y = torch.zeros(1, 2, 8, 8)
    operator = Inpainting(torch.ones(8, 8))
    assert CoSIGN(prior, CoSIGNConfig())(y, operator, generator=generators([0])).nfe == 4
