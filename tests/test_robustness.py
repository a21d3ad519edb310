"""Tensors changed after construction, inference mode, complex images, odd shapes."""

import pytest
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm import (
    CGStep,
    ConsistencyModel,
    GaussianPrior,
    GradientStep,
    PnPCM,
    PnPCMConfig,
    StationaryGaussianPrior,
    check_operator,
    measure,
)
from pnpcm.operators import (
    JPEG,
    Blur,
    Compose,
    Crop,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    PhaseRetrieval,
    SuperResolution,
)

SIZE = (16, 20)


def picture(channels: int = 3) -> Tensor:
    return torch.rand((2, channels, *SIZE), generator=gen()) * 2 - 1


def test_later_changes_of_the_callers_tensors_change_nothing() -> None:
    g = gen(1)
    x, z = picture(), picture(2)
    mask = torch.rand(SIZE, generator=g) < 0.5
    kernel = torch.rand((3, 3), generator=g, dtype=torch.float64)
    maps = torch.randn((4, *SIZE), generator=g, dtype=torch.complex64)
    lines = torch.rand(SIZE, generator=g) < 0.5
    mean = torch.zeros(3, *SIZE)
    made = [Inpainting(mask), Blur(kernel, (3, *SIZE), "circular"), MultiCoilMRI(maps, lines)]
    images = [x, x, z]
    prior = GaussianPrior(mean, 0.5)
    before = [op.prox_l2(v, op.A(v), 2.0) for op, v in zip(made, images, strict=True)]
    counts = [op.n_measured(op.A(v)) for op, v in zip(made, images, strict=True)]
    denoised = prior(x, 0.3)
    for tensor in (mask, kernel, maps, lines, mean):
        tensor.fill_(1)
    for op, v, old, count in zip(made, images, before, counts, strict=True):
        assert torch.equal(op.prox_l2(v, op.A(v), 2.0), old)
        assert op.n_measured(op.A(v)) == count
    assert torch.equal(prior(x, 0.3), denoised)
    y = measure(Crop((3, *SIZE), 0), x, 0.0)
    y.zero_()
    assert float(x.abs().max()) > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Inpainting(torch.ones(SIZE)),
        lambda: SuperResolution((3, *SIZE), 4),
        lambda: GaussianBlur((3, *SIZE), reference=True),
        lambda: Blur(torch.rand((9, 9), generator=gen()), (3, *SIZE), "circular"),
        lambda: JPEG(20),
        lambda: PhaseRetrieval.random(SIZE, gen()),
    ],
)
def test_inference_mode_leaves_operators_usable(make) -> None:  # type: ignore[no-untyped-def]
    operator, x = make(), picture()
    with torch.inference_mode():
        y = operator.A(x)
        if operator.linear:
            operator.prox_l2(x, y, 1.0)
        StationaryGaussianPrior()(x, 0.3)
        step = GradientStep("adam", 0.05, 3)
        config = PnPCMConfig((0.3, 0.1), (0, 0), (1, 1), data_step=step)
        solved = PnPCM(StationaryGaussianPrior(), config)(y, operator, generator=gen())
    assert solved.x.shape == x.shape
    assert torch.isfinite(operator.A_vjp(x, torch.ones_like(operator.A(x)))).all()
    leaf = x.clone().requires_grad_()
    StationaryGaussianPrior()(leaf, 0.3).sum().backward()
    assert leaf.grad is not None


def complex_problem() -> tuple[MultiCoilMRI, Tensor, Tensor]:
    g = gen(2)
    maps = torch.randn((4, *SIZE), generator=g, dtype=torch.complex128)
    operator = MultiCoilMRI(maps.conj(), torch.rand(SIZE, generator=g) < 0.6)
    x = torch.randn((2, *SIZE), generator=g, dtype=torch.complex128)
    return operator, x, torch.stack([x.real, x.imag], dim=1)


