"""The command line: exit codes, messages, the demo and the files it writes."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from PIL import Image

from golden import gen
from pnpcm import PRESETS, PnPCMConfig, demo, load_prior
from pnpcm.cli import main
from pnpcm.errors import ArgumentError
from pnpcm.io.files import read_image, save_picture, to_picture, write_json


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def pnpcm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """A function that runs the command line in this process."""

    def call(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["pnpcm", *words])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as stop:
            main()
        assert isinstance(stop.value.code, int)
        return Done(stop.value.code, *capsys.readouterr())

    return call


def test_the_module_runs_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "pnpcm", "presets", "fastmri/pd-r44"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("pnpcm: unknown preset 'fastmri/pd-r44'; did you mean")
    assert "Traceback" not in done.stderr


def test_help_names_every_command(pnpcm: Callable[..., Done]) -> None:
    done = pnpcm("--help")
    assert done.code == 0
    for word in ("demo", "presets", "check", "phase-retrieval"):
        assert word in done.out


def test_presets_are_listed_and_shown(pnpcm: Callable[..., Done]) -> None:
    assert "celeba-hq/superres-4" in pnpcm("presets").out
    shown = json.loads(pnpcm("presets", "fastmri/pd-r4").out)
    assert PnPCMConfig.from_dict(shown["solver"]) == PRESETS["fastmri/pd-r4"].solver
    assert shown["expected"] == {"psnr": 35.57, "ssim": 0.915}


def test_bad_words_exit_with_two_and_one_sentence(pnpcm: Callable[..., Done]) -> None:
    for words, message in (
        (("presets", "fastmri/pd-r44"), "unknown preset 'fastmri/pd-r44'; did you mean"),
        (("check", "nonsense"), "operator is 'nonsense', expected module:name"),
        (("check", "nowhere:Nothing"), "cannot be imported"),
        (("check", "json:loads"), "without arguments"),
        (("check", "json:loads", "--shape", "a"), "expected positive numbers"),
    ):
        done = pnpcm(*words)
        assert done.code == 2
        assert message in done.err
        assert done.err.startswith("pnpcm: ")
        assert done.err.count("\n") == 1


def test_errors_name_options_as_typed_and_positional_arguments_by_name(
    pnpcm: Callable[..., Done], tmp_path: Path
) -> None:
    """``data`` and ``n`` are options of commands below ``priors``; recipe is an argument."""
    sheet, missing = str(tmp_path / "x.png"), str(tmp_path / "none")
    for words, start in (
        (("priors", "evaluate", "gaussian", "--data", missing), "pnpcm: --data is "),
        (("priors", "sample", "gaussian", "--out", sheet, "--n", "0"), "pnpcm: --n must be "),
        (("train", "edm", missing), "pnpcm: recipe is "),
    ):
        done = pnpcm(*words)
        assert (done.code, done.err[: len(start)]) == (2, start)


def test_check_tells_the_truth_by_its_exit_code(
    pnpcm: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_operators.py").write_text(
        "class Good:\n"
        "    def A(self, x): return x.flip(-1)\n"
        "    def A_adjoint(self, y): return y.flip(-1)\n"
        "class Bad(Good):\n"
        "    def A_adjoint(self, y): return y\n"
    )
    good = pnpcm("check", "my_operators:Good", "--shape", "1,8,8")
    assert good.code == 0, good.err
    assert "all laws hold" in good.out
    bad = pnpcm("check", "my_operators:Bad", "--shape", "1,8,8")
    assert bad.code == 1
    assert "A_adjoint is not Aᵀ" in bad.out


def test_demo_writes_pictures_table_and_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {name: demo.TASKS[name] for name in ("inpainting", "superresolution", "mri")}
    monkeypatch.setattr(demo, "TASKS", quick)
    rows = list(demo.run_demo(tmp_path / "out", seed=1))
    assert [row.task for row in rows] == list(quick)
    for row in rows:
        assert row.psnr > row.psnr_before + 1
        assert row.nfe == 4
        with Image.open(tmp_path / "out" / f"{row.task}.png") as picture:
            assert picture.width > 3 * 256
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    assert record["seed"] == 1
    config = PnPCMConfig.from_dict(record["mri"]["solver"])
    assert config == PRESETS["mri/r4"].solver
    assert record["mri"]["preset"] == "mri/r4"
    assert (tmp_path / "out" / "table.md").read_text().count("\n") == 2 + len(rows)
    assert not [p for p in (tmp_path / "out").iterdir() if p.name.startswith(".")]


def test_demo_replaces_no_file_of_the_user(
    pnpcm: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "TASKS", {"inpainting": demo.TASKS["inpainting"]})
    (tmp_path / "table.md").write_text("mine")
    done = pnpcm("demo", "--out", tmp_path)
    assert (done.code, "table.md exists and is not an output of pnpcm demo" in done.err) == (
        2,
        True,
    )
    assert [p.name for p in tmp_path.iterdir()] == ["table.md"]
    (tmp_path / "table.md").unlink()
    for _ in range(2):  # again into its own folder
        assert pnpcm("demo", "--out", tmp_path).code == 0


def test_tune_replaces_no_file_of_the_user(pnpcm: Callable[..., Done], tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (tmp_path / "data").mkdir()
    save_picture(tmp_path / "data" / "a.png", to_picture(torch.rand(3, 32, 32, generator=gen())))
    words = ["tune", "--data", tmp_path / "data", "--task", "denoise", "--trials", 1]
    words += ["--images", 1, "--size", 32, "--steps", 2, "--out", tmp_path / "p.json"]
    for name in ("p.json", "p.study", "p.png"):
        (tmp_path / name).write_text("mine")
        done = pnpcm(*words)
        assert (done.code, f"{name} exists and is not" in done.err) == (2, True)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    for _ in range(2):  # the second run continues the first
        done = pnpcm(*words)
        assert done.code == 0, done.err


@pytest.mark.parametrize("task", demo.TASKS)
def test_every_demo_problem_is_well_posed(task: str) -> None:
    """Prior, operator and image of each task fit together; the photographs are there."""
    problem = demo.TASKS[task](gen())
    y = problem.operator.A(problem.x_true)
    assert problem.operator.x_shape(y) == tuple(problem.x_true.shape)
    preset = PRESETS[problem.preset]
    assert load_prior(preset.prior)(problem.x_true, 0.3).shape == problem.x_true.shape
    assert preset.solver.n_steps <= 8


def test_pictures_round_trip_and_bad_files_leave_nothing(tmp_path: Path) -> None:
    x = torch.randint(0, 256, (3, 5, 7), generator=gen()).float() / 127.5 - 1
    save_picture(tmp_path / "x.png", to_picture(x))
    assert torch.allclose(read_image(tmp_path / "x.png")[0], x, atol=1e-6)
    (tmp_path / "no.png").write_text("not a picture")
    with pytest.raises(ArgumentError, match="not an image"):
        read_image(tmp_path / "no.png")
    with pytest.raises(ArgumentError, match="is not a folder"):
        write_json(tmp_path / "nowhere" / "x.json", {})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"x": x})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["no.png", "x.png"]
