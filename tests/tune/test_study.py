"""A stopped study continues with the result of an uninterrupted one, and counts its trials."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pnpcm.errors import ArgumentError
from pnpcm.tune.study import nearby, open_study, search, tried

STARTS = ({"a": 0.25, "b": True}, {"a": 0.75, "b": False})
POINTS = 9


class Stopped(BaseException):
    """An exception that is not caught, like Ctrl-C."""


def points(study: Any) -> list[tuple[float, bool]]:
    return [(t.params["a"], t.params["b"]) for t in tried(study)]


def run(file: Path, stop: Callable[[int, str], None] | None = None) -> Any:
    """Nine points with two starts; the fourth diverges; ``stop(k, place)`` may raise."""

    def objective(trial: Any, k: int) -> float:
        tell = stop or (lambda k, place: None)
        tell(k, "before")
        a = trial.suggest_float("a", 0, 1)
        tell(k, "between")
        b = trial.suggest_categorical("b", (False, True))
        if k == 3:
            raise ArgumentError("diverged")
        trial.report(a, 1)
        tell(k, "after")
        return float(a + b)

    study = open_study(file, patience=100)
    search(study, objective, POINTS, starts=STARTS, startup=4, seed=5)
    return study


def test_starts_come_first_and_what_diverges_counts(tmp_path: Path) -> None:
    study = run(tmp_path / "a.study")
    found = points(study)
    assert len(found) == len(set(found)) == POINTS
    assert found[:2] == [(s["a"], s["b"]) for s in STARTS]
    assert [t.value is None for t in tried(study)] == [k == 3 for k in range(POINTS)]


@pytest.mark.parametrize("kind", [Stopped, KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_a_study_stopped_at_any_place_tries_the_same_points(
    tmp_path: Path, kind: type[BaseException], place: str
) -> None:
    whole = points(run(tmp_path / "whole.study"))
    at = {(k, place) for k in range(POINTS)}

    def once(k: int, where: str) -> None:
        if (k, where) in at:
            at.remove((k, where))
            raise kind

    file = tmp_path / "stopped.study"
    while at - {(3, "after")}:  # the fourth point never gets there
        with pytest.raises(kind):
            run(file, once)
    study = run(file)
    assert points(study) == whole
    assert len(study.trials) > POINTS


def test_a_start_that_waits_is_not_queued_twice(tmp_path: Path) -> None:
    """A process may die between queueing and trying."""
    file = tmp_path / "a.study"
    open_study(file, patience=100).enqueue_trial(STARTS[0])
    assert points(run(file)) == points(run(tmp_path / "whole.study"))


def test_steps_from_the_best_point_stay_in_the_ranges_and_become_shorter() -> None:
    space = {"a": (0.01, 1.0, True), "b": (-1.0, 3.0, False)}
    best = {"a": 0.011, "b": 2.9}
    points = {k: [nearby(best, space, k, seed) for seed in range(400)] for k in (0, 10, 100)}
    for found in points.values():
        assert all(0.01 <= p["a"] <= 1 and -1 <= p["b"] <= 3 for p in found)
    middle = {k: [nearby({"a": 0.1, "b": 1.0}, space, k, s) for s in range(400)] for k in points}
    spread = {k: np.std([(p["b"] - 1) / 4 for p in found]) for k, found in middle.items()}
    assert spread == pytest.approx({0: 0.12, 10: 0.12 * 0.94**10, 100: 0.03}, rel=0.1)
    assert np.std([np.log(p["a"] / 0.1) / np.log(100) for p in middle[0]]) == pytest.approx(
        0.12, rel=0.1
    )
    assert nearby(best, space, 0, 7) == nearby(best, space, 0, 7)
