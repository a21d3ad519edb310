"""Runs: nothing is computed twice, and rows do not depend on interruptions and shards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pnpcm.bench import Store, bench, read_spec, run
from pnpcm.bench.estimate import estimate
from pnpcm.bench.run import Job, Progress, finished
from pnpcm.bench.spec import Spec
from pnpcm.bench.store import LOST

Write = Callable[..., Path]
Same = Callable[[Any], list[Any]]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory, write_spec: Write) -> Spec:
    return read_spec(write_spec(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def whole(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A run without interruption in one process."""
    return bench(spec, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the rows that are computed."""
    names: list[str] = []
    original = run.compute

    def compute(job: Job) -> Any:
        names.append(job.row.name)
        return original(job)

    monkeypatch.setattr(run, "compute", compute)
    return names


def test_every_row_is_stored_with_what_it_was_made_with(spec: Spec, whole: Store) -> None:
    rows = finished(spec, whole)
    assert [(r["data"], r["number"], r["task"], r["method"]) for r in rows] == [
        ("noise", number, task, method)
        for number in (0, 1)
        for task in ("superres-2", "jpeg-20")
        for method in ("wiener", "tv", "pnp-cm")
    ]
    for row in rows:
        assert row["image"] == f"{row['number']}.png"
        assert row["spec"] == "tiny"
        assert row["environment"]["torch"] == torch.__version__
        if row["failed"] is None:
            assert set(row["scores"]) == {"psnr", "ssim"}
            assert 5 < row["scores"]["psnr"] < 60
            assert row["nfe"] == (2 if row["method"] == "pnp-cm" else 0)
            assert row["solver"] == row["method"]
            assert row["config"]["type"].lower() == row["method"].replace("-", "") + "config"
            assert row["memory"] > 1 << 20
            assert {"plan", "solve"} <= set(row["seconds"])


def test_all_methods_have_the_same_measurement(spec: Spec, whole: Store) -> None:
    hashes: dict[Any, set[str]] = {}
    for row in whole.rows():
        hashes.setdefault((row["number"], row["task"]), set()).add(row["y_hash"])
    assert [len(found) for found in hashes.values()] == [1] * 4
    assert len({h for found in hashes.values() for h in found}) == 4


def test_a_method_that_refuses_the_operator_is_a_row_with_the_reason(whole: Store) -> None:
    failed = [row for row in whole.rows() if row["failed"] is not None]
    assert [(row["task"], row["method"]) for row in failed] == 2 * [
        ("jpeg-20", "wiener"),
        ("jpeg-20", "tv"),
    ]
    for row in failed:
        assert f"method '{row['method']}' has no tuned numbers for jpeg" in row["failed"]
        assert row["scores"] is None
        assert row["y_hash"] is not None


def test_a_finished_run_computes_nothing(
    spec: Spec, whole: Store, counted: list[str], same: Same
) -> None:
    before = same(whole.rows())
    seen: list[int] = []
    bench(spec, whole.folder, watch=lambda progress: seen.append(progress.total))
    assert counted == []
    assert seen == [0]
    assert same(whole.rows()) == before


def test_an_interrupted_run_continues_where_it_stopped(
    spec: Spec, whole: Store, tmp_path: Path, counted: list[str], same: Same
) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench(spec, tmp_path, watch=stop)
    assert len(Store(tmp_path).keys()) == 5
    bench(spec, tmp_path)
    assert len(counted) == len(set(counted)) == 12
    assert same(Store(tmp_path).rows()) == same(whole.rows())


def test_shards_give_the_rows_of_one_run(
    spec: Spec, whole: Store, tmp_path: Path, counted: list[str], same: Same
) -> None:
    for shard in ("1/2", "0/2"):
        bench(spec, tmp_path, shard=shard)
    assert len(counted) == len(set(counted)) == 12
    assert {p.name for p in tmp_path.glob("*.sqlite")} == {
        "rows-0-of-2.sqlite",
        "rows-1-of-2.sqlite",
    }
    assert same(Store(tmp_path).rows()) == same(whole.rows())


def test_limit_and_only_select_rows(spec: Spec, tmp_path: Path, counted: list[str]) -> None:
    bench(spec, tmp_path, limit=1, only=["wiener", "superres-*/tv"])
    assert counted == [
        "noise/0/superres-2/s0.05/natural/wiener/0",
        "noise/0/superres-2/s0.05/natural/tv/0",
        "noise/0/jpeg-20/s0.05/natural/wiener/0",
    ]


def test_pictures_are_kept_of_the_first_images(spec: Spec, whole: Store) -> None:
    kept = {path.name.split(".")[0] for path in (whole.folder / "pictures").iterdir()}
    for row in whole.rows():
        assert (row["key"] in kept) == (row["number"] < 1 and row["failed"] is None)


def test_the_image_before_is_a_method(tmp_path: Path, write_spec: Write) -> None:
    tasks = {"superres-2": {"task": "superres", "options": {"factor": 2}}}
    changes = {"tasks": tasks, "methods": {"before": {"method": "before"}}}
    spec = read_spec(write_spec(tmp_path, **changes))
    assert estimate(spec, tmp_path / "out").seconds == 0
    (first, *_) = finished(spec, bench(spec, tmp_path / "out"))
    (row, *_), x = spec.rows(), spec.images("noise")[0]
    y = run.measured_of(row, x, spec.tasks["superres-2"]).y
    enlarged = torch.nn.functional.interpolate(y, (32, 32), mode="bicubic")
    error = (enlarged.clamp(-1, 1) - x).double().square().mean() / 4
    assert first["scores"]["psnr"] == pytest.approx(float(-10 * error.log10()), abs=1e-4)
    assert (first["nfe"], first["failed"], first["parameters_from"]) == (0, None, "bicubic")
    assert len(list((tmp_path / "out/pictures").glob("*.png"))) == 3  # result, truth, before


def test_pictures_of_scans_are_kept_and_the_image_before_is_zero_filled(
    tmp_path: Path, write_spec: Write
) -> None:
    arrays = np.random.default_rng(0).random((1, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "scans.npz", images=arrays)
    spec = read_spec(
        write_spec(
            tmp_path,
            data={"scans": {"path": "scans.npz", "source": "magnitude"}},
            tasks={"r4": {"task": "mri", "options": {"coils": 4}, "sigma_y": [0.0]}},
            methods={"before": {"method": "before"}, "Wiener": {"preset": "wiener/mri/r4"}},
            priors=["mri"],
            metrics=["psnr"],
        )
    )
    before, wiener = finished(spec, bench(spec, tmp_path / "out"))
    assert (before["failed"], wiener["failed"]) == (None, None)
    assert before["parameters_from"] == "zero-filled"
    assert len(list((tmp_path / "out/pictures").glob("*.png"))) >= 4  # two results, truth, before
    x, (row, *_) = spec.images("scans")[0], spec.rows()
    operator = spec.tasks["r4"].of((2, 32, 32)).operator((2, 32, 32))
    image = torch.fft.ifft2(
        torch.fft.ifftshift(run.measured_of(row, x, spec.tasks["r4"]).y, (-2, -1)), norm="ortho"
    )
    filled = (torch.fft.fftshift(image, (-2, -1)) * operator.coil_maps.conj()).sum(1).abs()
    truth = torch.complex(x[:, 0], x[:, 1]).abs()
    error = (filled.clamp(0, 1) - truth.clamp(0, 1)).double().square().mean()
    assert before["scores"]["psnr"] == pytest.approx(float(-10 * error.log10()), abs=1e-3)


def test_a_controlnet_belongs_to_a_row_of_cosign(tmp_path: Path, write_spec: Write) -> None:
    shipped = Path(run.__file__).parents[1] / "data"
    spec = read_spec(
        write_spec(
            tmp_path,
            data={"photos": {"path": str(shipped), "count": 1, "side": 64}},
            tasks={"superres-4": {"task": "superres", "options": {"factor": 4}}},
            methods={"CoSIGN": {"preset": "cosign/{prior}/{task}", "control": "{task}"}},
            priors=["faces"],
            pictures=0,
        )
    )
    (row,) = bench(spec, tmp_path / "out").rows()
    assert (row["failed"], row["nfe"], row["solver"]) == (None, 4, "cosign")
    assert not set(run.weights_of(run.Chosen("faces", "superres-4"))) & set(
        run.weights_of(run.Chosen("faces"))
    )


def test_a_faulty_row_does_not_end_the_run_and_is_computed_again(
    spec: Spec, whole: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: Same
) -> None:
    original = run._solve

    def solve(job: Job, measured: Any) -> Any:
        if job.row.method == "pnp-cm" and job.row.image == 1:
            raise ZeroDivisionError("of the test")
        return original(job, measured)

    monkeypatch.setattr(run, "_solve", solve)
    store = bench(spec, tmp_path)
    failed = [row["failed"] for row in store.rows() if row["method"] == "pnp-cm" and row["failed"]]
    assert failed == [f"{LOST}ZeroDivisionError: of the test"] * 2
    monkeypatch.setattr(run, "_solve", original)
    bench(spec, tmp_path)
    assert same(store.rows()) == same(whole.rows())


def test_other_weights_on_a_worker_are_refused(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, key = next(run.planned(spec))
    job = run.job_of(spec, row, key)
    monkeypatch.setattr(run, "weights_of", lambda prior: ("others",))
    saved, _ = run.compute(job)
    assert saved["failed"].startswith(LOST)
    assert "other weights" in saved["failed"]


def test_rows_of_an_earlier_spec_are_not_mixed_with_those_of_today(
    tmp_path: Path, write_spec: Write
) -> None:
    methods = {"wiener": {"method": "wiener"}}
    first = read_spec(write_spec(tmp_path, methods=methods))
    bench(first, tmp_path / "out", limit=1, only=["superres"])
    second = read_spec(write_spec(tmp_path, methods=methods, metrics=["psnr"]))
    store = bench(second, tmp_path / "out", limit=1, only=["superres"])
    assert len(store.keys()) == 2
    assert [set(row["scores"]) for row in finished(second, store)] == [{"psnr"}]


def test_the_estimate_names_its_origin_and_writes_nothing(
    spec: Spec, whole: Store, tmp_path: Path
) -> None:
    unknown = estimate(spec, tmp_path / "out")
    assert (unknown.rows, unknown.stored) == (12, 0)
    # tv has no evaluations; wiener refuses JPEG at once, and has none on the other task
    assert unknown.from_prior + unknown.unknown == 12
    assert unknown.from_prior >= 4
    assert "by one evaluation of the prior times their number" in str(unknown)
    assert not (tmp_path / "out").exists()
    done = estimate(spec, whole.folder)
    assert (done.stored, done.seconds) == (12, 0.0)
    assert "expected time" not in str(done)


def test_the_estimate_takes_the_mean_time_of_stored_rows(tmp_path: Path, write_spec: Write) -> None:
    spec = read_spec(write_spec(tmp_path, methods={"wiener": {"method": "wiener"}}))
    store = Store(tmp_path)
    with store.writing() as add:
        for i, seconds in enumerate((1.0, 3.0)):
            add({"key": f"old {i}", "task": "superres-2", "prior": "natural", "method": "wiener",
                 "steps": None, "seconds": {"solve": seconds, "prior": 50.0}})  # fmt: skip
    found = estimate(spec, tmp_path, only=["superres"])
    assert (found.rows, found.stored, found.from_rows) == (2, 0, 2)
    assert found.seconds == pytest.approx(4.0)  # two rows of 2 s
    assert "by the mean time of stored rows" in str(found)
