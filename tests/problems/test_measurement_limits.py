"""Measurement files of strangers: descriptions that would need more memory than there is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pnpcm.errors import ArgumentError
from pnpcm.io import arrays
from pnpcm.operators import NonlinearBlur
from pnpcm.operators.blur import WIDEST_KERNEL, gaussian_kernel, motion_kernel
from pnpcm.problems import TaskChoice
from pnpcm.problems.choice import read_kernel
from pnpcm.problems.linear import Deblur
from pnpcm.problems.measurement import read_measurement

Y = np.zeros((1, 3, 8, 8), np.float32)


def written(path: Path, y: Any = Y, sigma_y: object = 0.05, **task: Any) -> Path:
    content = json.dumps({"task": task, "sigma_y": sigma_y})
    np.savez(path, y=y, pnpcm=np.array(content))
    return path


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"type": "SuperRes", "factor": 10**6}, "factor must be .* at most 64, got 1000000"),
        ({"type": "Deblur", "gaussian": [10**9, 3]}, "a whole size of 1 to 1024 and"),
        ({"type": "Deblur", "motion": [1e12, 30]}, "a length of 1 to 1024 pixels"),
        ({"type": "Deblur", "gaussian": "wide"}, "Deblur cannot be built from"),
        ({"type": "Inpaint", "missing": [[]]}, "inpaint needs a mask"),
        ({"type": "UNetConfig"}, "expected a task"),
        ({"type": ["Denoise"]}, "cannot be read as a measurement file"),
    ],
)
def test_descriptions_that_cannot_be_solved_are_refused(
    tmp_path: Path, task: dict[str, Any], words: str
) -> None:
    with pytest.raises(ArgumentError, match=words):
        read_measurement(written(tmp_path / "a.npz", **task))


@pytest.mark.parametrize("y", [Y[0], Y.astype(int), Y[..., :0], np.array("text")])
def test_other_arrays_than_images_are_refused(tmp_path: Path, y: Any) -> None:
    with pytest.raises(ArgumentError, match="cannot be read as a measurement file"):
        read_measurement(written(tmp_path / "a.npz", y, type="Denoise"))


def test_the_number_of_pixels_is_limited(tmp_path: Path) -> None:
    path = written(tmp_path / "a.npz", type="Denoise")
    assert read_measurement(path, max_pixels=192).y.shape == (1, 3, 8, 8)
    with pytest.raises(ArgumentError, match=r"192 numbers, more than the 191 that max_pixels"):
        read_measurement(path, max_pixels=191)


def test_super_resolution_needs_more_memory_per_pixel(tmp_path: Path) -> None:
    path = written(tmp_path / "a.npz", type="SuperRes", factor=64)
    with pytest.raises(ArgumentError, match=r"1×3×8×8 = 192 pixels, more than the \d+ that"):
        read_measurement(path, need=2**22)
    assert TaskChoice("superres", options={"factor": 3}).growth == 9
    assert TaskChoice("superres").growth == 16
    assert TaskChoice("denoise").growth == 1


@pytest.mark.parametrize("side", [10**6, 2000])
def test_wide_kernels_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: Any, side: int
) -> None:
    monkeypatch.setattr("pnpcm.io.arrays._array", refused_unless_small)
    y = np.zeros((1, 3, 600, 600), np.float32) if side == 2000 else Y
    path = tmp_path / "a.npz"
    content = json.dumps({"task": {"type": "Deblur"}, "sigma_y": 0.05})
    kernel = np.ones((2 if side > 2000 else 1, side), np.float32)
    np.savez_compressed(path, y=y, pnpcm=np.array(content), **{"task.kernel": kernel})
    words = rf"kernel (of .* )?has shape \(\d, {side}\), expected"
    with pytest.raises(ArgumentError, match=words):
        read_measurement(path)


def test_many_arrays_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("pnpcm.io.arrays._array", refused_unless_small)
    path = tmp_path / "a.npz"
    content = json.dumps({"task": {"type": "Denoise"}, "sigma_y": 0.05})
    more = {f"task.a{k}": np.zeros((600, 600), np.float32) for k in range(3)}
    np.savez_compressed(path, y=Y, pnpcm=np.array(content), **more)
    with pytest.raises(ArgumentError, match=r"task\.a0 of .* expected arrays of at most 1024×1024"):
        read_measurement(path)


READ = arrays._array


def refused_unless_small(path: Path, stream: Any, size: int, budget: Any) -> Any:
    assert size < 10**7, "read"
    return READ(path, stream, size, budget)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_wide_kernel_file_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: Any, suffix: str
) -> None:
    path = tmp_path / f"kernel{suffix}"
    save = np.save if suffix == ".npy" else np.savez
    save(path, np.ones((3, 5)) / 15)
    assert read_kernel(path).shape == (3, 5)
    save(path, np.ones((1, WIDEST_KERNEL + 1)))
    monkeypatch.setattr("pnpcm.io.arrays._array", None)
    with pytest.raises(ArgumentError, match=r"has shape \(1, 1025\), expected a 2-D array with"):
        read_kernel(path)


def test_blurs_are_not_wider_than_images() -> None:
    for make in (
        lambda: motion_kernel(1e9, 30),
        lambda: TaskChoice("nonlinear-deblur", options={"length": 1e9}),
        lambda: NonlinearBlur(length=1e9),
    ):
        with pytest.raises(ArgumentError, match=r"length is 1000000000.0, expected 1 \(no blur\)"):
            make()
    with pytest.raises(ArgumentError, match="size must be a whole number of 1 to 1024 taps"):
        gaussian_kernel(10**9, 3)
    with pytest.raises(ArgumentError, match=r"kernel has shape .* sides of at most 1024 pixels"):
        Deblur(kernel=torch.ones(1, 1025))
