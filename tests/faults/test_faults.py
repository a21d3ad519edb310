"""Faults while results are written: killed, disk full, input gone, two processes in one folder."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pnpcm.cli import main
from pnpcm.io.staging import claim, staging
from pnpcm.mri.simulate import phantoms, write_simulated
from pnpcm.mri.writers import WRITERS, Volume
from pnpcm.recon.photo import PhotoJob
from pnpcm.recon.record import Outcome, Request, finished, process, publish_result

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["pnpcm", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder of three noisy pictures."""
    folder = tmp_path / "in"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        values = np.clip(random.normal(120, 20, (24, 24, 3)), 0, 255)
        Image.fromarray(values.astype(np.uint8)).save(folder / f"{name}.png")
    return folder


def words(inputs: Path) -> list[str]:
    out = str(inputs.parent / "out")
    return ["restore", str(inputs), "--task", "denoise", "--json", "--out", out]


def statuses(out: str) -> dict[str, str]:
    rows = [json.loads(line) for line in out.splitlines()]
    return {Path(row["input"]).stem: row["status"] for row in rows}


def whole(folder: Path) -> set[str]:
    """The names of results with a record whose files all exist; an error for other files."""
    found, listed = set(), set()
    for record in folder.glob("*.result.json"):
        files = json.loads(record.read_text())["files"]
        assert all((folder / file).exists() for file in files)
        listed |= {record.name, *files}
        found.add(record.name.split(".")[0])
    assert {p.name for p in folder.iterdir()} == listed
    return found


# a process that is killed ------------------------------------------------------------------------
KILLED = """
import os, signal, sys
calls, where, before = 0, int(sys.argv.pop(1)), {name: getattr(os, name) for name in {names!r}}

def patched(name):
    def call(*paths, **options):
        global calls
        calls += 1
        if calls == where:
            os.kill(os.getpid(), signal.SIGKILL)
        return before[name](*paths, **options)
    return call

for name in before:
    setattr(os, name, patched(name))
"""
PUBLISH = """
from pathlib import Path
from pnpcm.io.staging import publish, staging
folder = Path(sys.argv[1])
with staging(folder) as inside:
    for name in ("a", "b", "mark"):
        (inside / name).write_text("new")
    publish([inside / name for name in ("a", "b", "mark")], folder, stale=["c"])
print(calls)
"""


def killed_at(call: int, script: str, *arguments: str, names: str = "replace") -> Any:
    code = KILLED.replace("{names!r}", repr(names.split())) + script
    return subprocess.run(
        [sys.executable, "-c", code, str(call), *arguments], capture_output=True, text=True
    )


def test_a_kill_between_renames_never_leaves_a_mark_on_a_mixture(tmp_path: Path) -> None:
    """Killed before every call that changes a name; the mark is the record of a result."""
    names, last = "rename replace link", 0
    for call in range(1, 20):
        folder = tmp_path / str(call)
        folder.mkdir()
        for name in ("a", "c", "mark"):
            (folder / name).write_text("old")
        done = killed_at(call, PUBLISH, str(folder), names=names)
        found = {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}
        if done.returncode == 0:
            last = call
            assert found == dict.fromkeys(("a", "b", "mark"), "new")
            break
        assert done.returncode == -signal.SIGKILL
        if "mark" in found:
            assert found == dict.fromkeys(("a", "c", "mark"), "old")
    assert last > 5  # mark and c set aside, a linked, three renamed


RESTORE = """
from pnpcm.cli import main
sys.argv = ["pnpcm", *sys.argv[1:]]
main()
"""


def test_a_run_that_was_killed_while_it_wrote_is_continued(run: Run, inputs: Path) -> None:
    done = killed_at(5, RESTORE, *words(inputs))  # image and record to staging, then two renames
    assert done.returncode == -signal.SIGKILL, done.stderr
    out = inputs.parent / "out"
    assert statuses(done.stdout) == {"a": "done"}
    assert [p.name for p in out.iterdir() if p.name.startswith("b.")] == []
    assert any(p.name.startswith(".pnpcm-") for p in out.iterdir())
    code, printed, _ = run(*words(inputs))
    assert code == 0
    assert statuses(printed) == {"a": "kept", "b": "done", "c": "done"}
    assert whole(out) == {"a", "b", "c"}


TERMINATED = """
import os, signal, sys
from pnpcm.cli import main
import pnpcm.recon.photo as photo
write, count = photo._write, 0

def stop(*arguments):
    global count
    write(*arguments)
    count += 1
    if count == 2:
        os.kill(os.getpid(), signal.{name})

photo._write = stop
sys.argv = ["pnpcm", *sys.argv[1:]]
main()
"""


