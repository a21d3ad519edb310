"""Hidden folders with locks: what is removed, what stays, and files that appear together."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

from pnpcm.errors import ArgumentError
from pnpcm.io import staging as module
from pnpcm.io.files import save_tensors, write_atomically, write_text
from pnpcm.io.staging import claim, publish, remove_leftovers, staging, writing

HOLD = """
import sys, time
from pathlib import Path
from pnpcm.io.staging import staging, claim
folder = Path(sys.argv[1])
with {what}:
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path, what: str) -> subprocess.Popen[str]:
    """Another process that holds a folder until its input is closed or it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(what=what), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".pnpcm-*"))


ERRORS = {
    "without a file": OSError(errno.ENOSPC, "No space left on device"),
    "without a number": OSError("9 requested and 2 written"),
    "a copy": OSError(errno.ENOSPC, "x", "source", None, "out/.pnpcm-0123456789abcdef/a.png"),
    "a hidden file": OSError(errno.ENOSPC, "x", "out/.pnpcm-0123456789abcdef/a.png"),
    "HDF5": RuntimeError("unable to extend file, errno = 28, error message = 'No space left'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_while_writing_names_the_output(name: str, tmp_path: Path) -> None:
    def fail(temporary: Path) -> None:
        raise ERRORS[name]

    with pytest.raises(OSError, match=r"a\.png") as caught, staging(tmp_path) as inside:
        write_atomically(inside / "a.png", fail)
    assert caught.value.filename == str(tmp_path / "a.png")
    assert caught.value.errno in (errno.ENOSPC, errno.EIO)
    with pytest.raises(OSError, match=r"source\.png"), writing(tmp_path / "a.png"):
        raise OSError(errno.ENOENT, "No such file", "source.png")  # another file keeps its name


def test_only_what_no_process_holds_is_removed(tmp_path: Path) -> None:
    other = holder(tmp_path, "staging(folder) as inside, (inside / 'x').open('w')")
    try:
        (alive,) = hidden(tmp_path)
        remove_leftovers(tmp_path)
        assert (alive / "x").exists()  # whatever the process numbers are
    finally:
        kill(other)
    assert alive.exists()  # a killed process cannot clean up
    remove_leftovers(tmp_path)
    assert hidden(tmp_path) == []


def test_only_our_own_names_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    names = (".pnpcm-999999-mydata", ".pnpcm-999999999-ab.scan", ".pnpcm-0123456789ABCDEF")
    for name in (*names, ".pnpcm-0123456789abcdef.x", ".pnpcm-0123456789abcde"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    (tmp_path / ".pnpcm-0123456789abcde0").write_text("a file, not a folder")
    (tmp_path / ".pnpcm-0123456789abcde1").symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    ours = tmp_path / ".pnpcm-0123456789abcde2"
    ours.mkdir()
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_without_locks_nothing_is_removed_and_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".pnpcm-0123456789abcdef").mkdir()
    monkeypatch.setattr(module, "LOCKS", False)
    remove_leftovers(tmp_path)
    write_text(tmp_path / "a.txt", "a")
    with claim(tmp_path, "a") as mine:
        assert mine
    assert sorted(p.name for p in tmp_path.iterdir()) == [".pnpcm-0123456789abcdef", "a.txt"]


def test_a_file_system_without_locks_is_used_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, flags: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / ".pnpcm-0123456789abcdef").mkdir()
    monkeypatch.setattr(module.fcntl, "flock", refuse)
    remove_leftovers(tmp_path)
    write_text(tmp_path / "a.txt", "a")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".pnpcm-0123456789abcdef", "a.txt"]


def test_a_folder_that_was_removed_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, calls = module._lock, []

    def late(handle: int, *, wait: bool) -> bool:
        if not calls:
            (new,) = hidden(tmp_path)
            new.rmdir()  # as remove_leftovers of another process does
        calls.append(handle)
        return lock(handle, wait=wait)

    monkeypatch.setattr(module, "_lock", late)
    with staging(tmp_path) as inside:
        assert inside.is_dir()
    assert len(calls) == 2
    assert hidden(tmp_path) == []


def test_a_result_belongs_to_one_process(tmp_path: Path) -> None:
    other = holder(tmp_path, "claim(folder, 'a.denoise')")
    with claim(tmp_path, "a.denoise") as mine, claim(tmp_path, "b.denoise") as free:
        assert not mine
        assert free
    kill(other)
    with claim(tmp_path, "a.denoise", wait=True) as mine:
        assert mine
        with claim(tmp_path, "a.denoise") as again:  # of the same process
            assert not again
    assert hidden(tmp_path) == []


# files that appear together ----------------------------------------------------------------------
OLD, NEW = {"a": "old a", "mark": "old mark"}, {"a": "new a", "b": "new b", "mark": "new mark"}


def content(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


def publish_new(folder: Path) -> None:
    with staging(folder) as inside:
        for name, text in NEW.items():
            (inside / name).write_text(text)
        publish([inside / name for name in NEW], folder, stale=["c"])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    for name, text in (OLD | {"c": "old c", "other": "other"}).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_all_files_of_a_result_appear_and_old_ones_go(old: Path) -> None:
    publish_new(old)
    assert content(old) == NEW | {"other": "other"}
    assert hidden(old) == []


@pytest.mark.parametrize("name", ["b", "mark"])
def test_a_folder_of_the_user_is_not_replaced_by_a_file(name: str, old: Path) -> None:
    (old / name).unlink(missing_ok=True)
    (old / name).mkdir()
    (old / name / "mine").write_text("mine")
    before = content(old)
    with pytest.raises(ArgumentError, match=rf"{name} cannot be written, since it is a folder"):
        publish_new(old)
    assert (old / name / "mine").read_text() == "mine"
    assert content(old) == before
    assert hidden(old) == []


@pytest.mark.parametrize("own", [True, False])
def test_a_folder_is_replaced_where_nothing_is_lost_or_it_is_an_older_result(
    own: bool, tmp_path: Path
) -> None:
    def publish_slices(*names: str) -> None:
        with staging(tmp_path) as inside:
            (inside / "slices").mkdir()
            for name in names:
                (inside / "slices" / name).write_text(name)
            publish([inside / "slices"], tmp_path, own=["slices"] if own else [])

    publish_slices("1", "2")
    publish_slices("1", "2", "3")
    if own:
        publish_slices("1")
        assert content(tmp_path / "slices") == {"1": "1"}
    else:
        with pytest.raises(ArgumentError, match="a folder with other files"):
            publish_slices("1")
        assert content(tmp_path / "slices") == {"1": "1", "2": "2", "3": "3"}


@pytest.mark.parametrize("fails_at", [0, 1, 2])
@pytest.mark.parametrize("links", [True, False])
def test_a_failed_rename_restores_what_was_there(
    fails_at: int, links: bool, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, calls, replace = content(old), [], os.replace

    def fail(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == fails_at + 1:
            raise OSError(errno.EIO, "Input/output error", str(target))
        replace(source, target)

    def refuse(*paths: Path, **options: bool) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="Input/output"):
        publish_new(old)
    assert len(calls) > fails_at
    assert content(old) == before
    assert hidden(old) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, fail)
    assert content(tmp_path) == {"a.txt": "old"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError("unexpected pos"), SafetensorError("I/O error")])
def test_weights_on_a_full_disk_are_an_error_of_the_system(
    error: Exception, tmp_path: Path
) -> None:
    """torch and safetensors raise errors of their own."""

    def fail(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise error

    with pytest.raises(OSError, match=r"is the disk full\?") as caught:
        save_tensors(tmp_path / "p.pt", fail)
    assert caught.value.filename == str(tmp_path / "p.pt")
    assert list(tmp_path.iterdir()) == []


def test_content_reaches_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("content")
        sync(handle)

    def renamed(source: Path, target: Path) -> None:
        done.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_text(tmp_path / "a.txt", "a")
    assert done == ["content", "name"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as caught, staging(tmp_path / "file"):
        pass
    assert caught.value.filename == str(tmp_path / "file")
