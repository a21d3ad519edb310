"""Grey images through a colour prior, against sums written out and on a photograph."""

import math
from importlib.resources import as_file, files

import pytest
import torch
from torch import Tensor

from golden import gen
from pnpcm import load_prior
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr
from pnpcm.priors import ConsistencyModel, GreyPrior


class Tinted:
    """f(x, σ) = (1, 2, 6) σ x, channel by channel."""

    value_range, sigma_min, sigma_max, nfe_per_call = (0.0, 1.0), 0.01, 5.0, 2

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        assert x.shape[1] == 3
        level = torch.as_tensor(sigma).reshape(-1, 1, 1, 1)
        return torch.tensor([1.0, 2.0, 6.0])[:, None, None] * level * x


def image() -> Tensor:
    return torch.randn((2, 1, 5, 7), generator=gen())


def test_three_equal_channels_go_in_and_their_mean_comes_out() -> None:
    x = image()
    before = x.clone()
    out = GreyPrior(Tinted())(x, torch.tensor([1.0, 0.5]))
    assert out.shape == x.shape
    factors = math.sqrt(3) * torch.tensor([3.0, 1.5])
    torch.testing.assert_close(out, factors[:, None, None, None] * x)
    assert torch.equal(x, before)


def test_a_consistency_model_keeps_its_boundary_condition() -> None:
    x, grey = image(), GreyPrior.example()
    torch.testing.assert_close(grey(x, grey.sigma_min), x)
    expected = ConsistencyModel.example()(x, math.sqrt(3) * 0.5)
    torch.testing.assert_close(grey(x, 0.5), expected)
    assert grey.kind == "consistency"


def test_it_has_the_face_of_the_prior_inside() -> None:
    grey = GreyPrior(Tinted())
    assert grey.value_range == (0.0, 1.0)
    assert (grey.sigma_min, grey.sigma_max) == pytest.approx((0.0057735, 2.8867513))
    assert grey.nfe_per_call == 2
    assert grey.info == {}
    assert not hasattr(grey, "kind")


@pytest.mark.parametrize(("sigma", "gain"), [(0.1, 4.5), (0.3, 8.0)])
def test_a_grey_photograph_is_denoised(sigma: float, gain: float) -> None:
    """As much as a colour one; at level σ instead of √3 σ the gain is 3 dB."""
    with as_file(files("pnpcm") / "data" / "friends_by_Aitzol_Berasategi.png") as path:
        x = read_image(path)[..., :128, :128].mean(1, keepdim=True)
    noisy = x + sigma * torch.randn(x.shape, generator=gen())
    denoised = GreyPrior(load_prior("natural"))(noisy, sigma)
    assert float(psnr(denoised, x)) > float(psnr(noisy, x)) + gain


def test_other_channels_are_refused() -> None:
    with pytest.raises(ShapeError, match="x has 3 channels, GreyPrior takes one"):
        GreyPrior.example()(torch.zeros(1, 3, 4, 4), 0.1)

    class Complex(torch.nn.Module):
        in_channels = 2

    with pytest.raises(ArgumentError, match="images of 2 channels, GreyPrior needs one for 3"):
        GreyPrior(ConsistencyModel(Complex()))
