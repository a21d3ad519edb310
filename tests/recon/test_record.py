"""Many inputs (one failure concerns one input, no result replaces another one), and records."""

import hashlib
import json
import os
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pnpcm.errors import ArgumentError
from pnpcm.io.staging import staging
from pnpcm.recon import record
from pnpcm.recon.record import (
    Outcome,
    Request,
    Watch,
    digest,
    finished,
    process,
    publish_result,
    read_record,
    record_path,
    unwatched,
)


@dataclass(frozen=True)
class Copy:
    """Work that copies its input, or raises an error; ``more``: endings of further files."""

    error: BaseException | None = None
    bad: str = "bad"
    more: tuple[str, ...] = ()
    watch: Watch = unwatched

    def choices(self, path: Path) -> Mapping[str, Any]:
        return {"more": list(self.more)}

    def files(self, target: Path) -> list[str]:
        return [target.name, *(f"{target.stem}{ending}" for ending in self.more)]

    def check(self, path: Path) -> None:
        pass

    def unwatched(self) -> "Copy":
        return self

    def __call__(self, path: Path, target: Path, request: Request) -> tuple[dict[str, Any], str]:
        if self.error is not None and self.bad in path.name:
            raise self.error
        with staging(target.parent) as inside:
            written = [inside / name for name in self.files(target)]
            for file in written:
                file.write_bytes(path.read_bytes())
            return publish_result(target.parent, target.stem, request.to_dict(), written), "copied"


def run(work: Copy, out: Path, *inputs: Path) -> list[Outcome]:
    return list(process(inputs, [out / path.name for path in inputs], work))


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text or path.name)
    return path


