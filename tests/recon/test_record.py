"""Records of earlier runs: what they may remove, and records that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pnpcm.io.staging import staging
from pnpcm.recon.record import Request, finished, publish_result, read_record, record_path


def publish(folder: Path, *names: str) -> None:
    """A new result "a" with these files."""
    with staging(folder) as inside:
        for name in names:
            (inside / name).write_text("new")
        publish_result(folder, "a", {}, [inside / name for name in names])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of the user, in a folder with another one."""
    inner = tmp_path / "out"
    inner.mkdir()
    for path in (tmp_path / "above.png", tmp_path / "a.above.png", inner / "photo.png"):
        path.write_text("of the user")
    return inner


def test_files_of_an_older_result_go(folder: Path) -> None:
    publish(folder, "a.png", "a.std.png")
    publish(folder, "a.png")
    assert {p.name for p in folder.iterdir()} == {"a.png", "a.result.json", "photo.png"}
    assert read_record(folder, "a") == {"files": ["a.png"]}


@pytest.mark.parametrize(
    "listed",
    ["", ".", "..", "../above.png", "a/../../a.above.png", "photo.png", "a/", "a.result.json"],
)
def test_a_record_removes_nothing_else(listed: str, folder: Path) -> None:
    record_path(folder, "a").write_text(json.dumps({"files": [listed]}))
    publish(folder, "a.png")
    assert {p.name for p in folder.iterdir()} == {"a.png", "a.result.json", "photo.png"}
    assert {p.name for p in folder.parent.iterdir()} == {"above.png", "a.above.png", "out"}


@pytest.mark.parametrize("content", [3, [], {"files": 3}, {"files": [3]}, {"files": {"a": 1}}])
def test_what_is_no_record_is_not_read(content: Any, folder: Path) -> None:
    record_path(folder, "a").write_text(json.dumps(content))
    assert read_record(folder, "a") is None
    assert finished(folder, "a", Request(folder, "", {})) is None
    publish(folder, "a.png")
    assert read_record(folder, "a") == {"files": ["a.png"]}


def test_deeply_nested_records_are_not_read(folder: Path) -> None:
    record_path(folder, "a").write_text("[" * 200_000 + "]" * 200_000)
    assert read_record(folder, "a") is None
