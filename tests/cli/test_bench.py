"""``pnpcm bench``: table, lines, exit codes, expected means, bad input."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner, Result

from pnpcm.bench import Store, run
from pnpcm.bench.verify import cells_of, read_expected, verify
from pnpcm.cli import app, main
from pnpcm.errors import ArgumentError, PnPCMError

SPEC: dict[str, Any] = {
    "data": {"noise": {"path": "images"}},
    "tasks": {
        "superres-2": {"task": "superres", "options": {"factor": 2}},
        "jpeg-20": {"task": "jpeg", "options": {"quality": 20}},
    },
    "methods": {"wiener": {"method": "wiener"}, "2 steps": {"method": "pnp-cm", "steps": [2]}},
    "metrics": ["psnr", "ssim"],
    "pictures": 0,
}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec in the current folder, with two images of 32×32 pixels."""
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    random = np.random.default_rng(0)
    for i in range(2):
        pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(f"images/{i}.png")
    path = Path("tiny.yaml")
    path.write_text(yaml.safe_dump(SPEC, sort_keys=False))
    return path


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_run_prints_its_means_failures_and_folder(spec: Path) -> None:
    done = call(spec, "--out", "out", "--limit", 1)
    assert done.exit_code == 0, done.output
    rows = {(r["task"], r["method"]): r for r in Store(Path("out")).rows()}
    assert len(rows) == 4
    psnr = rows["superres-2", "2 steps"]["scores"]["psnr"]
    line = next(line for line in done.stdout.splitlines() if "2 steps" in line)
    assert [cell.strip() for cell in line.split("│")[1:6]] == [
        "superres-2, σ 0.05",
        "2 steps, N = 2",
        f"{psnr:.2f}",
        "2",
        line.split("│")[5].strip(),
    ]
    assert "failed: wiener on jpeg-20: method 'wiener' has no tuned numbers" in done.stdout
    assert done.stdout.endswith("results: out\n")
    assert "bench: 4 of 4 rows, 1 failed" in done.stderr


def test_the_default_folder_has_the_name_of_the_spec(spec: Path) -> None:
    assert call(spec, "--only", "superres-2/*/wiener").exit_code == 0
    assert len(Store(Path("out/bench/tiny")).keys()) == 2


