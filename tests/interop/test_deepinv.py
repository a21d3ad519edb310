"""Objects with deepinv's signatures and mutable state work unchanged."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golden import Tanh, gen, image, mask, relative
from pnpcm import (
    PRESETS,
    CGStep,
    ConsistencyModel,
    GaussianPrior,
    GradientStep,
    PnPCM,
    check_operator,
    load_prior,
    measure,
)
from pnpcm.errors import ArgumentError
from pnpcm.interop import as_denoiser, as_reconstructor, from_denoiser
from pnpcm.operators import Inpainting

SIZE = (32, 32)


class GaussianNoise(nn.Module):
    """deepinv's noise model: draws from the global random state."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, x: Tensor) -> Tensor:
        return x + self.sigma * torch.randn_like(x)


class Physics(nn.Module):
    """A class with the interface of deepinv's linear inpainting."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask.float())
        self.noise_model = GaussianNoise(0.1)
        self.max_iter, self.tol, self.solver = 50, 1e-4, "CG"

    def update(self, mask: Tensor | None = None, **kwargs: Any) -> None:
        if mask is not None:  # the trap: a keyword of one call changes all later ones
            self.mask = mask

    def A(self, x: Tensor, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        self.update(mask=mask, **kwargs)
        return self.mask.to(x) * x

    def A_adjoint(self, y: Tensor, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        return self.A(y, mask=mask, **kwargs)

    def A_adjoint_A(self, x: Tensor, **kwargs: Any) -> Tensor:
        return self.A_adjoint(self.A(x, **kwargs), **kwargs)

    def A_dagger(self, y: Tensor, solver: str | None = None, **kwargs: Any) -> Tensor:
        return self.A_adjoint(y)

    def prox_l2(
        self,
        z: Tensor,
        y: Tensor,
        gamma: float | Tensor,
        solver: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        if max_iter is not None:  # the other trap
            self.max_iter = max_iter
        m = self.mask.to(z)
        return (gamma * m * y + z) / (gamma * m + 1)

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        return self.noise_model(self.A(x, **kwargs))


class Nonlinear(nn.Module):
    """A deepinv physics that is not linear: A only."""

    def A(self, x: Tensor, **kwargs: Any) -> Tensor:
        return torch.tanh(2 * x)


def physics() -> Physics:
    return Physics(mask()[: SIZE[0], : SIZE[1]])


def picture() -> Tensor:
    return (image()[..., : SIZE[0], : SIZE[1]].float() + 1) / 2


def test_linear_physics_gives_what_our_operator_gives() -> None:
    theirs, ours = physics(), Inpainting(mask()[: SIZE[0], : SIZE[1]])
    prior = ConsistencyModel(Tanh())
    config = replace(PRESETS["celeba-hq/inpaint-70"].solver, init="zero")
    y = ours.A(picture())
    before = {k: v.clone() for k, v in theirs.state_dict().items()}
    results = [
        PnPCM(prior, config)(y, operator, generator=gen(1), value_range=(0, 1)).x
        for operator in (theirs, ours)
    ]
    assert relative(results[0], results[1]) < 1e-6
    by_cg = replace(config, data_step=CGStep(30, 1e-6))
    solved = PnPCM(prior, by_cg)(y, theirs, generator=gen(1), value_range=(0, 1)).x
    assert relative(solved, results[1]) < 1e-4
    assert theirs.max_iter == 50  # no keyword of ours reached it
    assert all(torch.equal(v, before[k]) for k, v in theirs.state_dict().items())


def test_measure_never_calls_the_noisy_forward() -> None:
    theirs, state = physics(), torch.get_rng_state()
    y = measure(theirs, picture(), 0.05, generator=gen(2), value_range=(0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    noise = (y - theirs.A(picture())).std()
    assert abs(float(noise) - 0.05) < 2e-3
    clean = measure(theirs, picture(), 0.0)
    assert torch.equal(clean, theirs.A(picture()))


def test_nonlinear_physics_needs_gradient_step_and_x_init() -> None:
    x = picture()
    y = Nonlinear().A(x)
    step = GradientStep("lbfgs", n_iter=10)
    config = replace(PRESETS["celeba-hq/deblur-gauss"].solver, data_step=step, noise_scale=0.0)
    solve = PnPCM(GaussianPrior(0.0, 0.5), config)
    result = solve(y, Nonlinear(), generator=gen(), x_init=0 * x + 0.5, value_range=(0, 1))
    assert relative(result.x, x) < 0.2


def test_laws_of_a_foreign_physics() -> None:
    report = check_operator(physics(), picture(), generator=gen())
    assert report.ok, str(report)


def test_a_bare_linear_operator_needs_no_prox() -> None:
    class Bare:
        def A(self, x: Tensor) -> Tensor:
            return 0.5 * x.roll(2, -1)

        def A_adjoint(self, y: Tensor) -> Tensor:
            return 0.5 * y.roll(-2, -1)

    x = image()[..., :16, :16].contiguous()
    y = Bare().A(x)
    config = replace(PRESETS["celeba-hq/deblur-gauss"].solver, noise_scale=0.0)
    result = PnPCM(ConsistencyModel(Tanh()), config)(y, Bare())
    assert result.x.shape == x.shape
    assert relative(result.x, x) < 0.2


def test_denoisers_become_priors_and_priors_denoisers() -> None:
    gaussian = GaussianPrior(0.0, 0.5, kind="edm")
    denoiser = as_denoiser(gaussian)
    x = picture()
    # in [0, 1] units: mean ½, std ¼
    expected = 0.5 + (x - 0.5) * 0.25**2 / (0.25**2 + 0.1**2)
    assert torch.allclose(denoiser(x, 0.1), expected, atol=1e-6)
    both = denoiser(torch.cat([x, x]), torch.tensor([0.1, 0.2]))
    assert torch.allclose(both[:1], expected, atol=1e-6)
    assert not torch.allclose(both[1:], expected, atol=1e-3)
    prior = from_denoiser(denoiser)
    assert prior.value_range == (0.0, 1.0)
    config = replace(PRESETS["celeba-hq/deblur-gauss"].solver, noise_scale=0.0)
    operator = Inpainting(mask()[: SIZE[0], : SIZE[1]])
    y = operator.A(2 * x - 1)
    direct = PnPCM(gaussian, config)(y, operator).x
    around = PnPCM(prior, config)(y, operator).x
    assert torch.allclose(direct, around, atol=1e-5)


class ShrinkingDenoiser(nn.Module):
    """deepinv's older signature: the level fills a map, so it must be one number."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.5))
        self.told: list[float] = []

    def forward(self, x: Tensor, sigma: float) -> Tensor:
        self.told.append(sigma)
        level = torch.empty(len(x), 1, *x.shape[2:]).fill_(sigma)
        return self.gain * x / (1 + level)


