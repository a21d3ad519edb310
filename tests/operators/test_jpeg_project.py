"""JPEG.project: into the cells of a file, no further than needed, and back again."""

import pytest
import torch
from torch import Tensor

from pnpcm.errors import OperatorError
from pnpcm.interop import from_denoiser
from pnpcm.operators import JPEG, Inpainting
from pnpcm.solvers import PnPCM, PnPCMConfig, ProjectStep


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
