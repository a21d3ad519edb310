"""HDF5 files that lead out of themselves, into loops or beyond memory are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pnpcm.errors import ArgumentError
from pnpcm.io import hdf5
from pnpcm.mri import read_scan

h5py = pytest.importorskip("h5py")
KSPACE = (np.arange(2 * 3 * 8 * 6) * (1 + 2j)).astype(np.complex64).reshape(2, 3, 8, 6)


def secret(folder: Path) -> Path:
    """A file of the machine whose bytes a hostile scan wants to show."""
    path = folder / "secret.bin"
    path.write_bytes(KSPACE.tobytes())
    with h5py.File(folder / "secret.h5", "w") as file:
        file["kspace"] = KSPACE
    return path


def external_storage(file: Any, folder: Path) -> None:
    place = [(str(secret(folder)), 0, KSPACE.nbytes)]
    file.create_dataset("kspace", KSPACE.shape, KSPACE.dtype, external=place)


def external_link(file: Any, folder: Path) -> None:
    secret(folder)
    file["kspace"] = h5py.ExternalLink(str(folder / "secret.h5"), "/kspace")


def virtual(file: Any, folder: Path) -> None:
    secret(folder)
    layout = h5py.VirtualLayout(KSPACE.shape, KSPACE.dtype)
    layout[:] = h5py.VirtualSource(folder / "secret.h5", "kspace", KSPACE.shape)
    file.create_virtual_dataset("kspace", layout)


def soft_link(file: Any, folder: Path) -> None:
    file["other"] = KSPACE
    file["kspace"] = h5py.SoftLink("/other")


def loop(file: Any, folder: Path) -> None:
    file["kspace"] = h5py.SoftLink("/a")
    file["a"] = h5py.SoftLink("/kspace")


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (external_storage, "kspace of .* is stored in other files, which are not read"),
        (virtual, "kspace of .* is stored in other files, which are not read"),
        (external_link, "kspace of .* is a link to another place, which is not followed"),
        (soft_link, "kspace of .* is a link to another place, which is not followed"),
    ],
)
def test_other_files_are_not_read(tmp_path: Path, write: Any, words: str) -> None:
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        write(file, tmp_path)
    with h5py.File(path, "r") as file:  # the library follows it
        assert np.array_equal(file["kspace"][0], KSPACE[0])
    with pytest.raises(ArgumentError, match=words):
        read_scan(path)


def test_loops_of_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        loop(file, tmp_path)
    with pytest.raises(ArgumentError, match=r"scan\.h5"):
        read_scan(path, format="fastmri")
    with h5py.File(path, "w") as file:
        file["kspace"] = KSPACE
        file["inside/again"] = file  # a hard link of a group to its parent
    assert read_scan(path).n_slices == 2


def test_a_shape_that_the_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:  # no chunk is written: the library reads zeros
        file.create_dataset("kspace", (2, 1000, 100000, 100000), "c8", chunks=(1, 1, 100, 100))
    assert path.stat().st_size < 10_000
    with pytest.raises(ArgumentError, match=r"160000000000000 bytes, but 0 bytes are stored"):
        read_scan(path)
    with h5py.File(path, "w") as file:
        data = file.create_dataset("kspace", KSPACE.shape, "c8", chunks=(1, 3, 8, 6),
                                   compression="gzip")  # fmt: skip
        data[0] = KSPACE[0]
    with pytest.raises(ArgumentError, match=r"kspace of .* has 1 of its 2 chunks"):
        read_scan(path)


def test_a_small_file_of_a_huge_scan_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", data=np.zeros((1, 4, 1000, 1000), "c8"), compression="gzip",
                            chunks=(1, 4, 1000, 1000))  # fmt: skip
    assert path.stat().st_size < 50_000
    words = r"has 4×1000×1000 = 4000000 samples in a slice, more than the 1000000 .* max_pixels"
    with pytest.raises(ArgumentError, match=words):
        read_scan(path, max_pixels=10**6)
    with h5py.File(path, "w") as file:  # a small slice inside a large chunk
        file.create_dataset("kspace", data=np.zeros((500, 1, 100, 100), "c8"), compression="gzip",
                            chunks=(500, 1, 100, 100))  # fmt: skip
    with pytest.raises(ArgumentError, match=r"500×1×100×100 = 5000000 samples"):
        read_scan(path, max_pixels=10**6)


@pytest.mark.parametrize("options", [{"compression": "lzf"}, {"scaleoffset": 2}])
def test_other_filters_than_those_of_scans_are_refused(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file["kspace"] = KSPACE
        file.create_dataset("mask", data=np.ones(6, np.uint8), **options)
    with pytest.raises(ArgumentError, match=r"mask of .* uses the filter \w+; expected gzip"):
        read_scan(path)


def test_the_filters_of_scans_are_read(tmp_path: Path) -> None:
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", data=KSPACE, compression="gzip", shuffle=True,
                            fletcher32=True)  # fmt: skip
    assert np.array_equal(read_scan(path).kspace(1).numpy(), KSPACE[1])


def test_a_crash_of_the_library_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["kspace"] = KSPACE

    def crash(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("its library crashes on it, SIGSEGV")

    monkeypatch.setattr(hdf5, "in_child", crash)
    with pytest.raises(ArgumentError, match=r"scan\.h5 cannot be read as HDF5 .*SIGSEGV"):
        read_scan(tmp_path / "scan.h5")


def reads(monkeypatch: Any) -> list[str]:
    """Names of the data sets that this process reads from now on."""
    found: list[str] = []
    whole = h5py.Dataset.__getitem__

    def noted(data: Any, *arguments: Any, **options: Any) -> Any:
        found.append(data.name)
        return whole(data, *arguments, **options)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", noted)
    return found


def test_long_texts_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: Any) -> None:
    path, size = tmp_path / "scan.h5", hdf5.TEXT + 1
    long = {"data": [b"<a/>"], "dtype": f"S{size}", "compression": "gzip"}
    with h5py.File(path, "w") as file:
        file["kspace"] = KSPACE
        file.create_dataset("ismrmrd_header", **long)
        file.create_dataset("texts", **long)
    found = reads(monkeypatch)
    words = f"ismrmrd_header of .* is a text of {size} bytes, expected at most {hdf5.TEXT}"
    with pytest.raises(ArgumentError, match=words):
        read_scan(path)
    with pytest.raises(ArgumentError, match=r"texts of .* holds texts, expected numbers"):
        read_scan(path, key="texts")
    assert found == []


def test_a_chunk_is_inflated_once_for_all_of_its_slices(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "scan.h5"
    kspace = np.stack([KSPACE[0] + k for k in range(10)]).astype(np.complex64)
    images = np.abs(kspace[:, 0])
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", data=kspace, compression="gzip", chunks=(4, 3, 8, 6))
        file.create_dataset(
            "reconstruction_rss", data=images, compression="gzip", chunks=(10, 8, 6)
        )
    scan = read_scan(path)
    assert scan.target is not None
    found = reads(monkeypatch)
    for i in range(10):
        scan.kspace(i).zero_()  # what was read before is not what is kept
        assert np.array_equal(scan.kspace(i).numpy(), kspace[i])
        assert np.array_equal(scan.target(i).numpy(), images[i])
    assert found.count("/kspace") == 3
    assert found.count("/reconstruction_rss") == 1
    words = r"has 4×3×8×6 = 576 samples in the slices of a chunk, more than the 500"
    with pytest.raises(ArgumentError, match=words):
        read_scan(path, max_pixels=500)


def test_lines_in_large_compressed_chunks_are_refused(tmp_path: Path) -> None:
    ismrmrd = pytest.importorskip("ismrmrd")
    path = tmp_path / "scan.h5"
    lines = np.zeros(5000, [("head", ismrmrd.hdf5.acquisition_header_dtype)])
    with h5py.File(path, "w") as file:
        file.create_dataset("a/data", data=lines, compression="gzip", chunks=(5000,))
        file["a/xml"] = ["<ismrmrdHeader/>"]
    with pytest.raises(ArgumentError, match=r"a/data of .* in chunks of 1700000 bytes, expected"):
        read_scan(path)


@pytest.mark.parametrize("name", ["mask", "reconstruction_rss"])
def test_texts_in_the_place_of_numbers_are_not_read(
    tmp_path: Path, monkeypatch: Any, name: str
) -> None:
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file["kspace"] = KSPACE
        file.create_dataset(name, (2, 1, 1), "S1000000", compression="gzip")[:] = b"x"
    found = reads(monkeypatch)
    with pytest.raises(ArgumentError, match=f"{name} of .* holds texts, expected numbers"):
        read_scan(path)
    assert f"/{name}" not in found


def texts(path: Path, name: str, value: str, count: int) -> None:
    """A data set of ``count`` texts, all of which lie at the place of the first one."""
    with h5py.File(path, "w") as file:
        file["kspace"] = KSPACE
        data = file.create_dataset(name, (count,), h5py.string_dtype())
        data[0] = value
        place = data.id.get_offset()
    content = bytearray(path.read_bytes())
    content[place : place + 16 * count] = content[place : place + 16] * count
    path.write_bytes(content)


def test_texts_of_any_length_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "scan.h5"
    texts(path, "notes", "x" * 10_000, 1)
    assert read_scan(path).n_slices == 2
    texts(path, "notes", "x" * 10_000, 1000)
    with pytest.raises(ArgumentError, match="/notes has more bytes than the file"):
        read_scan(path)
    texts(path, "notes", "x" * (hdf5.TEXT + 1), 1)
    with pytest.raises(ArgumentError, match="/notes has a text of 4194305 bytes"):
        read_scan(path)
    with h5py.File(path, "w", libver="latest") as file:
        file["kspace"] = KSPACE
        file["kspace"].attrs["long"] = np.zeros(hdf5.TEXT, "S2")
    with pytest.raises(ArgumentError, match="the attribute long has more than 4194304 bytes"):
        read_scan(path)


def test_headers_of_lines_are_in_the_budget(tmp_path: Path) -> None:
    ismrmrd = pytest.importorskip("ismrmrd")
    path = tmp_path / "scan.h5"
    dtype = np.dtype([("head", ismrmrd.hdf5.acquisition_header_dtype), ("more", "S1000")])
    with h5py.File(path, "w") as file:
        file.create_dataset("a/data", data=np.zeros(5000, dtype), compression="gzip")
        file["a/xml"] = ["<ismrmrdHeader/>"]
    with pytest.raises(ArgumentError, match=r"5000×\d+ = \d+ numbers in headers of lines, more"):
        read_scan(path, max_pixels=10**5)
