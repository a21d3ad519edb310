"""The committed cells of the comparison belong to the parameters of the package."""

import json
from pathlib import Path
from typing import Any

from pnpcm import PRESETS
from pnpcm.baselines import BASELINES
from pnpcm.solvers import SOLVERS
from pnpcm.tune import METHODS
from rows import check_rows

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CELLS = [json.loads(line) for line in (BENCHMARKS / "contest.jsonl").read_text().splitlines()]
TABLE = (BENCHMARKS / "CONTEST.md").read_text()
NAMES = [f"{c['prior']}/{c['task']}/{c['method']}/{c['origin']}" for c in CELLS]
PHOTO_TASKS = ("superres-4", "deblur-gauss", "inpaint-70")
PHOTO_TASKS += ("jpeg-5", "nonlinear-deblur", "phase-retrieval")
PROBLEMS = [f"{p}/{t}" for p in ("faces", "natural") for t in PHOTO_TASKS] + ["mri/r4", "mri/r8"]
COMPARED = {
    *("pnp-cm", "dps", "pigdm", "diffpir", "dpnp", "pnp-dm", "dds", "ddrm", "pnp-admm", "dpir"),
    *("cm-iterative", "cm4ir", "cosign", "tv", "wiener"),
}
"""The methods that have been compared. A solver that is not in the table owes it nothing."""


def rows(prior: str, task: str) -> list[str]:
    whole = TABLE.split(f"## `{prior}`")[1].split("\n## ")[0]
    return whole.split(f"### {task}\n")[1].split("\n### ")[0].splitlines()


def refused(prior: str, task: str) -> set[str]:
    """Methods that the table lists without entry, with a reason."""
    reasons = [r.split(":")[0][4:] for r in rows(prior, task) if r.startswith("- – ")]
    return {method for methods in reasons for method in methods.split(", ")}


KNOWN = {c["method"] for c in CELLS}.union(*(refused(*p.split("/")) for p in PROBLEMS))


def test_every_cell_was_made_with_the_numbers_of_the_package() -> None:
    def check(cell: dict[str, Any]) -> None:
        if cell["origin"] == "shipped":
            config: Any = PRESETS[f"{cell['prior']}/{cell['task']}"].solver
        else:
            origin = cell["origin"].replace("fair", cell["prior"])
            config = BASELINES[f"{cell['method']}/{origin}/{cell['task']}"].solver
        assert json.loads(json.dumps(config.to_dict())) == cell["config"]
        assert "failed" in cell or len(cell["psnr"]) == len(cell["ssim"]) == 10
        assert "failed" in cell or cell["nfe"] == getattr(config, "nfe", 0)

    check_rows(zip(NAMES, CELLS, strict=True), check)


def test_the_table_shows_every_cell() -> None:
    def check(cell: dict[str, Any]) -> None:
        start = f"| {cell['method']}, {cell['origin']}"
        shown = rows(cell["prior"], cell["task"])
        own = [r for r in shown if r.startswith((f"{start} |", f"{start}, "))]
        assert len(own) == 1
        if "failed" in cell:
            assert "diverged" in own[0]
        else:
            second = cell["ssim" if cell["prior"] == "mri" else "lpips"]
            mean = [sum(values) / len(values) for values in (cell["psnr"], second)]
            assert f"| {mean[0]:.2f} | {mean[1]:.3f} | {cell['nfe']} | {cell['vjps']} |" in own[0]

    check_rows(zip(NAMES, CELLS, strict=True), check)


def test_every_method_of_the_table_has_a_fair_cell_or_a_reason() -> None:
    def check(place: tuple[str, str]) -> None:
        problem, method = place
        has_a_reason = method in refused(*problem.split("/"))
        assert has_a_reason != (f"{problem}/{method}/fair" in NAMES)

    places = [(problem, method) for problem in PROBLEMS for method in sorted(KNOWN)]
    check_rows(((f"{problem}, {method}", (problem, method)) for problem, method in places), check)


def test_the_table_knows_the_compared_methods_and_only_methods_of_the_package() -> None:
    assert KNOWN >= COMPARED
    assert set(SOLVERS) >= KNOWN
    assert set(METHODS) >= KNOWN  # each was tuned


def test_every_tuned_row_was_run() -> None:
    wanted = {
        f"{row.tuned_on}/{row.task}/{row.method}/{row.origin.replace(row.tuned_on, 'fair')}"
        for row in BASELINES.values()
        if row.tuned_on is not None
    }
    assert wanted <= set(NAMES)
