"""Distance of an image from training images."""

import math

import pytest
import torch
from torch import Tensor

from pnpcm.errors import ShapeError
from pnpcm.metrics.domain import LEAST_SIDE, Domain, fit_domain, statistics


def clouds(seed: int, size: tuple[int, int] = (96, 80), channels: int = 3) -> Tensor:
    """Gaussian noise with a 1/f spectrum in [-1, 1]: an image of a domain of its own."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.fft.fft2(torch.randn(channels, *size, generator=generator))
    f = torch.hypot(torch.fft.fftfreq(size[0])[:, None], torch.fft.fftfreq(size[1]))
    x = torch.fft.ifft2(spectrum / (f + 0.02)).real
    return (x / x.std() / 3).clamp(-1, 1)


@pytest.fixture(scope="module")
def domain() -> Domain:
    return fit_domain(clouds(seed) for seed in range(400))


def test_images_of_the_domain_are_inside_it(domain: Domain) -> None:
    outside = [float(domain.distance(clouds(seed)) or 0) > domain.limit for seed in range(500, 560)]
    assert sum(outside) <= 1


@pytest.mark.parametrize("kind", ["flat squares", "white noise", "grey", "one bright corner"])
def test_other_images_are_outside(domain: Domain, kind: str) -> None:
    x = clouds(900)
    if kind == "flat squares":
        x = torch.kron(torch.randn(3, 6, 5, generator=torch.Generator()), torch.ones(1, 16, 16)) / 3
    if kind == "white noise":
        x = torch.randn(3, 96, 80, generator=torch.Generator()) / 3
    if kind == "grey":
        x = x.mean(0).expand(3, -1, -1)
    if kind == "one bright corner":
        x = x / 20 - 0.9
        x[:, :20, :20] += 1.5
    assert float(domain.distance(x) or 0) > domain.limit


def test_the_distance_is_that_of_mahalanobis() -> None:
    """Worked out by hand: statistic 0 is 2 from its mean with variance 4, statistic 1 is 1/2
    from its own with variance 1/4, the others have no weight: d² = (4 · ¼ + ¼ · 4) / n.
    """
    x = clouds(5)
    f = [float(v) for v in statistics(x)]
    mean = (f[0] - 2, f[1] + 0.5, *f[2:])
    weights = {0: 0.25, 1: 4.0}
    rows = [[weights.get(i, 0.0) * (i == j) for j in range(len(f))] for i in range(len(f))]
    domain = Domain(mean, tuple(map(tuple, rows)), limit=1.0)
    assert domain.distance(x) == pytest.approx(math.sqrt(2 / len(f)), rel=1e-4)


def test_statistics_do_not_depend_on_the_scale_of_complex_images() -> None:
    x = clouds(3, channels=2)
    torch.testing.assert_close(statistics(x), statistics(7 * x), atol=1e-4, rtol=1e-4)
    turned = torch.view_as_complex(x.permute(1, 2, 0).contiguous()) * torch.tensor(1j)
    turned = torch.view_as_real(turned).permute(2, 0, 1)
    torch.testing.assert_close(statistics(x), statistics(turned), atol=1e-5, rtol=1e-5)


def test_a_domain_is_stored_as_json(domain: Domain) -> None:
    x = clouds(7)
    assert Domain.from_dict(domain.to_dict()) == domain
    assert domain.distance(x) == Domain.from_dict(domain.to_dict()).distance(x)


def test_small_images_and_other_channels_are_not_judged(domain: Domain) -> None:
    assert domain.distance(clouds(1, (LEAST_SIDE - 1, 80))) is None
    assert domain.distance(clouds(1, channels=2)) is None
    with pytest.raises(ShapeError, match="expected"):
        statistics(torch.zeros(4, 64, 64))
    with pytest.raises(ShapeError, match="hundreds"):
        fit_domain([])
