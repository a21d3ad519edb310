"""Damaged files are read or refused in one sentence; they never crash, hang or exhaust memory."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.run import CORPUS, SECONDS, environment, fuzz, replayed
from fuzz.targets import TARGETS

BUSY = """
import sys, time
from pathlib import Path
from fuzz import run, targets
from pnpcm.io import hdf5
from pnpcm.io.child import in_child
from pnpcm.io.reading import reading
from pnpcm.mri.readers import twix

def read(path):
    what, seconds = path.read_text().split()
    end = time.process_time() + float(seconds)
    if what == "wait":
        time.sleep(float(seconds))
    while what == "work" and time.process_time() < end:
        pass
    with reading(path, "X"):
        if what in ("hdf5", "twix"):
            in_child("builtins:pow", 3, 10**8, seconds=globals()[what].SECONDS)

def make(path):
    path.write_text("work 0.5")  # the valid file, in place of the import of libraries

targets.TARGETS["busy"] = targets.Target("a.txt", make, read)
run.SECONDS = 0.3
run.replay(Path(sys.argv[1]), "busy")
"""
"""Replays a file that says how the reader passes the time, with a limit of 0.3 s."""


def test_damaged_files_are_read_or_refused_by_every_reader() -> None:
    counts = fuzz({name: target.quick for name, target in TARGETS.items()})
    assert {name: count.findings for name, count in counts.items() if count.findings} == {}
    for name, count in counts.items():
        assert count.inputs == TARGETS[name].quick
        assert count.accepted >= 1, f"the valid file of {name} is refused"
        assert count.ours >= count.inputs // 10, f"the damage to {name} is not noticed"


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.bin")), ids=lambda path: path.stem)
def test_findings_of_earlier_runs_stay_mended(path: Path) -> None:
    kind, words = replayed(path)
    assert kind in ("ours", "accepted"), words


@pytest.mark.parametrize(
    ("content", "code", "answer"),
    [
        ("work 0", 0, '"accepted", ""'),
        ("wait 0.6", 0, '"accepted", ""'),
        ("work 3", -signal.SIGPROF, ""),
        ("hdf5 0", 0, "it takes longer than 0.3 s"),
        ("twix 0", 0, "it takes longer than 0.3 s"),
    ],
)
def test_the_limit_of_a_replay_is_processor_time_without_imports(
    tmp_path: Path, content: str, code: int, answer: str
) -> None:
    (tmp_path / "input").write_text(content)
    words = [sys.executable, "-c", BUSY, str(tmp_path / "input")]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment())
    assert done.returncode == code
    assert answer in done.stdout


def test_make_fuzz_finds_its_modules() -> None:
    words = [sys.executable, str(CORPUS.parent / "run.py"), "--inputs", "1", "--only", "npy"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| npy | 1 | 0 | 1 |" in done.stdout


def test_no_reader_may_take_longer_than_two_seconds() -> None:
    assert SECONDS == 2
