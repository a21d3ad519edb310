"""The command line as a person meets it, in its own process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from golden import gen
from pnpcm import PRESETS, PnPCMConfig, demo, load_prior
from pnpcm.errors import ArgumentError
from pnpcm.io.files import read_image, save_picture, to_picture, write_json


def pnpcm(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pnpcm", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_help_names_every_command() -> None:
    done = pnpcm("--help")
    assert done.returncode == 0
    for word in ("demo", "presets", "check", "phase-retrieval"):
        assert word in done.stdout


def test_presets_are_listed_and_shown() -> None:
    assert "celeba-hq/superres-4" in pnpcm("presets").stdout
    shown = json.loads(pnpcm("presets", "fastmri/pd-r4").stdout)
    assert PnPCMConfig.from_dict(shown["solver"]) == PRESETS["fastmri/pd-r4"].solver
    assert shown["expected"] == {"psnr": 35.57, "ssim": 0.915}


def test_bad_words_exit_with_two_and_one_sentence() -> None:
    done = pnpcm("presets", "fastmri/pd-r44")
    assert done.returncode == 2
    assert done.stderr.startswith("pnpcm: unknown preset 'fastmri/pd-r44'; did you mean")
    assert "Traceback" not in done.stderr
    assert pnpcm("check", "nonsense").returncode == 2
    assert "cannot be imported" in pnpcm("check", "nowhere:Nothing").stderr
    assert "without arguments" in pnpcm("check", "json:loads").stderr
    assert "expected positive numbers" in pnpcm("check", "json:loads", "--shape", "a").stderr


def test_check_tells_the_truth_by_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Good:\n"
        "    def A(self, x): return x.flip(-1)\n"
        "    def A_adjoint(self, y): return y.flip(-1)\n"
        "class Bad(Good):\n"
        "    def A_adjoint(self, y): return y\n"
    )
    good = pnpcm("check", "mine:Good", "--shape", "1,8,8", cwd=tmp_path)
    assert good.returncode == 0, good.stderr
    assert "all laws hold" in good.stdout
    bad = pnpcm("check", "mine:Bad", "--shape", "1,8,8", cwd=tmp_path)
    assert bad.returncode == 1
    assert "A_adjoint is not Aᵀ" in bad.stdout


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
    with pytest.raises(ArgumentError, match="not a picture"):
        read_image(tmp_path / "no.png")
    with pytest.raises(ArgumentError, match="is no folder"):
        write_json(tmp_path / "nowhere" / "x.json", {})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"x": x})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["no.png", "x.png"]
