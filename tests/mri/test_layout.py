"""Arrays of k-space under any name and with their axes in any order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri.readers import read_scan
from pnpcm.mri.readers.cfl import read_maps, write_cfl

h5py = pytest.importorskip("h5py")
RNG = np.random.default_rng(1)
KSPACE = (RNG.normal(size=(3, 2, 8, 6, 2)) @ [1, 1j]).astype(np.complex64)
"""(slices, coils, rows, columns)"""
MASK = np.array([1, 0, 1, 1, 0, 1], dtype=bool)


def savemat(path: Path, **arrays: Any) -> None:
    pytest.importorskip("scipy.io").savemat(path, arrays)


def save_h5(path: Path, **arrays: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values


SAVERS = [("a.npz", np.savez), ("a.mat", savemat), ("a.h5", save_h5)]


def test_npy_has_the_axes_of_the_other_arrays(tmp_path: Path) -> None:
    path = tmp_path / "scan.npy"
    np.save(path, KSPACE)
    scan = read_scan(path)
    assert (scan.name, scan.format, scan.n_slices, scan.n_coils) == ("scan", "npy", 3, 2)
    assert np.array_equal(scan.slices(range(3)).numpy(), KSPACE)
    np.save(path, KSPACE[0].astype(np.complex128))
    assert np.array_equal(read_scan(path).kspace(0).numpy(), KSPACE[0])


@pytest.mark.parametrize(
    ("axes", "order", "expected"),
    [
        ("slice,coil,row,col", (0, 1, 2, 3), KSPACE),
        ("row,col,coil,slice", (2, 3, 1, 0), KSPACE),
        ("col, row, slice, coil", (3, 2, 0, 1), KSPACE),
        (["coil", "slice", "col", "row"], (1, 0, 3, 2), KSPACE),
    ],
)
def test_axes_are_put_in_order(
    tmp_path: Path, axes: Any, order: tuple[int, ...], expected: np.ndarray
) -> None:
    np.save(tmp_path / "a.npy", KSPACE.transpose(order))
    scan = read_scan(tmp_path / "a.npy", axes=axes)
    assert np.array_equal(scan.slices(range(3)).numpy(), expected)


@pytest.mark.parametrize(
    ("axes", "values", "expected"),
    [
        ("row,col", KSPACE[0, 0], KSPACE[:1, :1]),
        ("col,row", KSPACE[0, 0].T, KSPACE[:1, :1]),
        ("slice,row,col", KSPACE[:, 1], KSPACE[:, 1:2]),
        ("row,col,coil", KSPACE[2].transpose(1, 2, 0), KSPACE[2:]),
        ("1,row,1,col,coil", KSPACE[2].transpose(1, 2, 0)[None, :, None], KSPACE[2:]),
    ],
)
def test_axes_that_are_missing_have_length_one(
    tmp_path: Path, axes: str, values: np.ndarray, expected: np.ndarray
) -> None:
    np.save(tmp_path / "a.npy", values)
    scan = read_scan(tmp_path / "a.npy", axes=axes)
    assert np.array_equal(scan.slices(range(scan.n_slices)).numpy(), expected)


@pytest.mark.parametrize(("name", "save"), SAVERS)
def test_a_key_names_the_array(tmp_path: Path, name: str, save: Callable[..., None]) -> None:
    path = tmp_path / name
    save(path, raw=KSPACE.transpose(2, 3, 1, 0), other=np.zeros(3), mask=MASK)
    scan = read_scan(path, key="raw", axes="row,col,coil,slice")
    assert np.array_equal(scan.slices(range(3)).numpy(), KSPACE * MASK)
    assert scan.mask is not None
    assert scan.mask.tolist() == MASK.tolist()
    with pytest.raises(ArgumentError, match=r"has no nothing, it holds mask, other, raw; give"):
        read_scan(path, key="nothing")
    with pytest.raises(ArgumentError, match=r"holds .*; (expected|give).*key=NAME"):
        read_scan(path)


def test_arrays_in_groups_and_pairs_of_numbers_are_found(tmp_path: Path) -> None:
    pair = np.empty(KSPACE.shape, dtype=[("real", "<f4"), ("imag", "<f4")])
    pair["real"], pair["imag"] = KSPACE.real, KSPACE.imag
    save_h5(tmp_path / "a.h5", **{"scan/raw": pair})
    scan = read_scan(tmp_path / "a.h5", key="scan/raw")
    assert np.array_equal(scan.slices(range(3)).numpy(), KSPACE)
    save_h5(tmp_path / "b.h5", kspace=KSPACE.transpose(2, 3, 1, 0))
    scan = read_scan(tmp_path / "b.h5", axes="row,col,coil,slice")
    assert np.array_equal(scan.kspace(1).numpy(), KSPACE[1])


def test_maps_and_masks_follow_the_axes(tmp_path: Path) -> None:
    maps, mask = KSPACE[::-1], RNG.random((8, 6)) < 0.5
    order = (3, 2, 0, 1)  # col, row, slice, coil
    whole = {"kspace": KSPACE.transpose(order), "maps": maps.transpose(order), "mask": mask.T}
    np.savez(tmp_path / "a.npz", **whole)
    scan = read_scan(tmp_path / "a.npz", axes="col,row,slice,coil")
    assert scan.coil_maps is not None
    assert np.array_equal(scan.coil_maps(2).numpy(), maps[2])
    assert np.array_equal(scan.kspace(1).numpy(), KSPACE[1] * mask)
    np.savez(tmp_path / "b.npz", **(whole | {"maps": maps[0].transpose(2, 1, 0)}))
    scan = read_scan(tmp_path / "b.npz", axes="col,row,slice,coil")
    assert scan.coil_maps is not None
    assert np.array_equal(scan.coil_maps(2).numpy(), maps[0])


def test_wrong_words_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", KSPACE)
    np.savez(tmp_path / "a.npz", kspace=KSPACE)
    path = tmp_path / "a.npy"
    for axes in ("coil,row", "coil,row,col,col", "coil,row,colum", "", "slice,coil,row,col,time"):
        with pytest.raises(ArgumentError, match=r"axes is .*; expected row and col"):
            read_scan(path, axes=axes)
    with pytest.raises(ShapeError, match=r"3 axes, but kspace .* name each of its 4 axes"):
        read_scan(path, axes="coil,row,col")
    with pytest.raises(ShapeError, match=r"an axis called 1 of shape .* has length 3"):
        read_scan(path, axes="1,coil,row,col")
    with pytest.raises(ArgumentError, match="holds one array without a name; leave key out"):
        read_scan(path, key="kspace")
    with pytest.raises(ArgumentError, match=r"key is given, but .* the format cfl"):
        read_scan(tmp_path / "a.cfl", key="kspace")
    np.save(tmp_path / "b.npy", np.moveaxis(np.zeros((2, 8, 6), complex), 0, -1))
    with pytest.raises(ShapeError, match="name the axes in their order, axes=row,col,coil"):
        read_scan(tmp_path / "b.npy")
    np.save(path, KSPACE[0, 0])
    with pytest.raises(ShapeError, match=r"2 dimensions.*name each of its axes, e\.g\. axes=row"):
        read_scan(path)
    np.save(path, np.abs(KSPACE))
    with pytest.raises(ArgumentError, match="an image must be transformed to k-space first"):
        read_scan(path)
    for content in (b"", b"\x93NUMPY", b"not an array"):
        path.write_bytes(content)
        with pytest.raises(ArgumentError, match=r"a\.npy"):
            read_scan(path)
    np.save(path, np.array([{}], dtype=object))
    with pytest.raises(ArgumentError, match=r"cannot be read as NumPy's \.npy"):
        read_scan(path)


# coil maps of BART


def test_maps_of_bart_have_sets_and_slices(tmp_path: Path) -> None:
    maps = torch.from_numpy(KSPACE[:, None].repeat(2, 1))  # (slices, sets, coils, H, W)
    maps[:, 1] += 1
    write_cfl(tmp_path / "slab", maps.permute(3, 4, 0, 2, 1))  # partitions
    assert torch.equal(read_maps(tmp_path / "slab.cfl"), maps)
    many = maps.permute(3, 4, 2, 1, 0).reshape(8, 6, 1, 2, 2, *(1,) * 8, 3)  # dimension 13
    write_cfl(tmp_path / "slices", many)
    assert torch.equal(read_maps(tmp_path / "slices.cfl"), maps)
    write_cfl(tmp_path / "echoes", many.reshape(8, 6, 1, 2, 2, 3))
    with pytest.raises(ArgumentError, match=r"dimension 5 of .* has length 3; expected coil maps"):
        read_maps(tmp_path / "echoes.cfl")
    one = maps[0].permute(2, 3, 1, 0)[None]  # 1, H, W, coils, sets as in BART's examples
    write_cfl(tmp_path / "one", one)
    assert torch.equal(read_maps(tmp_path / "one.cfl"), maps[:1])


def test_data_sets_behind_links_and_in_loops_of_groups(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/raw"] = KSPACE
        file["a/loop"] = file["a"]
        file["soft"] = h5py.SoftLink("/a/raw")
    assert np.array_equal(read_scan(tmp_path / "a.h5", key="a/raw").kspace(0).numpy(), KSPACE[0])
    for key in ("soft", "a/loop/raw"):
        with pytest.raises(ArgumentError, match=f"has no {key}, it holds a/raw; give the name"):
            read_scan(tmp_path / "a.h5", key=key)


def test_arrays_above_the_budget_are_refused(tmp_path: Path) -> None:
    """A .npy file is read slice by slice, the others as a whole."""
    np.save(tmp_path / "a.npy", KSPACE)
    save_h5(tmp_path / "a.h5", kspace=KSPACE)
    assert read_scan(tmp_path / "a.npy", max_pixels=KSPACE[0].size).n_slices == len(KSPACE)
    with pytest.raises(ArgumentError, match=f"= {KSPACE[0].size} samples in a slice, more than"):
        read_scan(tmp_path / "a.npy", max_pixels=KSPACE[0].size - 1)
    with pytest.raises(ArgumentError, match=f"= {KSPACE.size} numbers, more than"):
        read_scan(tmp_path / "a.h5", key="kspace", max_pixels=KSPACE.size - 1)
