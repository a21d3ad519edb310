"""LMDB files written by LMDB's library are read as it reads them; damaged ones are refused."""

import struct
from pathlib import Path

import numpy as np
import pytest

from pnpcm.errors import ArgumentError
from pnpcm.io.lmdb import Database

lmdb = pytest.importorskip("lmdb")


def written(folder: Path, values: dict[bytes, bytes]) -> Path:
    with lmdb.open(str(folder), map_size=2**26) as base, base.begin(write=True) as write:
        for key, value in values.items():
            write.put(key, value)
    return folder / "data.mdb"


def entries(count: int) -> dict[bytes, bytes]:
    random = np.random.default_rng(count)
    sizes = random.integers(0, 9000, count)  # some larger than a page
    return {b"%x" % i * (1 + i % 20): random.bytes(n) for i, n in enumerate(sizes)}


@pytest.mark.parametrize("count", [0, 1, 5, 3000])
def test_entries_are_those_that_were_written(tmp_path: Path, count: int) -> None:
    values = entries(count)
    found = Database(written(tmp_path, values))
    assert found.keys == sorted(values)
    assert all(found.value(i) == values[key] for i, key in enumerate(found.keys))


def test_the_newest_of_several_transactions_is_read(tmp_path: Path) -> None:
    written(tmp_path, {b"a": b"1", b"b": b"2"})
    written(tmp_path, {b"a": b"3"})
    path = written(tmp_path, {b"c": b"x" * 10000})
    with lmdb.open(str(tmp_path), map_size=2**26) as base, base.begin(write=True) as write:
        write.delete(b"b")
    found = Database(path)
    assert found.keys == [b"a", b"c"]
    assert [found.value(i) for i in (0, 1)] == [b"3", b"x" * 10000]


def test_pages_outside_the_file_are_refused(tmp_path: Path) -> None:
    """LMDB's library reads such a page from its memory map, which ends the process (SIGBUS)."""
    path = written(tmp_path, entries(300))
    content = bytearray(path.read_bytes())
    for meta in (0, 4096):
        struct.pack_into("<Q", content, meta + 16 + 72 + 40, len(content) // 4096 + 100)  # root
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"data\.mdb cannot be read as LMDB .*of which 0 are"):
        Database(path)


def test_a_tree_that_contains_itself_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, entries(3000))
    content = bytearray(path.read_bytes())
    meta = max((0, 4096), key=lambda at: struct.unpack_from("<Q", content, at + 16 + 128))
    (root,) = struct.unpack_from("<Q", content, meta + 16 + 72 + 40)
    page = root * 4096
    (node,) = struct.unpack_from("<H", content, page + 16)
    struct.pack_into("<HHH", content, page + node, root & 0xFFFF, root >> 16, 0)  # child: itself
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"data\.mdb cannot be read as LMDB"):
        Database(path)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
def test_cut_off_files_are_refused(tmp_path: Path, share: float) -> None:
    path = written(tmp_path, entries(300))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ArgumentError, match=r"data\.mdb cannot be read as LMDB"):
        Database(path)
