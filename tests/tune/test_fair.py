"""The fair tuning: the same budget, published parameters first, studies that can be continued."""

from pathlib import Path
from typing import Any

import pytest
import torch

from golden import gen
from pnpcm import OPERATORS, PRESETS, SOLVERS, GradientStep, measure
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.problems import Problem
from pnpcm.solvers import DPIRConfig, ProxStep
from pnpcm.tune import METHODS, Setting, fair_tune
from rows import check_rows

SETTINGS = {
    "superres-4": Setting("superres-4", 0.1, True, ProxStep(), {"data_step": ProxStep()}),
    "jpeg-5": Setting("jpeg-5", 0.15, False, GradientStep(), {"data_step": GradientStep()}),
    "r8": Setting("r8", 0.01, True, ProxStep(), {"data_step": ProxStep(), "clamp": False}),
}


def test_published_numbers_lie_in_the_space_and_every_point_is_a_run() -> None:
    def check(place: tuple[str, str]) -> None:
        name, task = place
        row, setting = METHODS[name], SETTINGS[task]
        first = row.first(setting)
        assert set(first) == set(row.space)
        ends = [{k: axis[i] for k, axis in row.space.items()} for i in (0, 1)]
        for values in (first, *ends):
            config = row.build(values, setting)
            assert isinstance(config, SOLVERS[name].config_type)
        for key, axis in row.space.items():
            assert axis[0] <= first[key] <= axis[1] if len(axis) == 3 else first[key] in axis

    check_rows(((f"{name}, {task}", (name, task)) for name in METHODS for task in SETTINGS), check)


def test_every_method_is_a_solver() -> None:
    """A solver without a search space cannot be tuned; every method of the comparison has one."""
    assert set(METHODS) <= set(SOLVERS)
    posed, x = problem()
    with pytest.raises(UnknownNameError, match="unknown method 'dpi'; did you mean 'dpir'"):
        fair_tune("dpi", posed, x, None, SETTINGS["superres-4"])


def test_slow_methods_are_tuned_at_a_fifth_of_their_evaluations() -> None:
    setting = SETTINGS["superres-4"]
    published = {"dps": 1000, "dpnp": 2923, "pnp-dm": 1861}
    for name, nfe in published.items():
        row = METHODS[name]
        config: Any = row.build(row.first(setting), setting)
        assert row.fraction == 0.2
        assert config.nfe == pytest.approx(0.2 * nfe, rel=0.1)


def problem() -> tuple[Problem, torch.Tensor]:
    operator, x = OPERATORS["inpainting"].example(gen(), batch=2)
    return Problem(measure(operator, x, 0.05, generator=gen(1)), operator), x


def test_a_study_starts_with_the_published_numbers_and_goes_on(tmp_path: Path) -> None:
    posed, x = problem()
    prior, setting = StationaryGaussianPrior(kind="edm"), SETTINGS["superres-4"]
    file = tmp_path / "dpir.study"

    def tune(trials: int) -> Any:
        return fair_tune(
            "dpir", posed, x, prior, setting, trials=trials, metric="psnr", storage=file
        )

    first = tune(1)
    assert first.trials == 1
    assert first.score == first.score_published
    assert isinstance(first.config, DPIRConfig)
    assert first.config.lam == 0.23
    later = tune(4)
    assert later.trials == 4
    assert later.score >= later.score_published == first.score
    again = tune(4)
    assert (again.trials, again.config) == (4, later.config)


def test_a_published_run_outside_the_space_is_tried_as_it_is() -> None:
    posed, x = problem()
    prior, setting = StationaryGaussianPrior(), SETTINGS["superres-4"]
    found = fair_tune("pnp-cm", posed, x, prior, setting, trials=1, metric="psnr")
    assert found.config == PRESETS["celeba-hq/superres-4"].solver


def test_a_study_without_a_finite_image_says_so() -> None:
    posed, x = problem()

    class Broken(StationaryGaussianPrior):
        def __call__(self, x: torch.Tensor, sigma: float | torch.Tensor) -> torch.Tensor:
            return x * torch.nan

    with pytest.raises(ArgumentError, match="none of 2 trials of dpir"):
        fair_tune(
            "dpir",
            posed,
            x,
            Broken(kind="edm"),
            SETTINGS["superres-4"],
            trials=2,
            metric="psnr",
        )
