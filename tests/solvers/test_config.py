"""PnPCMConfig: the family of its schedule, and the same run in another number of iterations."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from pnpcm import PRESETS, PnPCMConfig
from pnpcm.baselines import BASELINES
from pnpcm.errors import ArgumentError
from pnpcm.solvers import DPIRConfig, PnPADMMConfig

SHIPPED = ("natural", "faces", "mri")
PAPER = {name: row.solver for name, row in PRESETS.items() if row.prior not in SHIPPED}
EVERY = {name: row.solver for name, row in PRESETS.items()} | {
    "pnp-admm": PnPADMMConfig().as_pnp_cm(),
    "dpir": DPIRConfig().schedule(),
}
ALPHA = {"superres": 0.783445, "phase": 0.518764, "mri": 0.968869}
"""1 − σ² of the first iteration: ᾱ_152, ᾱ_252 and ᾱ_52 of the linear DDPM schedule."""


def decayed(first: float, factor: float, n: int) -> list[float]:
    """σ_k = √(1 − min(first · factor^k, 0.9999)), worked out per entry."""
    return [math.sqrt(1 - min(first * factor**k, 0.9999)) for k in range(n)]


# the law -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", range(1, 21))
def test_the_prior_is_told_nothing_outside_the_range_of_the_original(n: int) -> None:
    for name, config in EVERY.items():
        other = config.with_steps(n)
        low, high = min(config.told), max(config.told)
        assert other.n_steps == len(other.told) == n, name
        assert all(low * (1 - 1e-9) <= t <= high * (1 + 1e-9) for t in other.told), name
        assert max(other.sigmas) <= max(config.sigmas) * (1 + 1e-9), name
        assert min(other.sigmas) >= min(config.sigmas) * (1 - 1e-9), name


@pytest.mark.parametrize("n", [1, 2, 3, 8, 20])
def test_the_ends_stay(n: int) -> None:
    for name, config in EVERY.items():
        other = config.with_steps(n)
        for end in (0,) if n == 1 else (0, -1):
            for row in ("sigmas", "told", "rhos"):
                expected = pytest.approx(getattr(config, row)[end], rel=1e-9)
                assert getattr(other, row)[end] == expected, (name, row)
        assert other.mu == config.mu
        assert (other.family, other.data_step) == (config.family, config.data_step), name
        assert all(a >= b * (1 - 1e-9) for a, b in pairwise(other.sigmas)), name


def test_the_same_count_is_the_same_run() -> None:
    for config in EVERY.values():
        assert config.with_steps(config.n_steps) is config


def test_twice_as_dense_and_back_is_the_original() -> None:
    """2N − 1 even positions hold the N original ones."""
    for name, config in EVERY.items():
        back = config.with_steps(2 * config.n_steps - 1).with_steps(config.n_steps)
        for row in ("sigmas", "told", "rhos"):
            assert getattr(back, row) == pytest.approx(getattr(config, row), rel=2e-3), (name, row)


@pytest.mark.parametrize(("first", "then"), [(8, 3), (3, 8), (20, 5), (1, 6)])
def test_a_detour_stays_within_the_range(first: int, then: int) -> None:
    for name, config in EVERY.items():
        detour = config.with_steps(first).with_steps(then)
        direct = config.with_steps(then)
        assert detour.sigmas[0] == pytest.approx(direct.sigmas[0])
        assert min(detour.told) >= min(config.told) * (1 - 1e-9), name
        assert max(detour.told) <= max(config.told) * (1 + 1e-9), name
        if first > 1 and config.family == "ddpm":
            assert detour.sigmas == pytest.approx(direct.sigmas, rel=1e-9), name


# families ----------------------------------------------------------------------------------------
def test_every_preset_knows_how_its_levels_were_made() -> None:
    assert {row.solver.family for row in PRESETS.values() if row.prior in SHIPPED} == {"geometric"}
    assert {config.family for config in PAPER.values()} == {"ddpm"}
    published = {config.sigmas for config in PAPER.values()}  # of the first trial of each search
    for row in BASELINES.values():
        if row.method == "pnp-cm" and row.tuned_on:
            assert isinstance(row.solver, PnPCMConfig)
            family = "ddpm" if row.solver.sigmas in published else "geometric"
            assert row.solver.family == family, row.name


def test_geometric_levels_stay_geometric() -> None:
    """σ_k = 0.8 (0.1/0.8)^{k/6}; weight ρ σ² / 0.1² from 2 to 0.5; δ = 0.25 all the way."""
    config = PnPCMConfig.geometric((0.8, 0.1), n=4, noise_std=0.1, delta=0.25, weight=(2.0, 0.5))
    other = config.with_steps(7)
    levels = [0.8 * 0.125 ** (k / 6) for k in range(7)]
    weights = [2.0 * 0.25 ** (k / 6) for k in range(7)]
    assert other.sigmas == pytest.approx(levels)
    assert other.deltas == pytest.approx([0.25] * 7)
    found = [r * (s / 0.1) ** 2 for r, s in zip(other.rhos, other.sigmas, strict=True)]
    assert found == pytest.approx(weights)
    # also where all levels are below 1 and nothing but the two ends is there
    assert config.with_steps(2).with_steps(7).sigmas == pytest.approx(levels)


def test_ddpm_levels_follow_the_same_curve() -> None:
    """Super-resolution, 8 iterations: 1 − σ² grows by 1.2^{3/7} up to the ceiling, ρ before
    softplus is even from −4 to 4, the prior is told the logarithmic mean of its neighbours."""
    config = PRESETS["celeba-hq/superres-4"].solver
    other = config.with_steps(8)
    assert other.sigmas == pytest.approx(decayed(ALPHA["superres"], 1.2 ** (3 / 7), 8), rel=1e-4)
    ramp = [math.log1p(math.exp(-4 + 8 * k / 7)) for k in range(8)]
    assert other.rhos == pytest.approx(ramp)
    told = [0.60496, 0.60496 ** (4 / 7) * 0.25691 ** (3 / 7)]
    assert other.told[:2] == pytest.approx(told, rel=1e-4)
    assert (other.family, other.decay) == ("ddpm", pytest.approx(1.2 ** (3 / 7) - 1))


def test_knee_schedule_falls_at_once_as_before() -> None:
    """At R = 8 only the first level is above the ceiling; told: geometric means in between."""
    other = PRESETS["fastmri/pd-r8"].solver.with_steps(7)
    assert other.sigmas == pytest.approx(decayed(ALPHA["mri"], 1.1**0.5, 7), rel=1e-5)
    assert other.sigmas[1:] == pytest.approx([0.01] * 6)
    s = (0.23819, 0.045, 0.085, 0.045)
    between = [math.sqrt(a * b) for a, b in pairwise(s)]
    expected = (s[0], between[0], s[1], between[1], s[2], between[2], s[3])
    assert other.told == pytest.approx(expected, rel=1e-4)


def test_explicit_levels_are_interpolated_on_a_logarithmic_scale() -> None:
    config = PnPCMConfig(sigmas=(80.0, 0.8), deltas=(0, 0), rhos=(1, 4), mu=(0.2, 0.0))
    other = config.with_steps(3)
    assert config.family == other.family == "explicit"
    assert other.sigmas == pytest.approx((80, 8, 0.8))
    assert other.rhos == pytest.approx((1, 2, 4))
    assert other.mu == pytest.approx((0.2, 0.1, 0.0))
    rising = PnPCMConfig(sigmas=(0.5, 2.0), deltas=(0, 0), rhos=(1, 1))
    assert rising.with_steps(3).sigmas == pytest.approx((0.5, 1.0, 2.0))
    small = PnPCMConfig(sigmas=(0.4, 0.1, 0.1), deltas=(0, 0, 3), rhos=(1, 1, 1))
    assert small.with_steps(5).sigmas == pytest.approx((0.4, 0.2, 0.1, 0.1, 0.1))
    assert small.with_steps(5).told == pytest.approx((0.4, 0.2, 0.1, 0.2, 0.4))


def test_levels_that_leave_their_family_are_explicit() -> None:
    for name in ("celeba-hq/superres-4", "natural/superres-4"):
        config = PRESETS[name].solver
        own = replace(config, sigmas=(0.5, 0.4, 0.2, 0.02))
        assert (own.family, own.decay) == ("explicit", None)
        assert own.with_steps(7).sigmas[2] == pytest.approx(0.4)
        assert replace(config, sigmas=(5.0, 0.4, 0.2, 0.02)).family == "explicit"
        assert replace(config, mu=0.3).family == config.family


def test_a_file_without_the_family_is_explicit() -> None:
    config = PRESETS["natural/superres-4"].solver
    older = {k: v for k, v in config.to_dict().items() if k not in ("family", "decay")}
    read = PnPCMConfig.from_dict(older)
    assert read == replace(config, family="explicit")
    assert read.with_steps(8).sigmas == pytest.approx(config.with_steps(8).sigmas, rel=1e-3)


# the released code's rule ------------------------------------------------------------------------
def test_released_rule_keeps_the_decay() -> None:
    """T_sampling = 2 and 6: the first two levels of four, or the same four and two more."""
    config = PRESETS["celeba-hq/superres-4"].solver
    two, six = (config.with_steps(n, rule="released") for n in (2, 6))
    assert two.sigmas == pytest.approx((0.46536, 0.24468), abs=6e-6)
    assert six.sigmas == pytest.approx((0.46536, 0.24468, 0.01, 0.01, 0.01, 0.01), abs=6e-6)
    assert two.rhos == pytest.approx((0.01815, 4.01815), abs=6e-6)
    assert six.momentum == pytest.approx([0.2 / k for k in range(1, 7)])
    assert two.deltas == pytest.approx((0.3, 0.2))
    ten = PRESETS["celeba-hq/phase-retrieval"].solver.with_steps(10, rule="released")
    assert ten.sigmas == pytest.approx(decayed(ALPHA["phase"], 1.03, 10), rel=1e-5)
    assert ten.family == "ddpm"
    assert ten.decay == pytest.approx(0.03)


def test_released_rule_keeps_the_excess_within_its_range() -> None:
    for name, config in PAPER.items():
        for n in range(1, 21):
            deltas = config.with_steps(n, rule="released").deltas
            low, high = min(config.deltas), max(config.deltas)
            assert all(low - 1e-9 <= d <= high + 1e-9 for d in deltas), (name, n)


# bad input ---------------------------------------------------------------------------------------
def test_bad_calls_are_refused() -> None:
    config = PRESETS["fastmri/pd-r4"].solver
    for n, words in ((0, "n must"), (2.5, "whole number")):
        with pytest.raises(ArgumentError, match=words):
            config.with_steps(n)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="rule must be 'ends' or 'released', got 'paper'"):
        config.with_steps(8, rule="paper")
    with pytest.raises(ArgumentError, match="this one is geometric: leave rule out"):
        PRESETS["natural/superres-4"].solver.with_steps(8, rule="released")
    with pytest.raises(ArgumentError, match="family must be one of ddpm, geometric, explicit"):
        replace(config, family="linear")
    with pytest.raises(ArgumentError, match="family 'ddpm' needs a decay"):
        PnPCMConfig((0.1,), (0.0,), (1.0,), family="ddpm")
