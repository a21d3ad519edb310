"""Laws over every row of OPERATORS and its variants: batch 1 and 3, odd sizes, both dtypes."""

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm import OPERATORS, measure
from pnpcm.laws import check_operator
from pnpcm.linalg import inner, norm
from pnpcm.mri import birdcage_maps
from pnpcm.operators import (
    JPEG,
    Blur,
    Compose,
    Crop,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    OperatorBase,
    PhaseRetrieval,
    SuperResolution,
)
from pnpcm.rng import generators, randn_like

Make = Callable[[torch.Generator, int, tuple[int, int]], tuple[OperatorBase, Tensor]]
SIZES = ((16, 20), (15, 21))


def from_table(name: str) -> Make:
    return lambda g, batch, size: OPERATORS[name].example(g, batch=batch, size=size)


def picture(g: torch.Generator, batch: int, size: tuple[int, int], channels: int = 3) -> Tensor:
    return torch.rand((batch, channels, *size), generator=g) * 2 - 1


def inpainting_per_image(g: torch.Generator, batch: int, size: tuple[int, int]):  # type: ignore[no-untyped-def]
    mask = torch.rand((batch, 3, *size), generator=g) < 0.4
    return Inpainting(mask), picture(g, batch, size)


def blur(boundary: str, kernel: tuple[int, int], even: bool = False) -> Make:
    def make(g: torch.Generator, batch: int, size: tuple[int, int]) -> tuple[OperatorBase, Tensor]:
        k = torch.rand(kernel, generator=g, dtype=torch.float64)
        k = k + k.flip(0) + k.flip(1) + k.flip(0, 1) if even else k
        return Blur(k / k.sum(), (2, *size), boundary), picture(g, batch, size, 2)

    return make


def mri_2d(g: torch.Generator, batch: int, size: tuple[int, int]) -> tuple[OperatorBase, Tensor]:
    maps = birdcage_maps(3, size).expand(batch, 3, *size) * torch.rand(
        (batch, 1, 1, 1), generator=g
    )
    mask = torch.rand((batch, *size), generator=g) < 0.4
    return MultiCoilMRI(maps, mask), picture(g, batch, size, 2)


