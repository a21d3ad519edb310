"""The code of the README and of the pages that continue it runs; its numbers are committed."""

import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import numpy as np
import pytest
import torch
import typer
from PIL import Image, ImageDraw

from pnpcm.cli import app, main
from pnpcm.demo import TASKS
from pnpcm.mri import gaussian1d, phantoms, read_scan, write_simulated
from pnpcm.mri.readers import write_cfl
from pnpcm.networks import UNet, UNetConfig
from pnpcm.priors import ConsistencyModel
from pnpcm.priors.checkpoint import export_openai
from twix import lines_of, write_twix

ROOT = Path(__file__).parent.parent
README, USAGE, MRI = ROOT / "README.md", ROOT / "docs" / "usage.md", ROOT / "docs" / "mri.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def fenced(page: Path) -> list[str]:
    """Blocks of code of a page that are not Python."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(?:sh)?\n(.*?)^```", re.sub(PYTHON, "", text), re.DOTALL | re.MULTILINE)


PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (README, ["8 network evaluations", "the result explains the data"]),
        (USAGE, ["torch.Size([2, 3, 256, 256]) 4", "all laws hold"]),
        (MRI, ["psnr"]),
    ],
    ids=["README", "usage", "mri"],
)
def test_python_of_the_pages_runs(
    page: Path,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    blocks = PYTHON.findall(page.read_text(encoding="utf-8"))
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)
    printed = capsys.readouterr().out
    for word in words:
        assert word in printed


def test_the_operator_of_the_readme_has_few_lines() -> None:
    (block,) = PYTHON.findall(README.read_text(encoding="utf-8"))
    lines = [line for line in block.splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 8


def command_lines(page: Path) -> list[list[str]]:
    """The pnpcm commands of a page, as words."""
    lines = [
        line.removeprefix(".venv/bin/") for block in fenced(page) for line in block.split("\n")
    ]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("pnpcm ")]


def test_commands_of_all_pages_have_options_that_exist() -> None:
    """Parsed, not run: files that they name do not exist here."""
    group = typer.main.get_command(app)
    count = 0
    for page in PAGES:
        for words in command_lines(page):
            command, rest = group, words[1:]
            while isinstance(command, click.Group):
                command, rest = command.commands[rest[0]], rest[1:]
            command.make_context(words[1], rest)  # raises for an unknown option or a missing value
            count += 1
    assert count >= 25


def test_the_readmes_two_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is a target of the Makefile, whose command test_demo runs; the second runs here."""
    block = fenced(README)[0].splitlines()
    assert len(block) == 2
    assert block[0].split()[:2] == ["make", "demo"]
    assert "$(BIN)/pnpcm demo --out out/demo" in (ROOT / "Makefile").read_text()
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 32), "grey").save("photo.jpg")
    (words,) = [words for words in command_lines(README) if words[1] == "restore"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    assert Path("out/restored/photo.denoise.png").is_file()


def test_numbers_of_the_readme_are_those_of_committed_rows() -> None:
    """`python tools/readme_tables.py` writes them again."""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "tools" / "readme_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = README.read_text(encoding="utf-8")
    assert tables.updated(text) == text
    assert tables.updated(text.replace("| DPIR | 24.75", "| DPIR | 24.76")) == text


def test_figures_are_small_and_have_the_seed_and_priors_that_the_readme_names() -> None:
    text = README.read_text(encoding="utf-8")
    figures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert len(figures) == 2
    for name in figures:
        assert (ROOT / name).stat().st_size < 300_000
    numbers = json.loads((ROOT / "docs" / "figures" / "figures.json").read_text())
    assert numbers["seed"] == 0
    assert {row["prior"] for row in numbers["tasks"]} == {"natural", "mri"}
    assert [row["task"] for row in numbers["tasks"]] == list(TASKS)
    for row in numbers["tasks"]:  # the table of the demo in docs/usage.md
        looks = f"{row['lpips_before']:.3f} → {row['lpips']:.3f}"
        scores = f"{row['psnr_before']:.2f} → {row['psnr']:.2f} | {looks} | {row['ssim']:.3f}"
        assert f"| {row['task']} | {row['note']} | {scores} | {row['nfe']} |" in USAGE.read_text(
            encoding="utf-8"
        )


OPERATOR = """
class MyOperator:
    def A(self, x):
        return x.roll(1, -1)

    def A_adjoint(self, y):
        return y.roll(-1, -1)
"""


def test_the_commands_of_restore_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On images of 32 pixels; every file that a command names exists, and no other."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(128, 20, (32, 32, 3))
    image, mask = Image.fromarray(values.astype(np.uint8)), Image.new("L", (32, 32))
    ImageDraw.Draw(mask).line((0, 0, 31, 20), fill="white", width=2)
    for name in ("scans", "masks", "small/sub"):
        Path(name).mkdir(parents=True)
    for name in ("noisy.png", "old.jpg", "photo.png", "shaken.png", "y.png", "scans/a.png"):
        image.save(name)
    image.resize((16, 16)).save("small/sub/a.png")
    for name in ("scratches.png", "masks/a.png"):
        mask.save(name)
    Path("my_module.py").write_text(OPERATOR)
    section = USAGE.read_text(encoding="utf-8").split("## Restore an image")[1]
    block = section.split("```")[1]
    commands = [shlex.split(line, comments=True) for line in block.strip().splitlines()]
    assert len(commands) >= 6
    for words in commands:
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 0, words
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.json")}
    assert written == {
        "out/restored/noisy.denoise.result.json",
        "out/restored/old.jpeg.result.json",
        "out/restored/photo.inpaint.result.json",
        "out/restored/a.inpaint.result.json",
        "large/sub/a.superres.result.json",
        "clean.result.json",
        "out/restored/shaken.deblur.result.json",
        "out/restored/y.custom.result.json",
    }
    assert Path("large/sub/a.superres.compare.png").is_file()


def test_the_commands_of_mri_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On small scans and as far as the plan; every file that a command names exists."""
    pytest.importorskip("h5py")
    savemat = pytest.importorskip("scipy.io").savemat
    monkeypatch.chdir(tmp_path)
    image = phantoms(1, (96, 96))
    write_simulated(Path("full.h5"), image, n_coils=4)
    mask = gaussian1d(96, 4, 12, generator=torch.Generator().manual_seed(0))
    write_simulated(Path("scan.h5"), image, n_coils=4, mask=mask)
    Path("scans").mkdir()
    write_simulated(Path("scans/scans.h5"), image, n_coils=4, mask=mask)  # named as its folder
    kspace = read_scan("full.h5").kspace(0)
    write_cfl("scan.cfl", kspace.permute(1, 2, 0)[:, :, None])
    write_cfl("maps.cfl", torch.full((96, 96, 1, 4), 0.5 + 0j))
    np.save("kspace.npy", kspace.permute(1, 2, 0).numpy())
    savemat("study.mat", {"raw": kspace.numpy()})
    grid = {"sKSpace.lBaseResolution": 48, "sKSpace.lPhaseEncodingLines": 96}
    lines = lines_of(kspace.numpy(), centre_line=48)
    write_twix(Path("meas.dat"), lines, **grid)
    capsys.readouterr()
    commands = [*command_lines(MRI), *(w for w in command_lines(README) if w[1] == "mri")]
    assert len(commands) >= 8
    for words in commands:
        monkeypatch.setattr("sys.argv", [*words, *(["--dry-run"] if words[1] == "mri" else [])])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 0, words
        printed = capsys.readouterr().out
        if words[1] == "mri":
            assert json.loads(printed)["scan"]["name"] == Path(words[2]).stem


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One command, which ends with exit code 0."""
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0, words


def test_the_commands_of_training_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the recipes of the repository; tests/training runs small ones to their end."""
    for name in ("accelerate", "yaml"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    Path("recipes").symlink_to(ROOT / "recipes")
    commands = command_lines(ROOT / "docs/training.md")
    assert len(commands) == 2
    for words in commands:
        run([*words, "--dry-run"], monkeypatch)
        assert "parameters" in capsys.readouterr().out


def test_the_commands_with_a_checkpoint_of_the_authors_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a miniature of it, on an image of 32 pixels."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path / "home"))
    network = UNet(
        UNetConfig(
            image_size=32, in_channels=3, model_channels=32, channel_mult=(1,),
            num_res_blocks=1, attention_resolutions=(), middle_attention=False,
        )
    )  # fmt: skip
    export_openai(ConsistencyModel(network), tmp_path / "CELEBA.pt")
    Image.new("RGB", (32, 32), "grey").save("face.png")
    commands = [w for w in command_lines(USAGE) if "face" in w[2]]
    assert [words[1] for words in commands] == ["simulate", "restore"]
    for words in commands:
        run(words, monkeypatch)
    assert Path("out/restored/face.deblur.png").is_file()


def test_the_benchmarks_of_the_page_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tests/bench runs them."""
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))
    Path("benchmarks").symlink_to(ROOT / "benchmarks")
    pages = (USAGE, ROOT / "benchmarks/README.md")
    commands = [w for page in pages for w in command_lines(page) if w[1] in ("bench", "reproduce")]
    assert len(commands) >= 4
    for words in commands:
        run([*words, *([] if "--dry-run" in words else ["--dry-run"])], monkeypatch)
        assert "in the store" in capsys.readouterr().out


def test_extras_that_the_pages_install_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        extra
        for page in PAGES
        for extras in re.findall(r"(?:pnpcm|\.)\[([a-z,]+)\]\"", page.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    }
    assert {"mri", "app", "train"} <= named <= project["optional-dependencies"].keys()


def test_the_readme_opens_with_the_figure_and_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    marks = ("tasks.jpg", "(NFE)", "make demo", "## Methods", "## MRI", "## Your own operator")
    marks += ("## When not to use it", "## Licences", "## Citation")
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
