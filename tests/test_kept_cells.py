"""What the repository says about the contest is what was measured, with the numbers it ships."""

import json
from pathlib import Path
from typing import Any

import pytest

from pnpcm import PRESETS
from pnpcm.baselines import BASELINES
from pnpcm.solvers import SOLVERS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CELLS = [json.loads(line) for line in (BENCHMARKS / "contest.jsonl").read_text().splitlines()]
TABLE = (BENCHMARKS / "CONTEST.md").read_text()
NAMES = [f"{c['prior']}/{c['task']}/{c['method']}/{c['origin']}" for c in CELLS]
PHOTO_TASKS = ("superres-4", "deblur-gauss", "inpaint-70")
PHOTO_TASKS += ("jpeg-5", "nonlinear-deblur", "phase-retrieval")
PROBLEMS = [f"{p}/{t}" for p in ("faces", "natural") for t in PHOTO_TASKS] + ["mri/r4", "mri/r8"]


@pytest.mark.parametrize("cell", CELLS, ids=NAMES)
def test_a_cell_was_made_with_the_numbers_of_the_package(cell: dict[str, Any]) -> None:
    if cell["origin"] == "shipped":
        config = PRESETS[f"{cell['prior']}/{cell['task']}"].solver
    else:
        origin = cell["origin"].replace("fair", cell["prior"])
        config = BASELINES[f"{cell['method']}/{origin}/{cell['task']}"].solver
    assert json.loads(json.dumps(config.to_dict())) == cell["config"]
    assert "failed" in cell or len(cell["psnr"]) == len(cell["ssim"]) == 10
    assert "failed" in cell or cell["nfe"] == getattr(config, "nfe", 0)


def rows(prior: str, task: str) -> list[str]:
    whole = TABLE.split(f"## `{prior}`")[1].split("\n## ")[0]
    return whole.split(f"### {task}\n")[1].split("\n### ")[0].splitlines()


@pytest.mark.parametrize("cell", CELLS, ids=NAMES)
def test_the_table_shows_every_cell(cell: dict[str, Any]) -> None:
    start = f"| {cell['method']}, {cell['origin']}"
    own = [
        r for r in rows(cell["prior"], cell["task"]) if r.startswith((f"{start} |", f"{start}, "))
    ]
    assert len(own) == 1
    if "failed" in cell:
        assert "diverged" in own[0]
    else:
        second = cell["ssim" if cell["prior"] == "mri" else "lpips"]
        mean = [sum(values) / len(values) for values in (cell["psnr"], second)]
        assert f"| {mean[0]:.2f} | {mean[1]:.3f} | {cell['nfe']} | {cell['vjps']} |" in own[0]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", SOLVERS)
def test_every_method_has_a_fair_cell_or_a_reason(method: str, problem: str) -> None:
    prior, task = problem.split("/")
    reasons = [r.split(":")[0][4:].split(", ") for r in rows(prior, task) if r.startswith("- – ")]
    refused = any(method in methods for methods in reasons)
    assert refused != (f"{problem}/{method}/fair" in NAMES)


def test_every_tuned_row_was_run() -> None:
    wanted = {
        f"{row.tuned_on}/{row.task}/{row.method}/{row.origin.replace(row.tuned_on, 'fair')}"
        for row in BASELINES.values()
        if row.tuned_on is not None
    }
    assert wanted <= set(NAMES)
