"""PSNR by hand; PSNR and SSIM against scikit-image."""

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from golden import gen, image
from pnpcm.metrics import psnr, ssim, ssim_gaussian


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


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_psnr_and_both_ssim_are_scikit_images(channels: int, dtype: torch.dtype) -> None:
    """On random images, with values outside of [-1, 1] that are clamped."""
    x_true = torch.rand((3, channels, 37, 52), generator=gen(1), dtype=dtype) * 2 - 1
    noise = torch.randn(x_true.shape, generator=gen(2), dtype=dtype)
    x = x_true + torch.tensor([0.02, 0.2, 1.0], dtype=dtype).reshape(3, 1, 1, 1) * noise
    assert x.abs().max() > 1
    pairs = [
        tuple(((t[i].double().clamp(-1, 1) + 1) / 2).numpy() for t in (x_true, x)) for i in range(3)
    ]
    theirs = [peak_signal_noise_ratio(a, b, data_range=1) for a, b in pairs]
    rounding = {"rel": 1e-6} if dtype == torch.float32 else {"abs": 1e-6}  # 30 dB ± 2e-6 in float32
    assert psnr(x, x_true).tolist() == pytest.approx(theirs, **rounding)
    theirs = [structural_similarity(a, b, data_range=1, channel_axis=0) for a, b in pairs]
    assert ssim(x, x_true).tolist() == pytest.approx(theirs, abs=1e-6)
    theirs = [
        structural_similarity(
            a,
            b,
            data_range=1,
            channel_axis=0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        for a, b in pairs
    ]
    assert ssim_gaussian(x, x_true).tolist() == pytest.approx(theirs, abs=1e-6)
