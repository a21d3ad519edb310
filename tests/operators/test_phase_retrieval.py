"""Phase retrieval: numbers of docs/method.md §12.2, the full FFT, starts, signs, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators.phase_retrieval import PhaseRetrieval

PLANE = (-2, -1)


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def wave_image() -> Tensor:
    """Image X of docs/method.md §12.1."""
    axes = (torch.arange(n, dtype=torch.float64) for n in (3, 256, 256))
    c, i, j = torch.meshgrid(*axes, indexing="ij")
    wave = 0.6 * torch.sin(2 * math.pi * (i * (c + 1) + 2 * j) / 96)
    return (wave + 0.3 * torch.cos(2 * math.pi * (i - j) / (7 + c)))[None]


def wave_code() -> Tensor:
    i, j = torch.meshgrid(torch.arange(256), torch.arange(256), indexing="ij")
    r = (7 * i + 13 * j) % 8
    return (r == 7).long() - (r == 0).long()


def by_full_fft(operator: PhaseRetrieval, x: Tensor) -> Tensor:
    """The definition: pad, centred orthonormal transform, smoothed magnitude."""
    top, left = operator.pad
    padded = torch.nn.functional.pad(operator.code_mask.to(x) * x, (left, left, top, top))
    spectrum = torch.fft.fft2(torch.fft.ifftshift(padded, PLANE), norm="ortho")
    spectrum = torch.fft.fftshift(spectrum, PLANE)
    return (spectrum.real**2 + spectrum.imag**2 + 1e-12).sqrt()


def reference_image(y: Tensor) -> NDArray[np.complex128]:
    """F⁻¹ of the published start: Gaussian phases from seed 1234, mirrored one sample off."""
    size = tuple(y.shape[-2:])
    phi = 2 * math.pi * torch.randn(size, generator=gen(1234)).double().numpy() - math.pi
    phi[size[0] // 2, size[1] // 2] = 0
    full = y.numpy() * np.exp(1j * phi)
    full = (full + np.conj(full[..., ::-1, ::-1])) / 2
    return np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(full, PLANE), norm="ortho"), PLANE)


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1])


# numbers ---------------------------------------------------------------------------------------
def test_golden_numbers() -> None:
    x, operator = wave_image(), PhaseRetrieval(wave_code())
    y = operator.A(x)
    assert y.shape == (1, 3, 512, 512)
    assert operator.pad == (128, 128)
    assert operator.x_shape(y) == (1, 3, 256, 256)
    assert float(y.norm()) == pytest.approx(106.92688, rel=1e-7)
    assert float(y.sum()) == pytest.approx(13417.40, abs=0.005)
    assert float(y[0, 0, 256, 256]) == pytest.approx(0.002280, abs=1e-6)
    assert float(y[0, 2, 10, 20]) == pytest.approx(0.004189, abs=1e-6)
    assert float(y.max()) == pytest.approx(9.1672, abs=1e-4)
    torch.testing.assert_close(operator.A(-x), y, rtol=0, atol=1e-12)
    torch.testing.assert_close(operator.A(x.float()).double(), y, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [(16, 20), (7, 9), (8, 5), (1, 3), (12, 12)])
@pytest.mark.parametrize("oversampling", [0.0, 1.0, 3.3, 4.0])
def test_half_spectrum_gives_the_full_fft(size: tuple[int, int], oversampling: float) -> None:
    code = torch.randint(-1, 2, size, generator=gen(2))
    code[0, 0] = 1
    operator = PhaseRetrieval(code, oversampling)
    x = 2 * torch.rand((2, 3, *size), generator=gen(1), dtype=torch.float64) - 1
    assert operator.pad == tuple(int(oversampling / 8 * side) for side in size)
    torch.testing.assert_close(operator.A(x), by_full_fft(operator, x), rtol=0, atol=1e-12)
    x = x.float()
    torch.testing.assert_close(operator.A(x), by_full_fft(operator, x), rtol=0, atol=1e-6)


def test_gradients() -> None:
    operator = PhaseRetrieval(torch.tensor([[1, 0, -1, 1], [-1, 1, 0, 1], [0, 1, 1, -1]]))
    x = torch.rand((1, 2, 3, 4), generator=gen(4), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(operator.A, x)
    v = torch.randn(operator.A(x).shape, generator=gen(5), dtype=torch.float64)
    (full,) = torch.autograd.grad(by_full_fft(operator, x), x, v)
    torch.testing.assert_close(operator.A_vjp(x, v), full, rtol=0, atol=1e-10)
    zero = operator.A_vjp(torch.zeros_like(x), v)
    assert bool(zero.isfinite().all())


def test_magnitudes_do_not_see_channel_signs() -> None:
    operator, x = PhaseRetrieval.example(gen(), batch=2)
    for signs in ((-1.0, 1.0, 1.0), (1.0, -1.0, -1.0), (-1.0, -1.0, -1.0)):
        flipped = x * torch.tensor(signs)[:, None, None]
        torch.testing.assert_close(operator.A(flipped), operator.A(x), rtol=0, atol=1e-6)
    rolled = operator.A(x.roll(1, -1))  # the code removes the other ambiguities
    assert float((rolled - operator.A(x)).abs().max()) > 0.1


def test_random_code_follows_its_probabilities() -> None:
    operator = PhaseRetrieval.random((256, 256), gen(7), oversampling=2.0, reference=True)
    n = 256**2
    for value, probability in ((-1, 1 / 8), (0, 3 / 4), (1, 1 / 8)):
        count = int((operator.code_mask == value).sum())
        assert abs(count - n * probability) < 5 * math.sqrt(n * probability * (1 - probability))
    assert operator.reference
    assert operator.pad == (64, 64)
    again = PhaseRetrieval.random((256, 256), gen(7))
    assert torch.equal(operator.code_mask, again.code_mask)


def test_code_per_channel() -> None:
    code = torch.randint(-1, 2, (2, 6, 8), generator=gen(3))
    x = torch.rand((1, 2, 6, 8), generator=gen(4), dtype=torch.float64)
    y = PhaseRetrieval(code).A(x)
    for c in range(2):
        torch.testing.assert_close(PhaseRetrieval(code[c]).A(x[:, c : c + 1]), y[:, c : c + 1])
    torch.testing.assert_close(PhaseRetrieval(code[:1]).A(x), PhaseRetrieval(code[0]).A(x))
    with pytest.raises(ShapeError, match=r"\(B, 2, 6, 8\)"):
        PhaseRetrieval(code).A(torch.zeros(1, 3, 6, 8))


# start -----------------------------------------------------------------------------------------
def test_reference_start_has_the_golden_correlation() -> None:
    x, operator = wave_image(), PhaseRetrieval(wave_code(), reference=True)
    z = operator.z_start(operator.A(x))
    assert correlation(z, x) == pytest.approx(-0.003, abs=5e-4)
    assert z.shape == x.shape
    image = reference_image(operator.A(x))
    ratio = np.linalg.norm(image.imag) / np.linalg.norm(image.real)
    assert 0.9 < ratio < 1.1  # the mirrored index is one off: as much imaginary as real
    assert torch.equal(z, operator.z_start(operator.A(x), gen(5)))  # its own seed, always


def test_reference_start_written_out() -> None:
    code = torch.ones(4, 4)
    operator = PhaseRetrieval(code, reference=True)
    y = torch.rand((1, 1, 8, 8), generator=gen(1), dtype=torch.float64)
    image = reference_image(y)[0, 0].real
    image = np.tanh((image - image.mean()) / image.std(ddof=1))
    torch.testing.assert_close(operator.z_start(y)[0, 0], torch.from_numpy(image[2:6, 2:6]))


def start_spectrum(operator: PhaseRetrieval, y: Tensor, generator: torch.Generator) -> Tensor:
    """F of the real image inside ``z_start``, up to its mean and a positive factor per channel.

    Without oversampling nothing is cropped, and tanh can be taken back.
    """
    assert operator.pad == (0, 0)
    image = torch.atanh(operator.z_start(y, generator))
    return torch.fft.fft2(torch.fft.ifftshift(image, PLANE), norm="ortho")


@pytest.mark.parametrize("size", [(16, 20), (7, 9), (8, 5)])
def test_default_start_keeps_the_magnitudes(size: tuple[int, int]) -> None:
    """A real image with the magnitudes y and other phases: only a Hermitian spectrum has one."""
    operator = PhaseRetrieval(torch.ones(size), oversampling=0.0)
    x = 2 * torch.rand((2, 3, *size), generator=gen(1), dtype=torch.float64) - 1
    y = torch.fft.ifftshift(operator.A(x), PLANE).flatten(2)[..., 1:]  # the mean is taken away
    spectrum = start_spectrum(operator, operator.A(x), gen(2)).flatten(2)[..., 1:]
    scale = (spectrum.abs() / y).mean(-1, keepdim=True)
    torch.testing.assert_close(spectrum.abs(), scale * y, rtol=1e-9, atol=1e-12)
    true = torch.fft.fft2(torch.fft.ifftshift(x, PLANE), norm="ortho").flatten(2)[..., 1:]
    assert float((spectrum / scale - true).abs().max()) > 0.1


def test_default_phases_are_uniform() -> None:
    operator = PhaseRetrieval(torch.ones(128, 128), oversampling=0.0)
    y = torch.ones(1, 1, 128, 128, dtype=torch.float64)
    phase = start_spectrum(operator, y, gen(3)).angle()[0, 0, 1:64].flatten()  # one half, no pairs
    counts = torch.histc(phase, bins=8, min=-math.pi, max=math.pi)
    expected = phase.numel() / 8
    assert float(((counts - expected) ** 2 / expected).sum()) < 24.3  # χ²₇, p = 0.001


def test_default_start_is_an_image_unlike_the_truth() -> None:
    x, operator = wave_image(), PhaseRetrieval(wave_code())
    z = operator.z_start(operator.A(x), gen(0))
    assert z.shape == x.shape
    assert float(z.abs().max()) < 1
    assert float(z.std()) > 0.3
    assert abs(correlation(z, x)) < 0.02


def test_start_of_a_batch_equals_its_singles() -> None:
    operator, x = PhaseRetrieval.example(gen(), batch=3)
    y = operator.A(x)
    together = operator.z_start(y, [gen(s) for s in (4, 5, 6)])
    alone = torch.cat([operator.z_start(y[i : i + 1], gen(4 + i)) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    assert not torch.equal(together[0], together[1])
    one = operator.z_start(y, gen(9))
    assert torch.equal(one, operator.z_start(y, gen(9)))
    assert one.dtype == torch.float32
    reference = PhaseRetrieval(operator.code_mask, reference=True)
    alone = torch.cat([reference.z_start(y[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(reference.z_start(y), alone, rtol=0, atol=1e-6)


def test_start_needs_a_generator_and_leaves_the_global_state() -> None:
    operator, x = PhaseRetrieval.example(gen())
    y = operator.A(x)
    with pytest.raises(ArgumentError, match="generator is None"):
        operator.z_start(y)
    state = torch.get_rng_state()
    operator.z_start(y, gen())
    PhaseRetrieval(operator.code_mask, reference=True).z_start(y)
    assert torch.equal(state, torch.get_rng_state())


def test_start_of_constant_data_is_finite() -> None:
    operator, x = PhaseRetrieval.example(gen())
    z = operator.z_start(torch.zeros_like(operator.A(x)), gen())
    assert bool(z.isfinite().all())


# signs -----------------------------------------------------------------------------------------
def squared(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().flatten(1).sum(1)


def tried(channels: int) -> list[str]:
    """The patterns in the order in which resolve_signs compares them."""
    operator = PhaseRetrieval(torch.ones(2, 2))
    seen: list[str] = []

    def distance(candidate: Tensor, reference: Tensor) -> Tensor:
        seen.append("".join("1" if float(c[0, 0]) < 0 else "0" for c in candidate[0]))
        return torch.zeros(1)

    ones = torch.ones(1, channels, 2, 2)
    assert torch.equal(operator.resolve_signs(ones, ones, distance), ones)
    return seen


def test_order_of_the_patterns() -> None:
    assert tried(1) == ["0", "1"]
    assert tried(3) == ["000", "100", "010", "001", "011", "101", "110", "111"]
    four = tried(4)
    assert len(set(four)) == 16
    assert [p.count("1") for p in four] == sorted(p.count("1") for p in four)


def test_signs_are_found_per_image() -> None:
    operator, x = PhaseRetrieval.example(gen(), batch=4)
    signs = torch.tensor([[1, 1, 1], [-1, 1, 1], [1, -1, -1], [-1, -1, -1]]).float()
    wrong = x * signs[:, :, None, None]
    before = wrong.clone()
    assert torch.equal(operator.resolve_signs(wrong, x, squared), x)
    assert torch.equal(wrong, before)


def test_one_reference_serves_all_images() -> None:
    operator, x = PhaseRetrieval.example(gen(), batch=1)
    wrong = torch.cat((x, -x))
    assert torch.equal(operator.resolve_signs(wrong, x, squared), torch.cat((x, x)))


def test_first_of_equal_patterns_wins() -> None:
    operator, x = PhaseRetrieval.example(gen(), batch=2)
    nothing = torch.zeros_like(x)  # all patterns are equally far
    assert torch.equal(operator.resolve_signs(x, nothing, squared), x)
    reference = x.clone()
    reference[:, 0] = -x[:, 0]
    reference[:, 1] = 0  # the sign of channel 1 is a tie, so it stays
    expected = x * torch.tensor([-1.0, 1, 1])[:, None, None]
    assert torch.equal(operator.resolve_signs(x, reference, squared), expected)


def test_signs_refuse_what_does_not_fit() -> None:
    operator, x = PhaseRetrieval.example(gen(), batch=3)
    with pytest.raises(ShapeError, match="reference has shape"):
        operator.resolve_signs(x, x[:2], squared)
    with pytest.raises(ShapeError, match="reference has shape"):
        operator.resolve_signs(x, x[:, :1], squared)
    with pytest.raises(ShapeError, match="distance returned shape"):
        operator.resolve_signs(x, x, lambda a, b: (a - b).square().mean())


# laws and refusals -----------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept_and_arguments_unchanged(dtype: torch.dtype) -> None:
    operator, x = PhaseRetrieval.example(gen())
    x = x.to(dtype)
    x_before, code_before = x.clone(), operator.code_mask.clone()
    y = operator.A(x)
    y_before = y.clone()
    assert y.dtype == operator.z_start(y, gen()).dtype == dtype
    assert torch.equal(x, x_before)
    assert torch.equal(y, y_before)
    assert torch.equal(operator.code_mask, code_before)
    assert torch.equal(y, operator.A(x))


def test_batch_equals_singles() -> None:
    operator, x = PhaseRetrieval.example(gen(), batch=3)
    singles = torch.cat([operator.A(image[None]) for image in x])
    torch.testing.assert_close(operator.A(x), singles, rtol=0, atol=1e-6)


@pytest.mark.parametrize("value", [0.5, 2, -3, float("nan")])
def test_other_code_values_are_refused(value: float) -> None:
    code = np.ones((4, 4))
    code[1, 2] = value
    with pytest.raises(ArgumentError, match="expected only -1, 0 and 1"):
        PhaseRetrieval(code)


def test_empty_codes_and_wrong_shapes_are_refused() -> None:
    with pytest.raises(ArgumentError, match="0 everywhere"):
        PhaseRetrieval(torch.zeros(4, 4))
    for shape in ((4,), (1, 1, 4, 4), (0, 4)):
        with pytest.raises(ShapeError, match="code_mask has shape"):
            PhaseRetrieval(torch.ones(shape))


@pytest.mark.parametrize("oversampling", [-1.0, float("nan"), float("inf")])
def test_bad_oversampling_is_refused(oversampling: float) -> None:
    with pytest.raises(ArgumentError, match="oversampling is"):
        PhaseRetrieval(torch.ones(4, 4), oversampling)


def test_wrong_images_and_measurements_are_refused() -> None:
    operator, x = PhaseRetrieval.example(gen())
    for bad in (x[0], x[..., 1:], x[..., 1:, :]):
        with pytest.raises(ShapeError, match="build the operator for this image size"):
            operator.A(bad)
    for bad in (x.to(torch.complex64), x.byte()):
        with pytest.raises(ArgumentError, match="takes real images"):
            operator.A(bad)
    for refuse in (operator.x_shape, lambda y: operator.z_start(y, gen())):
        with pytest.raises(ShapeError, match="was y measured with another operator"):
            refuse(x)
