"""The code in README and docstrings runs."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from pnpcm.cli import main
from pnpcm.mri import gaussian1d, phantoms, read_scan, write_simulated
from pnpcm.mri.readers import write_cfl
from twix import lines_of, write_twix

README = Path(__file__).parent.parent / "README.md"


def test_the_readmes_python_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)
    printed = capsys.readouterr().out
    assert "torch.Size([2, 3, 256, 256]) 4" in printed
    assert "all laws hold" in printed


OPERATOR = """
class MyOperator:
    def A(self, x):
        return x.roll(1, -1)

    def A_adjoint(self, y):
        return y.roll(-1, -1)
"""


def test_the_readmes_commands_of_restore_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    section = README.read_text(encoding="utf-8").split("## Restore an image")[1]
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


def test_the_readmes_commands_of_mri_run(
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
    section = README.read_text(encoding="utf-8").split("## From raw MRI data to a volume")[1]
    block = section.split("```")[1]
    commands = [shlex.split(line, comments=True) for line in block.strip().splitlines()]
    assert len(commands) >= 7
    for words in commands:
        monkeypatch.setattr("sys.argv", [*words, *(["--dry-run"] if words[1] == "mri" else [])])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 0, words
        printed = capsys.readouterr().out
        if words[1] == "mri":
            assert json.loads(printed)["scan"]["name"] == Path(words[2]).stem


def test_the_readme_opens_with_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    marks = ("make demo", "make test", "## Restore an image", "## Use the parts")
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
