"""The store: round trip, merged files, corrupt files and killed writers."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pnpcm.bench import store as module
from pnpcm.bench.store import COLUMNS, LOST, Store
from pnpcm.errors import ArgumentError

ROW: dict[str, Any] = {
    "key": "k0", "spec": "s", "data": "d", "image": "a.png", "number": 3, "task": "t",
    "sigma_y": 0.05, "seed": 1, "prior": "natural", "method": "µ, “x”", "steps": None,
    "scores": {"psnr": 20.123456789, "ssim": 0.5}, "nfe": 4, "vjps": 0,
    "seconds": {"solve": 0.25}, "memory": 1 << 40, "residual": 1.5, "solver": "pnp-cm",
    "config": {"type": "PnPCMConfig", "rhos": [1.0, 2.0], "mu": None}, "config_hash": "c",
    "parameters_from": "preset", "trials": None, "y_hash": "y", "notes": ["one", "two"],
    "failed": None, "environment": {"torch": "2"}, "finished": "2026-01-01T00:00:00+00:00",
}  # fmt: skip


def add(store: Store, *rows: dict[str, Any]) -> None:
    with store.writing() as put:
        for row in rows:
            put(row)


def test_rows_return_as_they_were_added(tmp_path: Path) -> None:
    assert set(ROW) == set(COLUMNS)
    store = Store(tmp_path / "new" / "folder")
    assert list(store.rows()) == []
    add(store, ROW, {"key": "k1", "failed": "refused"})
    assert next(Store(store.folder).rows()) == ROW
    assert store.keys() == {"k0", "k1"}
    assert next(store.rows(("method",)))["method"] == ROW["method"]


def test_a_key_that_is_added_again_replaces_its_row(tmp_path: Path) -> None:
    store = Store(tmp_path)
    add(store, ROW, ROW | {"nfe": 9})
    assert [row["nfe"] for row in store.rows()] == [9]


def test_files_of_shards_are_read_as_one_store(tmp_path: Path) -> None:
    for i in range(3):
        add(Store(tmp_path, f"{i}/3"), {"key": f"k{i}"}, {"key": "shared"})
    assert len(list(tmp_path.glob("*.sqlite"))) == 3
    rows = list(Store(tmp_path).rows())
    assert sorted(row["key"] for row in rows) == ["k0", "k1", "k2", "shared"]


def test_lost_rows_are_shown_until_they_are_computed(tmp_path: Path) -> None:
    lost = {"key": "k0", "failed": f"{LOST}4 workers died"}
    add(Store(tmp_path, "0/2"), lost, {"key": "k1", "failed": "refused"})
    assert Store(tmp_path).keys() == {"k1"}
    assert sorted(row["key"] for row in Store(tmp_path).rows()) == ["k0", "k1"]
    add(Store(tmp_path, "1/2"), ROW)  # in a later file
    assert Store(tmp_path).keys() == {"k0", "k1"}
    assert [row["nfe"] for row in Store(tmp_path).rows() if row["key"] == "k0"] == [4]


@pytest.mark.parametrize("damage", ["text", "half", "table", "column", "json"])
def test_a_corrupt_file_gets_one_sentence(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    if damage == "text":
        store.file.write_text("this is not a database" * 100)
    elif damage == "half":
        add(store, *({"key": str(i), "failed": "x" * 3000} for i in range(30)))
        content = store.file.read_bytes()
        store.file.write_bytes(content[: len(content) // 2])
    else:
        base = sqlite3.connect(store.file)
        name = {"table": "others (key)", "column": "rows (key)"}.get(damage)
        if name is None:
            base.execute(f"CREATE TABLE rows ({', '.join(COLUMNS)})")
            base.execute("INSERT INTO rows (key, scores) VALUES ('a', '{')")
        else:
            base.execute(f"CREATE TABLE {name}")
        base.commit()
        base.close()
    before = store.file.read_bytes()
    with pytest.raises(
        ArgumentError, match=r"rows\.sqlite cannot be read as SQLite .*; move it away"
    ):
        list(store.rows())
    assert store.file.read_bytes() == before


@pytest.mark.parametrize("content", [b"", None])
def test_a_file_without_a_table_is_an_empty_store(tmp_path: Path, content: bytes | None) -> None:
    """A writer was killed, or has just started, in another process."""
    store = Store(tmp_path)
    if content is None:
        sqlite3.connect(store.file).close()
    else:
        store.file.write_bytes(content)
    assert list(store.rows()) == []
    add(store, ROW)
    assert store.keys() == {"k0"}


KILLED = """
import importlib.util, os, signal, sqlite3, sys
from pathlib import Path
found = importlib.util.spec_from_file_location("store", sys.argv[1])
store = importlib.util.module_from_spec(found)
found.loader.exec_module(store)
one = store.Store(Path(sys.argv[2]))
with one.writing() as add:
    for i in range(3):
        add({"key": str(i)})
base = sqlite3.connect(one.file)
base.execute("PRAGMA cache_size = 1")  # changed pages go to the file before the commit
for i in range(2000):
    base.execute("INSERT INTO rows (key, failed) VALUES (?, ?)", (f"more {i}", "x" * 500))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_the_rows_that_were_added(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, module.__file__, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    store = Store(tmp_path)
    assert store.file.with_name("rows.sqlite-journal").exists()  # a transaction was open
    assert store.keys() == {"0", "1", "2"}
    add(store, ROW)
    assert store.keys() == {"0", "1", "2", "k0"}
