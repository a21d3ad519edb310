"""Samplers against the exact flow of a Gaussian."""

import pytest
import torch

from pnpcm.errors import ArgumentError
from pnpcm.priors import DenoiserPrior, GaussianPrior
from pnpcm.priors.generate import consistency_sample, heun_sample
from pnpcm.rng import generators

SHAPE = (64, 1, 8, 8)


def test_heun_reaches_the_end_of_the_flow() -> None:
    """For N(m, s²) data the flow maps 80 n to m + s (80 n − m)/√(s² + 80²), here to order 2."""
    prior = GaussianPrior(0.1, 0.4, kind="edm")
    start = 80 * torch.stack([torch.randn(SHAPE[1:], generator=g) for g in generators(range(64))])
    exact = 0.1 + (start - 0.1) * 0.4 / (0.4**2 + 80**2) ** 0.5
    errors = []
    for n in (20, 40):
        x = heun_sample(prior, SHAPE, generator=generators(range(64)), n_steps=n)
        errors.append(float((x - exact).abs().max()))
    assert errors[1] < 0.02
    assert errors[0] / errors[1] > 3  # second order: 4


@pytest.mark.parametrize("n_steps", [1, 2, 4])
def test_samples_of_a_consistency_model_have_the_data_s_moments(n_steps: int) -> None:
    x = consistency_sample(
        GaussianPrior(0.1, 0.2), SHAPE, generator=generators(range(64)), n_steps=n_steps
    )
    assert float(x.mean()) == pytest.approx(0.1, abs=0.02)
    assert float(x.std()) == pytest.approx(0.2, rel=0.05)


def test_samples_do_not_depend_on_the_batch() -> None:
    prior = GaussianPrior(0.1, 0.2)
    both = consistency_sample(prior, (2, 1, 4, 4), generator=generators([5, 6]), n_steps=3)
    alone = consistency_sample(prior, (1, 1, 4, 4), generator=generators([6]), n_steps=3)
    assert torch.equal(both[1:], alone)


def test_levels_must_fall() -> None:
    with pytest.raises(ArgumentError, match="sigmas must decrease"):
        consistency_sample(
            GaussianPrior(), (1, 1, 4, 4), generator=generators([0]), sigmas=(1.0, 2.0)
        )


@pytest.mark.parametrize(
    ("sigma_max", "value_range", "words"),
    [
        (50 / 255, (0.0, 1.0), r"sigma 0.001 … 0.196 \(images in \[0, 1\]\), not up to pure noise"),
        (4.0, (-1.0, 1.0), r"sigma 0.001 … 4 \(images in \[-1, 1\]\)"),
    ],
)
def test_denoisers_of_low_noise_cannot_be_sampled(
    sigma_max: float, value_range: tuple[float, float], words: str
) -> None:
    prior = DenoiserPrior(lambda x, _: x, sigma_max=sigma_max, value_range=value_range)
    for sample in (heun_sample, consistency_sample):
        with pytest.raises(ArgumentError, match=words) as refusal:
            sample(prior, (1, 3, 8, 8), generator=generators([0]), n_steps=2)
        assert "serve for restoration" in str(refusal.value)
