"""Measurement files of strangers: descriptions that would need more memory than there is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pnpcm.errors import ArgumentError
from pnpcm.problems import TaskChoice
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
