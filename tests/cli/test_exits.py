"""Exit codes and sentences for errors of the system and signals, for every command."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from golden import TINY, random_unet
from pnpcm import ConsistencyModel, catalogue, save_prior
from pnpcm.cli import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["pnpcm", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return call


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an image, a prior, and ``file``, in which nothing can be created."""
    (tmp_path / "file").write_text("not a folder")
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "in.png")
    save_prior(ConsistencyModel(random_unet(TINY)), tmp_path / "p.safetensors")
    return tmp_path


COMMANDS = {
    "restore": "restore in.png --task denoise --out file/x",
    "restore, a file": "restore in.png --task denoise --out file",
    "simulate": "simulate in.png --task denoise --out file/x",
    "simulate-mri": "simulate-mri file/x.h5 --slices 1 --size 16,16 --coils 2",
    "demo": "demo --out file/x",
    "sample": "priors sample p.safetensors --n 1 --steps 1 --size 8 --out file/x/s.png",
    "convert": "priors convert p.safetensors file/x/p.pt",
    "export": "priors export p.safetensors file/x/folder",
    "reproduce": "reproduce main --limit 1 --out file/x",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_below_a_file_is_one_sentence(
    name: str, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    code, err = run(*COMMANDS[name].split())
    assert code == 2
    lines = [line for line in err.splitlines() if line.startswith("pnpcm: ")]
    assert len(lines) == 1
    assert "file" in lines[0]
    assert "Traceback" not in err


ERRORS: dict[str, tuple[BaseException, int, str]] = {
    "disk full": (
        OSError(errno.ENOSPC, "No space left on device", "out/x.png"),
        2,
        "out/x.png: No space left on device; free some space, or write to another disk",
    ),
    "read-only disk": (OSError(errno.EROFS, "x", "out"), 2, "out: Read-only file system; write to"),
    "permission": (PermissionError(errno.EACCES, "x", "out"), 2, "out: Permission denied; change"),
    "without number": (OSError("9 requested and 2 written"), 2, "9 requested and 2 written; check"),
    "store": (sqlite3.OperationalError("disk I/O error"), 2, "disk I/O error"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "stopped by Ctrl-C; finished results are complete"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_the_system_are_one_sentence(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, code, words = ERRORS[name]

    def fail() -> None:
        raise error

    monkeypatch.setattr(catalogue, "entries", fail)
    found, err = run("priors", "list")
    assert found == code
    assert err.startswith(f"pnpcm: {words}")
    assert err.count("\n") == 1
