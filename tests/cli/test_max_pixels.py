"""``--max-pixels`` of the commands that read images and scans: one sentence with number and option.

The library's messages name ``max_pixels``, the command line's ``--max-pixels``.
"""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pnpcm.cli import main
from pnpcm.mri.readers import write_cfl


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> str:
    """What a command that fails prints."""
    monkeypatch.setattr("sys.argv", ["pnpcm", *map(str, words)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code in (1, 2)
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize(
    "words",
    [
        ("restore", "a.png", "--task", "denoise", "--dry-run"),
        ("restore", "a.png", "--task", "inpaint", "--mask", "a.png", "--dry-run"),
        ("simulate", "a.png", "--task", "denoise"),
        ("compare", "a.png", "a.png", "--no-lpips"),
    ],
)
def test_larger_images_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save("a.png")
    text = said(monkeypatch, capsys, *words, "--max-pixels", 1000)
    assert "a.png has 40×30 = 1200 pixels, more than the 1000 that --max-pixels allows" in text
    assert "raise the limit with --max-pixels 1200" in text


def test_larger_scans_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_cfl(tmp_path / "a", np.ones((16, 12, 1, 4), np.complex64))
    text = said(monkeypatch, capsys, "mri", tmp_path / "a.cfl", "--dry-run", "--max-pixels", 700)
    assert "has 4×16×12×1 = 768 samples in a slice or slab, more than the 700" in text
    assert "--max-pixels 768" in text


def test_a_larger_mask_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save("a.png")
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save("mask.png")
    words = ("restore", "a.png", "--task", "inpaint", "--mask", "mask.png", "--dry-run")
    text = said(monkeypatch, capsys, *words, "--max-pixels", 1000)
    assert "mask.png has 40×30 = 1200 pixels, more than the 1000 that --max-pixels allows" in text


def test_more_samples_than_the_memory_holds_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """900 pixels fit for one sample (200 bytes each), but not for 100 (36 bytes more for each)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pnpcm.io.reading.memory", lambda: 1_000_000)
    Image.fromarray(np.zeros((30, 30, 3), np.uint8)).save("a.png")
    words = ("restore", "a.png", "--task", "denoise", "--dry-run")
    text = said(monkeypatch, capsys, *words, "--samples", 100)
    assert "a.png has 30×30 = 900 pixels for 100 samples, more than the 199 that" in text
    assert "use fewer samples" in text
    write_cfl(tmp_path / "b", np.ones((16, 12, 1, 4), np.complex64))
    text = said(monkeypatch, capsys, "mri", "b.cfl", "--samples", 100, "--dry-run")
    assert "b has 100×1×16×12 = 19200 pixels (samples × slices of a batch × sides)" in text
    assert "use fewer samples or a smaller batch" in text