def test_a_dry_run_counts_and_writes_nothing(spec: Path, tmp_path: Path) -> None:
    before = files(tmp_path)
    done = call(spec, "--dry-run", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "8 rows, 0 in the store, 8 to compute" in done.stdout
    assert re.search(r"expected time: \d+ s of one process \(.*one evaluation", done.stdout)
    assert files(tmp_path) == before
    call(spec, "--out", "out", "--limit", 1)
    done = call(spec, "--dry-run", "--out", "out")
    assert "8 rows, 4 in the store, 4 to compute" in done.stdout
    assert "by the mean time of stored rows of the same method" in done.stdout


def test_an_interruption_says_how_to_continue(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = run.compute, []

    def compute(job: Any) -> Any:
        calls.append(job.key)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(job)

    monkeypatch.setattr(run, "compute", compute)
    done = call(spec, "--out", "out")
    assert done.exit_code == 130
    assert "pnpcm: stopped; finished rows are in out, the same command continues" in done.stderr
    assert len(Store(Path("out")).keys()) == 2
    assert call(spec, "--out", "out").exit_code == 0
    assert len(calls) == 3 + 6  # the third one was stopped


def test_shards_of_a_job_array(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    for i in ("1", "0"):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", i)
        done = call(spec, "--out", "out", "--shard", "auto", "--only", "wiener")
        assert done.exit_code == 0, done.output
    assert "4 of 4 rows of the spec are in the store" in done.stdout
    assert files(Path("out")) == {
        "rows-0-of-2.sqlite",
        "rows-1-of-2.sqlite",
        "tiny.spec.json",
    }


def test_expected_means_are_written_and_verified(spec: Path) -> None:
    words = (spec, "--out", "out", "--only", "superres")
    assert call(*words, "--expect", "tiny.expected.yaml").exit_code == 0
    text = Path("tiny.expected.yaml").read_text()
    first = "# Renew with: pnpcm bench tiny.yaml --out out --expect tiny.expected.yaml"
    assert text.splitlines()[0] == f"{first} --only superres"
    values = yaml.safe_load(text)
    scores = [r["scores"]["psnr"] for r in Store(Path("out")).rows() if r["method"] == "wiener"]
    assert values["tolerances"] == {"psnr": 0.05, "ssim": 0.005}
    assert values["cells"][1]["method"] == "wiener"
    assert values["cells"][1]["mean"]["psnr"] == pytest.approx(sum(scores) / 2, abs=6e-4)
    done = call(*words, "--verify", "tiny.expected.yaml")
    assert done.exit_code == 0, done.output
    assert "verify: 4 of 4 comparisons within their tolerance" in done.stdout


def test_deviations_are_told_in_one_line_each(spec: Path) -> None:
    words = (spec, "--out", "out", "--only", "superres")
    call(*words, "--expect", "e.yaml")
    values = yaml.safe_load(Path("e.yaml").read_text())
    steps, wiener = values["cells"]
    wiener["mean"]["psnr"] += 0.06
    wiener["mean"]["ssim"] += 0.004
    steps["method"] = "renamed"
    Path("e.yaml").write_text(yaml.safe_dump(values))
    done = call(*words, "--verify", "e.yaml")
    assert done.exit_code == 1
    outside = [line for line in done.stdout.splitlines() if line.startswith("outside: ")]
    assert outside[0] == "outside: noise/superres-2/s0.05/natural/renamed@n2 is missing in this run"
    assert outside[1].startswith("outside: noise/superres-2/s0.05/natural/wiener psnr ")
    assert outside[1].endswith("difference -0.060, tolerance 0.05")
    assert len(outside) == 2
    assert "verify: noise/superres-2/s0.05/natural/2 steps@n2 has no expected values" in done.stdout
    done = call(*words, "--limit", 1, "--verify", "e.yaml")
    assert "wiener has 1 rows with scores, expected 2" in done.stdout


def saved(**changes: Any) -> dict[str, Any]:
    row = {"data": "d", "task": "t", "sigma_y": 0.1, "prior": "p", "method": "m", "steps": None}
    return row | {"scores": {"psnr": 30.0, "nmse": 0.5}, "failed": None} | changes


def test_means_are_over_the_rows_with_scores() -> None:
    rows = [saved(), saved(scores={"psnr": 20.0}), saved(failed="refused", scores=None)]
    (cell,) = cells_of(rows)
    assert (cell.rows, cell.mean) == (2, {"psnr": 25.0, "nmse": 0.5})
    assert len(cells_of([*rows, saved(steps=4), saved(sigma_y=0.2)])) == 3


@pytest.mark.parametrize(
    ("psnr", "ok"),
    [(30.05, True), (29.95, True), (30.06, False), (29.9, False), (float("nan"), False)],
)
def test_tolerances(tmp_path: Path, psnr: float, ok: bool) -> None:
    path = tmp_path / "e.json"  # JSON is YAML
    path.write_text(
        '{"cells": [{"data": "d", "task": "t", "sigma_y": 0.1, "prior": "p", "method": "m", '
        '"rows": 1, "mean": {"psnr": 30, "nmse": 0.4}, "tolerances": {"nmse": 0.2}}]}'
    )
    expected = read_expected(path)
    compared = verify([saved(scores={"psnr": psnr, "nmse": 0.5})], expected)
    assert [one.ok for one in compared] == [ok, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cells: 3", "cells must be a list of cells"),
        ("cells: []", "cells must be a list of cells"),
        ("cells: [{data: d}]", "Cell"),
        (
            "cells: [{data: d, task: t, sigma_y: 0, prior: p, method: m, rows: 1, mean: 3}]",
            "must map metrics to numbers",
        ),
        (
            "cells: [{data: d, task: t, sigma_y: 0, prior: p, method: m, rows: 1, "
            "mean: {psnrr: 3}}]",
            "did you mean 'psnr'",
        ),
        ("- a", "must be a mapping of fields"),
    ],
)
def test_bad_files_of_expected_means(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    with pytest.raises(PnPCMError, match=message):
        read_expected(path)


def test_bad_input_is_one_sentence_and_nothing_is_written(
    spec: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("typo.yaml").write_text("taskz: {}\n")
    Path("broken").mkdir()
    Path("broken/rows.sqlite").write_text("this is not a database")
    before = files(tmp_path)
    for words, message in (
        (("nowhere.yaml",), "spec is nowhere.yaml, which is not a file"),
        (("typo.yaml",), "unknown field of Spec 'taskz'; did you mean 'tasks'?"),
        (("tiny.yaml", "--limit", "0"), "--limit is 0, expected 1"),
        (("tiny.yaml", "--only", "x"), "--only is ['x'], which fits no row of tiny"),
        (("tiny.yaml", "--shard", "3"), "--shard is '3', expected i/n"),
        (("tiny.yaml", "--workers", "0"), "--workers is 0, expected 1 or more"),
        (("tiny.yaml", "--verify", "no.yaml"), "--verify is no.yaml, which is not a file"),
        (("tiny.yaml", "--expect", "no/e.yaml"), "--expect is no/e.yaml, but no is not a folder"),
        (("tiny.yaml", "--out", "broken"), "store broken/rows.sqlite cannot be read"),
        (("tiny.yaml", "--out", "broken", "--dry-run"), "file is not a database); move it away"),
    ):
        monkeypatch.setattr(sys, "argv", ["pnpcm", "bench", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        error = capsys.readouterr().err
        assert stop.value.code == 2, words
        assert error.startswith("pnpcm: "), error
        assert message in error
        assert error.count("\n") == 1
        assert files(tmp_path) == before


def test_the_help_does_not_import_torch() -> None:
    code = (
        "import sys\nsys.argv = ['pnpcm', 'bench', '--help']\nfrom pnpcm.cli import app\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'dask', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--scheduler" in done.stdout
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize("name", ["report.html", "table.csv", "tiny.spec.json"])
def test_files_of_the_user_are_not_replaced(name: str, spec: Path) -> None:
    Path("out").mkdir()
    (Path("out") / name).write_text("mine")
    words = (spec, "--out", "out", "--only", "superres-2/*/wiener")
    done = call(*words)
    assert isinstance(done.exception, ArgumentError)
    assert f"output out/{name} exists and is not a result of pnpcm bench" in str(done.exception)
    assert files(Path("out")) == {name}
    (Path("out") / name).rename(Path("out") / "notes.txt")
    assert call(*words).exit_code == 0
    assert call(*words).exit_code == 0  # its own folder
    Path("means.yaml").write_text("mine")
    assert "not a file of --expect" in str(call(*words, "--expect", "means.yaml").exception)
