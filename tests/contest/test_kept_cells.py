"""What the repository says about the contest is what was measured, with the numbers it ships."""

import json
from pathlib import Path
from typing import Any

import pytest

from pnpcm import PRESETS
from pnpcm.contest import BASELINES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CELLS = [json.loads(line) for line in (BENCHMARKS / "contest.jsonl").read_text().splitlines()]
TABLE = (BENCHMARKS / "CONTEST.md").read_text()
NAMES = [f"{c['prior']}/{c['task']}/{c['method']}/{c['origin']}" for c in CELLS]


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
