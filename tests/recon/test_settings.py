"""Settings of the user win over every preset, one number or all of them."""

import math

import pytest

from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.recon.settings import apply_settings, parse_settings
from pnpcm.solvers import GradientStep, PnPCMConfig

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
