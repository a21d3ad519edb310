"""Arrays of NumPy's files are read as NumPy reads them, but never beyond their declared sizes."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pnpcm.errors import ArgumentError
from pnpcm.io.arrays import opened_npz, read_array
from pnpcm.io.reading import Budget

ROOM = Budget(8)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=">i2").reshape(3, 4),
        np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
        np.array(1 + 2j),
        np.array("text"),
        np.zeros((0, 5), bool),
        np.arange(3_000_000, dtype=np.uint8),
    ],
    ids=["big endian", "columns", "scalar", "text", "empty", "several parts"],
)
def test_arrays_are_those_of_numpy(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", first=array)
    np.savez_compressed(tmp_path / "c.npz", first=array)
    for name in ("a.npy", "b.npz", "c.npz"):
        found = read_array(tmp_path / name, ROOM)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert np.array_equal(found, array)
        assert found.flags.writeable


def npy(shape: str, content: bytes = b"", descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npy("(2,)", b"x" * 15), "needs 16 bytes, it has 15"),
        (npy("(1099511627776,)"), "needs 8796093022208 bytes, it has 0"),
        (npy("(-1,)", b"x" * 8), r"shape \(-1,\)"),
        (npy("(1,)", b"x" * 8, "'|O'"), "holds object"),
        (npy("(1,)", b"x" * 8, "[('a', '<f8')]"), "not plain numbers"),
        (b"\x93NUMPY\x03\x00" + b"x" * 20, "version"),
        (npy("[" * 5000), "cannot be read"),
        (b"text", r"cannot be read as .* \(ValueError: it does not begin like a \.npy file\)"),
    ],
)
def test_headers_that_do_not_fit_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", content)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ArgumentError, match=words):
            read_array(tmp_path / name, ROOM)


def test_a_small_archive_of_a_huge_array_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    head, n = npy(f"({10**8},)", descr="'|u1'"), 10**8
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("kspace.npy", "w", force_zip64=True) as member,
    ):
        member.write(head)
        for _ in range(100):
            member.write(bytes(n // 100))
    assert path.stat().st_size < 200_000
    words = r"bomb\.npz has 100000000 = 100000000 numbers, more than the 1000000 .* max_pixels"
    with (
        pytest.raises(ArgumentError, match=words),
        opened_npz(path, "an archive", Budget(8, max_pixels=10**6)) as file,
    ):
        _ = file["kspace"]


@pytest.mark.parametrize(
    ("shape", "descr", "size", "words"),
    [
        ("()", "'<U25000000'", 10**8, "25000000 = 25000000 characters"),
        ("(2, 3)", "'|S20000000'", 12 * 10**7, "2×3×20000000 = 120000000 characters"),
    ],
)
def test_a_small_archive_of_a_huge_text_is_refused_before_it_is_inflated(
    tmp_path: Path, shape: str, descr: str, size: int, words: str
) -> None:
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("pnpcm.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy(shape, descr=descr))
        for _ in range(100):
            member.write(bytes(size // 100))
    assert path.stat().st_size < 200_000
    words = rf"bomb\.npz has {words}, more than the 1000000 .* max_pixels"
    with (
        pytest.raises(ArgumentError, match=words),
        opened_npz(path, "an archive", Budget(8, max_pixels=10**6)) as file,
    ):
        _ = file["pnpcm"]


def test_a_short_text_is_read_in_any_budget(tmp_path: Path) -> None:
    text = "x" * 2**16
    np.savez(tmp_path / "a.npz", text=np.array(text), names=np.array(["a", "bc"]))
    with opened_npz(tmp_path / "a.npz", "an archive", Budget(8, max_pixels=1)) as file:
        assert str(file["text"]) == text
        assert file["names"].tolist() == ["a", "bc"]
    np.save(tmp_path / "b.npy", np.array(text + "x"))
    with pytest.raises(ArgumentError, match="65537 characters, more than the 1 that max_pixels"):
        read_array(tmp_path / "b.npy", Budget(8, max_pixels=1))


def test_a_damaged_member_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.random.default_rng(0).random(1000))
    content = bytearray(buffer.getvalue())
    content[len(content) // 2] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ArgumentError, match=r"a\.npz cannot be read as a \.npy file of numbers"):
        read_array(tmp_path / "a.npz", ROOM)
