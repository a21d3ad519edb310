"""The commands and the code of docs/guide run, on images of 32 pixels; examples are complete.

`make docs` runs the examples of the gallery; here they are compiled only.
"""

import ast
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from pnpcm.cli import main
from pnpcm.mri import gaussian1d, phantoms, read_scan, write_simulated

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/guide").glob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"sh", "python", "yaml", "text"}
PLAN_ONLY = {"bench", "mri"}
"""Commands that are run as far as the plan; tests/bench and tests/cli run them."""
OPERATOR = """
class MyOperator:
    def A(self, x):
        return x.roll(1, -1)

    def A_adjoint(self, y):
        return y.roll(-1, -1)
"""


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files that the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))
    values = np.random.default_rng(0).normal(128, 20, (32, 32, 3))
    image, mask = Image.fromarray(values.astype(np.uint8)), Image.new("L", (32, 32))
    ImageDraw.Draw(mask).line((0, 0, 31, 20), fill="white", width=2)
    mask.save("scratches.png")
    for name in ("noisy.png", "old.jpg", "shaken.png", "soft.png", "y.png", "small.png"):
        image.save(name)
    for name in ("small/sub", "photos"):
        Path(name).mkdir(parents=True)
    image.resize((16, 16)).save("small/sub/a.png")
    image.save("photos/a.png")
    ImageDraw.Draw(image).line((0, 9, 31, 20), fill="#ff0000")
    image.save("photo.png")
    Path("my_module.py").write_text(OPERATOR, encoding="utf-8")
    return tmp_path


def scans() -> None:
    """The raw files of the page about MRI."""
    mask = gaussian1d(64, 4, 12, generator=torch.Generator().manual_seed(0))
    write_simulated(Path("scan.h5"), phantoms(1, (64, 64)), n_coils=2, mask=mask)
    np.save("kspace.npy", read_scan("scan.h5").kspace(0).permute(1, 2, 0).numpy())


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of a shell."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["make"]:
        assert re.search(rf"^{words[1]}:", text_of(ROOT / "Makefile"), re.MULTILINE), line
    elif words and words[0] != "pip":
        assert words[0] == "pnpcm", line
        if words[1] in PLAN_ONLY and "--dry-run" not in words:
            words.append("--dry-run")
        if "--workers" in words:  # processes of dask: tests/cli/test_workers.py
            place = words.index("--workers")
            del words[place : place + 2]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 0, line


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_page_of_the_guide_runs(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its blocks, in their order; a block of YAML is a file."""
    for name in ("h5py", "optuna", "diffusers", "accelerate", "yaml"):
        pytest.importorskip(name)
    if path.stem == "mri":
        scans()
    if path.stem == "clusters":
        spec = next(
            b for k, b in BLOCK.findall(text_of(path.parent / "benchmark.md")) if k == "yaml"
        )
        Path("small.yaml").write_text(spec, encoding="utf-8")
    namespace: dict[str, object] = {}
    for kind, block in BLOCK.findall(text_of(path)):
        assert kind in KINDS, f"{path.name} has a block {kind}"
        if kind == "yaml":
            name = re.match(r"# (\S+)\n", block)
            assert name, f"{path.name}: the first line names the file"
            Path(name[1]).write_text(block, encoding="utf-8")
        elif kind == "sh":
            for line in block.splitlines():
                run(line, monkeypatch)
        elif kind == "python":
            code = compile(block, str(path), "exec")
            if not block.startswith("# needs deepinv") or has_deepinv():
                exec(code, namespace)


def has_deepinv() -> bool:
    """Whether the library, which is not among our extras, is installed."""
    try:
        import deepinv  # noqa: F401
    except ImportError:
        return False
    return True


def test_the_extras_that_the_guide_installs_exist() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    named = {
        extra
        for path in PAGES
        for extras in re.findall(r"pnpcm\[([\w,]+)\]", text_of(path))
        for extra in extras.split(",")
    }
    assert len(named) >= 6
    assert named <= project["optional-dependencies"].keys()


def test_the_guide_has_every_chapter() -> None:
    index = text_of(ROOT / "docs/index.md")
    assert [p.stem for p in PAGES if f"guide/{p.stem}\n" not in index] == []
    assert len(PAGES) >= 13


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_is_complete(path: Path) -> None:
    """It compiles, has a title, draws, and prints its numbers instead of stating them."""
    tree = ast.parse(text_of(path))
    title, line, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert set(line) == {"="}
    assert len(line) == len(title)
    called = [ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)]
    assert "plt.subplots" in called
    assert isinstance(tree.body[-1], ast.Expr)
    last = tree.body[-1].value
    assert isinstance(last, ast.Call)
    assert ast.unparse(last.func) == "print"
    assert not re.search(r"\d dB", ast.get_docstring(tree) or "")
    assert f'"{path.stem.removeprefix("plot_")}"' in text_of(ROOT / "docs/conf.py")


def test_the_gallery_has_eight_examples() -> None:
    assert len(EXAMPLES) >= 8
    assert all(p.stem.startswith("plot_") for p in EXAMPLES)
