"""The border of all readers: errors of libraries become ours, sizes are checked against memory."""

import errno
import os
import struct
import zlib
from pathlib import Path

import pytest

from pnpcm.errors import ArgumentError, CheckpointError, ShapeError
from pnpcm.io import reading as module
from pnpcm.io.reading import Budget, memory, read_json, read_text, reading


@pytest.mark.parametrize(
    "error",
    [zlib.error("bad\ndata"), struct.error("4 bytes"), RecursionError(), UnicodeError("byte 7")],
)
def test_errors_of_libraries_become_one_sentence(error: Exception) -> None:
    with (
        pytest.raises(
            CheckpointError, match=rf"^a\.x cannot be read as X \({type(error).__name__}"
        ) as caught,
        reading("a.x", "X", error=CheckpointError, move="copy it"),
    ):
        raise error
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("); copy it")
    assert caught.value.__cause__ is error


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "no.npy", r"no\.npy cannot be read as X: No such file or directory; check the"),
        (tmp_path, r"cannot be read as X: Is a directory; a folder is in the place of a file"),
    ):
        with pytest.raises(ArgumentError, match=words) as caught, reading(path, "X"):
            path.open("rb").close()
        assert "Errno" not in str(caught.value)
        assert "copied" not in str(caught.value)
    words = r"a\.hdr cannot be read as X: Permission denied; change its permissions"
    with pytest.raises(ArgumentError, match=words), reading("a.cfl", "X"):
        raise PermissionError(errno.EACCES, "Permission denied", "a.hdr")


def test_pipes_and_devices_are_refused_before_they_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.h5")
    for path in (tmp_path / "pipe.h5", Path("/dev/zero")):
        words = f"{path} is a pipe or a device, expected a file; write its content to a file"
        with pytest.raises(ArgumentError, match=words), reading(path, "X"):
            raise AssertionError("was opened")


def test_our_errors_and_interruptions_pass_the_border() -> None:
    for error in (ShapeError("three channels"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, reading("a.x", "X"):
            raise error
        assert caught.value is error


def test_too_little_memory_is_said() -> None:
    with pytest.raises(ArgumentError, match=r"a\.x needs more memory"), reading("a.x", "X"):
        raise MemoryError


def test_the_default_budget_is_three_quarters_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "memory", lambda: 8 * 2**30)
    budget = Budget(600)
    assert budget.pixels == 10737418  # 0.75 · 8 GiB / 600 B, rounded down
    budget.check("a.png", (10737418,))
    words = (
        r"a\.png has 3×4000000 = 12000000 pixels, more than the 10737418 that the 8 GiB of memory "
        r"here allows; .* max_pixels=12000000"
    )
    with pytest.raises(ArgumentError, match=words):
        budget.check("a.png", (3, 4000000))
    Budget(600, max_pixels=12000000).check("a.png", (3, 4000000))
    with pytest.raises(ArgumentError, match="more than the 11999999 that max_pixels allows"):
        Budget(600, max_pixels=11999999).check("a.png", (3, 4000000))
    with pytest.raises(ArgumentError, match="max_pixels must be a whole number ≥ 1, got 0"):
        Budget(600, max_pixels=0)


def test_the_memory_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = memory()
    monkeypatch.setattr(module, "CGROUP", tmp_path / "memory.max")
    (tmp_path / "memory.max").write_text("12345678\n")
    assert memory() == 12345678
    (tmp_path / "memory.max").write_text("max\n")
    assert memory() >= whole


def test_json_is_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("[1]", "{", "[" * 100000, "\xff"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(ArgumentError, match=r"a\.json cannot be read as a preset"):
            read_json(path, "a preset")
    path.write_text('{"a": 1}')
    assert read_json(path, "a preset") == {"a": 1}


def test_long_text_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}", encoding="utf-8")
    assert read_json(path, "JSON") == {}
    with path.open("ab") as file:
        file.truncate(2**40)  # zeros that take no place on the disk
    with pytest.raises(ArgumentError, match=r"1099511627776 bytes, expected a text of at most 67"):
        read_json(path, "JSON")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(ArgumentError, match=f"{name} is a pipe or a device, expected a file"):
            read_text(tmp_path / name)
