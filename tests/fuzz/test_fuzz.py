"""Damaged files are read or refused in one sentence; they never crash, hang or exhaust memory."""

from pathlib import Path

import pytest

from fuzz.run import CORPUS, fuzz, replayed
from fuzz.targets import TARGETS


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
