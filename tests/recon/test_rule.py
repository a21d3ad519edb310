"""The rule interpolates its points, recovers known slopes and never leaves their range."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.optimize import nnls as scipy_nnls
from tests.rows import check_rows

from pnpcm.presets import PRESETS, Preset
from pnpcm.recon.rule import Numbers, features, nearest_in_hull, nnls, rule
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


def test_one_point_is_returned_for_every_problem() -> None:
    """Outside a single point only ρ changes: with the square of the error of y."""
    row = preset(0.1, 4, 0.8, 0.2)
    found, note = rule([row], row.conditions, 4, data_step=ProxStep())
    assert found.sigmas == pytest.approx(row.solver.sigmas)
    assert found.rhos == pytest.approx(row.solver.rhos)
    assert note == ""
    noisier, note = rule([row], row.conditions | {"error_std": 40.0}, 4, data_step=ProxStep())
    assert noisier.sigmas == pytest.approx(row.solver.sigmas)
    assert noisier.rhos == pytest.approx([400**2 * r for r in row.solver.rhos])
    assert note == (
        "this problem is outside their range, the parameters are for an error of y of 0.05 "
        "(here 20)"
    )


def test_another_number_of_steps_keeps_the_ends() -> None:
    row = preset(0.1, 4, 0.8, 0.2)
    found, note = rule([row], row.conditions, 9, data_step=ProxStep())
    assert len(found.sigmas) == 9
    assert found.told[0] == pytest.approx(row.solver.told[0])
    assert found.told[-1] == pytest.approx(row.solver.told[-1])
    assert note.endswith("the parameters are for about 4 steps (here 9)")


def test_many_points_decide_the_slope() -> None:
    """σ_end ∝ error^1.5 on a grid: the rule finds this slope despite its regularisation."""
    rows = [
        preset(e, n, 1.0, 0.3 * (e / 0.1) ** 1.5)
        for e in np.geomspace(0.02, 0.2, 6)
        for n in (2, 4, 8)
    ]
    conditions = {"error_std": 0.1, "gain": 1.0, "seen": 0.25}
    at = rule(rows, conditions, 4, data_step=ProxStep())[0].sigmas[-1]
    below = rule(rows, conditions | {"error_std": 0.05}, 4, data_step=ProxStep())[0].sigmas[-1]
    assert at == pytest.approx(0.3, rel=0.03)
    assert math.log(at / below) / math.log(2) == pytest.approx(1.5, abs=0.05)


def test_levels_never_rise() -> None:
    """σ_start is lower at high noise and σ_end at low noise: each alone would cross the other."""
    rows = [preset(0.05, 4, 0.9, 0.01), preset(0.1, 4, 0.35, 0.3), preset(0.2, 4, 0.31, 0.3)]
    for error in np.geomspace(0.05, 0.2, 9):
        conditions = {"error_std": float(error), "gain": 1.0, "seen": 0.25}
        sigmas = rule(rows, conditions, 5, data_step=ProxStep())[0].sigmas
        assert all(b <= a * (1 + 1e-12) for a, b in pairwise(sigmas))


# the hull ----------------------------------------------------------------------------------------
def test_the_nearest_place_of_a_square_and_of_a_corner_that_is_missing() -> None:
    """Coordinates ln error, ln N, ln seen; a change of N counts a tenth of one of the error."""
    square = np.array([(e, n, 0.0) for e in (0.0, 1.0) for n in (0.0, 1.0)])
    assert nearest_in_hull(square, np.array((0.3, 0.6, 0.0))) == pytest.approx((0.3, 0.6, 0.0))
    assert nearest_in_hull(square, np.array((7.0, -2.0, 0.0))) == pytest.approx((1.0, 0.0, 0.0))
    # without (1, 1): the edge n = 1 − e, where 100 (e − 1)² + (n − 1)² is least
    found = nearest_in_hull(square[:3], np.array((1.0, 1.0, 0.0)))
    assert found == pytest.approx((100 / 101, 1 / 101, 0.0), abs=1e-4)


def families() -> Iterator[tuple[str, list[Preset]]]:
    """The presets that the rule is fitted to: of one prior, one kind of operator and data step."""
    found: dict[str, list[Preset]] = {}
    for row in PRESETS.values():
        if row.conditions:
            operator = "blur" if row.operator == "gaussian-blur" else row.operator
            name = f"{row.prior}/{operator}/{type(row.solver.data_step).__name__}"
            found.setdefault(name, []).append(row)
    return iter(found.items())


def extremes(configs: list[PnPCMConfig], errors: list[float]) -> dict[str, tuple[float, float]]:
    """Smallest and largest level, δ, data weight ρ (t / error)², first μ and noise scale."""
    values: dict[str, list[float]] = {"t": [], "δ": [], "weight": [], "μ": [], "noise": []}
    for config, error in zip(configs, errors, strict=True):
        told = [(1 + d) * s for d, s in zip(config.deltas, config.sigmas, strict=True)]
        values["t"] += told
        values["δ"] += config.deltas
        values["weight"] += [r * (t / error) ** 2 for r, t in zip(config.rhos, told, strict=True)]
        values["μ"].append(config.momentum[0])
        values["noise"].append(config.noise_scale)
    return {name: (min(v), max(v)) for name, v in values.items()}


def test_the_rule_never_leaves_its_presets() -> None:
    random = np.random.default_rng(0)

    def stays(rows: list[Preset]) -> None:
        known = extremes([p.solver for p in rows], [p.conditions["error_std"] for p in rows])
        for _ in range(60):
            error, gain, seen = np.exp(random.uniform(-8, 3, 3) * (1, 0.3, 1))
            conditions = {"error_std": error, "gain": gain, "seen": min(seen, 1.0)}
            n = int(random.integers(1, 40))
            config, _ = rule(rows, conditions, n, data_step=ProxStep())
            for name, (low, high) in extremes([config], [error]).items():
                slack = 1e-6 + 1e-3 * abs(known[name][1])  # presets have four digits
                assert known[name][0] - slack <= low <= high <= known[name][1] + slack, name

    check_rows(families(), stays)


def test_the_note_stands_outside_the_hull_only() -> None:
    """A linear programme decides whether a problem is a mean of the presets' problems."""
    random = np.random.default_rng(1)
    rows = dict(families())["natural/inpainting/ProxStep"]
    points = np.array([features(p.conditions, p.solver.n_steps) for p in rows])
    inside = 0
    for _ in range(60):
        error, seen, n = *np.exp(random.uniform((-3.5, -1.5), (-0.5, 0.0))), random.integers(2, 10)
        conditions = {"error_std": float(error), "gain": 1.0, "seen": float(seen)}
        mean = [*features(conditions, int(n)), 1.0]
        equal = np.vstack([points.T, np.ones(len(points))])
        if linprog(np.zeros(len(points)), A_eq=equal, b_eq=mean).success:
            assert rule(rows, conditions, int(n), data_step=ProxStep())[1] == ""
            inside += 1
        far = conditions | {"error_std": 20 * conditions["error_std"]}
        assert "error of y" in rule(rows, far, int(n), data_step=ProxStep())[1]
    assert inside > 5


def test_nnls_is_that_of_scipy() -> None:
    generator = np.random.default_rng(0)
    for rows, columns in ((4, 9), (4, 3), (6, 20)):
        a, b = generator.normal(size=(rows, columns)), generator.normal(size=rows)
        _, rest = scipy_nnls(a, b)
        ours = nnls(a, b)
        assert (ours >= 0).all()
        assert np.linalg.norm(a @ ours - b) == pytest.approx(rest, abs=1e-8)
