"""A folder of uploads and the work on them; images of a few pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pnpcm.app.work import Limits, Work


@pytest.fixture
def uploads(tmp_path: Path) -> Path:
    """The folder below the root of the work in which Gradio stores uploads."""
    folder = tmp_path / "root" / "uploads"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def work(uploads: Path) -> Work:
    return Work(uploads.parent, Limits(max_pixels=64 * 64, max_bytes=100_000))


@pytest.fixture
def photo(uploads: Path) -> Path:
    """A smooth image of 24×16 pixels with some noise."""
    path = uploads / "my photo.png"
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[0:16, 0:24]
    values = np.stack([8 * columns, 12 * rows, 128 + 0 * rows], -1) + rng.normal(0, 4, (16, 24, 3))
    Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(path)
    return path
