"""The whole algorithm against docs/method.md §12.3 and the properties of §12.5."""

import gc
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from golden import Tanh, gen, image, mask, mri, relative
from pnpcm import PRESETS, CGStep, ConsistencyModel, GradientStep, PnPCM, PnPCMConfig, measure
from pnpcm.core import Operator, Result, Step
from pnpcm.errors import ArgumentError, OperatorError, ShapeError
from pnpcm.metrics import ssim
from pnpcm.operators import (
    JPEG,
    FunctionOperator,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    SuperResolution,
)
from pnpcm.operators.bases import SeparableBasis, toeplitz
from pnpcm.solvers.data_steps import data_objective, gradient_descent

SHAPE = (3, 256, 256)


def run(operator: Operator, preset: str, x: Tensor) -> tuple[Result, Tanh]:
    """Test network, no injected noise, noiseless measurement, the preset's numbers."""
    network = Tanh()
    config = replace(PRESETS[preset].solver, noise_scale=0.0)
    y = measure(operator, x, 0.0)
    return PnPCM(ConsistencyModel(network), config)(y, operator), network


def samples(x: Tensor) -> list[float]:
    return [float(x[0, 0, 0, 0]), float(x[0, 1, 100, 37])]


def cut_blur() -> GaussianBlur:
    """True operator with its small 1-D singular values zeroed."""
    operator = GaussianBlur(SHAPE)
    B = toeplitz(operator.row, 256, "zero")
    operator._basis = SeparableBasis(B, B, cut=0.03)
    operator.reference = True  # apply through the singular vectors
    return operator


