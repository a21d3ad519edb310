"""Nonlinear blur: the camera model by hand, and the network by its names and numbers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor, nn

from pnpcm.errors import ArgumentError, CheckpointError, ShapeError
from pnpcm.networks.kernel_wizard import KernelWizard
from pnpcm.operators.blur import motion_kernel
from pnpcm.operators.nonlinear_blur import (
    NonlinearBlur,
    default_code,
    from_light,
    to_light,
)


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_network(seed: int = 0) -> KernelWizard:
    """KernelWizard of width 2 with random weights."""
    with torch.device("meta"):
        network = KernelWizard(width=2)
    network = network.to_empty(device="cpu")
    generator = gen(seed)
    for p in network.parameters():
        p.data = 0.2 * torch.randn(p.shape, generator=generator)
    return network


@pytest.fixture(scope="module")
def published() -> KernelWizard:
    with torch.device("meta"):
        return KernelWizard()


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# light -----------------------------------------------------------------------------------------
def test_curve_is_that_of_srgb() -> None:
    v = torch.linspace(0, 1, 257, dtype=torch.float64)
    standard = torch.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)
    torch.testing.assert_close(to_light(v), standard, rtol=0, atol=1e-4)
    assert float(to_light(torch.tensor(1.0))) == pytest.approx(1, abs=1e-6)
    assert float(to_light(torch.tensor(0.5))) == pytest.approx(0.21404, abs=1e-5)


def test_curve_and_response_are_inverse_everywhere() -> None:
    v = torch.linspace(-1.5, 2.5, 1001, dtype=torch.float64)
    torch.testing.assert_close(from_light(to_light(v)), v, rtol=0, atol=1e-12)
    assert bool((to_light(v).diff() > 0).all())


def test_curve_has_no_kink_at_its_toe() -> None:
    toe = 0.055 / 1.4
    v = torch.tensor([toe - 1e-6, toe + 1e-6], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(to_light(v).sum(), v)
    assert float(slope[0]) == pytest.approx(float(slope[1]), rel=1e-4)
    light = to_light(v.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(from_light(light).sum(), light)
    assert float(slope[0]) == pytest.approx(float(slope[1]), rel=1e-4)


# kernel ----------------------------------------------------------------------------------------
def test_motion_kernel_along_the_axes() -> None:
    row = motion_kernel(5, 0)
    assert row.shape == (5, 5)
    torch.testing.assert_close(row[2], torch.full((5,), 0.2, dtype=torch.float64))
    assert float(row.sum()) == pytest.approx(1)
    torch.testing.assert_close(motion_kernel(5, 90), row.T, rtol=0, atol=1e-12)
    assert motion_kernel(1, 70).tolist() == [[1.0]]


def test_motion_kernel_between_pixels() -> None:
    """Length 4: a segment to ±1.5, so the outer taps are half as heavy."""
    middle = motion_kernel(4, 0)[2]
    torch.testing.assert_close(middle, torch.tensor([0.5, 1, 1, 1, 0.5]).double() / 4)


@pytest.mark.parametrize("angle", [0.0, 30.0, 45.0, 77.0, 200.0])
def test_motion_kernel_points_along_its_angle(angle: float) -> None:
    k = motion_kernel(13, angle)
    assert float(k.sum()) == pytest.approx(1)
    torch.testing.assert_close(k, k.flip(0, 1), rtol=0, atol=1e-12)
    half = k.shape[0] // 2
    offsets = torch.arange(-half, half + 1, dtype=torch.float64)
    up, right = -offsets[:, None], offsets[None, :]
    second = torch.stack([(k * a * b).sum() for a, b in ((right, right), (right, up), (up, up))])
    direction = 0.5 * math.atan2(2 * float(second[1]), float(second[0] - second[2]))
    assert math.cos(2 * (direction - math.radians(angle))) > 0.995
    spread = float(second[0] + second[2])
    assert spread == pytest.approx(13**2 / 12, rel=0.1)  # of a line of 13 pixels


# camera ----------------------------------------------------------------------------------------
def test_without_motion_and_far_from_white_nothing_happens() -> None:
    x = 1.2 * torch.rand((1, 3, 6, 7), generator=gen(), dtype=torch.float64) - 1.1
    operator = NonlinearBlur(length=1, softness=0.02)
    torch.testing.assert_close(operator.A(x), x, rtol=0, atol=1e-9)


def test_constant_images_follow_the_sensor() -> None:
    """s(l) = l − τ ln(1 + e^((l−1)/τ)) at white: 1 − τ ln 2."""
    operator = NonlinearBlur(softness=0.1)
    white = operator.A(torch.ones(1, 1, 9, 9, dtype=torch.float64))
    expected = 1.055 * (1 - 0.1 * math.log(2)) ** (1 / 2.4) - 0.055
    torch.testing.assert_close(white, torch.full_like(white, 2 * expected - 1))
    bright = NonlinearBlur(exposure=50.0).A(torch.full((1, 1, 4, 4), 0.9))
    assert float((bright - 1).abs().max()) < 1e-3  # saturated, not beyond


def test_light_adds_up_linearly() -> None:
    """Half black and half white is light ½, pixel value 0.735 and not 0.5."""
    x = torch.full((1, 1, 3, 4), -1.0, dtype=torch.float64)
    x[..., 2:] = 1
    operator = NonlinearBlur(kernel=[[0.5, 0.5]], softness=1e-3)
    middle = float(operator.A(x)[0, 0, 1, 1] + 1) / 2  # pixels 1 and 2, as the centre is size//2
    assert middle == pytest.approx(1.055 * 0.5 ** (1 / 2.4) - 0.055, abs=1e-6)


def test_kernel_is_convolved_with_replicated_borders() -> None:
    kernel = np.random.default_rng(0).random((3, 4))
    x = 2 * torch.rand((1, 1, 7, 9), generator=gen(), dtype=torch.float64) - 1.2
    # sRGB: a power above the toe, a line of the same value and slope below it
    toe = 0.055 / 1.4
    slope = ((toe + 0.055) / 1.055) ** 2.4 / toe
    v = ((x + 1) / 2)[0, 0].numpy()
    light = np.where(v < toe, slope * v, ((v.clip(toe) + 0.055) / 1.055) ** 2.4)
    light = ndimage.convolve(light, kernel, mode="nearest") / kernel.sum()
    bright = 1.055 * light.clip(slope * toe) ** (1 / 2.4) - 0.055
    expected = torch.from_numpy(2 * np.where(light < slope * toe, light / slope, bright) - 1)
    operator = NonlinearBlur(kernel=kernel, softness=1e-3)
    torch.testing.assert_close(operator.A(x)[0, 0], expected, rtol=0, atol=1e-6)


def test_camera_gradients() -> None:
    operator = NonlinearBlur(length=3, angle=20, exposure=1.5)
    x = (
        2.6 * torch.rand((1, 2, 3, 4), generator=gen(), dtype=torch.float64) - 1.3
    ).requires_grad_()
    assert torch.autograd.gradcheck(operator.A, x)


def test_values_outside_the_range_are_finite() -> None:
    x = torch.linspace(-4, 4, 400).reshape(1, 1, 20, 20)
    operator = NonlinearBlur(exposure=3.0)
    y = operator.A(x)
    assert bool(y.isfinite().all())
    assert bool(operator.A_vjp(x, torch.ones_like(x)).isfinite().all())


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 2, 5, 7), (1, 3, 33, 3)])
def test_any_size_and_channel_count(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    assert NonlinearBlur().A(x).shape == shape


def test_batch_equals_singles() -> None:
    operator, x = NonlinearBlur.example(gen(), batch=3)
    singles = torch.cat([operator.A(image[None]) for image in x])
    torch.testing.assert_close(operator.A(x), singles, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept_and_arguments_unchanged(dtype: torch.dtype) -> None:
    operator, x = NonlinearBlur.example(gen())
    x = x.to(dtype)
    before = x.clone()
    y = operator.A(x)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    assert torch.equal(y, operator.A(x))
    assert torch.equal(operator.acquire(x), y)
    assert torch.equal(operator.z_start(y, None), y)


# network ---------------------------------------------------------------------------------------
def test_parameter_counts(published: KernelWizard) -> None:
    assert count(published) == 115_265_475
    assert count(published.feature_extractor) == 814_208
    assert count(published.adapter) == 21_037_120
    assert count(published.recon_trunk) == 1_811_203


def test_names_are_those_of_the_checkpoint(published: KernelWizard) -> None:
    shapes = {name: tuple(t.shape) for name, t in published.state_dict().items()}
    deepest = "adapter.model" + 4 * ".submodule"
    expected = {
        "feature_extractor.0.weight": (64, 3, 3, 3),
        "feature_extractor.4.bias": (64,),
        "feature_extractor.6.conv1.weight": (64, 64, 3, 3),
        "feature_extractor.15.conv2.bias": (64,),
        "kernel_extractor.model.1.weight": (64, 128, 7, 7),
        "kernel_extractor.model.4.weight": (128, 64, 3, 3),
        "kernel_extractor.model.16.weight": (1024, 1024, 3, 3),
        "kernel_extractor.model.19.conv_block.1.weight": (1024, 1024, 3, 3),
        "kernel_extractor.model.22.conv_block.5.weight": (1024, 1024, 3, 3),
        "adapter.model.down.0.weight": (64, 64, 4, 4),
        "adapter.model.submodule.down.1.weight": (128, 64, 4, 4),
        f"{deepest}.down.1.weight": (512, 512, 4, 4),
        f"{deepest}.up.1.weight": (1024, 512, 4, 4),
        "adapter.model.submodule.up.1.weight": (256, 64, 4, 4),
        "adapter.model.up.1.bias": (64,),
        "recon_trunk.19.conv2.weight": (64, 64, 3, 3),
        "recon_trunk.20.weight": (256, 64, 3, 3),
        "recon_trunk.23.weight": (256, 64, 3, 3),
        "recon_trunk.26.weight": (64, 64, 3, 3),
        "recon_trunk.28.weight": (3, 64, 3, 3),
    }
    assert {name: shapes.get(name) for name in expected} == expected
    biases = [name for name in shapes if name.startswith("adapter") and name.endswith("bias")]
    assert biases == ["adapter.model.up.1.bias"]
    assert not any("kernel_extractor" in name and "bias" in name for name in shapes)


def test_shapes_of_the_published_network(published: KernelWizard) -> None:
    v = torch.empty(2, 3, 256, 384, device="meta")
    assert published(v, torch.empty(1, 512, 2, 3, device="meta")).shape == v.shape
    mean, log_variance = published.encode(v, v)
    assert mean.shape == log_variance.shape == (2, 512, 2, 3)


def test_default_code_is_the_published_one() -> None:
    code = default_code(512, 2, 2)
    assert code.shape == (1, 512, 2, 2)
    first = torch.tensor([-1.4270421, 1.6718819, 2.5270777, -0.4254808, 0.4451876])
    torch.testing.assert_close(code.flatten()[:5], first, rtol=0, atol=1e-6)


def test_network_is_wrapped_and_residual() -> None:
    network = small_network()
    network.recon_trunk[-1].weight.data.zero_()
    network.recon_trunk[-1].bias.data = torch.tensor([0.1, 0.2, 0.3])
    x = 2 * torch.rand((1, 3, 128, 128), generator=gen()) - 1
    # G(v) = v + bias, so A(x) = x + 2 bias, unclamped
    expected = x + 2 * torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    torch.testing.assert_close(NonlinearBlur(network).A(x), expected, rtol=0, atol=1e-6)


def test_code_matters_and_defaults_to_the_fixed_draw() -> None:
    network = small_network()
    x = 2 * torch.rand((1, 3, 128, 256), generator=gen()) - 1
    y = NonlinearBlur(network).A(x)
    torch.testing.assert_close(y, NonlinearBlur(network, default_code(16, 1, 2)).A(x))
    assert not torch.equal(y, NonlinearBlur(network, -default_code(16, 1, 2)).A(x))


def test_adapter_level_written_out() -> None:
    """Innermost level: [up(relu[down a, κ]), a] with a = leaky₀.₂(x)."""
    level = small_network().adapter.model
    for _ in range(4):
        level = level.submodule
    x = torch.randn((1, 16, 2, 2), generator=gen(1))
    code = torch.randn((1, 16, 1, 1), generator=gen(2))
    a = torch.where(x > 0, x, 0.2 * x)
    inside = torch.cat((nn.functional.conv2d(a, level.down[1].weight, None, 2, 1), code), 1)
    up = nn.functional.conv_transpose2d(inside.clamp_min(0), level.up[1].weight, None, 2, 1)
    torch.testing.assert_close(level(x, code), torch.cat((up, a), 1))


def test_network_batch_dtype_and_gradient() -> None:
    code = torch.randn((2, 16, 1, 1), generator=gen(3))
    operator = NonlinearBlur(small_network(), code)
    x = 2 * torch.rand((2, 3, 128, 128), generator=gen()) - 1
    y = operator.A(x)
    singles = [NonlinearBlur(small_network(), code[i : i + 1]).A(x[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(y, torch.cat(singles), rtol=0, atol=1e-5)
    assert operator.A(x.double()).dtype == torch.float64
    product = operator.A_vjp(x, torch.ones_like(y))
    assert bool(product.isfinite().all())
    assert float(product.norm()) > 0
    assert torch.equal(operator.z_start(y, None), y)


def test_weights_are_frozen_and_the_callers_network_is_not() -> None:
    network = small_network()
    operator = NonlinearBlur(network)
    assert operator.network is not None
    assert not any(p.requires_grad for p in operator.network.parameters())
    assert all(p.requires_grad for p in network.parameters())
    frozen = small_network().requires_grad_(False)
    assert NonlinearBlur(frozen).network is frozen  # no copy where none is needed


# checkpoints -----------------------------------------------------------------------------------
@pytest.mark.parametrize("prefix", ["", "module."])
def test_checkpoint_loads_strictly(tmp_path: Path, prefix: str) -> None:
    network = small_network()
    state = {prefix + name: tensor for name, tensor in network.state_dict().items()}
    torch.save(state, tmp_path / "a.pth")
    operator = NonlinearBlur.from_checkpoint(tmp_path / "a.pth")
    x = 2 * torch.rand((1, 3, 128, 128), generator=gen()) - 1
    assert torch.equal(operator.A(x), NonlinearBlur(network).A(x))
    code = torch.zeros(1, 16, 1, 1)
    assert operator.network is not None
    assert not any(p.requires_grad for p in operator.network.parameters())
    other = NonlinearBlur.from_checkpoint(str(tmp_path / "a.pth"), code)
    assert not torch.equal(other.A(x), operator.A(x))


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    state = small_network().state_dict()
    torch.save({k: v for k, v in state.items() if "recon_trunk.28" not in k}, path)
    with pytest.raises(CheckpointError, match=r"recon_trunk\.28\.weight"):
        NonlinearBlur.from_checkpoint(path)
    torch.save(state | {"extra": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match="extra"):
        NonlinearBlur.from_checkpoint(path)
    torch.save({"weight": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match=r"feature_extractor\.0\.weight"):
        NonlinearBlur.from_checkpoint(path)
    torch.save([1, 2], path)
    with pytest.raises(CheckpointError, match="holds list"):
        NonlinearBlur.from_checkpoint(path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read as a file of tensors"):
        NonlinearBlur.from_checkpoint(path)
    torch.save(small_network(), path)  # a pickled module could run code
    with pytest.raises(CheckpointError, match="cannot be read as a file of tensors"):
        NonlinearBlur.from_checkpoint(path)
    with pytest.raises(FileNotFoundError):
        NonlinearBlur.from_checkpoint(tmp_path / "missing.pth")


# refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(1, 3, 128, 130), (1, 3, 64, 128), (1, 1, 128, 128)])
def test_network_refuses_other_sizes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="multiples of 128"):
        NonlinearBlur(small_network()).A(torch.zeros(shape))


def test_codes_that_do_not_fit_are_refused() -> None:
    network = small_network()
    for shape in ((1, 15, 1, 1), (16, 1, 1)):
        with pytest.raises(ShapeError, match="code has shape"):
            NonlinearBlur(network, torch.zeros(shape))
    for shape in ((1, 16, 2, 1), (2, 16, 1, 1)):
        with pytest.raises(ShapeError, match="needs a code"):
            NonlinearBlur(network, torch.zeros(shape)).A(torch.zeros(1, 3, 128, 128))


def test_contradictions_are_refused() -> None:
    with pytest.raises(ArgumentError, match="code is given without a network"):
        NonlinearBlur(code=torch.zeros(1, 512, 2, 2))
    with pytest.raises(ArgumentError, match="kernel and network are both given"):
        NonlinearBlur(small_network(), kernel=torch.ones(3, 3))
    with pytest.raises(ArgumentError, match="network is a Identity"):
        NonlinearBlur(nn.Identity())  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_numbers_are_refused(value: float) -> None:
    with pytest.raises(ArgumentError, match="exposure is"):
        NonlinearBlur(exposure=value)
    with pytest.raises(ArgumentError, match="softness is"):
        NonlinearBlur(softness=value)
    with pytest.raises(ArgumentError, match="length is"):
        NonlinearBlur(length=value)


def test_bad_angle_is_refused() -> None:
    with pytest.raises(ArgumentError, match="angle is"):
        NonlinearBlur(angle=float("nan"))


@pytest.mark.parametrize(
    "kernel", [[[1.0, -0.1]], [[0.0, 0.0]], [[float("nan"), 1.0]], [[float("inf"), 1.0]]]
)
def test_bad_kernels_are_refused(kernel: list[list[float]]) -> None:
    with pytest.raises(ArgumentError, match="kernel must be"):
        NonlinearBlur(kernel=kernel)


def test_kernels_of_other_ranks_are_refused() -> None:
    for kernel in (torch.ones(3), torch.ones(3, 3, 3), torch.ones(0, 3)):
        with pytest.raises(ShapeError, match="kernel has shape"):
            NonlinearBlur(kernel=kernel)


def test_images_of_other_ranks_are_refused() -> None:
    for x in (torch.zeros(3, 8, 8), torch.zeros(1, 3, 0, 8)):
        with pytest.raises(ShapeError, match="x has shape"):
            NonlinearBlur().A(x)


def test_moved_operator_gives_the_same(tmp_path: Path) -> None:
    operator, x = NonlinearBlur.example(gen())
    y = operator.to(torch.float64).A(x.double())
    torch.testing.assert_close(y.float(), operator.A(x), rtol=0, atol=1e-5)
    network: Tensor = (
        NonlinearBlur(small_network()).to(torch.float64).A(torch.zeros(1, 3, 128, 128))
    )
    assert network.dtype == torch.float32
