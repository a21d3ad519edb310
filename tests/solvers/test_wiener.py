"""Wiener: against closed forms and dense solves."""

import pytest
import scipy.fft
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import JPEG, GaussianBlur, Inpainting, MultiCoilMRI, SuperResolution
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.solvers.wiener import Spectrum, Wiener, WienerConfig

SIZE = (8, 12)


def identity() -> Inpainting:
    return Inpainting(torch.ones(SIZE))


def mri() -> MultiCoilMRI:
    maps = torch.randn((3, *SIZE), dtype=torch.complex128, generator=gen())
    return MultiCoilMRI(maps, torch.arange(12) % 4 == 0)


OPERATORS = {
    "inpainting": (lambda: Inpainting.random(SIZE, missing=0.5, generator=gen()), 3),
    "superres": (lambda: SuperResolution((3, *SIZE), factor=2), 3),
    "blur": (lambda: GaussianBlur((1, *SIZE)), 1),
    "mri": (mri, 2),
}


def matrix(function: object, shape: tuple[int, ...]) -> Tensor:
    """The matrix of a linear function, column by column; complex values as two rows."""
    basis = torch.eye(torch.Size(shape).numel(), dtype=torch.float64).reshape(-1, *shape)
    columns = [function(e[None]) for e in basis]  # type: ignore[operator]
    columns = [torch.view_as_real(c) if c.is_complex() else c for c in columns]
    return torch.stack([c.flatten() for c in columns], dim=1)


def one_over_f(corner: float) -> Tensor:
    """1/(f² + corner²), f in cycles per pixel: cosine k of n has k/2n."""
    fy, fx = (torch.arange(n, dtype=torch.float64) / (2 * n) for n in SIZE)
    return 1 / (fy[:, None] ** 2 + fx[None, :] ** 2 + corner**2)


def filtered(x: Tensor, spectrum: Tensor) -> Tensor:
    """Every cosine coefficient of ``x`` times its entry of ``spectrum``."""
    coefficients = scipy.fft.dctn(x.numpy(), axes=(-2, -1), norm="ortho") * spectrum.numpy()
    return torch.from_numpy(scipy.fft.idctn(coefficients, axes=(-2, -1), norm="ortho"))


def covariance(config: WienerConfig, channels: int) -> Tensor:
    """C, from the definition of the image model: colours ⊗ cosines."""
    spectrum = one_over_f(config.corner)
    plane = matrix(lambda x: filtered(x, spectrum), (1, *SIZE))
    powers = torch.tensor(config.power, dtype=torch.float64)
    if channels != 3:
        return torch.kron(torch.eye(channels, dtype=torch.float64) * powers.mean(), plane)
    axes = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64)
    axes = axes / axes.norm(dim=1, keepdim=True)
    return torch.kron(axes.T @ torch.diag(powers) @ axes, plane)


@pytest.mark.parametrize("name", OPERATORS)
def test_posterior_mean(name: str) -> None:
    """m + C Aᵀ (A C Aᵀ + noise_std²)⁻¹ (y − A m), dense."""
    make, channels = OPERATORS[name]
    operator, shape = make(), (channels, *SIZE)
    config = WienerConfig(noise_std=0.2, n_iter=2000)
    y = operator.A(torch.randn((2, *shape), generator=gen()).double())
    y = y + 0.2 * operator.noise_like(y, [gen(1), gen(2)])
    x = Wiener(None, config)(y, operator).x
    A, C = matrix(operator.A, shape), covariance(config, channels)
    gain = C @ A.T @ torch.linalg.inv(A @ C @ A.T + 0.04 * torch.eye(len(A)).double())
    for one, image in zip(y, x, strict=True):
        data = (torch.view_as_real(one) if one.is_complex() else one).flatten()
        m = torch.full((C.shape[0],), config.mean, dtype=torch.float64)
        expected = m + gain @ (data - A @ m)
        assert relative(image.flatten(), expected) < 1e-5


