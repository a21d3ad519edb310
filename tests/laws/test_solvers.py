"""Laws over every row of SOLVERS and every configuration."""

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
from pnpcm.solvers.base import SolverBase, is_linear
from rows import check_rows

DRAWS = {
    **dict.fromkeys(("pnp-cm", "dps", "pigdm", "diffpir", "dpnp", "pnp-dm", "dds", "ddrm"), True),
    **dict.fromkeys(("cm-iterative", "cm4ir", "cosign"), True),
    **dict.fromkeys(("tv", "wiener", "pnp-admm", "dpir"), False),
}
"""Whether a published method draws noise. The law finds it out for every other row."""


def solver_for(name: str, operator: object, channels: int) -> SolverBase[Any]:
    """A short run of the solver with a fitting prior and, for nonlinear operators, data step."""
    solver = SOLVERS[name]
    config = solver.config_type.example()
    if hasattr(config, "data_step") and not is_linear(operator):
        config = replace(config, data_step=GradientStep("lbfgs", n_iter=4))
    if hasattr(config, "noise_aware") and is_linear(operator):
        # an unloaded pseudo-inverse of a blur makes images of rounding
        config = replace(config, noise_aware=True, noise_std=0.1)
    return solver(prior_for(solver, channels), config)


def prior_for(solver: type[SolverBase[Any]], channels: int) -> Any:
    if not solver.takes_prior:
        return None
    if solver.name == "cosign":
        return ControlledModel.example(channels)
    return StationaryGaussianPrior(kind="edm" if "edm" in solver.kinds else "consistency")


def problem(name: str, solver: str, batch: int) -> tuple[Any, Tensor, SolverBase[Any]]:
    """An operator, a measurement of ``batch`` images in float64, and a solver for them."""
    operator, x = OPERATORS[name].example(gen(), batch=batch)
    y = measure(operator, x.double(), 0.05, generator=generators(range(batch)))
    return operator, y, solver_for(solver, operator, x.shape[1])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", OPERATORS)
def test_batch_equals_singles(name: str, solver: str) -> None:
    operator, y, solve = problem(name, solver, 3)
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


def served(*names: str) -> list[tuple[str, str]]:
    """Pairs of an operator and a solver that can be used with it."""
    found = []
    for name in names:
        operator, x = OPERATORS[name].example(gen())
        solvers = {s: solver_for(s, operator, x.shape[1]) for s in SOLVERS}
        found += [(name, s) for s, solve in solvers.items() if solve.refusal(operator) is None]
    return found


@pytest.mark.parametrize(("name", "solver"), served("inpainting"))
def test_another_range_is_the_same_problem(name: str, solver: str) -> None:
    """Images in [0, 1], as deepinv has them: the same result, mapped."""
    operator, y, solve = problem(name, solver, 2)
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


def needs_a_generator(solve: SolverBase[Any], y: Tensor, operator: Any) -> bool:
    """Whether a run without generator raises an error."""
    try:
        solve(y, operator)
    except ArgumentError as error:
        if "generator is None" not in str(error):
            raise
        return True
    return False


PLACES = served("inpainting", "mri", "jpeg", "phase-retrieval")


@pytest.mark.parametrize(("name", "solver"), PLACES)
def test_same_generator_same_result_and_nothing_touched(name: str, solver: str) -> None:
    operator, y, solve = problem(name, solver, 2)
    y_before, state = y.clone(), torch.get_rng_state()
    first = solve(y, operator, generator=gen(2)).x
    assert torch.equal(first, solve(y, operator, generator=gen(2)).x)
    drawn = needs_a_generator(solve, y, operator)
    if solver in DRAWS:
        assert drawn == (DRAWS[solver] or name == "phase-retrieval")  # whose start is random
    assert torch.equal(first, solve(y, operator, generator=gen(3)).x) != drawn
    assert torch.equal(y, y_before)
    assert torch.equal(torch.get_rng_state(), state)


OTHERS = (
    replace(PRESETS["fastmri/pd-r4"].solver, mu=(0.1, 0.2, 0.3, 0.4), clamp=False, init="zero"),
    ProxStep(),
    CGStep(7, 1e-3, "warm"),
    GradientStep("adam", 0.1, 9, 0.5, 1e-4, True),
)
CONFIGS: list[tuple[str, Config]] = [
    *((f"preset {name}", preset.solver) for name, preset in PRESETS.items()),
    *((f"baseline {name}", row.solver) for name, row in BASELINES.items()),
    *((f"example of {name}", row.config_type.example()) for name, row in SOLVERS.items()),
    *((str(config), config) for config in OTHERS),
]


def test_configurations_round_trip_through_json() -> None:
    def check(config: Config) -> None:
        text = json.dumps(config.to_dict())
        assert Config.from_dict(json.loads(text)) == config
        assert type(config).from_dict(json.loads(text)) == config
        with pytest.raises(AttributeError):
            config.mu = 1.0  # type: ignore[attr-defined]

    check_rows(CONFIGS, check)


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