ERRORS: dict[str, tuple[Exception, str]] = {
    "damaged header": (tokenize.TokenError("EOF in\nmulti-line", (1, 0)), "TokenError: "),
    "memory": (MemoryError(), "bad.txt: there is not enough memory for it"),
    "recursion": (RecursionError("maximum recursion depth"), "RecursionError: maximum recursion"),
    "index": (IndexError("3"), "bad.txt: IndexError: 3"),
    "long": (RuntimeError("x" * 5000), "RuntimeError: xxx"),
    "own": (ArgumentError("sigma_y is 7"), "bad.txt: sigma_y is 7"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_any_failure_of_one_input_is_one_sentence_and_the_rest_is_done(
    name: str, tmp_path: Path
) -> None:
    error, message = ERRORS[name]
    inputs = [put(tmp_path / "in" / f"{each}.txt") for each in ("a", "bad", "c")]
    found = run(Copy(error), tmp_path / "out", *inputs)
    assert [one.status for one in found] == ["done", "failed", "done"]
    assert message in found[1].message
    assert "\n" not in found[1].message
    assert len(found[1].message) < len(str(inputs[1])) + 400
    assert not (tmp_path / "out" / "bad.txt").exists()


def test_ctrl_c_stops_the_run(tmp_path: Path) -> None:
    inputs = [put(tmp_path / "in" / f"{each}.txt") for each in ("a", "bad", "c")]
    with pytest.raises(KeyboardInterrupt):
        run(Copy(KeyboardInterrupt()), tmp_path / "out", *inputs)
    assert not (tmp_path / "out" / "c.txt").exists()


def test_temporary_files_of_a_killed_worker_go_also_in_a_new_folder(tmp_path: Path) -> None:
    inputs = [put(tmp_path / "in" / f"{each}.txt") for each in ("a", "b")]
    out = tmp_path / "new"
    outcomes = process(inputs, [out / path.name for path in inputs], Copy())
    next(outcomes)
    put(out / ".pnpcm-0123456789abcdef" / "half-written.txt")  # as after SIGKILL: no lock
    assert [one.status for one in outcomes] == ["done"]
    assert not list(out.glob(".pnpcm-*"))


def test_names_that_are_not_utf8_and_links_to_themselves(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff.txt"))
    odd.write_text("latin-1")
    loop = tmp_path / "loop.txt"
    loop.symlink_to(loop)
    found = run(Copy(), tmp_path / "out", odd, loop, put(tmp_path / "good.txt"))
    assert [one.status for one in found] == ["failed", "failed", "done"]
    assert found[0].message == f"{tmp_path}/odd\\xff.txt has a name that is not UTF-8; rename it"
    assert "Too many levels of symbolic links" in found[1].message
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["good.result.json", "good.txt"]


def test_a_pipe_does_not_stop_the_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    found = run(Copy(), tmp_path / "out", tmp_path / "pipe.txt", put(tmp_path / "good.txt"))
    assert [one.status for one in found] == ["failed", "done"]
    assert "pipe.txt is a pipe or a device, expected a file; write its content" in found[0].message


# results that would replace others ---------------------------------------------------------------
def refused(message: str, work: Copy, out: Path, *inputs: Path) -> None:
    """Refused with this message, and nothing is written or changed."""
    before = {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()}
    with pytest.raises(ArgumentError, match=message):
        run(work, out, *inputs)
    assert {p: p.read_bytes() for p in out.parent.rglob("*") if p.is_file()} == before


def test_an_output_below_a_file(tmp_path: Path) -> None:
    put(tmp_path / "a.txt")
    message = r"output .*a\.txt/deep/b\.txt cannot be written, since .*a\.txt is a file; give anot"
    refused(message, Copy(), tmp_path / "a.txt" / "deep", put(tmp_path / "b.txt"))


def test_two_inputs_that_would_write_the_same_file(tmp_path: Path) -> None:
    inputs = [put(tmp_path / "in" / name) for name in ("a.png", "a_std.png")]
    assert [one.status for one in run(Copy(), tmp_path / "plain", *inputs)] == ["done", "done"]
    message = r"a\.png and .*a_std\.png would both write .*a_std\.png; reconstruct them into diff"
    refused(message, Copy(more=("_std.png",)), tmp_path / "out", *inputs)


def test_a_file_beside_a_result_does_not_replace_an_earlier_result(tmp_path: Path) -> None:
    first, second = (put(tmp_path / "in" / name) for name in ("a_std.png", "a.png"))
    run(Copy(), tmp_path / "out", first)
    message = r"out/a_std\.png is a result of .*in/a_std\.png, which that of .*in/a\.png would rep"
    refused(message, Copy(more=("_std.png",)), tmp_path / "out", second)


def test_the_same_name_from_another_folder(tmp_path: Path) -> None:
    first, second = put(tmp_path / "1" / "a.png", "one"), put(tmp_path / "2" / "a.png", "two")
    run(Copy(), tmp_path / "out", first)
    refused(r"is a result of .*1/a\.png, which that of", Copy(), tmp_path / "out", second)
    (one,) = run(Copy(), tmp_path / "out", put(tmp_path / "3" / "a.png", "one"))
    assert one.status == "done"  # the same picture, moved
    put(tmp_path / "3" / "a.png", "edited")
    assert run(Copy(), tmp_path / "out", tmp_path / "3" / "a.png")[0].status == "done"
    assert json.loads((tmp_path / "out" / "a.result.json").read_text())["input"].endswith("3/a.png")
    other = put(tmp_path / "4" / "a.tif", "four")  # another file, but the same record
    refused(r"a\.result\.json is a result of .*3/a\.png", Copy(), tmp_path / "out", other)
    (tmp_path / "out" / "a.result.json").write_text("damaged")
    assert run(Copy(), tmp_path / "out", second)[0].status == "done"


def test_a_result_does_not_replace_an_input(tmp_path: Path) -> None:
    scan = put(tmp_path / "in" / "a.h5")
    refused(r"output .*a\.h5 is an input; give another folder", Copy(), scan.parent, scan)


def test_a_file_that_no_record_lists_is_not_replaced(tmp_path: Path) -> None:
    source, out = put(tmp_path / "in" / "a[1].txt"), tmp_path / "out"
    put(out / "a[1].txt", "of the user")
    message = r"output .*out/a\[1\]\.txt exists, and no record says that it is a result of pnpcm"
    refused(message, Copy(), out, source)
    (out / "a[1].txt").unlink()
    assert [one.status for one in run(Copy(), out, source)] == ["done"]
    assert [one.status for one in run(Copy(), out, source)] == ["kept"]
    put(out / "a[1]_std.png", "of the user")
    refused(r"a\[1\]_std\.png exists, and no record", Copy(more=("_std.png",)), out, source)


def test_a_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    """Killed after the first rename: the record is still in the hidden folder."""
    source, out = put(tmp_path / "in" / "a.txt"), tmp_path / "out"
    run(Copy(), out, source)
    hidden = out / ".pnpcm-0123456789abcdef"
    hidden.mkdir()
    (out / "a.result.json").rename(hidden / "a.result.json")
    assert [one.status for one in run(Copy(), out, source)] == ["done"]


# records of earlier runs ------------------------------------------------------------------------
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


def test_the_hash_of_a_long_file_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "HASHED", 64)
    monkeypatch.setattr(record, "BLOCK", 8)
    path = tmp_path / "scan.dat"
    for size in (0, 5, 64):
        content = bytes(range(size))
        path.write_bytes(content)
        assert digest(path) == hashlib.sha256(content).hexdigest()
    before = set()
    for changed in (None, 0, 999):  # the first and the last byte are among those that are read
        content = bytearray(1000)
        if changed is not None:
            content[changed] = 1
        path.write_bytes(content)
        before.add(digest(path))
        assert digest(path).endswith(" of 64 of 1000 bytes")
    assert len(before) == 3
    path.write_bytes(bytes(1001))
    assert digest(path) not in before
    with path.open("wb") as file:
        file.truncate(2**43)  # without disk space; reading all of it would take hours
    assert digest(path).endswith(f" of 64 of {2**43} bytes")