GOLDEN = {
    "superres": (
        *(lambda: SuperResolution(SHAPE), "celeba-hq/superres-4"),
        *(197.5692, 121.23, 0.032182, [0.23464, -0.44477], 1e-5),
        [(188.631, -125.6474), (294.433, -339.7569), (382.902, -1105.691), (389.394, -1105.691)],
    ),
    "true blur": (
        *(lambda: GaussianBlur(SHAPE), "celeba-hq/deblur-gauss"),
        *(223.4483, 135.52, 0.005800, [0.25026, -0.35220], 1e-5),
        [(299.227, -214.0683), (394.833, -460.6584), (441.795, -1127.444), (441.510, -1127.444)],
    ),
    "cut blur": (
        *(cut_blur, "celeba-hq/deblur-gauss"),
        *(223.4486, 135.52, 0.005802, [0.25054, -0.35228], 1e-5),
        None,
    ),
    "reference blur": (
        *(lambda: GaussianBlur(SHAPE, reference=True), "celeba-hq/deblur-gauss"),
        *(214.85, 133.1, 0.02361, [0.2099, -0.4413], 1e-3),
        None,
    ),
    "inpainting": (
        *(lambda: Inpainting(mask()), "celeba-hq/inpaint-70"),
        *(225.2740, -3750.65, 0.036296, [0.34831, -0.43323], 1e-5),
        [(299.693, -214.0683), (371.528, -460.6584), (433.191, -1004.325), (441.078, -1004.325)],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_linear_task_gives_the_golden_numbers(name: str) -> None:
    make, preset, norm, total, mse, points, rel, inputs = GOLDEN[name]
    result, network = run(make(), preset, image())
    assert result.nfe == 4 == len(network.inputs)
    assert float(result.x.norm()) == pytest.approx(norm, rel=rel)
    assert float(result.x.sum()) == pytest.approx(total, rel=max(rel, 5e-5))
    assert float((result.x - image()).square().mean()) == pytest.approx(mse, rel=max(rel, 1e-4))
    assert samples(result.x) == pytest.approx(points, abs=max(rel, 6e-6))
    if inputs is not None:
        assert [n for n, _ in network.inputs] == pytest.approx([n for n, _ in inputs], rel=1e-4)
        assert [c for _, c in network.inputs] == pytest.approx([c for _, c in inputs], abs=0.05)


def test_float32_agrees_with_the_golden_numbers() -> None:
    result, _ = run(SuperResolution(SHAPE), "celeba-hq/superres-4", image().float())
    assert result.x.dtype == torch.float32
    assert float(result.x.norm()) == pytest.approx(197.5692, rel=1e-4)


def test_mri_gives_the_golden_numbers() -> None:
    x, maps, lines = mri()
    operator = MultiCoilMRI(maps, lines)
    result, network = run(operator, "fastmri/pd-r4", x)
    r = result.x
    assert float(r.norm()) == pytest.approx(75.8697, abs=6e-5)
    assert relative(r, x) == pytest.approx(0.007532, abs=6e-7)
    assert float(r[0, 0, 160, 160]) == pytest.approx(0.99088, abs=6e-6)
    assert float(r[0, 1, 100, 200]) == pytest.approx(-0.02794, abs=6e-6)
    magnitude, reference = (t.square().sum(1, keepdim=True).sqrt() for t in (r, x))
    mse = (magnitude - reference).square().mean()
    psnr = 20 * torch.log10(reference.max() / mse.sqrt())
    assert float(psnr) == pytest.approx(55.008, abs=6e-4)
    value = float(ssim(magnitude, reference, value_range=(0, 1)))
    assert value == pytest.approx(0.99993, abs=6e-6)
    norms, noises = zip(*network.inputs, strict=True)
    assert norms == pytest.approx([137.384, 132.834, 146.016, 144.701], rel=1e-4)
    assert noises == pytest.approx([-368.1024, -876.6187, -664.7943, -838.0811], abs=0.05)


def jpeg_run(**options: bool) -> tuple[Tensor, list[float]]:
    """JPEG with lr 5e-4 as the authors' file has it, in float32 as they ran it.

    Also the inner loss that the last step of each iteration saw. The accumulated run is
    sensitive to rounding from the third iteration on (float64 gives 2219.6 there).
    """
    losses: list[float] = []

    class Inner:
        def __call__(
            self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
        ) -> Tensor:
            plain, seen = data_objective(v, y, operator, rho), []

            def objective(z: Tensor) -> tuple[Tensor, Tensor]:
                loss, g = plain(z)
                seen.append(float(loss))
                return loss, g

            assert z_prev is not None
            z = gradient_descent(
                objective, z_prev, lr=5e-4, n_iter=100, lr_decay=0.8, decay_first=True, **options
            )
            losses.append(seen[-1])
            return z

    config = replace(PRESETS["celeba-hq/jpeg-5"].solver, noise_scale=0.0, data_step=Inner())
    operator = JPEG(5)
    y = measure(operator, image().float(), 0.0)
    return PnPCM(ConsistencyModel(Tanh()), config)(y, operator).x, losses


def test_jpeg_with_accumulated_gradients() -> None:
    x, losses = jpeg_run(accumulate=True)
    assert losses[:2] == pytest.approx([1849.9, 2638.9], rel=1e-4)
    assert losses[2:] == pytest.approx([2196.7, 686.6], rel=1e-2)
    assert float(x.norm()) == pytest.approx(224.460, rel=1e-2)
    assert float((x - image()).square().mean()) == pytest.approx(0.08759, rel=1e-2)
    step = GradientStep("sgd", lr=5e-4, n_iter=100, lr_decay=0.8, reference=True)
    config = replace(PRESETS["celeba-hq/jpeg-5"].solver, noise_scale=0.0, data_step=step)
    y = measure(JPEG(5), image().float(), 0.0)
    assert torch.equal(PnPCM(ConsistencyModel(Tanh()), config)(y, JPEG(5)).x, x)


def test_jpeg_with_cleared_gradients() -> None:
    x, losses = jpeg_run(accumulate=False)
    assert losses == pytest.approx([2308.5, 3441.6, 4216.2, 4530.8], rel=1e-4)
    assert float(x.norm()) == pytest.approx(230.662, rel=1e-2)
    assert float((x - image()).square().mean()) == pytest.approx(0.09509, rel=1e-2)


# properties, docs/method.md §12.5 ----------------------------------------------------------------
def identity_prior() -> ConsistencyModel:
    """f(v, s) = v: told always the smallest level, where the boundary condition holds."""
    return ConsistencyModel(Tanh(), sigma_min=0.002, sigma_max=0.0021)


def small_config(**changes: object) -> PnPCMConfig:
    base = PnPCMConfig(
        sigmas=(0.002,) * 3, deltas=(0.0,) * 3, rhos=(0.5, 1.0, 2.0), noise_scale=0.0, clamp=False
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_identity_prior_makes_proximal_point_iterations() -> None:
    """x = z + u, u stays 0, z_k = prox of z_{k−1}: written out for a diagonal operator."""
    operator = FunctionOperator(lambda x: 0.5 * x, (1, 4, 4), linear=True)
    y = torch.rand((1, 1, 4, 4), generator=gen(), dtype=torch.float64)
    seen: list[Step] = []
    result = PnPCM(identity_prior(), small_config())(y, operator, callback=seen.append)
    z = torch.zeros_like(y)
    for rho, step in zip((0.5, 1.0, 2.0), seen, strict=True):
        z = (0.5 * y + rho * z) / (0.25 + rho)
        assert torch.allclose(step.z, z, atol=1e-9)
        assert torch.allclose(step.x, z, atol=1e-9)
        assert float(step.u.abs().max()) < 1e-9
    assert [s.k for s in seen] == [1, 2, 3]
    assert torch.equal(result.x, seen[-1].x)


def test_clamping_leaves_the_excess_in_the_dual() -> None:
    operator = FunctionOperator(lambda x: x, (1, 2, 2), linear=True)
    y = torch.full((1, 1, 2, 2), 5.0)
    seen: list[Step] = []
    PnPCM(identity_prior(), small_config(clamp=True))(y, operator, callback=seen.append)
    assert float(seen[0].x.max()) == 1.0
    assert torch.allclose(seen[0].u, seen[0].z - 1.0)


def test_first_momentum_step_amplifies_a_zero_start() -> None:
    """With x_init = 0 the extrapolation after step 1 is (1 + μ) x."""
    operator = FunctionOperator(lambda x: x, (1, 2, 2), linear=True)
    y = torch.full((1, 1, 2, 2), 0.3, dtype=torch.float64)
    config = small_config(mu=0.2, rhos=(1.0, 1e9, 1e9))
    seen: list[Step] = []
    PnPCM(identity_prior(), config)(y, operator, callback=seen.append)
    # ρ → ∞ gives z = x̃ − ũ, and ũ = 0
    assert torch.allclose(seen[1].z, 1.2 * seen[0].x, atol=1e-6)


def test_large_and_small_penalties() -> None:
    x = image()[..., :32, :32].contiguous()
    operator = GaussianBlur((3, 32, 32), 3, 0.5)
    y, v = operator.A(x), 0.3 * x
    assert relative(operator.prox_l2(v, y, 1e-9), v) < 1e-8  # ρ → ∞: z = v
    assert relative(operator.prox_l2(v, y, 1e9), x) < 1e-4  # ρ → 0: z = A⁻¹y


def test_delta_reaches_the_prior_without_noise() -> None:
    network = Tanh()
    config = small_config(sigmas=(0.1, 0.1, 0.1), deltas=(0.0, 1.0, 3.0))
    operator = FunctionOperator(lambda x: x, (1, 2, 2), linear=True)
    PnPCM(ConsistencyModel(network), config)(torch.zeros(1, 1, 2, 2), operator)
    expected = [250 * torch.tensor(s).log().item() for s in (0.1, 0.2, 0.4)]
    assert [c for _, c in network.inputs] == pytest.approx(expected, abs=1e-2)


def test_levels_are_clamped_into_the_priors_range() -> None:
    network = Tanh()
    prior = ConsistencyModel(network, sigma_min=0.05, sigma_max=0.2)
    config = small_config(sigmas=(5.0, 0.1, 0.001))
    operator = FunctionOperator(lambda x: x, (1, 2, 2), linear=True)
    PnPCM(prior, config)(torch.zeros(1, 1, 2, 2), operator)
    expected = [250 * torch.tensor(s).log().item() for s in (0.2, 0.1, 0.05)]
    assert [c for _, c in network.inputs] == pytest.approx(expected, abs=1e-2)


def test_one_preset_serves_both_ranges() -> None:
    """The same problem in [0, 1] gives the same image, mapped."""
    x = image()[..., :32, :32].contiguous()
    config = PRESETS["celeba-hq/deblur-gauss"].solver
    operator = FunctionOperator(lambda t: t.roll(1, -1) * 0.5 + t * 0.5, (3, 32, 32), linear=True)
    prior = ConsistencyModel(Tanh())
    y = operator.A(x)
    wide = PnPCM(prior, config)(y, operator, generator=gen(1)).x
    unit = PnPCM(prior, config)(
        operator.A((x + 1) / 2), operator, generator=gen(1), value_range=(0, 1)
    ).x
    assert torch.allclose(unit, (wide + 1) / 2, atol=1e-6)


def test_starts() -> None:
    x = image()[..., :32, :32].contiguous()
    operator = Inpainting(mask()[:32, :32])
    y = operator.A(x)
    config = replace(PRESETS["celeba-hq/inpaint-70"].solver, noise_scale=0.0)
    solve = PnPCM(ConsistencyModel(Tanh()), config)
    automatic = solve(y, operator).x
    assert torch.equal(automatic, solve(y, operator, x_init=operator.x_start(y)).x)
    zero = PnPCM(ConsistencyModel(Tanh()), replace(config, init="zero"))(y, operator).x
    assert torch.equal(zero, solve(y, operator, x_init=torch.zeros_like(y)).x)
    assert not torch.allclose(zero, automatic)
    extended = PnPCM(ConsistencyModel(Tanh()), replace(config, init="extension"))
    assert torch.equal(
        extended(y, operator).x, solve(y, operator, x_init=operator.x_extension(y)).x
    )
    assert torch.equal(extended(y, operator, x_init=operator.x_start(y)).x, automatic)


def test_warm_started_cg_converges_to_the_prox() -> None:
    x, maps, lines = mri()
    operator = MultiCoilMRI(maps, lines)
    y, v = operator.A(x), 0.5 * x
    exact = operator.prox_l2(v, y, 1 / 0.1)
    for start in ("zero", "warm"):
        z = CGStep(200, tol=1e-10, start=start)(v, y, operator, 0.1, z_prev=x)
        assert relative(z, exact) < 1e-8


def test_residuals_are_the_moves() -> None:
    operator = FunctionOperator(lambda x: 0.5 * x, (1, 4, 4), linear=True)
    y = torch.rand((2, 1, 4, 4), generator=gen(), dtype=torch.float64)
    seen: list[Step] = []
    config = small_config(sigmas=(0.3, 0.2, 0.1))
    result = PnPCM(ConsistencyModel(Tanh()), config)(y, operator, callback=seen.append)
    assert result.residuals.shape == (3, 2)
    a, b = seen[1], seen[2]
    moves = [(p - q).flatten(1).norm(dim=1) for p, q in ((b.x, a.x), (b.z, a.z), (b.u, a.u))]
    assert torch.allclose(result.residuals[2], (moves[0] + moves[1] + moves[2]) / 4)


def test_no_image_is_kept_longer_than_it_is_needed() -> None:
    """The prior sees x, u, z, z + ũ and its noisy input alive; the data step x, u, ũ, z, x̃ − ũ."""
    shape, alive = (1, 3, 21, 23), []

    def count(who: str) -> None:
        images = [t for t in gc.get_objects() if type(t) is Tensor and t.shape == shape]
        alive.append((who, len({t.data_ptr() for t in images})))

    class Network(nn.Module):
        def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
            return x

    class Prior(ConsistencyModel):
        def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
            count("prior")
            return super().forward(x, sigma)

    class Inner:
        def __call__(
            self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
        ) -> Tensor:
            count("data")
            return v / 2

    class Mean:
        def A(self, x: Tensor) -> Tensor:
            return x.mean((-2, -1))

        def x_shape(self, y: Tensor) -> tuple[int, ...]:
            return shape

    config = small_config(sigmas=(0.3, 0.2, 0.1), noise_scale=1.0, mu=0.2, data_step=Inner())
    PnPCM(Prior(Network()), config)(torch.zeros(1, 3), Mean(), generator=gen())
    assert max(n for who, n in alive if who == "data") <= 5
    assert max(n for who, n in alive if who == "prior") <= 5


# bad input ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rhos": (1.0, 1.0, -0.5)}, r"rhos\[2\] = -0.5; the paper's tables list values before"),
        ({"sigmas": (0.1, 0.0, 0.1)}, r"sigmas must be positive, got sigmas\[1\]"),
        ({"sigmas": (0.1, float("nan"), 0.1)}, "sigmas"),
        ({"deltas": (0.1, 0.1)}, "deltas has 2 entries for 3 sigmas"),
        ({"deltas": (0.1, 0.1, -2.0)}, "deltas must be above -1"),
        ({"mu": (0.1,)}, "mu has 1 entries"),
        ({"mu": -0.1}, "mu must be ≥ 0"),
        ({"noise_scale": -1.0}, "noise_scale"),
        ({"init": "median"}, "init must be"),
        ({"sigmas": (), "deltas": (), "rhos": ()}, "sigmas is empty"),
        ({"sigmas": 0.1}, "sigmas is 0.1, expected a tuple of numbers"),
        ({"mu": "a"}, "mu is 'a'"),
        ({"data_step": "cg"}, "data_step is 'cg', expected ProxStep"),
    ],
)
def test_bad_configurations_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        small_config(**changes)


def test_bad_calls_are_refused() -> None:
    operator = FunctionOperator(torch.sin, (1, 4, 4))
    y = torch.zeros(1, 1, 4, 4)
    prior = ConsistencyModel(Tanh())
    with pytest.raises(OperatorError, match="has no prox_l2; give PnPCMConfig"):
        PnPCM(prior, small_config())(y, operator)
    with pytest.raises(OperatorError, match="CG needs a linear operator"):
        PnPCM(prior, small_config(data_step=CGStep()))(y, operator)
    linear = FunctionOperator(lambda x: x, (1, 4, 4), linear=True)
    with pytest.raises(ArgumentError, match="y holds NaN"):
        PnPCM(prior, small_config())(y / 0, linear)
    with pytest.raises(ArgumentError, match="generator is None"):
        PnPCM(prior, small_config(noise_scale=1.0))(y, linear)
    with pytest.raises(ArgumentError, match="generator has 2 entries for a batch of 1"):
        PnPCM(prior, small_config(noise_scale=1.0))(y, linear, generator=[gen(), gen()])
    with pytest.raises(ArgumentError, match="x_init holds NaN"):
        PnPCM(prior, small_config())(y, linear, x_init=y / 0)
    with pytest.raises(ShapeError, match=r"x_init has shape \(2, 1, 4, 4\)"):
        PnPCM(prior, small_config())(y, linear, x_init=torch.zeros(2, 1, 4, 4))
    with pytest.raises(ArgumentError, match="x_init is complex; give two channels"):
        PnPCM(prior, small_config())(y, linear, x_init=y.to(torch.complex64))
    with pytest.raises(ShapeError, match="at least one"):
        PnPCM(prior, small_config())(y[:0], linear)
    with pytest.raises(ArgumentError, match="y is a ndarray"):
        PnPCM(prior, small_config())(y.numpy(), linear)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="value_range must be"):
        PnPCM(prior, small_config())(y, linear, value_range=1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="prior returned NaN or infinity in iteration 1"):
        PnPCM(ConsistencyModel(lambda x, c: x / 0 * 0), small_config(sigmas=(0.1,) * 3))(y, linear)
    with pytest.raises(ArgumentError, match="config must be a PnPCMConfig"):
        PnPCM(prior, PRESETS["fastmri/pd-r4"])(y, linear)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="lacks value_range"):
        PnPCM(lambda x, s: x, small_config())(y, linear)  # type: ignore[arg-type]


def test_foreign_nonlinear_operator_needs_x_init() -> None:
    class Foreign:
        def A(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    y = torch.zeros(1, 1, 4, 4)
    solve = PnPCM(ConsistencyModel(Tanh()), small_config(data_step=GradientStep()))
    with pytest.raises(OperatorError, match="give x_init"):
        solve(y, Foreign())
    assert solve(y, Foreign(), x_init=y).x.shape == y.shape