def test_sigterm_removes_what_was_not_finished(inputs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED.format(name="SIGTERM"), *words(inputs)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 143
    assert done.stderr == "pnpcm: stopped by SIGTERM; finished results are complete\n"
    assert statuses(done.stdout) == {"a": "done"}
    assert whole(inputs.parent / "out") == {"a"}


# the disk ----------------------------------------------------------------------------------------
def test_a_full_disk_fails_with_a_sentence_and_leaves_nothing(
    run: Run, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) in (1, 5):  # the image of the first, the record of the third
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    code, printed, _ = run(*words(inputs))
    assert code == 1
    assert statuses(printed) == {"a": "failed", "b": "done", "c": "failed"}
    rows = [json.loads(line) for line in printed.splitlines()]
    files = ("a.denoise.png", "c.denoise.result.json")  # what could not be written
    for row, file in zip((rows[0], rows[2]), files, strict=True):
        assert row["error"] == (
            f"{row['input']}: {inputs.parent / 'out' / file}: No space left on device; free some "
            "space, or write to another disk"
        )
    assert whole(inputs.parent / "out") == {"b"}


def test_an_output_folder_that_cannot_be_made_is_refused(run: Run, inputs: Path) -> None:
    place = Path("/sys/pnpcm-out")  # nobody can create folders there
    if not Path("/sys").is_dir():
        pytest.skip("needs Linux")
    code, printed, _ = run("restore", inputs, "--task", "denoise", "--json", "--out", place)
    assert code == 1
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["status"] for row in rows] == ["failed"] * 3
    assert all(str(place) in row["error"] for row in rows)
    assert "choose another path" in rows[0]["error"] or "another folder" in rows[0]["error"]


def test_an_input_that_disappears_fails_alone(
    run: Run, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = PhotoJob.__call__

    def and_remove(job: PhotoJob, path: Path, target: Path, request: Request) -> Any:
        (inputs / "b.png").unlink(missing_ok=True)
        return restore(job, path, target, request)

    monkeypatch.setattr(PhotoJob, "__call__", and_remove)
    code, printed, _ = run(*words(inputs))
    assert code == 1
    assert statuses(printed) == {"a": "done", "b": "failed", "c": "done"}
    assert str(inputs / "b.png") in printed
    assert whole(inputs.parent / "out") == {"a", "c"}


# scans -------------------------------------------------------------------------------------------
def test_a_scan_that_fails_late_leaves_the_older_result(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py")
    write_simulated(tmp_path / "head.h5", phantoms(1, (32, 32)), n_coils=2)
    out = tmp_path / "out"
    words = ["mri", tmp_path / "head.h5", "--mask", "gaussian1d", "--acceleration", 2, "--acs", 12]
    words += ["--out", out, "--format", "npy,png,html", "--prior", "mri"]
    write = WRITERS["html"]

    def full(volume: Volume, folder: Path) -> list[Path]:
        write(volume, folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(WRITERS, "html", full)
    code, _, err = run(*words)
    assert code == 2
    assert "No space left on device; free some space" in err
    assert not out.exists()
    monkeypatch.setitem(WRITERS, "html", write)
    assert run(*words)[0] == 0
    before = {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()}
    assert whole(out) == {"head"}
    monkeypatch.setitem(WRITERS, "html", full)
    assert run(*words, "--seed", 3)[0] == 2
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == before
    assert whole(out) == {"head"}


# several processes in one folder -----------------------------------------------------------------
class Copy:
    """Work that copies its input; ``meet``: a barrier before the first copy of each process."""

    def __init__(self, meet: threading.Barrier | None = None) -> None:
        self.meet, self.copied, self.said = meet, list[str](), list[str]()

    def watch(self, what: str, done: float, total: int) -> None:
        self.said.append(what)

    def choices(self, path: Path) -> dict[str, Any]:
        return {"kind": "copy"}

    def files(self, target: Path) -> list[str]:
        return [target.name]

    def check(self, path: Path) -> None:
        pass

    def unwatched(self) -> Copy:
        return self

    def __call__(self, path: Path, target: Path, request: Request) -> tuple[dict[str, Any], str]:
        if self.meet is not None and not self.copied:
            self.meet.wait(60)
        self.copied.append(path.name)
        with staging(target.parent) as inside:
            file = inside / target.name
            file.write_bytes(path.read_bytes())
            return publish_result(target.parent, target.stem, request.to_dict(), [file]), ""


def copies(inputs: Path, work: Copy) -> list[Outcome]:
    files = sorted(inputs.glob("*.png"))
    targets = [inputs.parent / "out" / f"{p.stem}.copy.png" for p in files]
    return list(process(files, targets, work))


def test_two_runs_in_one_folder_share_the_work(inputs: Path) -> None:
    """Locks belong to open files, so that two threads are to each other as two processes."""
    meet = threading.Barrier(2)
    both = [Copy(meet), Copy(meet)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda work: copies(inputs, work), both)
    assert sorted([*both[0].copied, *both[1].copied]) == ["a.png", "b.png", "c.png"]
    assert both[0].copied
    assert both[1].copied
    for outcomes in (first, second):
        assert {outcome.input.stem for outcome in outcomes} == {"a", "b", "c"}
        assert {outcome.status for outcome in outcomes} == {"done", "kept"}
    assert whole(inputs.parent / "out") == {"a", "b", "c"}


def test_a_result_that_another_process_gave_up_is_computed(inputs: Path) -> None:
    out, work = inputs.parent / "out", Copy()
    out.mkdir()
    files = sorted(inputs.glob("*.png"))
    with claim(out, "a.copy") as mine:
        assert mine
        outcomes = process(files, [out / f"{p.stem}.copy.png" for p in files], work)
        early = [next(outcomes), next(outcomes)]
        assert [outcome.input.stem for outcome in early] == ["b", "c"]
    (last,) = outcomes
    assert (last.input.stem, last.status) == ("a", "done")
    assert work.said == ["a.png, awaiting another process"]
    assert finished(out, "a.copy", Request.of(files[0], work.choices(files[0])))
