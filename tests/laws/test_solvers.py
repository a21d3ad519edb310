"""Laws over every prior, solver and configuration."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm import (
    OPERATORS,
    PRESETS,
    PRIORS,
    SOLVERS,
    CGStep,
    GaussianPrior,
    GradientStep,
    PnPCM,
    PnPCMConfig,
    ProxStep,
    measure,
)
from pnpcm.baselines import BASELINES
from pnpcm.core import Config
from pnpcm.counted import CountedPrior
from pnpcm.errors import ArgumentError, OperatorError, UnknownNameError
from pnpcm.operators import FunctionOperator
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.priors.controlled import ControlledModel
from pnpcm.rng import generators, per_image, randn_like
from pnpcm.solvers.base import SolverBase
from pnpcm.solvers.problem import is_linear

DETERMINISTIC = {"tv", "wiener", "pnp-admm", "dpir"}
"""Solvers that draw nothing."""


def solver_for(name: str, operator: object) -> SolverBase[Any]:
    """A short run of the solver with a fitting prior and, for nonlinear operators, data step."""
    solver = SOLVERS[name]
    config = solver.config_type.example()
    if hasattr(config, "data_step") and not is_linear(operator):
        config = replace(config, data_step=GradientStep("lbfgs", n_iter=4))
    if hasattr(config, "noise_aware") and is_linear(operator):
        # an unloaded pseudo-inverse of a blur makes images of rounding
        config = replace(config, noise_aware=True, noise_std=0.1)
    channels = 2 if isinstance(operator, OPERATORS["mri"]) else 3
    return solver(prior_for(solver, channels), config)


def prior_for(solver: type[SolverBase[Any]], channels: int) -> Any:
    if not solver.takes_prior:
        return None
    if solver.name == "cosign":
        return ControlledModel.example(channels)
    return StationaryGaussianPrior(kind="edm" if "edm" in solver.kinds else "consistency")


def problem(name: str, batch: int) -> tuple[Any, Tensor]:
    """An operator and a measurement of ``batch`` images, in float64."""
    operator, x = OPERATORS[name].example(gen(), batch=batch)
    y = measure(operator, x.double(), 0.05, generator=generators(range(batch)))
    return operator, y


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", OPERATORS)
def test_batch_equals_singles(name: str, solver: str) -> None:
    operator, y = problem(name, 3)
    solve = solver_for(solver, operator)
    reason = solve.refusal(operator)
    if reason is not None:
        with pytest.raises(OperatorError, match="cannot serve"):
            solve(y, operator, generator=gen())
        assert len(reason) > 20  # it says why
        return
    together = solve(y, operator, generator=generators([4, 5, 6]))
    for i, seed in enumerate((4, 5, 6)):
        alone = solve(y[i : i + 1], operator, generator=gen(seed))
        # an L-BFGS line search may branch on the last bit; the others only round
        descends = isinstance(getattr(solve.config, "data_step", None), GradientStep)
        assert relative(together.x[i : i + 1], alone.x) < (1e-3 if descends else 1e-6)
    assert together.nfe == solve.config.nfe
    assert together.x.shape == operator.x_shape(y)
    assert together.residuals.shape[-1] == 3


@pytest.mark.parametrize("solver", SOLVERS)
def test_another_range_is_the_same_problem(solver: str) -> None:
    """Images in [0, 1], as deepinv has them: the same result, mapped."""
    operator, y = problem("inpainting", 2)
    solve = solver_for(solver, operator)
    usual = solve(y, operator, generator=generators([1, 2])).x
    grey = operator.A(torch.full(operator.x_shape(y), 0.5, dtype=torch.float64))
    other = solve(y / 2 + grey, operator, generator=generators([1, 2]), value_range=(0.0, 1.0)).x
    assert relative(other, (usual + 1) / 2) < 1e-6


STEPS = {
    "cg": CGStep(6),
    "cg warm": CGStep(6, 1e-3, "warm"),
    "sgd": GradientStep("sgd", 0.1, 6, 0.5),
    "adam": GradientStep("adam", 0.05, 6, 0.5, 1e-3),
    "reference": GradientStep("sgd", 0.05, 6, 0.5, reference=True),
    "lbfgs": GradientStep("lbfgs", n_iter=6, tol=1e-4),
}


@pytest.mark.parametrize("step", STEPS)
def test_every_data_step_treats_images_alone(step: str) -> None:
    """Three images of very different scale, so that shared steps or stops would show."""
    operator, x = OPERATORS["mri"].example(gen(), batch=3)
    x = x * torch.tensor([1.0, 0.01, 0.3]).reshape(3, 1, 1, 1)
    config = replace(PRESETS["fastmri/pd-r4"].solver, data_step=STEPS[step])
    solve = PnPCM(PRIORS["consistency"].example(), config)
    y = measure(operator, x, 0.05, generator=generators([1, 2, 3]))
    together = solve(y, operator, generator=generators([4, 5, 6])).x
    for i, seed in enumerate((4, 5, 6)):
        alone = solve(y[i : i + 1], operator, generator=gen(seed)).x
        assert relative(together[i : i + 1], alone) < 1e-4


def served() -> list[tuple[str, str]]:
    """Pairs of an operator and a solver that takes it; the law of batches has the others."""
    found = []
    for name in ("inpainting", "mri", "jpeg", "phase-retrieval"):
        operator, _ = OPERATORS[name].example(gen())
        found += [(name, s) for s in SOLVERS if solver_for(s, operator).refusal(operator) is None]
    return found


@pytest.mark.parametrize(("name", "solver"), served())
def test_same_generator_same_result_and_nothing_touched(name: str, solver: str) -> None:
    operator, y = problem(name, 2)
    solve = solver_for(solver, operator)
    y_before, state = y.clone(), torch.get_rng_state()
    first = solve(y, operator, generator=gen(2)).x
    assert torch.equal(first, solve(y, operator, generator=gen(2)).x)
    drawn = solver not in DETERMINISTIC or name == "phase-retrieval"  # whose start is random
    assert torch.equal(first, solve(y, operator, generator=gen(3)).x) != drawn
    assert torch.equal(y, y_before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", PRIORS)
def test_prior_law(name: str) -> None:
    prior = PRIORS[name].example()
    x = randn_like(torch.zeros(3, 3, 16, 20), gen())
    before = x.clone()
    levels = torch.tensor([0.01, 0.5, 20.0])
    together = prior(x, levels)
    for i in range(3):
        alone = prior(x[i : i + 1], float(levels[i]))
        assert relative(together[i : i + 1], alone) < 1e-5
    assert torch.equal(x, before)
    assert prior(x.double(), 0.3).dtype == torch.float64
    assert (prior.sigma_min, prior.sigma_max) == (0.002, 80.0)
    assert prior.value_range == (-1.0, 1.0)
    if prior.kind == "consistency":
        assert torch.allclose(prior(x, prior.sigma_min), x, atol=1e-6)
    with pytest.raises(ArgumentError, match="sigma"):
        prior(x, torch.tensor([0.1, 0.2]))
    with pytest.raises(ArgumentError, match="sigma must be ≥ 0"):
        prior(x, -0.1)


CONFIGS = [
    *(preset.solver for preset in PRESETS.values()),
    *(row.solver for row in BASELINES.values()),
    *(solver.config_type.example() for solver in SOLVERS.values()),
    replace(PRESETS["fastmri/pd-r4"].solver, mu=(0.1, 0.2, 0.3, 0.4), clamp=False, init="zero"),
    ProxStep(),
    CGStep(7, 1e-3, "warm"),
    GradientStep("adam", 0.1, 9, 0.5, 1e-4, True),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: type(c).__name__)
def test_configurations_round_trip_through_json(config: Config) -> None:
    text = json.dumps(config.to_dict())
    assert Config.from_dict(json.loads(text)) == config
    assert type(config).from_dict(json.loads(text)) == config
    with pytest.raises(AttributeError):
        config.mu = 1.0  # type: ignore[attr-defined, misc]


def test_unknown_configurations_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown configuration type 'Proxstep'; did you"):
        Config.from_dict({"type": "Proxstep"})
    with pytest.raises(UnknownNameError, match="unknown field of CGStep 'maxiter'"):
        Config.from_dict({"type": "CGStep", "maxiter": 3})
    with pytest.raises(ArgumentError, match="expected PnPCMConfig"):
        PnPCMConfig.from_dict({"type": "CGStep"})


def test_a_run_with_a_gaussian_prior_is_the_recursion_written_out() -> None:
    """One pixel at a time, A = a, prior N(m, S²): docs/method.md §2 in plain numbers."""
    a, m, S = 0.7, 0.1, 0.4
    operator = FunctionOperator(lambda x: a * x, (1, 3, 5), linear=True)
    config = replace(PRESETS["celeba-hq/superres-4"].solver, clamp=False)
    y = randn_like(torch.zeros(1, 1, 3, 5).double(), gen(1)) * 0.3
    result = PnPCM(GaussianPrior(m, S), config)(y, operator, generator=gen(9))
    noise_source = gen(9)
    x = xh = u = uh = torch.zeros_like(y)
    for k in range(4):
        rho, t, s = config.rhos[k], config.sigmas[k], (1 + config.deltas[k]) * config.sigmas[k]
        z = (a * y + rho * (xh - uh)) / (a**2 + rho)
        nu = z + uh + t * torch.randn((1, 1, 3, 5), generator=noise_source).double()
        x_new = m + (nu - m) * ((S**2 + 0.002**2) / (S**2 + s**2)) ** 0.5
        u_new = uh + z - x_new
        xh = x_new + config.mu / (k + 1) * (x_new - x)
        uh = u_new + config.mu / (k + 1) * (u_new - u)
        x, u = x_new, u_new
    assert torch.allclose(result.x, x, atol=1e-7)


def test_evaluations_and_vjps_are_counted_where_they_happen() -> None:
    prior = CountedPrior(GaussianPrior(0.0, 0.5))
    x = torch.zeros(2, 1, 4, 4, requires_grad=True)
    prior(x, 0.3)
    assert (prior.nfe, prior.vjps) == (1, 0)
    prior(x, 0.3).sum().backward()
    assert (prior.nfe, prior.vjps) == (2, 1)
    with torch.no_grad():
        prior(x, torch.tensor([0.3, 500.0]))
    assert (prior.nfe, prior.vjps) == (3, 1)


def test_children_come_from_the_parent_in_order() -> None:
    parent = gen(5)
    seeds = torch.randint(2**63 - 1, (3,), generator=gen(5)).tolist()
    children = per_image(parent, 3)
    assert [c.initial_seed() for c in children] == seeds
    single = gen(5)
    assert per_image(single, 1) == [single]


def test_noise_does_not_depend_on_the_dtype() -> None:
    x = torch.zeros(2, 1, 4, 4)
    assert torch.equal(randn_like(x.double(), gen(1)).float(), randn_like(x, gen(1)))
    complex_noise = randn_like(torch.zeros(1, 2, 400, 400, dtype=torch.complex64), gen(1))
    assert float(complex_noise.real.std()) == pytest.approx(1, abs=5e-3)
    assert float(complex_noise.imag.std()) == pytest.approx(1, abs=5e-3)
