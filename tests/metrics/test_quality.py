"""PSNR by hand, SSIM against scikit-image."""

import pytest
import torch
from skimage.metrics import structural_similarity

from golden import gen, image
from pnpcm.metrics import psnr, ssim


def test_psnr_of_a_known_error() -> None:
    x = torch.zeros(2, 3, 8, 8)
    x_noisy = x + torch.tensor([0.2, 0.02]).reshape(2, 1, 1, 1)
    assert psnr(x_noisy, x).tolist() == pytest.approx([20.0, 40.0], abs=1e-4)
    assert psnr(x + 5, x + 7).tolist() == [float("inf")] * 2  # both clamp to white
    assert psnr(x_noisy, x, value_range=(0, 1)).tolist() == pytest.approx(
        [13.979, 33.979], abs=1e-3
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_is_scikit_images(channels: int) -> None:
    x = image()[:, :channels, :60, :47]
    noise = torch.randn(x.shape, generator=gen(), dtype=torch.float64)
    other = (x + 0.2 * noise).clamp(-1, 1)
    ours = ssim(torch.cat([other, x]), torch.cat([x, x]))
    a, b = (((t[0] + 1) / 2).numpy() for t in (other, x))
    theirs = structural_similarity(a, b, data_range=1.0, channel_axis=0)
    assert ours.tolist() == pytest.approx([theirs, 1.0], abs=1e-9)
