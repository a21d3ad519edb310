"""Bad input gets one clear sentence: argument, value, expectation, next move."""

from collections.abc import Callable

import pytest
import torch

from golden import Tanh, gen
from pnpcm import PRESETS, ConsistencyModel, DiffusionModel, GaussianPrior, load_prior, measure
from pnpcm.errors import (
    ArgumentError,
    CheckpointError,
    OperatorError,
    PnPCMError,
    ShapeError,
    UnknownNameError,
)
from pnpcm.laws import check_operator
from pnpcm.metrics import psnr, ssim
from pnpcm.mri import birdcage_maps, gaussian1d, simulate_scan
from pnpcm.operators import (
    Blur,
    Compose,
    Crop,
    FunctionOperator,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    SuperResolution,
)
from pnpcm.priors import GaussianMixturePrior, StationaryGaussianPrior

X = torch.zeros(1, 3, 16, 16)
PAIR = torch.zeros(2, 3, 16, 16)
MAPS = torch.ones((2, 16, 16), dtype=torch.complex64)
BLUR = GaussianBlur((3, 16, 16))
KERNEL = torch.rand((3, 4), generator=gen())

CASES: dict[str, tuple[Callable[[], object], type[PnPCMError], str]] = {
    # shapes
    "x of another size": (lambda: BLUR.A(X[..., :8]), ShapeError, r"x has shape \(1, 3, 16, 8\)"),
    "x without batch": (lambda: BLUR.A(X[0]), ShapeError, "takes"),
    "y of another operator": (
        lambda: BLUR.A_adjoint(X[..., :8]),
        ShapeError,
        "was y measured with another operator",
    ),
    "z of another size": (lambda: BLUR.prox_l2(X[..., :8], X, 1.0), ShapeError, "z has shape"),
    "superresolution, y": (
        lambda: SuperResolution((3, 16, 16)).prox_l2(X, X, 1.0),
        ShapeError,
        r"makes \(B, 3, 4, 4\)",
    ),
    "superresolution, sides": (
        lambda: SuperResolution((3, 16, 18)),
        ShapeError,
        "not divisible by factor 4; pad or crop",
    ),
    "superresolution, factor": (lambda: SuperResolution((3, 8, 8), 0), ArgumentError, "factor"),
    "8-bit image": (lambda: BLUR.A(X.to(torch.uint8)), ArgumentError, "dtype torch.uint8"),
    "image_shape with batch": (
        lambda: Blur(KERNEL, (1, 3, 16, 16)),  # type: ignore[arg-type]
        ShapeError,
        r"image_shape is \(1, 3, 16, 16\), expected three",
    ),
    "image_shape without channels": (
        lambda: GaussianBlur((16, 16)),  # type: ignore[arg-type]
        ShapeError,
        "expected three",
    ),
    "image_shape with a zero": (lambda: SuperResolution((3, 0, 16)), ShapeError, "positive"),
    "batches of z and y": (lambda: BLUR.prox_l2(PAIR, X, 1.0), ShapeError, "batch of 2 images"),
    "array": (
        lambda: BLUR.A(X.numpy()),  # type: ignore[arg-type]
        ArgumentError,
        "x is a ndarray, expected a torch.Tensor",
    ),
    "swapped arguments": (
        lambda: measure(X, BLUR),  # type: ignore[arg-type]
        ArgumentError,
        r"measure takes \(operator, x\)",
    ),
    # NaN
    "NaN image": (lambda: measure(BLUR, X / 0, generator=gen()), ArgumentError, "NaN or infinity"),
    "NaN kernel": (lambda: Blur(KERNEL / 0 * 0, (3, 16, 16)), ArgumentError, "finite"),
    "NaN maps": (lambda: MultiCoilMRI(MAPS / 0, torch.ones(16)), ArgumentError, "coil_maps hold"),
    # masks
    "all-zero mask": (lambda: Inpainting(torch.zeros(4, 4)), ArgumentError, "keeps no pixel"),
    "all-zero mask of one image": (
        lambda: Inpainting(torch.tensor([1.0, 0.0]).reshape(2, 1, 1, 1).expand(2, 1, 4, 4)),
        ArgumentError,
        "keeps no pixel",
    ),
    "grey mask": (
        lambda: Inpainting(torch.full((4, 4), 0.5)),
        ArgumentError,
        "binary .* from 0.5 to 0.5; threshold",
    ),
    "mask shape": (lambda: Inpainting(torch.ones(4)), ShapeError, "mask has shape"),
    "mask of another size": (
        lambda: Inpainting(torch.ones(4, 4)).A(X),
        ShapeError,
        "sides must be equal",
    ),
    "missing fraction": (
        lambda: Inpainting.random((4, 4), missing=1.0, generator=gen()),
        ArgumentError,
        r"missing must lie in \[0, 1\), got 1.0",
    ),
    "MRI, empty mask": (
        lambda: MultiCoilMRI(MAPS, torch.zeros(16)),
        ArgumentError,
        "samples nothing",
    ),
    "MRI, grey mask": (lambda: MultiCoilMRI(MAPS, torch.rand(16)), ArgumentError, "binary"),
    "MRI, mask size": (lambda: MultiCoilMRI(MAPS, torch.ones(15)), ShapeError, r"\(W,\) = \(16,\)"),
    "MRI, real maps": (lambda: MultiCoilMRI(MAPS.real, torch.ones(16)), ShapeError, "complex"),
    "MRI, x": (lambda: MultiCoilMRI(MAPS, torch.ones(16)).A(X), ShapeError, r"\(B, 2, H, W\)"),
    "MRI, y": (
        lambda: MultiCoilMRI(MAPS, torch.ones(16)).A_adjoint(X),
        ShapeError,
        r"complex \(B, 2, 16, 16\)",
    ),
    "MRI, batch of maps": (
        lambda: MultiCoilMRI(MAPS.expand(3, 2, 16, 16), torch.ones(16)).A(X[:, :2]),
        ShapeError,
        "B = 3",
    ),
    "MRI, mask of one image empty": (
        lambda: MultiCoilMRI(MAPS, torch.stack([torch.ones(16, 16), torch.zeros(16, 16)])),
        ArgumentError,
        "samples nothing of image 1",
    ),
    "MRI, masks and maps": (
        lambda: MultiCoilMRI(MAPS.expand(3, 2, 16, 16), torch.ones(2, 16, 16)),
        ShapeError,
        "mask is for 2 images and coil_maps for 3",
    ),
    "MRI, integers": (
        lambda: MultiCoilMRI(MAPS, torch.ones(16)).A(torch.zeros(1, 2, 16, 16).long()),
        ArgumentError,
        "dtype torch.int64",
    ),
    "mask is nothing": (
        lambda: Inpainting(None),  # type: ignore[arg-type]
        ArgumentError,
        "mask is a NoneType",
    ),
    # kernels
    "large kernel": (lambda: Blur(torch.ones(17, 3), (3, 16, 16)), ShapeError, "larger than the"),
    "empty kernel": (lambda: Blur(torch.zeros(3, 3), (3, 16, 16)), ArgumentError, "zero everywh"),
    "kernel of a stack": (lambda: Blur(torch.ones(3, 3, 3), (3, 16, 16)), ShapeError, "kernel has"),
    "boundary": (
        lambda: Blur(KERNEL, (3, 16, 16), "mirror"),
        ArgumentError,
        "zero, circular, reflect, got 'mirror'",
    ),
    "no decomposition": (
        lambda: Blur(KERNEL, (3, 16, 16)).singular_values,
        OperatorError,
        "no known singular vectors; use prox_l2",
    ),
    "gaussian size": (lambda: GaussianBlur((3, 16, 16), 0), ArgumentError, "size must be"),
    "gaussian sigma": (lambda: GaussianBlur((3, 16, 16), 5, -1), ArgumentError, "sigma must be"),
    # numbers
    "negative sigma_y": (
        lambda: measure(BLUR, X, -0.1),
        ArgumentError,
        "sigma_y must be from 0 to 1",
    ),
    "negative gamma": (lambda: BLUR.prox_l2(X, X, -1.0), ArgumentError, "gamma must be positive"),
    "gamma per image": (
        lambda: BLUR.prox_l2(X, X, torch.ones(3)),
        ShapeError,
        r"one per image \(1,\)",
    ),
    "negative gamma per image": (
        lambda: BLUR.prox_l2(PAIR, PAIR, torch.tensor([1.0, -1.0])),
        ArgumentError,
        "gamma must be positive",
    ),
    "negative reg": (lambda: BLUR.A_dagger(X, -0.1), ArgumentError, "reg must be ≥ 0"),
    "negative eta": (
        lambda: BLUR.sample_conditional(X, X, 0.1, -1.0, gen()),
        ArgumentError,
        "eta must be positive",
    ),
    "infinite sigma_y": (lambda: measure(BLUR, X, float("inf")), ArgumentError, "sigma_y must"),
    "infinite gamma": (lambda: BLUR.prox_l2(X, X, float("inf")), ArgumentError, "gamma must"),
    "fractional size": (lambda: GaussianBlur((3, 16, 16), 2.5), ArgumentError, "whole number"),  # type: ignore[arg-type]
    "a seed is not a generator": (
        lambda: measure(BLUR, X, generator=0),  # type: ignore[arg-type]
        ArgumentError,
        r"generator is 0, expected .*manual_seed\(seed\)",
    ),
    "seeds are not generators": (
        lambda: measure(BLUR, PAIR, generator=[0, 1]),  # type: ignore[list-item]
        ArgumentError,
        r"generator is \[0, 1\]",
    ),
    "no generator": (lambda: measure(BLUR, X), ArgumentError, "generator is None"),
    # compositions
    "compose nothing": (lambda: Compose(), ArgumentError, "at least one operator"),
    "compose a function": (
        lambda: Compose(torch.sin),  # type: ignore[arg-type]
        ArgumentError,
        "wrap a function with FunctionOperator",
    ),
    "crop everything": (lambda: Crop((3, 16, 16), 8), ArgumentError, "leave a pixel"),
    "adjoint of nonlinear": (
        lambda: FunctionOperator(torch.sin, (3, 4, 4), adjoint=torch.sin),
        ArgumentError,
        "set linear=True",
    ),
    "function drops the batch": (
        lambda: FunctionOperator(lambda x: x.sum(0), (3, 16, 16)).A(X.expand(2, 3, 16, 16)),
        ShapeError,
        "keep the batch axis",
    ),
    "function, foreign y": (
        lambda: FunctionOperator(lambda x: x, (3, 4, 4), linear=True).A_adjoint(X),
        ShapeError,
        "does not fit this function",
    ),
    "check without shape": (
        lambda: check_operator(Inpainting(torch.ones(4, 4)), generator=gen()),
        ArgumentError,
        "give an image",
    ),
    # names and priors
    "unknown preset": (
        lambda: PRESETS["celeba-hq/superres4"],
        UnknownNameError,
        "unknown preset .* did you mean 'celeba-hq/superres-4'",
    ),
    "unknown prior": (lambda: load_prior("gausian"), UnknownNameError, "did you mean 'gaussian'"),
    "no such file": (lambda: load_prior("nowhere/prior.pt"), CheckpointError, "no file"),
    "network for a name": (
        lambda: load_prior("gaussian", network={"image_size": 64}),
        ArgumentError,
        "leave network out",
    ),
    "prior kind": (lambda: DiffusionModel(Tanh(), kind="ve"), ArgumentError, "'edm' or 'vp'"),
    "prior range": (
        lambda: ConsistencyModel(Tanh(), value_range=(1, -1)),
        ArgumentError,
        "value_range",
    ),
    "prior levels": (
        lambda: ConsistencyModel(Tanh(), sigma_min=2, sigma_max=1),
        ArgumentError,
        "sigma_min",
    ),
    "prior input": (lambda: ConsistencyModel(Tanh())(X[0], 0.1), ShapeError, "a prior takes"),
    "prior of nothing": (
        lambda: ConsistencyModel(None),  # type: ignore[arg-type]
        ArgumentError,
        "network is a NoneType",
    ),
    "network of few channels": (
        lambda: ConsistencyModel(lambda x, c: x[:, :1])(X, 0.1),
        ShapeError,
        "network returned 1 channels for images of 3",
    ),
    "network that crops": (
        lambda: ConsistencyModel(lambda x, c: x[..., 1:])(X, 0.1),
        ShapeError,
        "must keep batch and size",
    ),
    "complex image for a prior": (
        lambda: ConsistencyModel(Tanh())(X.to(torch.complex64), 0.1),
        ShapeError,
        "complex images are two channels",
    ),
    "path is nothing": (
        lambda: load_prior(None),  # type: ignore[arg-type]
        ArgumentError,
        "expected a name, a path or a denoiser",
    ),
    "network is a word": (
        lambda: load_prior("gaussian", network="unet"),  # type: ignore[arg-type]
        ArgumentError,
        "guided-diffusion's names",
    ),
    "gaussian of another size": (
        lambda: GaussianPrior(torch.zeros(3, 8, 8))(X, 0.1),
        ShapeError,
        "build the prior for this image size",
    ),
    "mixture stds": (
        lambda: GaussianMixturePrior(PAIR, torch.ones(3)),
        ShapeError,
        "stds has 3 values for 2 means",
    ),
    "gaussian kind": (lambda: GaussianPrior(kind="vp"), ArgumentError, "kind must be"),
    "gaussian std": (lambda: GaussianPrior(0.0, -1.0), ArgumentError, "std must be ≥ 0"),
    "spectrum power": (lambda: StationaryGaussianPrior(-1.0), ArgumentError, "positive"),
    "mixture means": (lambda: GaussianMixturePrior(X[0], X[0, 0, 0]), ShapeError, "means has"),
    "mixture image": (
        lambda: GaussianMixturePrior.example()(X, 0.1),
        ShapeError,
        "mixture is over",
    ),
    # metrics and MRI data
    "metric shapes": (lambda: psnr(X, X[..., :8]), ShapeError, "two equal"),
    "small image": (lambda: ssim(X[..., :5], X[..., :5]), ShapeError, "7 or more"),
    "acs above lines": (lambda: gaussian1d(64, 8, 12, generator=gen()), ArgumentError, "acs must"),
    "acceleration": (lambda: gaussian1d(64, 0.5, 4, generator=gen()), ArgumentError, "accelerat"),
    "no mask generator": (lambda: gaussian1d(64, 4, 4), ArgumentError, "generator is None"),
    "no coils": (lambda: birdcage_maps(0, (8, 8)), ArgumentError, "n_coils"),
    "negative magnitude": (
        lambda: simulate_scan(-torch.ones(8, 8), generator=gen()),
        ShapeError,
        "magnitude must be",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_with_a_sentence(name: str) -> None:
    call, error, words = CASES[name]
    with pytest.raises(error, match=words) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 300


def test_errors_are_also_the_builtin_ones() -> None:
    with pytest.raises(KeyError):
        _ = PRESETS["x"]
    with pytest.raises(ValueError, match="shape"):
        BLUR.A(X[0])
    with pytest.raises(TypeError):
        _ = Blur(KERNEL, (3, 16, 16)).basis


def test_a_broken_operator_is_reported_in_words() -> None:
    class Wrong:
        def A(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x.roll(1, -1)

        def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:
            return 2 * y.roll(1, -1)

        def prox_l2(self, z: torch.Tensor, y: torch.Tensor, gamma: float) -> torch.Tensor:
            return z

    x = torch.rand((1, 1, 5, 6), generator=gen())
    report = check_operator(Wrong(), x, generator=gen())
    assert not report
    failed = {law.name for law in report.laws if not law.holds}
    assert failed == {"adjoint", "prox_l2, γ = 0.1", "prox_l2, γ = 10"}
    assert "A_adjoint is not Aᵀ" in str(report)

    class Stateful:
        def __init__(self) -> None:
            self.calls = 0

        def A(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls + x.mean()

    report = check_operator(Stateful(), x, generator=gen())
    assert {law.name for law in report.laws if not law.holds} >= {
        "batch = singles",
        "same call, same y",
    }