def test_load_prior_takes_a_denoiser_object() -> None:
    denoiser = ShrinkingDenoiser()
    prior: Any = load_prior(denoiser, sigma_max=0.2)  # type: ignore[arg-type]
    assert (prior.kind, prior.value_range, prior.nfe_per_call) == ("edm", (0.0, 1.0), 1)
    assert (prior.sigma_min, prior.sigma_max) == (0.001, 0.2)
    x = picture()
    assert torch.allclose(prior(x, 0.1), x / 2 / 1.1)
    both = prior(torch.cat([x, x]), torch.tensor([0.1, 0.05]))  # one number at a time
    assert torch.allclose(both, torch.cat([x / 2 / 1.1, x / 2 / 1.05]))
    assert denoiser.told == pytest.approx([0.1, 0.1, 0.05])
    with pytest.warns(UserWarning, match=r"sigma is 0\.5.*trained for 0\.001 to 0\.2"):
        assert torch.allclose(prior(x, 0.5), x / 2 / 1.2)
    assert prior(x.double(), 0.1).dtype == torch.float64  # though its weights are float32
    assert prior.to("cpu").network.denoiser is denoiser
    assert denoiser.gain.requires_grad  # the object itself is left as it is
    open_end: Any = load_prior(lambda x, sigma: x)
    assert open_end.sigma_max == 50.0  # nothing is known about it


def test_deepinvs_drunet_tells_its_levels_by_its_weights() -> None:
    from pnpcm.networks.kair import DenoiserConfig, build_denoiser

    network = build_denoiser(DenoiserConfig("drunet", 1, (2, 2, 2, 2), 1))
    assert from_denoiser(network).sigma_max == pytest.approx(50 / 255)  # type: ignore[arg-type]
    wide = from_denoiser(network, value_range=(-1, 1))  # type: ignore[arg-type]
    assert wide.sigma_max == pytest.approx(100 / 255)


def test_load_prior_refuses_what_an_object_does_not_take() -> None:
    def denoiser(x: Tensor, sigma: float) -> Tensor:
        return x

    for options, message in (
        ({"kind": "vp"}, "of kind 'edm'; leave kind out"),
        ({"c_noise": "edm"}, "leave c_noise out"),
        ({"network": {}}, "leave network out"),
        ({"sigma_min": 0.2, "sigma_max": 0.1}, "0 ≤ sigma_min < sigma_max"),
    ):
        with pytest.raises(ArgumentError, match=message):
            load_prior(denoiser, **options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="is a int, expected a name, a path or a denoiser"):
        load_prior(3)  # type: ignore[arg-type]
    prior = ConsistencyModel(Tanh())
    assert load_prior(prior) is prior  # it is one already
    with pytest.raises(ArgumentError, match="leave sigma_max out"):
        load_prior(prior, sigma_max=2.0)


def test_solver_as_reconstructor() -> None:
    theirs = physics()
    config = PRESETS["celeba-hq/inpaint-70"].solver
    solver = PnPCM(ConsistencyModel(Tanh()), config)
    model = as_reconstructor(solver, generator=gen(3))
    y = theirs.A(picture())
    expected = solver(y, theirs, generator=gen(3), value_range=(0, 1)).x
    assert torch.equal(model(y, theirs), expected)
    assert float(model(y, theirs).min()) >= 0
