"""JPEG.project and JPEG.mean_in_cells: into the cells of a file, to the edge or to the mean."""

import numpy as np
import pytest
import torch
from scipy.stats import truncnorm
from torch import Tensor

from pnpcm.errors import OperatorError
from pnpcm.interop import from_denoiser
from pnpcm.operators import JPEG, Inpainting
from pnpcm.operators import jpeg_codec as codec
from pnpcm.solvers import CellMeanStep, PnPCM, PnPCMConfig, ProjectStep, StripStep


def smooth(channels: int = 3, side: int = 40, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    coarse = torch.rand((2, channels, 6, 6), generator=g) * 1.6 - 0.8
    return torch.nn.functional.interpolate(coarse, (side, side + 3), mode="bicubic").clamp(-1, 1)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("channels", [1, 3])
def test_result_lies_in_the_cells_of_y(subsampling: str, channels: int) -> None:
    operator = JPEG(10, subsampling=subsampling, chroma="libjpeg")
    y = operator.acquire(smooth(channels).double())
    v = smooth(channels, seed=1).double()
    # whole cells only: the replicated border is not the user's to move
    y, v = y[..., :32, :32], v[..., :32, :32]
    z = operator.project(v, y)
    off = (operator.cells(z) - operator.cells(y).round()).abs()
    assert float(off.max()) <= 0.5 + 1e-6
    assert torch.allclose(operator.project(z, y), z, atol=1e-9)
    assert float((operator.cells(v) - operator.cells(y).round()).abs().max()) > 1  # v was not


def test_the_true_image_stays_where_it_is() -> None:
    x = smooth().double()[..., :32, :32]
    operator = JPEG(5, subsampling="4:4:4", chroma="libjpeg")
    assert torch.allclose(operator.project(x, operator.acquire(x)), x, atol=1e-9)


def test_it_is_the_nearest_point_for_grey_images() -> None:
    """Projection onto a convex set: ⟨v − z, w − z⟩ ≤ 0 for every w in it."""
    operator = JPEG(10)
    x = smooth(1).double()[:1, :, :32, :32]
    y = operator.acquire(x)
    v = smooth(1, seed=2).double()[:1, :, :32, :32]
    z = operator.project(v, y)
    for seed in range(20):
        noise = torch.randn(v.shape, generator=torch.Generator().manual_seed(seed)).double()
        w = operator.project(x + 0.5 * noise, y)
        assert float(((v - z) * (w - z)).sum()) <= 1e-9


def test_decoded_files_tell_their_cells() -> None:
    """A decoded 4:4:4 image has whole coefficients, which determine the cells."""
    operator = JPEG(20, subsampling="4:4:4", chroma="libjpeg")
    cells = operator.cells(operator.acquire(smooth().double()[..., :32, :32]))
    assert float((cells - cells.round()).abs().max()) < 1e-6


def test_the_step_needs_an_operator_that_projects() -> None:
    x = smooth()
    operator = JPEG(5)
    y = operator.acquire(x)
    z = ProjectStep()(x, y, operator, 1.0, z_prev=None)
    assert torch.equal(z, operator.project(x, y))
    with pytest.raises(OperatorError, match="has no project"):
        ProjectStep()(x, y, Inpainting(torch.ones(40, 43)), 1.0, z_prev=None)


def test_a_run_can_start_at_the_picture() -> None:
    """With a prior that changes nothing the picture is a fixed point; from grey it is not found."""
    y = JPEG(10).acquire(smooth())
    prior = from_denoiser(lambda x, sigma: x, value_range=(-1.0, 1.0))
    for init, expected in (("z_start", True), ("zero", False)):
        config = PnPCMConfig(
            (0.1,), (0.0,), (1.0,), noise_scale=0.0, clamp=False, init=init, data_step=ProjectStep()
        )
        x = PnPCM(prior, config)(y, JPEG(10)).x
        assert torch.allclose(x, y, atol=1e-4) is expected


@pytest.mark.parametrize("std", [0.01, 0.2, 1.0, 30.0])
def test_the_mean_in_a_cell_is_that_of_scipy(std: float) -> None:
    d = torch.linspace(-4, 4, 41, dtype=torch.float64)
    k = torch.tensor(3.0, dtype=torch.float64)
    ours = codec.mean_in_cell(k + d, k, torch.tensor(std))
    a, b = (-0.5 - d.numpy()) / std, (0.5 - d.numpy()) / std
    theirs = 3 + truncnorm.mean(a, b, loc=d.numpy(), scale=std)
    inside = np.abs(d.numpy()) / std < 50  # beyond that scipy's own mean is inexact
    assert np.abs(ours.numpy() - theirs)[inside].max() < 1e-6
    assert float((ours - k).abs().max()) <= 0.5


@pytest.mark.parametrize("channels", [1, 3])
def test_the_mean_in_cells_lies_between_nearest_point_and_centre(channels: int) -> None:
    operator = JPEG(10, subsampling="4:4:4", chroma="libjpeg")
    y = operator.acquire(smooth(channels).double())[..., :32, :32]
    v = smooth(channels, seed=1).double()[..., :32, :32]
    k = operator.cells(y).round()
    nearest, centre = operator.project(v, y), operator.mean_in_cells(v, y, 1e6)
    assert torch.allclose(operator.mean_in_cells(v, y, 1e-9), nearest, atol=1e-3)
    assert torch.allclose(operator.cells(centre), k, atol=1e-5)
    cells = operator.cells(operator.mean_in_cells(v, y, 0.1))
    assert float((cells - k).abs().max()) < 0.5
    edge = (operator.cells(nearest) - k).abs() > 0.499
    assert bool(((cells - k).abs() < (operator.cells(nearest) - k).abs())[edge].all())


def test_the_mean_of_grey_images_is_that_of_many_draws() -> None:
    """E[z | z in the cells of y] for z ~ N(v, std²), by drawing z and keeping what rounds to y."""
    operator = JPEG(30)
    x = smooth(1).double()[:1, :, :8, :8]
    y = operator.acquire(x)
    v = operator.project(x + 0.02, y)
    std = 4 / 127.5
    g = torch.Generator().manual_seed(0)
    k = operator.cells(y).round()
    z = v + std * torch.randn((200_000, 1, 8, 8), generator=g, dtype=torch.float64)
    c = operator.cells(z).reshape(len(z), 64)
    inside = (c - k.reshape(1, 64)).abs() <= 0.5
    mean = (c * inside).sum(0) / inside.sum(0)  # coefficients are independent
    ours = operator.cells(operator.mean_in_cells(v, y, std)).flatten()
    assert float((ours - mean).abs().max()) < 0.01


def test_the_step_scales_with_the_rounding_error() -> None:
    """ρ = (e/σ)² is z ~ N(v, σ²); strips give the same; other operators are refused."""
    operator, x, v = JPEG(5), smooth(side=64), smooth(side=64, seed=1)
    y = operator.acquire(x)
    rho = (operator.rounding_std / 0.1) ** 2
    z = CellMeanStep()(v, y, operator, rho, z_prev=None)
    assert torch.allclose(z, operator.mean_in_cells(v, y, 0.1), atol=1e-6)
    strips = StripStep(CellMeanStep(), rows=16)(v, y, operator, rho, z_prev=None)
    assert torch.allclose(strips, z, atol=1e-5)
    with pytest.raises(OperatorError, match="has no mean_in_cells"):
        CellMeanStep()(x, y, Inpainting(torch.ones(64, 67)), 1.0, z_prev=None)
