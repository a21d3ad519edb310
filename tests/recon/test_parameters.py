"""Choice of parameters: settings, aim, tuned rows, presets of the released code."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from pnpcm.baselines import BASELINES
from pnpcm.cli.shared import parse_settings
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.operators import JPEG
from pnpcm.presets import PRESETS
from pnpcm.problems import (
    Custom,
    Deblur,
    Denoise,
    Inpaint,
    Jpeg,
    NonlinearDeblur,
    PhaseRetrievalTask,
    SuperRes,
    Task,
)
from pnpcm.recon import Options, parameters
from pnpcm.recon.parameters import (
    Numbered,
    apply_settings,
    choose_method,
    choose_numbers,
    with_injection,
)
from pnpcm.solvers import DPIRConfig, GradientStep, PnPCMConfig

CONFIG = PnPCMConfig((0.8, 0.4, 0.2), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0), mu=0.3)


def test_words_become_values() -> None:
    found = parse_settings(["rho_start=0.1", "sigmas=0.5,0.2,0.1", "clamp=false", "init=zero"])
    assert found == {
        "rho_start": 0.1,
        "sigmas": (0.5, 0.2, 0.1),
        "clamp": False,
        "init": "zero",
    }
    with pytest.raises(ArgumentError, match="expected name=value"):
        parse_settings(["rho_start"])


def test_ends_move_what_lies_between_on_a_logarithmic_scale() -> None:
    moved = apply_settings(CONFIG, {"sigma_start": 3.2, "rho_end": 16.0})
    assert moved.sigmas == pytest.approx((3.2, 0.8, 0.2))  # ln 4 at the start, half of it, none
    assert moved.rhos == pytest.approx((1.0, 4.0, 16.0))
    assert moved.deltas == CONFIG.deltas


def test_delta_moves_linearly_or_all_at_once() -> None:
    assert apply_settings(CONFIG, {"delta_end": 0.5}).deltas == pytest.approx((0.1, 0.3, 0.5))
    assert apply_settings(CONFIG, {"delta": 0.7}).deltas == (0.7, 0.7, 0.7)


def test_fields_of_configuration_and_data_step() -> None:
    changed = apply_settings(CONFIG, {"mu": 0.9, "noise_scale": 0.0})
    assert (changed.mu, changed.noise_scale) == (0.9, 0.0)
    inner = PnPCMConfig((0.5,), (0.0,), (1.0,), data_step=GradientStep("lbfgs", n_iter=10))
    assert apply_settings(inner, {"n_iter": 3}).data_step == GradientStep("lbfgs", n_iter=3)
    assert apply_settings(inner, {"sigma_end": 0.1}).sigmas == (0.1,)


def test_unknown_and_impossible_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'rho_start'"):
        apply_settings(CONFIG, {"rho_strat": 1})
    with pytest.raises(ArgumentError, match="must be positive"):
        apply_settings(CONFIG, {"sigma_start": -1.0})
    with pytest.raises(ArgumentError, match="sigmas"):
        apply_settings(CONFIG, {"sigmas": (0.1, math.nan, 0.2)})


def numbers(**choices: Any) -> Numbered:
    """The parameters of a denoising problem with the prior ``natural``."""
    options = Options(**choices)
    problem = Denoise().problem(torch.zeros(1, 3, 16, 16))
    method, _ = choose_method(problem, options, ("consistency", "edm"))
    return choose_numbers(Denoise(), problem, method, "natural", 0.05, options)


def photo_numbers(prior: str, **choices: Any) -> Any:
    """The configuration of PnP-CM with a consistency model, enlarging by 3."""
    task, options = SuperRes(3), Options(method="pnp-cm", **choices)
    problem = task.problem(torch.zeros(1, 3, 8, 8))
    found = choose_numbers(task, problem, "pnp-cm", prior, 0.05, options, kind="consistency")
    return found.config


def test_samples_get_noise_unless_the_user_says_otherwise() -> None:
    assert photo_numbers("natural").noise_scale < 0.1
    assert photo_numbers("natural", samples=4).noise_scale == 1
    told = photo_numbers("natural", samples=4, settings={"noise_scale": 0.01})
    assert told.noise_scale == 0.01


@pytest.fixture
def faces_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """`faces` as a prior of a user, whose denoiser is not known to be ahead."""
    monkeypatch.setattr(parameters, "DENOISER_AHEAD", ("natural", "mri"))


@pytest.mark.usefixtures("faces_of_a_user")
def test_perception_injects_noise_with_priors_of_users() -> None:
    assert photo_numbers("faces", aim="perception").noise_scale == 1
    assert photo_numbers("mri", aim="perception") == photo_numbers("mri")


@pytest.mark.parametrize(
    ("task", "sigma_y", "share"),
    [
        (SuperRes(3), 0.05, 1.0),
        (SuperRes(3), 0.02, 0.4),
        (SuperRes(3), 0.0, 0.0),
        (Deblur(gaussian=(7, 2.0)), 0.1, 1.0),
        (Inpaint(missing=0.5), 0.05, 0.0),
    ],
)
def test_perception_injects_noise_in_natural_where_that_lowers_lpips(
    task: Task, sigma_y: float, share: float
) -> None:
    """Noise s t where t is the level of fidelity, of which the prior is told; fidelity has none."""
    task = task.prepared((3, 36, 36), torch.Generator().manual_seed(0))
    problem = task.problem(task.operator((3, 36, 36)).A(torch.zeros(1, 3, 36, 36)))

    def found(aim: Any) -> Any:
        options = Options(method="pnp-cm", aim=aim)
        chosen = choose_numbers(
            task, problem, "pnp-cm", "natural", sigma_y, options, kind="consistency"
        )
        return chosen.config

    plain, other, between = found("fidelity"), found("perception"), found(0.5)
    assert between == plain
    assert other.n_steps == plain.n_steps == 8
    assert other.noise_scale == (share > 0)
    if share:
        assert other.sigmas == pytest.approx([share * t for t in plain.told])
        assert other.told == pytest.approx([math.sqrt(1 + share**2) * t for t in plain.told])
    else:
        assert other == plain


def test_presets_of_perception_serve_that_aim_only_and_are_not_changed() -> None:
    """Samples of them have injected noise, as otherwise they would be equal."""
    task = Deblur(gaussian=(5, 10.0))
    problem = task.problem(torch.zeros(1, 3, 32, 32))
    row = PRESETS["natural-perception/deblur-gauss@n4,s0.05"]

    def found(**choices: Any) -> Any:
        options = Options(method="pnp-cm", **choices)
        return choose_numbers(task, problem, "pnp-cm", "natural", 0.05, options, kind="consistency")

    assert row.aim == "perception"
    assert found(aim="perception").config == row.solver
    assert found(aim="perception", steps=row.solver.n_steps).config == row.solver
    plain = PRESETS["natural-edm/deblur-gauss"].solver
    assert isinstance(plain, PnPCMConfig)
    assert found(aim="perception", steps=8).config == with_injection(plain, 1.0)
    assert found().config == plain
    assert found(aim="perception", samples=4).config.noise_scale == 1


@pytest.mark.usefixtures("faces_of_a_user")
@pytest.mark.parametrize("aim", [0.25, 0.5, 1.0])
def test_the_prior_is_told_of_the_noise_that_is_injected(aim: float) -> None:
    """Residual noise t and injected noise s t, s = aim/2, make √(1 + s²) t."""
    plain, found = photo_numbers("faces"), photo_numbers("faces", aim=aim)
    told = [(1 + d) * s for d, s in zip(plain.deltas, plain.sigmas, strict=True)]
    assert found.sigmas == pytest.approx([aim / 2 * t for t in told])
    both = [(1 + d) * s for d, s in zip(found.deltas, found.sigmas, strict=True)]
    assert both == pytest.approx([math.hypot(t, aim / 2 * t) for t in told])
    assert found.rhos == plain.rhos


@pytest.mark.parametrize("aim", ["sharp", -0.1, 1.5])
def test_an_aim_that_is_none(aim: Any) -> None:
    with pytest.raises((ArgumentError, UnknownNameError), match="aim"):
        Options(aim=aim)


def test_denoising_for_fidelity_is_one_call_of_the_denoiser() -> None:
    found = numbers()
    assert isinstance(found.config, DPIRConfig)
    assert (found.config.nfe, found.config.sigma_start) == (1, 0.1)


@pytest.mark.parametrize("method", ["dpir", "pnp-admm", "diffpir", "dps", "cm4ir", "tv", "wiener"])
@pytest.mark.parametrize("sigma_y", [0.0, 0.02, 0.1])
def test_other_methods_run_with_tuned_numbers_at_the_noise_of_the_problem(
    method: str, sigma_y: float
) -> None:
    task = SuperRes(factor=2)
    problem = task.problem(torch.zeros(1, 3, 8, 8))
    options = Options(method=method)
    found = choose_numbers(task, problem, method, "natural", sigma_y, options)
    assert f"{method}/natural" in found.source
    told = getattr(found.config, "noise_std", None)
    assert told is None or told > 0
    again = choose_numbers(task, problem, method, "natural", 2 * sigma_y + 0.01, options)
    if told is not None and method not in ("wiener",):
        assert again.config.noise_std > told  # type: ignore[attr-defined]


# presets of the released code --------------------------------------------------------------------
def given(task: Task, shape: tuple[int, ...] = (1, 3, 16, 16), **choices: Any) -> Numbered:
    """The parameters of ``task`` with a preset."""
    problem = task.problem(torch.zeros(shape))
    return choose_numbers(task, problem, "pnp-cm", "celeba-hq", 0.05, Options(**choices))


REFERENCE = {
    "deblur-gauss": Deblur(gaussian=(5, 10.0), reference=True),
    "jpeg-5": Jpeg(quality=5, reference=True),
    "phase-retrieval": PhaseRetrievalTask(torch.ones(16, 16), reference=True),
}
OWN: dict[str, Task] = {
    "deblur-gauss": Deblur(gaussian=(5, 10.0)),
    "jpeg-5": Jpeg(quality=5),
    "phase-retrieval": PhaseRetrievalTask(torch.ones(16, 16)),
    "nonlinear-deblur": NonlinearDeblur(),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_a_reference_preset_serves_the_released_operator(name: str) -> None:
    shape = (1, 3, 32, 32) if name == "phase-retrieval" else (1, 3, 16, 16)
    preset = f"celeba-hq/{name}-reference"
    assert given(REFERENCE[name], shape, preset=preset).config == PRESETS[preset].solver


def test_a_bare_released_operator_is_recognised() -> None:
    preset = "celeba-hq/jpeg-5-reference"
    assert given(Custom(JPEG(5)), preset=preset).source == f"preset {preset}"
    with pytest.raises(ArgumentError, match="this is another one"):
        given(Custom(JPEG(5, chroma="libjpeg", eight_bit=True)), preset=preset)


@pytest.mark.parametrize("name", OWN)
def test_a_reference_preset_refuses_our_operator(name: str) -> None:
    shape = (1, 3, 32, 32) if name == "phase-retrieval" else (1, 3, 16, 16)
    flag = "--kernel-wizard FILE" if name == "nonlinear-deblur" else "--reference-operator"
    with pytest.raises(ArgumentError, match=f"restore with {flag}, or use .*{name} without"):
        given(OWN[name], shape, preset=f"celeba-hq/{name}-reference")
    assert given(OWN[name], shape, preset=f"celeba-hq/{name}").source == f"preset celeba-hq/{name}"


@pytest.mark.parametrize("task", [SuperRes(2), Denoise(), Jpeg(quality=5)])
def test_a_reference_preset_refuses_another_task(task: Task) -> None:
    words = f"gaussian-blur, which does not exist for the task {task.name}"
    with pytest.raises(ArgumentError, match=words):
        given(task, preset="celeba-hq/deblur-gauss-reference")


def test_steps_of_a_preset_follow_the_rule() -> None:
    """The released code keeps the decay: 1 − σ² grows by the factor 1.03 per step of this one."""
    name = "celeba-hq/phase-retrieval"
    choices: dict[str, Any] = {"preset": name, "steps": 10}
    ends, released = (given(SuperRes(4), step_rule=rule, **choices) for rule in (None, "released"))
    kept = PRESETS[name].solver.sigmas
    found = ends.config.sigmas  # type: ignore[attr-defined]
    assert (found[0], found[-1]) == pytest.approx((kept[0], kept[-1]))
    sigmas = released.config.sigmas  # type: ignore[attr-defined]
    assert sigmas[0] == kept[0]
    assert [(1 - b**2) / (1 - a**2) for a, b in pairwise(sigmas)] == pytest.approx([1.03] * 9)
    assert released.source == f"preset {name}, with the released code's schedule of 10 steps"


def test_the_released_rule_is_for_presets_of_the_paper() -> None:
    with pytest.raises(ArgumentError, match="step_rule is 'released', which is the paper's, but"):
        given(SuperRes(4), preset="natural/superres-4", steps=8, step_rule="released")
    for missing in ({"steps": 8}, {"preset": "celeba-hq/superres-4"}):
        with pytest.raises(ArgumentError, match="give preset and give steps"):
            Options(step_rule="released", **missing)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="did you mean 'released'"):
        Options(step_rule="relesed", preset="celeba-hq/superres-4", steps=8)


def test_rows_of_baselines_are_presets_whose_numbers_stay_unchanged() -> None:
    name = "dpir/official/superres-4"
    y = torch.zeros(1, 3, 4, 4)
    task = SuperRes(4)
    for steps in (None, 3):
        options = Options(preset=name, steps=steps)
        problem = task.problem(y)
        method, _ = choose_method(problem, options, ("edm",))
        found = choose_numbers(task, problem, method, "natural", 0.2, options, kind="edm")
        expected = replace(BASELINES[name].solver, **({} if steps is None else {"n_steps": steps}))
        assert (method, found.config) == ("dpir", expected)
    with pytest.raises(ArgumentError, match="belongs to the method dpir"):
        Options(preset=name, method="pnp-cm")
