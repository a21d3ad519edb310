"""SetsPrior: several images in the channels of one, compared with explicit sums."""

import pytest
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.priors import ConsistencyModel, SetsPrior, with_sets


class Mixing:
    """f(x, σ) = σ (x_imaginary, x_real + x_real(row above)): channels and pixels are mixed."""

    value_range, sigma_min, sigma_max, nfe_per_call = (-1.0, 1.0), 0.01, 5.0, 1

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        assert x.shape[1] == 2
        level = torch.as_tensor(sigma).reshape(-1, 1, 1)
        return torch.stack([level * x[:, 1], level * (x[:, 0] + x[:, 0].roll(1, -2))], 1)


def test_each_set_is_an_image_of_its_own() -> None:
    x = torch.randn((3, 6, 5, 4), generator=gen())
    before, sigma = x.clone(), torch.tensor([1.0, 0.5, 2.0])
    out = SetsPrior(Mixing(), 3)(x, sigma)
    for b in range(3):
        for m in range(3):
            real, imaginary = x[b, 2 * m], x[b, 2 * m + 1]
            torch.testing.assert_close(out[b, 2 * m], sigma[b] * imaginary)
            expected = sigma[b] * (real + real.roll(1, -2))
            torch.testing.assert_close(out[b, 2 * m + 1], expected)
    assert torch.equal(x, before)


def test_a_batch_is_its_images_and_one_level_serves_all() -> None:
    prior, x = SetsPrior.example(), torch.randn((3, 4, 8, 6), generator=gen())
    sigma = torch.tensor([0.1, 0.4, 1.0])
    batch = prior(x, sigma)
    for i in range(3):
        assert relative(batch[i : i + 1], prior(x[i : i + 1], float(sigma[i]))) < 1e-6
    assert relative(prior(x, torch.tensor(0.4)), prior(x, 0.4)) < 1e-6
    torch.testing.assert_close(prior(x, prior.sigma_min), x)


def test_one_set_needs_no_wrapper_and_members_are_those_inside() -> None:
    inner = ConsistencyModel.example()
    assert with_sets(inner, 1) is inner
    two = with_sets(inner, 2)
    assert isinstance(two, SetsPrior)
    assert (two.sigma_max, two.value_range) == (inner.sigma_max, inner.value_range)
    assert two.kind == "consistency"


def test_what_is_refused() -> None:
    with pytest.raises(ShapeError, match="x has 3 channels, which 2 sets"):
        SetsPrior.example()(torch.zeros(1, 3, 4, 4), 0.1)
    with pytest.raises(ArgumentError, match="sets is 0"):
        SetsPrior(Mixing(), 0)