def mri_two_sets(mask_axes: int, each: bool) -> Make:
    """Two sets of maps: by rows (1-D mask) or by CG (2-D mask), one for all or one per image."""

    def make(g: torch.Generator, batch: int, size: tuple[int, int]) -> tuple[OperatorBase, Tensor]:
        n = batch if each else 1
        maps = torch.randn((n, 2, 3, *size), generator=g, dtype=torch.complex64) / 3
        mask = torch.rand((n, size[0] if mask_axes == 2 else 1, size[1]), generator=g) < 0.5
        mask[..., size[1] // 2] = True
        return MultiCoilMRI(maps, mask.expand(n, *size)), picture(g, batch, size, 4)

    return make


def crop_of_blur(g: torch.Generator, batch: int, size: tuple[int, int]):  # type: ignore[no-untyped-def]
    blurred = Blur(torch.ones(3, 3) / 9, (3, *size))
    return Compose(Crop((3, *size), 1), blurred), picture(g, batch, size)


VARIANTS: dict[str, Make] = {name: from_table(name) for name in OPERATORS} | {
    "inpainting, mask per image": inpainting_per_image,
    "blur, circular": blur("circular", (4, 3)),
    "blur, reflect": blur("reflect", (4, 5)),
    "blur, reflect, even": blur("reflect", (5, 3), even=True),
    "blur, one row": blur("zero", (1, 6)),
    "blur, large": blur("zero", (15, 14)),
    "gaussian-blur, reference": lambda g, b, s: (
        GaussianBlur((3, *s), reference=True),
        picture(g, b, s),
    ),
    "superresolution, grey": lambda g, b, s: (
        SuperResolution((1, *s), 1 if s[0] % 2 else 2),
        picture(g, b, s, 1),
    ),
    "mri, 2-D masks and maps per image": mri_2d,
    "mri, two sets": mri_two_sets(1, each=False),
    "mri, two sets, 2-D masks per image": mri_two_sets(2, each=True),
    "mri, two sets, 1-D masks per image": mri_two_sets(1, each=True),
    "crop after blur": crop_of_blur,
    "jpeg, 4:4:4": lambda g, b, s: (JPEG(50, subsampling="4:4:4"), picture(g, b, s)),
    "jpeg, grey": lambda g, b, s: (JPEG(20), picture(g, b, s, 1)),
}


def only(operator: OperatorBase, i: int) -> OperatorBase:
    """The operator of image ``i`` alone, where constants differ between images."""
    if isinstance(operator, Inpainting) and len(operator.mask) > 1:
        return Inpainting(operator.mask[i : i + 1])
    if isinstance(operator, MultiCoilMRI) and len(operator.mask) > 1:
        return MultiCoilMRI(operator.coil_maps[i : i + 1], operator.mask[i : i + 1])
    return operator


PER_IMAGE = {name for name in VARIANTS if "per image" in name}
PLACES = list(itertools.product(VARIANTS, SIZES))


def is_linear(name: str) -> bool:
    return VARIANTS[name](gen(), 1, SIZES[0])[0].linear


def is_decomposed(name: str) -> bool:
    return getattr(VARIANTS[name](gen(), 1, SIZES[0])[0], "decomposed", False)


LINEAR = [name for name in VARIANTS if is_linear(name)]
DECOMPOSED = [name for name in LINEAR if is_decomposed(name)]
LINEAR_PLACES = list(itertools.product(LINEAR, SIZES, (1, 3), (torch.float32, torch.float64)))


def label(value: object) -> str:
    """Name of a parameter in the name of a test: 16x20, float32."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return str(value).removeprefix("torch.")


def build(
    name: str, batch: int, size: tuple[int, int], dtype: torch.dtype = torch.float32
) -> tuple[OperatorBase, Tensor, Tensor]:
    operator, x = VARIANTS[name](gen(7), batch, size)
    x = x.to(dtype)
    return operator, x, operator.A(x)


@pytest.mark.parametrize(("name", "size", "batch", "dtype"), LINEAR_PLACES, ids=label)
def test_adjoint_and_linearity(
    name: str, size: tuple[int, int], batch: int, dtype: torch.dtype
) -> None:
    operator, x, y = build(name, batch, size, dtype)
    bound = 1e-5 if dtype == torch.float32 else 1e-12
    v = randn_like(y, generators(range(batch)))
    other = randn_like(x, generators(range(batch)))
    adjoint = operator.A_adjoint(v)
    assert adjoint.shape == x.shape
    assert adjoint.dtype == dtype
    gap = (inner(y, v) - inner(x, adjoint)).abs() / (norm(y) * norm(v))
    assert float(gap.max()) <= bound
    assert relative(operator.A(2 * x - other), 2 * y - operator.A(other)) <= 10 * bound
    assert relative(operator.A_adjoint_A(x), operator.A_adjoint(y)) <= 10 * bound


@pytest.mark.parametrize(("name", "size", "batch", "dtype"), LINEAR_PLACES, ids=label)
def test_prox_is_optimal(name: str, size: tuple[int, int], batch: int, dtype: torch.dtype) -> None:
    operator, x, y = build(name, batch, size, dtype)
    z = randn_like(x, generators(range(batch)))
    for gamma in (1e-3, 1.0, 55.0):
        p = operator.prox_l2(z, y, gamma, solver="CG", max_iter=1, tol=0.1, verbose=False)
        slope = gamma * operator.A_adjoint(operator.A(p) - y) + p - z
        bound = (1e-6 if dtype == torch.float32 else 1e-9) * (1 + gamma)
        assert float((norm(slope) / (norm(z) + norm(x))).max()) <= bound
    weights = torch.linspace(0.5, 2.0, batch, dtype=dtype)
    each = operator.prox_l2(z, y, weights)
    if name not in PER_IMAGE:
        for i in range(batch):
            alone = operator.prox_l2(z[i : i + 1], y[i : i + 1], float(weights[i]))
            assert relative(each[i : i + 1], alone) < 1e-5


@pytest.mark.parametrize(("name", "size"), [*itertools.product(LINEAR, SIZES)], ids=label)
def test_pseudo_inverse(name: str, size: tuple[int, int]) -> None:
    """Loaded: Aᵀ(AAᵀ + r)⁻¹y is where the gradient of ½‖Ax − y‖² + r/2 ‖x‖² vanishes."""
    operator, _, y = build(name, 2, size, torch.float64)
    x = operator.A_dagger(y, 0.05, max_iter=3)
    slope = operator.A_adjoint(operator.A(x) - y) + 0.05 * x
    assert float((norm(slope) / norm(x)).max()) < 1e-8
    exact = operator.A_dagger(y)
    assert relative(operator.A(exact), y) < 1e-3  # y lies in the range of A
    # in float32 what is small must be cut, not blown up
    single = operator.A_dagger(y.to(torch.complex64 if y.is_complex() else torch.float32))
    assert float(norm(single).max()) <= 1.01 * float(norm(exact).max())
    assert relative(operator.A(single), operator.A(exact).to(operator.A(single))) < 2e-2


@pytest.mark.parametrize("name", [name for name in LINEAR if name not in PER_IMAGE])
def test_conditional_draws_have_the_stated_law(name: str) -> None:
    """Mean and covariance of w·z over many draws against Q⁻¹ (prox of the unperturbed data)."""
    operator, x, y = build(name, 1, (15, 14) if "large" in name else (8, 10), torch.float64)
    noise_std, eta, n = 0.3, 0.5, 600
    v = 0.2 * x
    draws = operator.sample_conditional(
        v.expand(n, *v.shape[1:]), y.expand(n, *y.shape[1:]), noise_std, eta, gen(5)
    )
    mean = operator.prox_l2(v, y, (eta / noise_std) ** 2)
    zero_x, zero_y = torch.zeros_like(x), torch.zeros_like(y)
    for w in (torch.ones_like(x), randn_like(x, gen(6)), x):
        # wᵀQ⁻¹w with Q = AᵀA/noise_std² + 1/eta²: eta² times a prox with zero data
        variance = eta**2 * inner(w, operator.prox_l2(zero_x + w, zero_y, (eta / noise_std) ** 2))
        values = inner(draws - mean, w.expand_as(draws)) / variance.sqrt()
        assert abs(float(values.mean())) < 5 / n**0.5
        assert float(values.var()) == pytest.approx(1, abs=6 * (2 / n) ** 0.5)


@pytest.mark.parametrize(("name", "size"), PLACES, ids=label)
def test_batch_equals_singles(name: str, size: tuple[int, int]) -> None:
    operator, x, y = build(name, 3, size)
    seeds = [11, 12, 13]
    noisy = measure(operator, x, 0.05, generator=generators(seeds))
    assert operator.x_shape(y) == tuple(x.shape)
    counts = []
    for i, seed in enumerate(seeds):
        single = only(operator, i)
        alone = measure(single, x[i : i + 1], 0.05, generator=gen(seed))
        assert relative(noisy[i : i + 1], alone) < 1e-6
        assert relative(y[i : i + 1], single.A(x[i : i + 1])) < 1e-6
        counts.append(single.n_measured(y[i : i + 1]))
        if operator.linear:
            prox = operator.prox_l2(0.5 * x, noisy, 3.0)[i : i + 1]
            assert relative(prox, single.prox_l2(0.5 * x[i : i + 1], alone, 3.0)) < 1e-5
    assert operator.n_measured(y) == sum(counts)


@pytest.mark.parametrize(("name", "size"), PLACES, ids=label)
def test_calls_leave_everything_as_it_was(name: str, size: tuple[int, int]) -> None:
    operator, x, y = build(name, 2, size)
    state = torch.get_rng_state()
    copies = x.clone(), y.clone()
    twin = copy.deepcopy(operator)
    operator.A(x)
    measure(operator, x, 0.1, generator=gen())
    if operator.linear:
        operator.A_adjoint(y)
        operator.prox_l2(x, y, 2.0, max_iter=1)
        operator.sample_conditional(x, y, 0.1, 0.2, gen())
    assert torch.equal(x, copies[0])
    assert torch.equal(y, copies[1])
    assert torch.equal(operator.A(x), twin.A(x))
    assert torch.equal(operator(x), y)
    assert torch.equal(torch.get_rng_state(), state)
    again = measure(operator, x, 0.1, generator=gen(3))
    assert torch.equal(again, measure(operator, x, 0.1, generator=gen(3)))


@pytest.mark.parametrize("name", VARIANTS)
def test_dtype_is_kept_and_vjp_is_the_adjoint(name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        operator, x, y = build(name, 1, SIZES[0], dtype)
        assert y.dtype in (dtype, dtype.to_complex())
        v = randn_like(y, gen())
        product = operator.A_vjp(x, v)
        assert product.dtype == dtype
        if operator.linear:
            assert relative(product, operator.A_adjoint(v)) < 1e-5


@pytest.mark.parametrize("name", VARIANTS)
def test_public_check_agrees(name: str) -> None:
    operator, x, _ = build(name, 2, SIZES[0])
    report = check_operator(operator, x, generator=gen())
    assert report.ok, str(report)
    assert ("adjoint" in str(report)) == operator.linear


@pytest.mark.parametrize("name", DECOMPOSED)
def test_spectral_access_rebuilds_the_operator(name: str) -> None:
    operator, x, y = build(name, 1, SIZES[1], torch.float64)
    s = operator.singular_values
    assert bool((s >= 0).all())
    assert relative(operator.U(s * operator.V_adjoint(x)), y) < 1e-9
    assert (
        relative(operator.V_adjoint(operator.V(operator.V_adjoint(x))), operator.V_adjoint(x))
        < 1e-9
    )


def test_the_closed_forms_are_where_they_should_be() -> None:
    closed = {"inpainting", "superresolution", "gaussian-blur", "blur, circular", "crop"}
    assert closed | {"blur, reflect, even", "blur, one row"} <= set(DECOMPOSED)
    assert {"mri", "compose", "blur, large"}.isdisjoint(DECOMPOSED)


def test_phase_retrieval_is_listed_as_nonlinear() -> None:
    assert OPERATORS["phase-retrieval"] is PhaseRetrieval
    assert {"jpeg", "nonlinear-blur", "phase-retrieval"}.isdisjoint(LINEAR)
