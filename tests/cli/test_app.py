"""``pnpcm app``: help without torch, one sentence for what cannot start."""

import inspect
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pnpcm.app.view import MAX_THUMBS, SHOWN_SIDE
from pnpcm.app.work import Limits
from pnpcm.cli import app_command, main


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pnpcm", "app", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_help_loads_neither_torch_nor_gradio() -> None:
    code = (
        "import sys; sys.argv = ['pnpcm', 'app', '--help']\n"
        "from pnpcm.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('loaded:', sorted({'torch', 'gradio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("loaded: []\n")
    for option in ("--host", "--port", "--max-pixels", "--queue"):
        assert option in done.stdout
    assert "127.0.0.1" in done.stdout


def test_the_page_of_the_docs_names_the_options_and_their_defaults() -> None:
    text = (Path(__file__).parents[2] / "docs/app.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `--([\w-]+)` \| `?([\w.]+)`? \|", text, re.MULTILINE))
    options = inspect.signature(app_command).parameters.values()
    assert rows == {p.name.replace("_", "-"): str(p.default) for p in options}
    usual = Limits()
    assert (rows["max-pixels"], rows["queue"]) == (str(usual.max_pixels), str(usual.queue))
    assert f"at most {usual.max_bytes // 10**6} MB" in text
    assert f"sides above {SHOWN_SIDE} pixels" in text
    assert f"at most {MAX_THUMBS} pictures" in text
    assert "\npnpcm app\n" in text  # tests/app/conftest.py runs it


def test_a_port_in_use_and_bad_numbers_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = (
            (("--port", port), f"pnpcm: port {port} of host 127.0.0.1 cannot be used ("),
            (("--port", "70000"), "pnpcm: --port must be a whole number, in [0, 65535]"),
            (("--queue", "0"), "pnpcm: --queue must be a whole number, at least 1, got 0"),
            (("--max-pixels", "9"), "pnpcm: --max-pixels must be a whole number, at least 64"),
        )
        for words, start in cases:
            assert call(monkeypatch, *words) == 2
            told = capsys.readouterr().err
            assert told.startswith(start)
            assert told.count("\n") == 1


def test_without_gradio_the_pip_command_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert call(monkeypatch, "--port", "0") == 2
    assert capsys.readouterr().err == "pnpcm: the app needs Gradio; pip install pnpcm[app]\n"