def test_denoising_shrinks_every_cosine_coefficient() -> None:
    """For A = I the result is m + P/(P + σ²) (y − m), coefficient by coefficient.

    ``StationaryGaussianPrior`` is the same model, and must give the same.
    """
    y = torch.randn((2, 3, *SIZE), generator=gen()).double()
    axes = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64)
    axes = axes / axes.norm(dim=1, keepdim=True)
    powers = torch.tensor([0.012, 8e-4, 2e-4], dtype=torch.float64)

    def shrunk(x: Tensor, power: float, corner: float, mean: float) -> Tensor:
        spectrum = power * one_over_f(corner)
        return mean + filtered(x - mean, spectrum / (spectrum + 0.3**2))

    colours = torch.einsum("ij,bjhw->bihw", axes, y + 0.1)
    planes = [shrunk(colours[:, i], float(p), 0.0015, 0.0) for i, p in enumerate(powers)]
    colour = torch.einsum("ij,bihw->bjhw", axes, torch.stack(planes, 1)) - 0.1
    cases = [
        (y, colour, WienerConfig(noise_std=0.3), StationaryGaussianPrior(kind="edm")),
        (
            y[:, :1],
            shrunk(y[:, :1], float(powers.mean()), 0.0015, -0.1),
            WienerConfig(noise_std=0.3),
            StationaryGaussianPrior(kind="edm"),
        ),
        (
            y,
            shrunk(y, 0.02, 0.01, 0.1),
            WienerConfig(0.3, power=0.02, corner=0.01, mean=0.1),
            StationaryGaussianPrior(0.02, corner=0.01, mean=0.1, kind="edm"),
        ),
    ]
    for noisy, expected, config, denoiser in cases:
        assert torch.allclose(Wiener(None, config)(noisy, identity()).x, expected, atol=1e-7)
        assert torch.allclose(denoiser(noisy, 0.3), expected, atol=1e-7)


def test_denoising_takes_few_iterations() -> None:
    y = torch.randn((1, 3, *SIZE), generator=gen()).double()
    one, many = (Wiener(None, WienerConfig(n_iter=n))(y, identity()).x for n in (1, 100))
    assert torch.allclose(one, many, atol=1e-7)


def test_colouring_and_whitening_are_adjoint() -> None:
    x, w = (torch.randn((1, 3, *SIZE), generator=gen(i)).double() for i in (0, 1))
    model = Spectrum(WienerConfig(), x)
    left, right = (model.colour(w) * x).sum(), (w * model.whiten(x)).sum()
    assert float(left) == pytest.approx(float(right))


def test_a_hundred_iterations_suffice() -> None:
    for make, channels in OPERATORS.values():
        operator = make()
        y = operator.A(torch.randn((1, channels, *SIZE), generator=gen()).double())
        x, end = (Wiener(None, WienerConfig(n_iter=n))(y, operator).x for n in (100, 2000))
        assert relative(x, end) < 1e-3


def test_without_signal_it_is_the_mean() -> None:
    y = torch.full((1, 3, *SIZE), -0.1, dtype=torch.float64)
    result = Wiener(None, WienerConfig())(y, identity())
    assert torch.allclose(result.x, y)
    assert result.nfe == WienerConfig().nfe == 0
    assert result.residuals.shape == (1, 1)


def test_refusal_and_config_errors() -> None:
    with pytest.raises(OperatorError, match="not linear"):
        Wiener(None, WienerConfig())(torch.zeros(1, 3, 16, 16), JPEG())
    bad: list[tuple[str, object]] = [
        *(("noise_std", 0.0), ("power", -1.0), ("power", (1.0, 2.0)), ("corner", 0.0)),
        *(("mean", float("nan")), ("n_iter", 0)),
    ]
    for field, value in bad:
        with pytest.raises(ArgumentError, match=field):
            WienerConfig(**{field: value})  # type: ignore[arg-type]