def test_complex_and_two_channel_images_are_the_same() -> None:
    operator, x, channels = complex_problem()
    y = operator.A(x)
    assert torch.equal(y, operator.A(channels))
    steps = [CGStep(8), CGStep(8, start="warm"), GradientStep("lbfgs", lr=0.1, n_iter=5)]
    steps += [GradientStep("sgd", 0.05, 5), GradientStep("adam", 0.05, 1)]
    for step in steps[:4]:
        one = step(0.5 * x, y, operator, 0.3, z_prev=None)
        two = step(0.5 * channels, y, operator, 0.3, z_prev=None)
        assert one.is_complex()
        assert relative(torch.stack([one.real, one.imag], dim=1), two) < 1e-9
    assert steps[4](0.5 * x, y, operator, 0.3, z_prev=None).is_complex()
    assert check_operator(operator, x, generator=gen()).ok
    assert check_operator(operator, channels, generator=gen()).ok
    one, two = (operator.prox_l2(0.5 * v, y, 2.0) for v in (x, channels))
    assert relative(torch.stack([one.real, one.imag], dim=1), two) < 1e-8
    paired = torch.stack([y.real, y.imag], dim=1)
    assert operator.n_measured(paired) == operator.n_measured(y)


@pytest.mark.parametrize("shape", [(1, 2048, 4), (1, 8, 1500), (2, 4, 4)])
def test_superresolution_of_narrow_images(shape: tuple[int, int, int]) -> None:
    operator = SuperResolution(shape, 4)
    report = check_operator(operator, generator=gen())
    assert report.ok, str(report)


def test_pseudo_inverse_of_a_singular_composition_stays_bounded_in_float32() -> None:
    kernel = torch.rand((5, 4), generator=gen())
    operator = Compose(Crop((3, *SIZE), 2), Blur(kernel / kernel.sum(), (3, *SIZE)))
    y = operator.A(picture())
    found = operator.A_dagger(y)
    exact = operator.A_dagger(y.double())
    assert float(found.norm()) <= float(exact.norm()) * 1.01
    assert relative(operator.A(found), y) < 1e-2


def test_random_masks_per_image() -> None:
    operator = Inpainting.random(SIZE, missing=0.5, generator=[gen(1), gen(2)])
    assert operator.mask.shape == (2, 1, *SIZE)
    single = Inpainting.random(SIZE, missing=0.5, generator=gen(2))
    assert torch.equal(operator.mask[1], single.mask[0])


def test_a_network_of_another_library_may_have_a_stride() -> None:
    class Convolution(torch.nn.Conv2d):
        def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x)

    network = Convolution(3, 3, 1)  # its .stride is a tuple
    assert ConsistencyModel(network)(picture(), 0.1).shape == picture().shape


class Broken:
    """Collects the ways in which users' operators fail."""

    @staticmethod
    def wrong_adjoint_shape() -> object:
        class Op:
            def A(self, x: Tensor) -> Tensor:
                return x[..., ::2]

            def A_adjoint(self, y: Tensor) -> Tensor:
                return y

        return Op()

    @staticmethod
    def wrong_prox_shape() -> object:
        class Op:
            def A(self, x: Tensor) -> Tensor:
                return 1 * x

            A_adjoint = A

            def prox_l2(self, z: Tensor, y: Tensor, gamma: float) -> Tensor:
                return z[:, :1]

        return Op()

    @staticmethod
    def raises() -> object:
        class Op:
            def A(self, x: Tensor) -> Tensor:
                raise RuntimeError("no licence for the forward model")

        return Op()

    @staticmethod
    def one_image_only() -> object:
        class Op:
            def A(self, x: Tensor) -> Tensor:
                return x.reshape(1, -1)

        return Op()

    @staticmethod
    def in_place() -> object:
        class Op:
            def A(self, x: Tensor) -> Tensor:
                return x.mul_(0.5)

        return Op()


@pytest.mark.parametrize(
    ("name", "law", "words"),
    [
        ("wrong_adjoint_shape", "adjoint", "A_adjoint returns shape"),
        ("wrong_prox_shape", "prox_l2, γ = 10", "prox_l2 returns shape"),
        ("raises", r"A(x)", "no licence for the forward model"),
        ("one_image_only", "batch = singles", ""),
        ("in_place", "x unchanged", "A writes into its argument"),
    ],
)
def test_broken_operators_are_reported_and_not_crashed_on(name: str, law: str, words: str) -> None:
    x = picture()[:1]
    before = x.clone()
    report = check_operator(getattr(Broken, name)(), x, generator=gen())
    assert law in {entry.name for entry in report.laws if not entry.holds}
    assert words in str(report)
    assert torch.equal(x, before)


def test_measurements_without_image_axes_can_be_checked() -> None:
    class Sum:
        def A(self, x: Tensor) -> Tensor:
            return x.sum((1, 2, 3))

        def A_adjoint(self, y: Tensor) -> Tensor:
            return y[:, None, None, None].expand(-1, 3, *SIZE)

    report = check_operator(Sum(), picture(), generator=gen())
    assert report.ok, str(report)
