"""MATLAB files of version 5, as SciPy writes them, and damaged ones."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pnpcm.errors import ArgumentError
from pnpcm.io.reading import Budget
from pnpcm.mri import read_scan
from pnpcm.mri.readers.matlab import read_matlab

io = pytest.importorskip("scipy.io")
ROOM = Budget(32)
TYPES = ["f8", "f4", "c16", "c8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_those_that_were_saved(tmp_path: Path, compressed: bool) -> None:
    random = np.random.default_rng(0)
    saved: dict[str, Any] = {}
    for i, name in enumerate(TYPES):
        values = random.integers(0, 100, (2, 3, 4, 1 + i))
        saved[f"a_{name}"] = (values * (1 + 2j if name[0] == "c" else 1)).astype(name)
    saved |= {"empty": np.zeros((0, 3)), "one": 5.0, "text": "words", "cells": [{"a": 1}, "b"]}
    path = tmp_path / "a.mat"
    io.savemat(path, saved, do_compression=compressed)
    wanted = [name for name in saved if name not in ("text", "cells")]
    found, names = read_matlab(path, wanted, ROOM)
    assert names == list(saved)
    expected = io.loadmat(path)
    for name in wanted:
        assert found[name].dtype == expected[name].dtype, name
        assert np.array_equal(found[name], expected[name]), name
    with pytest.raises(ArgumentError, match=r"text of .* is not an array of numbers"):
        read_matlab(path, ["text"], ROOM)


def header(sizes: tuple[int, ...], numbers: int) -> bytes:
    """A file whose array ``kspace`` claims ``sizes`` and has ``numbers`` values, byte by byte."""

    def element(kind: int, content: bytes) -> bytes:
        return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)

    body = element(6, struct.pack("<II", 6, 0)) + element(5, struct.pack(f"<{len(sizes)}i", *sizes))
    body += element(1, b"kspace") + element(9, bytes(8 * numbers))
    return b"MATLAB 5.0".ljust(124) + b"\0\1IM" + element(14, body)


def test_a_header_that_claims_more_than_the_file_has_is_refused(tmp_path: Path) -> None:
    """SciPy's reader crashed on 3 kB that claim 2×3×1761607688×8 numbers."""
    path = tmp_path / "a.mat"
    path.write_bytes(header((2, 3, 7, 8), 336))
    assert read_matlab(path, ["kspace"], ROOM)[0]["kspace"].shape == (2, 3, 7, 8)
    path.write_bytes(header((2, 3, 1761607688, 8), 336))
    with pytest.raises(ArgumentError, match=r"a\.mat has 2×3×1761607688×8 = 84557169024 numbers"):
        read_scan(path)
    path.write_bytes(header((2, 3, 17616, 8), 336))
    with pytest.raises(ArgumentError, match=r"of sizes \(2, 3, 17616, 8\) has 336 numbers"):
        read_scan(path)


def test_a_compressed_array_is_not_inflated_beyond_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    io.savemat(path, {"kspace": np.zeros((1000, 1000, 4))}, do_compression=True)
    assert path.stat().st_size < 100_000
    with pytest.raises(ArgumentError, match=r"4000000 numbers, more than the 1000000 .*max_pixels"):
        read_scan(path, max_pixels=10**6)


@pytest.mark.parametrize("compressed", [False, True])
def test_cut_off_files_are_refused(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.mat"
    io.savemat(path, {"kspace": np.random.default_rng(0).random((4, 8, 8)) * 1j},
               do_compression=compressed)  # fmt: skip
    content = path.read_bytes()
    for end in (100, 130, 200, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(ArgumentError, match=r"a\.mat"):
            read_scan(path)


def test_zeros_behind_the_arrays_are_not_walked_through(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(header((2, 3), 6))
    with path.open("ab") as file:
        file.truncate(2**33)  # zeros that take no place on the disk, and 10⁹ elements
    found, names = read_matlab(path, ["kspace"], ROOM)
    assert found["kspace"].shape == (2, 3)
    assert names == ["kspace"]


def test_the_number_of_variables_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(header((2, 3), 6) + struct.pack("<II", 1, 0) * 20_000)
    with pytest.raises(ArgumentError, match="more than 10000 variables"):
        read_scan(path)
    path.write_bytes(header((2, 3), 6))
    names = {f"{'n' * 25}_{k:03}": 1.0 for k in range(300)}
    io.savemat(path, names)
    with pytest.raises(ArgumentError, match=r"has no kspace, it holds n+_000, .*_019, …;"):
        read_scan(path)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_is_cut_off_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    """With a memory map this ended the process (SIGBUS)."""
    path = tmp_path / "a.mat"
    values = np.random.default_rng(0).random((4, 4, 8, 8)) * 1j
    io.savemat(path, {"kspace": values}, do_compression=compressed)
    check = Budget.check

    def cut(budget: Budget, *arguments: Any) -> None:
        check(budget, *arguments)
        os.truncate(path, 300)

    monkeypatch.setattr(Budget, "check", cut)
    with pytest.raises(ArgumentError, match=r"a\.mat cannot be read"):
        read_scan(path)
