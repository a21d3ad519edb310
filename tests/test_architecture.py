"""The layers of ARCHITECTURE.md: allowed imports, names of the tables, lazy imports."""

import ast
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import pnpcm
from pnpcm import OPERATORS
from pnpcm.names import OPERATOR_NAMES

SOURCE = Path(pnpcm.__file__).parent
LAYERS = {
    **dict.fromkeys(("core", "errors", "names", "places"), 0),
    **dict.fromkeys(("networks", "schedules", "linalg", "transforms", "rng", "counted", "laws"), 1),
    **dict.fromkeys(("arguments",), 1),
    **dict.fromkeys(("io", "metrics", "cluster"), 1),
    **dict.fromkeys(("operators", "priors", "solvers"), 2),
    **dict.fromkeys(("mri", "interop", "training", "problems"), 3),
    **dict.fromkeys(("catalogue", "presets", "baselines", "recon", "tune", "evaluation"), 4),
    **dict.fromkeys(("bench",), 4),
    **dict.fromkeys(("demo", "doctor"), 4),
    **dict.fromkeys(("app", "cli", "__main__"), 5),
}
SHARED_BY_SIBLINGS = {0, 1, 3, 4, 5}  # in layer 2 parts never import each other


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of the syntax tree of a source file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def edges() -> list[tuple[str, str, str]]:
    """(file, package, imported package) of every import statement, lazy ones included."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path == SOURCE / "__init__.py":
            continue  # the public names: reaches everywhere, lazily
        for node in nodes(path):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
                if node.module == "pnpcm":
                    names = [f"pnpcm.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "pnpcm" and len(parts) > 1 and not parts[1].startswith("__"):
                    found.append((str(path.relative_to(SOURCE)), package_of(path), parts[1]))
    return found


def test_every_package_has_a_layer() -> None:
    packages = {package_of(p) for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py"}
    assert packages == set(LAYERS)


def test_imports_point_down() -> None:
    found = edges()
    assert len(found) > 100  # the test sees the imports at all
    for file, package, target in found:
        if package == target:
            continue
        down = LAYERS[target] < LAYERS[package]
        level = LAYERS[target] == LAYERS[package] and LAYERS[package] in SHARED_BY_SIBLINGS
        assert down or level, f"{file} imports pnpcm.{target}, against the drawing"


def test_no_two_packages_import_each_other() -> None:
    pairs = {(package, target) for _, package, target in edges() if package != target}
    assert not [pair for pair in pairs if pair[::-1] in pairs]


@pytest.mark.parametrize("foreign", ["deepinv", "torchvision", "kornia", "lpips"])
def test_these_are_never_imported(foreign: str) -> None:
    for path in SOURCE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] != foreign
            elif isinstance(node, ast.Import):
                assert all(alias.name.split(".")[0] != foreign for alias in node.names)


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_or_its_help_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import pnpcm")
    code = "import sys\nsys.argv = ['pnpcm', '--help']\nfrom pnpcm.cli import app\n"
    modules = loaded_by(code + "try:\n    app()\nexcept SystemExit:\n    pass")
    assert "pnpcm.cli" in modules
    assert "torch" not in modules


def test_the_core_loads_nothing_heavy() -> None:
    modules = loaded_by(
        "import pnpcm; pnpcm.PnPCM; pnpcm.operators; pnpcm.load_prior; pnpcm.PRESETS"
    )
    heavy = {
        "diffusers",
        "gradio",
        "optuna",
        "h5py",
        "scipy",
        "skimage",
        "accelerate",
        "matplotlib",
    }
    assert "torch" in modules
    assert modules.isdisjoint(heavy)


def test_public_names_exist() -> None:
    for name in pnpcm.__all__:
        assert getattr(pnpcm, name) is not None
    assert set(dir(pnpcm)) >= {"PnPCM", "load_prior", "measure", "check_operator", "PRESETS"}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pnpcm.nonsense
    for home in ("interop", "metrics", "mri", "priors", "schedules", "solvers", "operators"):
        assert getattr(pnpcm, home) is importlib.import_module(f"pnpcm.{home}")


def test_torch_free_names_are_those_of_the_table() -> None:
    assert tuple(OPERATORS) == OPERATOR_NAMES


def test_loading_a_prior_does_not_import_the_compiler() -> None:
    """torch._dynamo takes as long to import as all of torch; nothing here compiles."""
    script = (
        "import sys, torch, pnpcm; p = pnpcm.load_prior('natural'); "
        "p(torch.zeros(1, 3, 16, 16), 0.1); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
