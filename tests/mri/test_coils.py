"""Whitening and compression of coils: the covariances they promise, and what they refuse."""

import math

import pytest
import torch

from golden import gen, relative
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri.coils import combine_sets, compression, mix, whitening
from pnpcm.mri.simulate import phantom, simulate_scan
from pnpcm.rng import randn

COMPLEX = torch.empty(0, dtype=torch.complex64)


def correlated(coils: int, samples: int, seed: int = 0) -> torch.Tensor:
    """Noise mixed between coils whose gains differ by a factor of a million."""
    mixing = randn((coils, coils), gen(seed), COMPLEX) + 2 * torch.eye(coils)
    gains = torch.logspace(-8, -2, coils)[:, None]
    return gains * (mixing @ randn((coils, samples), gen(seed + 1), COMPLEX))


def covariance(samples: torch.Tensor) -> torch.Tensor:
    centred = samples - samples.mean(-1, keepdim=True)
    return centred @ centred.mH / (samples.shape[-1] - 1)


def test_whitened_noise_has_unit_variance_in_each_part() -> None:
    noise = correlated(6, 4000)
    W = whitening(noise)
    assert W.dtype == torch.complex64
    assert relative(covariance(W @ noise), 2 * torch.eye(6, dtype=torch.complex64)) < 1e-4
    fresh = W @ correlated(6, 40000)  # the same coils, other samples
    assert fresh.real.var(-1).sub(1).abs().max() < 0.1
    assert fresh.imag.var(-1).sub(1).abs().max() < 0.1


def test_whitening_does_not_mind_units() -> None:
    noise = correlated(4, 200)
    assert relative(whitening(1e9 * noise) * 1e9, whitening(noise)) < 1e-5


def test_whiten_mixes_the_coils_of_every_sample() -> None:
    kspace = randn((2, 4, 5, 6), gen(3), COMPLEX)
    W = whitening(randn((4, 100), gen(4), COMPLEX))
    expected = (W @ kspace.flatten(2)).reshape(2, 4, 5, 6)
    assert relative(mix(kspace, W), expected) < 1e-5
    assert relative(mix(kspace[0], W), expected[0]) < 1e-5


def test_compression_keeps_the_energy_of_correlated_coils() -> None:
    kspace = simulate_scan(phantom((48, 40)), n_coils=12, generator=gen()).kspace
    M = compression(kspace, 5)
    small = mix(kspace, M)
    assert small.shape == (5, 48, 40)
    assert relative(M @ M.mH, torch.eye(5, dtype=M.dtype)) < 1e-5
    energy = small.abs().square().sum((-2, -1))
    assert float(energy.sum() / kspace.abs().square().sum()) > 0.99
    assert bool((energy[:-1] >= energy[1:]).all())  # strongest first
    crossed = small.flatten(1) @ small.flatten(1).mH
    assert relative(crossed, torch.diag(energy).to(crossed)) < 1e-4  # new coils are uncorrelated


def test_all_coils_compressed_lose_nothing() -> None:
    kspace = randn((2, 5, 8, 7), gen(1), COMPLEX)
    M = compression(kspace, 5)
    assert M.shape == (5, 5)
    assert relative(mix(mix(kspace, M), M.mH), kspace) < 1e-5


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (torch.ones(3, 50), "complex"),
        (torch.ones(3, 5, 5, dtype=torch.complex64), r"\(coils, samples\)"),
        (randn((6, 6), gen(), COMPLEX), "6 samples for 6 coils"),
        (randn((1, 50), gen(), COMPLEX).expand(3, 50), "linearly dependent"),
        (torch.ones(3, 50, dtype=torch.complex64), "coil 0 does not vary"),
        (torch.full((3, 50), math.nan, dtype=torch.complex64), "NaN"),
    ],
)
def test_whitening_refuses(noise: torch.Tensor, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        whitening(noise)


@pytest.mark.parametrize("n_coils", [0, 5])
def test_compression_refuses_more_coils_than_there_are(n_coils: int) -> None:
    with pytest.raises(ArgumentError, match="from 1 to 4"):
        compression(torch.ones(4, 3, 3, dtype=torch.complex64), n_coils)


def test_compression_and_mix_refuse_what_they_cannot_read() -> None:
    with pytest.raises(ArgumentError, match="not all zero"):
        compression(torch.zeros(4, 3, 3, dtype=torch.complex64), 2)
    with pytest.raises(ArgumentError, match="finite"):
        compression(torch.full((4, 3, 3), math.nan, dtype=torch.complex64), 2)
    with pytest.raises(ShapeError, match="complex"):
        compression(torch.ones(4, 3, 3), 2)
    with pytest.raises(ShapeError, match="does not fit"):
        mix(torch.ones(4, 3, 3, dtype=torch.complex64), torch.eye(3))


def test_sets_combine_to_the_root_of_squares_with_the_first_phase() -> None:
    x = torch.tensor([[3j, 0, -1], [4, 2, 0]], dtype=torch.complex64).reshape(1, 2, 1, 3)
    expected = torch.tensor([5j, 2, -1], dtype=torch.complex64).reshape(1, 1, 3)
    torch.testing.assert_close(combine_sets(x), expected)
    torch.testing.assert_close(combine_sets(x[:, 0]), x[:, 0])
