"""The rule interpolates its points, recovers known slopes and limits extrapolation."""

import math

import numpy as np
import pytest

from pnpcm.presets import Preset
from pnpcm.recon.rule import Numbers, rule
from pnpcm.solvers import PnPCMConfig, ProxStep


def preset(error: float, n: int, sigma_start: float, sigma_end: float) -> Preset:
    numbers = Numbers(sigma_start, sigma_end, 0.2, 0.4, 1.5, 0.7, 0.3, 0.5)
    config = numbers.config(n, error, data_step=ProxStep())
    conditions = {"error_std": error, "gain": 1.0, "seen": 0.25}
    return Preset(
        "natural", "superresolution", {"factor": 4}, error / 2, config, {}, "", conditions
    )


def test_numbers_and_configuration_are_the_same_thing() -> None:
    numbers = Numbers(0.9, 0.1, 0.2, 0.4, 1.5, 0.7, 0.3, 0.5)
    config = numbers.config(4, 0.08, data_step=ProxStep())
    back = Numbers.of(config, 0.08)
    assert tuple(vars(back).values()) == pytest.approx(tuple(vars(numbers).values()))
    assert config.rhos[0] == pytest.approx(1.5 * (0.08 / 0.9) ** 2)
    assert isinstance(config, PnPCMConfig)


def test_one_point_is_returned_where_it_stands() -> None:
    row = preset(0.1, 4, 0.8, 0.2)
    found = rule([row], row.conditions, 4, data_step=ProxStep())
    assert found.sigmas == pytest.approx(row.solver.sigmas)
    assert found.rhos == pytest.approx(row.solver.rhos)


def test_one_point_leans_to_higher_levels_for_noisier_data() -> None:
    row = preset(0.1, 4, 0.8, 0.2)
    noisier = rule([row], row.conditions | {"error_std": 0.2}, 4, data_step=ProxStep())
    assert noisier.sigmas[0] == pytest.approx(0.8 * 2**0.5)
    assert noisier.sigmas[-1] == pytest.approx(0.2 * 2**0.7)


def test_many_points_decide_the_slope() -> None:
    """σ_end ∝ error^1.5 on a grid: the rule finds this slope despite its regularisation."""
    rows = [
        preset(e, n, 1.0, 0.3 * (e / 0.1) ** 1.5)
        for e in np.geomspace(0.02, 0.2, 6)
        for n in (2, 4, 8)
    ]
    conditions = {"error_std": 0.1, "gain": 1.0, "seen": 0.25}
    at = rule(rows, conditions, 4, data_step=ProxStep()).sigmas[-1]
    below = rule(rows, conditions | {"error_std": 0.05}, 4, data_step=ProxStep()).sigmas[-1]
    assert at == pytest.approx(0.3, rel=0.03)
    assert math.log(at / below) / math.log(2) == pytest.approx(1.5, abs=0.05)


def test_far_away_the_rule_stops() -> None:
    row = preset(0.1, 4, 0.8, 0.2)
    far = rule([row], row.conditions | {"error_std": 40.0}, 4, data_step=ProxStep())
    assert far.sigmas[0] == pytest.approx(0.8 * 4**0.5)  # four times the error, not 400
    assert len(rule([row], row.conditions, 9, data_step=ProxStep()).sigmas) == 9


def test_levels_never_rise() -> None:
    row = preset(0.1, 4, 0.3, 0.29)
    found = rule([row], row.conditions | {"error_std": 0.4}, 4, data_step=ProxStep())
    assert found.sigmas[-1] <= found.sigmas[0]
