"""Store: rows of finished reconstructions in SQLite files of a folder.

SQLite, because a row is durable the moment it is added (a killed run loses only what it was
computing), a file can be read by any program, and it is in the standard library. One process writes
a file; shards of one run write one file each, and a reader takes all files of the folder.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pnpcm.io.reading import reading

COLUMNS = {
    "key": "TEXT PRIMARY KEY",
    "spec": "TEXT",
    "data": "TEXT",
    "image": "TEXT",
    "number": "INTEGER",
    "task": "TEXT",
    "sigma_y": "REAL",
    "seed": "INTEGER",
    "prior": "TEXT",
    "method": "TEXT",
    "steps": "INTEGER",
    "scores": "JSON",
    "nfe": "INTEGER",
    "vjps": "INTEGER",
    "seconds": "JSON",
    "memory": "INTEGER",
    "residual": "REAL",
    "solver": "TEXT",
    "config": "JSON",
    "config_hash": "TEXT",
    "parameters_from": "TEXT",
    "trials": "INTEGER",
    "y_hash": "TEXT",
    "notes": "JSON",
    "failed": "TEXT",
    "environment": "JSON",
    "finished": "TEXT",
}
"""Columns of the table ``rows``. ``memory``: largest resident set of the process so far, in bytes.
``residual``: ‖A(x) − y‖ relative to what noise alone would give. ``failed``: why there is no
image."""
SUFFIX = ".sqlite"
WAIT = 60.0
"""Seconds that a process waits for another one that uses the same file."""
LOST = "not computed: "
"""Start of ``failed`` if the reason is not the method; the next run computes the row again."""
Saved = dict[str, Any]


class Store:
    """Rows in ``folder``; new ones go to the file of ``shard`` ("0/1": the only one)."""

    def __init__(self, folder: Path, shard: str = "0/1") -> None:
        self.folder = folder
        name = "rows" if shard == "0/1" else f"rows-{shard.replace('/', '-of-')}"
        self.file = folder / f"{name}{SUFFIX}"

    def exists(self) -> bool:
        """Whether the folder has a file of rows."""
        return any(self.folder.glob(f"rows*{SUFFIX}"))

    def keys(self) -> set[str]:
        """Keys of all rows of the folder, without those that are computed again."""
        found = self.rows(("key", "failed"))
        return {row["key"] for row in found if not _is_lost(row["failed"])}

    def rows(self, columns: Sequence[str] = tuple(COLUMNS)) -> Iterator[Saved]:
        """All rows of the folder, each key once; ``LOST`` ones only if there is no other."""
        seen: set[str] = set()
        lost: dict[str, Saved] = {}
        for row in self._all(tuple(dict.fromkeys(("key", "failed", *columns)))):
            key = row["key"]
            if _is_lost(row["failed"]):
                lost[key] = row
            elif key not in seen:
                seen.add(key)
                yield row
        yield from (row for key, row in lost.items() if key not in seen)

    def _all(self, columns: tuple[str, ...]) -> Iterator[Saved]:
        for path in sorted(p for p in self.folder.glob(f"rows*{SUFFIX}") if p.is_file()):
            with _reading(path), closing(_opened(path)) as base:
                # a writer that was killed, or has just started, leaves a file without the table
                if not base.execute("SELECT name FROM sqlite_master").fetchone():
                    continue
                found = base.execute(f"SELECT {', '.join(columns)} FROM rows ORDER BY rowid")
                for values in found:
                    row = dict(zip(columns, values, strict=True))
                    yield {name: _decoded(name, value) for name, value in row.items()}

    @contextmanager
    def writing(self) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """A function that adds a row; it is on the disk when the function returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        table = ", ".join(f"{n} {'TEXT' if t == 'JSON' else t}" for n, t in COLUMNS.items())
        marks = ", ".join("?" * len(COLUMNS))
        with _reading(self.file):
            base = sqlite3.connect(self.file, timeout=WAIT)

        def add(row: Mapping[str, Any]) -> None:
            values = [_encoded(name, row.get(name)) for name in COLUMNS]
            with _reading(self.file):
                base.execute(f"INSERT OR REPLACE INTO rows VALUES ({marks})", values)
                base.commit()

        with closing(base):
            with _reading(self.file):
                base.execute(f"CREATE TABLE IF NOT EXISTS rows ({table})")
                base.commit()
            yield add


def _opened(path: Path) -> sqlite3.Connection:
    """An existing file; writable, because SQLite completes what a killed writer left."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=WAIT)


def _is_lost(failed: str | None) -> bool:
    return failed is not None and failed.startswith(LOST)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with reading(f"store {path}", "SQLite", move="move it away to start a new one"):
        yield


def _encoded(name: str, value: Any) -> Any:
    if COLUMNS[name] == "JSON" and value is not None:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return value


def _decoded(name: str, value: Any) -> Any:
    return json.loads(value) if COLUMNS[name] == "JSON" and value is not None else value
