"""The examples of CONTRIBUTING.md in a copy of the source, and the laws on them."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n# (\S+\.py)(?:: (\w+))?\n(.*?)^```$", TEXT, re.M | re.S)
"""(file, table, lines): a new file where no table is named, else an import and a row."""
HELPERS = [f"tests/{p.name}" for p in ROOT.glob("tests/*.py") if not p.name.startswith("test_")]
SPECS = [f"benchmarks/specs/{p.name}" for p in ROOT.glob("benchmarks/specs/*.yaml")]
NEEDED = (
    *("pyproject.toml", *HELPERS, *SPECS),
    *("tests/test_architecture.py", "tests/benchmarks/test_specs.py", "tests/tune/test_fair.py"),
)


def add_row(path: Path, table: str, lines: str) -> None:
    """The import in its alphabetical place, the row before the bracket that closes ``table``.

    No change if the row exists already.
    """
    *imports, row = lines.splitlines()
    text = path.read_text(encoding="utf-8")
    if row in text.splitlines():
        return
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == table:
            value = next(v for v in ast.walk(node) if isinstance(v, ast.Dict | ast.Tuple))
            break
    else:
        raise AssertionError(f"{path} has no table {table}")
    old = text.splitlines()
    assert value.end_lineno is not None
    old.insert(value.end_lineno - 1, row)
    for new in imports:
        module = new.split()[1]
        same = [i for i, line in enumerate(old) if line.startswith("from pnpcm.")]
        after = [i for i in same if old[i].split()[1] < module]
        old.insert(after[-1] + 1, new)
    path.write_text("\n".join(old) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source and the tests that run over its tables, with the parts of CONTRIBUTING.md."""
    root = tmp_path_factory.mktemp("clone")
    ignored = shutil.ignore_patterns("weights", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", root / "src", ignore=ignored)
    shutil.copytree(ROOT / "tests" / "laws", root / "tests" / "laws", ignore=ignored)
    for name in NEEDED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name, table, lines in BLOCKS:
        if table:
            add_row(root / name, table, lines)
        else:
            (root / name).write_text(lines, encoding="utf-8")
    return root


def run(root: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files_of_the_examples_are_those_of_the_lists() -> None:
    listed = re.findall(r"^\| `(src/\S+)` \|", TEXT, re.M)
    assert [name for name, _, _ in BLOCKS] == listed
    assert len(listed) == 7


def test_an_operator_a_prior_and_a_solver_obey_every_law(copy: Path) -> None:
    words = ("pytest", "-v", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib")
    rows = (
        "flip or smoothing or pnp-pgd or names or every_method or each_tuned_row or configurations "
        "or half_the_noise"
    )
    out = run(copy, *words, "-k", rows, "tests")
    for law in (
        "test_operators.py::test_batch_equals_singles[flip-16x20]",
        "test_operators.py::test_prox_is_optimal[flip-15x21-3-float64]",
        "test_operators.py::test_public_check_agrees[flip]",
        "test_priors.py::test_prior_law[smoothing]",
        "test_solvers.py::test_batch_equals_singles[flip-pnp-pgd]",
        "test_solvers.py::test_batch_equals_singles[flip-pnp-cm]",
        "test_solvers.py::test_batch_equals_singles[jpeg-pnp-pgd]",
        "test_solvers.py::test_another_range_is_the_same_problem[inpainting-pnp-pgd]",
        "test_solvers.py::test_same_generator_same_result_and_nothing_touched[mri-pnp-pgd]",
        "test_solvers.py::test_configurations_round_trip_through_json",
        "test_architecture.py::test_torch_free_names_are_those_of_the_table",
        "test_specs.py::test_the_contest_runs_each_tuned_row_once_and_states_its_trials",
        "test_specs.py::test_half_the_noise_is_run_with_the_methods_that_need_no_network_per_task",
        "test_fair.py::test_every_method_is_a_solver",
    ):
        assert f"{law} PASSED" in out


def test_the_examples_are_clean(copy: Path) -> None:
    touched = [name for name, _, _ in BLOCKS]
    run(copy, "ruff", "check", "--no-cache", *touched)
    run(copy, "ruff", "format", "--check", "--no-cache", *touched)
