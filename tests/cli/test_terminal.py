"""What is printed: characters that the terminal does not have, and names that would control it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pnpcm.cli import main
from pnpcm.cli.display import json_text
from pnpcm.names import printable

NAMES = {
    "plain.png": "plain.png",
    "Größe σ.png": "Größe σ.png",
    "red\x1b[31m.png": r"red\x1b[31m.png",
    "line\n.png": r"line\n.png",
    "c1\x9b31m.png": r"c1\x9b31m.png",
    "turned\u202e.png": r"turned\u202e.png",
    "latin\udcff.png": r"latin\xff.png",
    "alone\ud800": r"alone\ud800",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_printable_and_stay_so(name: str) -> None:
    assert printable(name) == NAMES[name]
    assert printable(NAMES[name]) == NAMES[name]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", NAMES)
def test_json_has_every_name_without_control_characters(
    name: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    text = json_text({"input": name})
    assert printable(text) == text
    text.encode(encoding)
    assert json.loads(text) == {"input": name}


def call(monkeypatch: pytest.MonkeyPatch, encoding: str, *words: object) -> tuple[int, str, str]:
    """The exit code of a command on a terminal of this encoding, stdout and stderr."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(sys, "argv", ["pnpcm", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    for stream in streams:
        stream.flush()
    out, err = (s.buffer.getvalue().decode(encoding) for s in streams)  # type: ignore[attr-defined]
    return code, out, err


def test_a_terminal_without_greek_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(np.full((16, 16, 3), 90, np.uint8)).save(tmp_path / "größe.png")
    words = ("restore", tmp_path / "größe.png", "--task", "denoise", "--sigma-y", 0.1)
    code, out, err = call(monkeypatch, "ascii", *words, "--out", tmp_path / "out")
    assert code == 0, err
    assert "x expected" in out  # the sign of multiplication
    assert "größe".replace("ö", "?").replace("ß", "?") in out
    code, _, err = call(monkeypatch, "ascii", "restore", tmp_path / "größe.png", "--steps", 0)
    assert code == 2
    assert "--steps must be a whole number >= 1" in err


def test_names_of_files_do_not_control_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    Image.fromarray(np.full((16, 16, 3), 90, np.uint8)).save(folder / "good\x1b[31m.png")
    (folder / "bad\x1b[31m.png").write_text("no picture")
    words = ("restore", folder, "--task", "denoise", "--sigma-y", 0.1, "--out", tmp_path / "out")
    code, out, err = call(monkeypatch, "utf-8", *words)
    assert code == 1
    assert "\x1b" not in out + err
    assert r"bad\x1b[31m.png is not a PNG" in err
    assert r"good\x1b[31m.denoise.png" in out
