"""Intensity conventions bring images of any scale to the same brightness."""

import pytest
import torch

from pnpcm.errors import ArgumentError
from pnpcm.mri import intensity_scale


def images() -> torch.Tensor:
    x = torch.randn(2, 2, 20, 20, generator=torch.Generator().manual_seed(0))
    return x * torch.tensor([1e-5, 300.0])[:, None, None, None]


@pytest.mark.parametrize(
    ("convention", "quantile", "level"),
    [("max", 1.0, 1.0), ("p99.5=0.8", 0.995, 0.8), ("p50=0.25", 0.5, 0.25)],
)
def test_scaled_images_follow_the_convention(
    convention: str, quantile: float, level: float
) -> None:
    x = images()
    scaled = x * intensity_scale(x, convention)[:, None, None, None]
    magnitude = scaled.square().sum(1).sqrt().flatten(1)
    assert torch.quantile(magnitude, quantile, dim=1).tolist() == pytest.approx(
        [level] * 2, rel=1e-5
    )


def test_no_signal_is_left_alone_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="no signal"):
        factor = intensity_scale(torch.zeros(1, 2, 4, 4), "p99.5=0.8")
    assert factor.tolist() == [1.0]


def test_bad_conventions_are_named() -> None:
    for convention in ("median", "p101=1", "p99.5"):
        with pytest.raises(ArgumentError, match="expected 'max' or"):
            intensity_scale(images(), convention)
    with pytest.raises(ArgumentError, match="expected \\(B, 2, H, W\\)"):
        intensity_scale(torch.zeros(1, 3, 4, 4), "max")
