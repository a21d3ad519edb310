"""Specs: rows, and one sentence for each kind of bad input."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from pnpcm.bench import bench, read_spec
from pnpcm.bench.run import key_of, shard_of
from pnpcm.bench.spec import Row, matches
from pnpcm.errors import PnPCMError

Write = Callable[..., Path]
ROW = Row("noise", 0, "superres-2", 0.05, 0, "natural", "wiener")


def test_the_rows_are_the_product_of_the_fields(tmp_path: Path, write_spec: Write) -> None:
    spec = read_spec(write_spec(tmp_path, seeds=[0, 1], sigma_y=[0.0, 0.1], steps=[2, 4, 8]))
    rows = list(spec.rows())
    assert len(rows) == len(set(rows)) == 2 * 2 * 2 * 2 * (3 + 3 + 1)  # pnp-cm has its own steps
    assert len(list(spec.rows(limit=1))) == len(rows) // 2
    assert spec.name == "tiny"


def test_rows_of_one_measurement_are_in_succession(tmp_path: Path, write_spec: Write) -> None:
    seen = [row.measurement for row in read_spec(write_spec(tmp_path)).rows()]
    changes = sum(a != b for a, b in pairwise(seen))
    assert changes + 1 == len(set(seen)) == 4


def test_a_task_may_have_its_own_noise_levels_and_rows_can_be_left_out(
    tmp_path: Path, write_spec: Write
) -> None:
    tasks = {
        "a": {"task": "denoise", "sigma_y": [0.1, 0.2]},
        "b": {"task": "denoise"},
    }
    spec = read_spec(write_spec(tmp_path, tasks=tasks, skip=["/a/s0.2/*/tv"]))
    rows = list(spec.rows(limit=1))
    assert {(r.task, r.sigma_y) for r in rows} == {("a", 0.1), ("a", 0.2), ("b", 0.05)}
    assert len(rows) == 3 * 3 - 1


def test_a_method_may_be_limited_to_tasks_whose_preset_exists(
    tmp_path: Path, write_spec: Write
) -> None:
    tasks = {
        "superres-4": {"task": "superres", "options": {"factor": 4}},
        "jpeg-20": {"task": "jpeg", "options": {"quality": 20}},
    }
    tuned = {"preset": "cm4ir/{prior}/{task}", "tasks": ["superres-4"]}
    spec = read_spec(write_spec(tmp_path, tasks=tasks, methods={"a": tuned, "b": {}}))
    rows = {(row.task, row.method) for row in spec.rows()}
    assert rows == {("superres-4", "a"), ("superres-4", "b"), ("jpeg-20", "b")}


def test_the_key_of_a_row_does_not_depend_on_the_other_tasks_of_its_method(
    tmp_path: Path, write_spec: Write
) -> None:
    whole = read_spec(write_spec(tmp_path))
    methods = {"wiener": {"method": "wiener", "tasks": ["superres-2"]}}
    limited = read_spec(write_spec(tmp_path, methods=methods))
    assert key_of(limited, ROW) == key_of(whole, ROW)


def test_lists_of_numbers_in_settings_are_sequences_of_a_configuration(
    tmp_path: Path, write_spec: Write
) -> None:
    methods = {"a": {"method": "pnp-cm", "steps": [2], "settings": {"sigmas": [0.3, 0.2]}}}
    tasks = {"superres-2": {"task": "superres", "options": {"factor": 2}}}
    spec = read_spec(write_spec(tmp_path, methods=methods, tasks=tasks, metrics=["psnr"]))
    (row,) = bench(spec, tmp_path / "out", limit=1).rows()
    assert row["config"]["sigmas"] == [0.3, 0.2]


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [("wiener", True), ("superres-*/wien?r", True), ("tv", False), ("s0.05", True)],
)
def test_patterns(pattern: str, fits: bool) -> None:
    assert matches(ROW, (pattern,)) is fits


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"methods": {"a": {"method": "wienner"}}}, "did you mean 'wiener'"),
    "methods as a list": ({"methods": ["wiener", "tvv"]}, "unknown solver 'tvv'"),
    "task": ({"tasks": {"a": {"task": "superress"}}}, "did you mean 'superres'"),
    "option of a task": (
        {"tasks": {"a": {"task": "superres", "options": {"faktor": 2}}}},
        "faktor",
    ),
    "option of a scan": (
        {"tasks": {"a": {"task": "mri", "options": {"acc": 2}}}},
        "unexpected keyword argument 'acc'",
    ),
    "preset": ({"methods": {"a": {"preset": "{prior}/superres-44"}}}, "unknown preset"),
    "task of a method": ({"methods": {"a": {"tasks": ["jpeg"]}}}, "did you mean 'jpeg-20'"),
    "preset of the image before": (
        {"methods": {"a": {"method": "before", "preset": "natural/superres-4"}}},
        "has no other field than tasks",
    ),
    "control": ({"methods": {"a": {"method": "cosign", "control": "{task}"}}}, "superres-2"),
    "placeholder of a control": ({"methods": {"a": {"control": "{x}"}}}, "only {prior} and {task}"),
    "placeholder of a preset": ({"methods": {"a": {"preset": "{x}"}}}, "only {prior} and {task}"),
    "prior": ({"priors": ["naturall"]}, "naturall"),
    "metric": ({"metrics": ["psnrr"]}, "did you mean 'psnr'"),
    "source": ({"data": {"a": {"path": ".", "source": "foldr"}}}, "did you mean 'folder'"),
    "option of a source": (
        {"data": {"a": {"path": ".", "options": {"sizee": 3}}}},
        "options of the source 'folder'",
    ),
    "path": ({"data": {"a": {"path": "nowhere"}}}, "nowhere, which does not exist"),
    "variable": ({"data": {"a": {"path": "$PNPCM_DATA/nowhere"}}}, "is missing: PNPCM_DATA is"),
    "size": ({"data": {"a": {"path": "images", "side": 64}}}, "smaller than side 64"),
    "count": ({"data": {"a": {"path": "images", "count": 0}}}, "count of a data set must be"),
    "field": ({"metrik": ["psnr"]}, "unknown field of Spec 'metrik'; did you mean 'metrics'"),
    "field of a row": ({"tasks": {"a": {"tsk": "superres"}}}, "did you mean 'task'"),
    "no tasks": ({"tasks": {}}, "tasks of the spec must map names to fields"),
    "missing field": ({"methods": None}, "methods"),
    "a row that is a word": ({"tasks": {"a": "superres"}}, "expected the fields task"),
    "noise": ({"sigma_y": [5]}, "sigma_y must be from 0 to 1, got 5"),
    "word as noise": ({"sigma_y": ["much"]}, "expected a number"),
    "repeated value": ({"seeds": [0, 0]}, "each once"),
    "threads": ({"threads": 0}, "threads of the spec is 0"),
    "name": ({"name": "a/b"}, "name of the spec is 'a/b'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_fields_get_one_sentence_and_nothing_is_written(
    case: str, tmp_path: Path, write_spec: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path))
    changes, message = BAD[case]
    path, out = write_spec(tmp_path, **changes), tmp_path / "out"
    with pytest.raises(PnPCMError) as caught:
        bench(read_spec(path), out)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "must be a mapping of fields"),
        ("", "must be a mapping of fields"),
        ("a: [1, 2", "cannot be read as YAML"),
        ("\x00\x01", "cannot be read as YAML"),
    ],
)
def test_files_that_are_not_specs(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PnPCMError, match=message) as caught:
        read_spec(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(PnPCMError, match="which is not a file"):
        read_spec(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("shard", ["1", "2/2", "-1/2", "a/b", "0/0", "auto"])
def test_bad_shards(shard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    with pytest.raises(PnPCMError, match="shard is "):
        shard_of(shard)


def test_the_shard_of_a_job_array(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ID", "7"), ("COUNT", "4"), ("MIN", "5")):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", value)
    assert shard_of("auto") == (2, 4)
    assert shard_of("1/3") == (1, 3)
    assert shard_of(None) == (0, 1)


@pytest.mark.parametrize(
    ("given", "message"), [({"limit": 0}, "limit is 0"), ({"only": ["nothing"]}, "fits no row")]
)
def test_choices_without_rows(
    given: dict[str, Any], message: str, tmp_path: Path, write_spec: Write
) -> None:
    with pytest.raises(PnPCMError, match=message):
        bench(read_spec(write_spec(tmp_path)), tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_the_key_depends_on_all_that_the_result_depends_on(
    tmp_path: Path, write_spec: Write
) -> None:
    first = {row.name: key_of(spec, row) for spec in [read_spec(write_spec(tmp_path))]
             for row in spec.rows()}  # fmt: skip
    assert len(set(first.values())) == len(first)
    changed: dict[str, dict[str, Any]] = {
        "metrics": {"metrics": ["psnr"]},
        "settings": {"methods": {"wiener": {"method": "wiener", "settings": {"level": 1.0}}}},
        "task": {"tasks": {"superres-2": {"task": "superres", "options": {"factor": 4}}}},
    }
    for name, fields in changed.items():
        spec = read_spec(write_spec(tmp_path, **fields))
        row = next(spec.rows())
        assert key_of(spec, row) != first[row.name], name
    # a further noise level or method, or the word on trials, keeps the rows that are there
    spec = read_spec(
        write_spec(
            tmp_path,
            sigma_y=[0.05, 0.1],
            methods={"wiener": {"method": "wiener", "trials": 3}, "more": {"method": "tv"}},
        )
    )
    assert key_of(spec, next(spec.rows())) == first[ROW.name]


def test_rows_with_equal_fields_and_other_names_are_different_rows(
    tmp_path: Path, write_spec: Write
) -> None:
    methods = {"a": {"method": "wiener"}, "b": {"method": "wiener"}}
    spec = read_spec(write_spec(tmp_path, methods=methods))
    keys = [key_of(spec, row) for row in spec.rows()]
    assert len(set(keys)) == len(keys)


def test_images_are_shrunk_cropped_and_evenly_spaced(tmp_path: Path, write_spec: Write) -> None:
    data = {"a": {"path": "images", "shrink": 2, "side": 8, "count": 1}, "b": {"path": "images"}}
    spec = read_spec(write_spec(tmp_path, data=data))
    whole, part = spec.images("b")[0], spec.images("a")[0]
    assert whole.shape == (1, 3, 32, 32)
    assert part.shape == (1, 3, 8, 8)
    expected = whole[..., 8:24, 8:24].reshape(1, 3, 8, 2, 8, 2).mean((3, 5))
    assert torch.allclose(part, expected, atol=1e-6)
    assert len(spec.images("a")) == 1
    assert spec.images("b").name(1) == "1.png"
