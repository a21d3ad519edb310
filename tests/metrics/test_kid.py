"""KID against the estimate written out in NumPy, and its behaviour on known distributions."""

import numpy as np
import pytest
import torch

from golden import gen
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.metrics.kid import kid, vgg_features
from pnpcm.metrics.lpips import LPIPS, available

needs_weights = pytest.mark.skipif(not available(), reason="LPIPS weights are not installed")


def by_loops(a: np.ndarray, b: np.ndarray) -> float:
    """Bińkowski et al. (2018), eq. 4, pair by pair."""
    d, s = a.shape[1], len(a)

    def k(u: np.ndarray, v: np.ndarray) -> float:
        return (float(u @ v) / d + 1) ** 3

    pairs = [(i, j) for i in range(s) for j in range(s) if i != j]
    within = sum(k(a[i], a[j]) + k(b[i], b[j]) for i, j in pairs) / (s * (s - 1))
    return within - 2 * sum(k(u, v) for u in a for v in b) / s**2


def test_it_is_the_mean_of_the_unbiased_estimate_over_subsets() -> None:
    x = torch.randn(20, 5, generator=gen(1), dtype=torch.float64)
    x_true = torch.randn(24, 5, generator=gen(2), dtype=torch.float64) + 0.3
    found = kid(x, x_true, generator=gen(3), subsets=3)
    generator = gen(3)
    values = []
    for _ in range(3):
        a = x[torch.randperm(20, generator=generator)[:10]]
        b = x_true[torch.randperm(24, generator=generator)[:10]]
        values.append(by_loops(a.numpy(), b.numpy()))
    assert (found.subsets, found.size) == (3, 10)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12)
    assert found.std == pytest.approx(np.std(values, ddof=1), rel=1e-9)


def test_it_is_zero_on_average_for_one_distribution_and_grows_with_a_shift() -> None:
    def draw(seed: int, shift: float) -> float:
        a, b = (torch.randn(40, 8, generator=gen(k)) for k in (seed, seed + 1000))
        return kid(a, b + shift, generator=gen(0), subsets=10).mean

    means = [np.mean([draw(seed, shift) for seed in range(30)]) for shift in (0.0, 0.3, 0.6)]
    spread = np.std([draw(seed, 0.0) for seed in range(30)]) / np.sqrt(30)
    assert abs(means[0]) < 3 * spread
    assert means[0] + 3 * spread < means[1] < means[2]


@needs_weights
def test_features_are_the_means_of_the_five_stages_of_vgg() -> None:
    """Channels 64, 128, 256, 512, 512; the first ones by a convolution written out."""
    x = torch.rand(2, 3, 16, 18, generator=gen()) * 2 - 1
    found = vgg_features(x)
    assert found.shape == (2, 64 + 128 + 256 + 512 + 512)
    model = LPIPS.cached("vgg")
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    f = ((x + 1) / 2 - mean.reshape(3, 1, 1)) / deviation.reshape(3, 1, 1)
    for index in range(2):
        kernel, bias = model.get_buffer(f"kernel{index}"), model.get_buffer(f"bias{index}")
        patches = torch.nn.functional.unfold(f, 3, padding=1)
        f = (kernel.flatten(1) @ patches + bias[:, None]).relu().reshape(2, 64, 16, 18)
    assert found[:, :64].numpy() == pytest.approx(f.mean((2, 3)).numpy(), rel=1e-4, abs=1e-5)
    assert torch.equal(vgg_features(x * 9), vgg_features((x * 9).clamp(-1, 1)))


def test_bad_sets_are_named() -> None:
    x = torch.zeros(20, 3)
    with pytest.raises(ArgumentError, match="have 19 images, expected 20 or more"):
        kid(x, x[:19], generator=gen())
    with pytest.raises(ShapeError, match=r"x has shape \(20, 3\) and x_true \(20, 2\)"):
        kid(x, x[:, :2], generator=gen())
