"""Statistics of benchmark rows, against numbers by hand, NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from pnpcm.bench.stats import Cell, Group, cells, difference, interval, marks, newest
from pnpcm.errors import ArgumentError, UnknownNameError

METRICS = ("psnr", "lpips-vgg")


def row(method: str, number: int, psnr: float | None, **more: Any) -> dict[str, Any]:
    """A stored row; psnr None: failed. LPIPS is 1 − psnr / 100."""
    scores = None if psnr is None else {"psnr": psnr, "lpips-vgg": 1 - psnr / 100}
    return {
        "key": f"{method}-{number}-{more}", "data": "photos", "image": f"{number}.png",
        "number": number, "task": "deblur", "sigma_y": 0.05, "seed": 0, "prior": "natural",
        "method": method, "steps": None, "scores": scores, "nfe": 4, "vjps": 0,
        "seconds": {"solve": 0.5 + number, "check": 9.0}, "trials": None, "parameters_from": "p",
        "failed": "diverged" if psnr is None else None, "finished": "2025-01-01T00:00:00+00:00",
    } | more  # fmt: skip


def only_group(rows: list[dict[str, Any]], **options: Any) -> dict[tuple[str, Any], Cell]:
    found = cells(rows, **{"metrics": METRICS, **options})
    assert len(found) == 1
    return {(cell.method, cell.steps): cell for each in found.values() for cell in each}


def test_mean_std_costs_by_hand() -> None:
    cell = only_group([row("a", 0, 20.0), row("a", 1, 22.0), row("a", 2, 27.0)])["a", None]
    assert cell.scores["psnr"].mean == 23
    assert cell.scores["psnr"].std == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert cell.scores["psnr"].count == cell.rows == 3
    assert cell.seconds is not None
    assert (cell.seconds.least, cell.seconds.mean) == (0.5, 1.5)
    assert cell.nfe is not None
    assert cell.nfe.mean == 4
    assert cell.parameters == ("p",)
    assert cell.differences == {}


def test_groups_are_data_prior_task_and_noise() -> None:
    rows = [row("a", 0, 20.0)]
    rows += [row("a", 0, 20.0, **{name: "other"}) for name in ("data", "prior", "task")]
    rows += [row("a", 0, 20.0, sigma_y=0.1), row("a", 0, 20.0, steps=4)]
    found = cells(rows, metrics=METRICS)
    assert len(found) == 5
    assert [cell.label for cell in found[Group("photos", "natural", "deblur", 0.05)]] == [
        "a",
        "a, 4 steps",
    ]


def test_failed_rows_are_failures_never_scores() -> None:
    bad = row("a", 3, 20.0) | {"scores": {"psnr": float("nan"), "lpips-vgg": 0.0}}
    empty = row("a", 4, 20.0) | {"scores": None}
    cell = only_group([row("a", 0, 20.0), row("a", 1, None), row("a", 2, None), bad, empty])
    found = cell["a", None]
    assert (found.rows, found.failed) == (5, 4)
    assert found.failures == {
        "diverged": 2,
        "scores are not finite: psnr is nan": 1,
        "the row has no scores": 1,
    }
    assert found.scores["psnr"].mean == 20
    assert found.scores["psnr"].std is None


def test_paired_differences_by_hand() -> None:
    rows = [row("ref", i, 20.0 + i) for i in range(4)]
    # image 2 is a tie, image 3 failed, image 9 is not one of the reference
    rows += [row("a", 0, 21.0), row("a", 1, 20.5), row("a", 2, 22.0), row("a", 3, None)]
    rows += [row("a", 9, 50.0)]
    found = only_group(rows, reference="ref")
    psnr, lpips = (found["a", None].differences[name] for name in METRICS)
    assert psnr.images == 3
    assert psnr.mean == pytest.approx((1 - 0.5 + 0) / 3)
    assert psnr.win_rate == pytest.approx((1 + 0.5) / 3)
    assert psnr.better is None
    assert lpips.mean == pytest.approx(-(1 - 0.5 + 0) / 300)
    assert lpips.win_rate == psnr.win_rate
    assert found["ref", None].is_reference
    assert found["ref", None].differences == {}


def test_another_image_seed_or_task_is_no_pair() -> None:
    rows = [row("ref", 0, 20.0), row("a", 0, 21.0, seed=1)]
    rows += [row("b", 0, 21.0) | {"image": "another file.png"}]
    found = only_group(rows, reference="ref")
    assert found["a", None].differences == found["b", None].differences == {}
    other = cells([row("ref", 0, 20.0), row("a", 0, 21.0, task="inpaint")], metrics=METRICS,
                  reference="ref")  # fmt: skip
    assert all(not cell.differences for each in other.values() for cell in each)


def test_seeds_of_an_image_count_once() -> None:
    rows = [row("ref", i, 20.0, seed=s) for i in range(2) for s in range(3)]
    rows += [row("a", 0, 20.0 + s, seed=s) for s in range(3)]  # mean difference 1
    rows += [row("a", 1, 19.5, seed=s) for s in range(3)]
    found = only_group(rows, reference="ref")["a", None]
    assert found.scores["psnr"].count == 6
    assert found.differences["psnr"].images == 2
    assert found.differences["psnr"].mean == pytest.approx(0.25)
    assert found.differences["psnr"].win_rate == 0.5


def test_reference_with_the_same_steps_or_its_only_cell() -> None:
    rows = [row("ref", 0, 20.0, steps=2), row("a", 0, 20.0, steps=2), row("a", 0, 21.0, steps=4)]
    found = only_group(rows, reference="ref")
    assert found["a", 4].differences["psnr"].mean == pytest.approx(1)
    found = only_group([*rows, row("ref", 0, 22.0, steps=4)], reference="ref")
    assert found["a", 2].differences["psnr"].mean == 0
    assert found["a", 4].differences["psnr"].mean == pytest.approx(-1)
    with pytest.raises(UnknownNameError, match="did you mean 'ref'"):
        only_group(rows, reference="reff")


@pytest.mark.parametrize("count", [8, 40, 400])
def test_interval_agrees_with_scipy(count: int) -> None:
    values = np.random.default_rng(count).gamma(2.0, size=count)
    low, high = interval(values, np.random.default_rng(0))
    other = scipy_stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    error = values.std(ddof=1) / count**0.5
    assert low == pytest.approx(other.low, abs=0.15 * error)
    assert high == pytest.approx(other.high, abs=0.15 * error)
    assert low < values.mean() < high


def test_interval_needs_two_values_and_is_reproducible() -> None:
    with pytest.raises(ArgumentError, match="at least 2"):
        interval(np.ones(1), np.random.default_rng(0))
    values = np.arange(10.0)
    first = interval(values, np.random.default_rng(5))
    assert first == interval(values, np.random.default_rng(5))
    assert first != interval(values, np.random.default_rng(6))


def test_interval_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=50)
    whole = interval(values, np.random.default_rng(0))
    monkeypatch.setattr("pnpcm.bench.stats.BLOCK", 50 * 300)
    assert interval(values, np.random.default_rng(0)) == pytest.approx(whole, abs=1e-12)


def test_better_follows_the_direction_of_the_metric() -> None:
    ahead = np.array([1.0, 2.0, 1.5])
    assert difference(ahead, True).better is True
    assert difference(ahead, False).better is False
    assert difference(-ahead, False).better is True
    assert difference(ahead, False).win_rate == 0
    assert difference(ahead[:1], True).low is None


def test_trials_are_carried() -> None:
    found = only_group([row("a", 0, 20.0, trials=40), row("b", 0, 20.0)])
    assert found["a", None].trials == 40
    assert found["b", None].trials is None


def test_marks_respect_direction_ties_and_missing_images() -> None:
    rows = [row(m, i, p + i) for m, p in (("a", 20.0), ("b", 25.0), ("c", 23.0)) for i in (0, 1)]
    rows += [row("d", 0, 99.0), row("d", 1, None)]  # best mean, of fewer images
    found = next(iter(cells(rows, metrics=METRICS).values()))
    for metric in METRICS:  # LPIPS falls with PSNR
        assert marks(found, metric) == {("b", None): 1, ("c", None): 2}
    tie = [*rows, *(row("e", i, 25.001 + i) for i in (0, 1))]  # equal with two decimals
    found = next(iter(cells(tie, metrics=METRICS).values()))
    assert marks(found, "psnr") == {("b", None): 1, ("e", None): 1, ("c", None): 2}
    assert marks(found[:1], "psnr") == {}


def test_newest_row_counts_and_names_outside_the_spec_do_not() -> None:
    old = row("a", 0, 20.0, finished="2025-01-01T00:00:00+00:00")
    new = row("a", 0, 21.0, finished="2025-01-02T00:00:00+00:00")
    other = row("b", 0, 22.0)
    assert newest([old, new, other]) == newest([new, old, other]) == [new, other]
    assert newest([old, new, other], {"methods": {"a": {}}, "data": {"photos": {}}}) == [new]
    assert newest([old], {"priors": ["faces"]}) == []


def test_metrics_that_do_not_exist_are_named() -> None:
    with pytest.raises(UnknownNameError, match="psnr"):
        cells([], metrics=("pnsr",))
