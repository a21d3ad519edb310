"""A folder of uploads and the work on them; images of a few pixels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pnpcm.app.work import Limits, Work
from pnpcm.mri import phantoms
from pnpcm.transforms import fft2c


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


@pytest.fixture
def scan(uploads: Path) -> Path:
    """Full k-space of two slices and two coils, 32×24."""
    path = uploads / "my scan.npy"
    image = phantoms(2, (32, 24))[:, None] * torch.tensor([1, 0.5 + 0.5j])[:, None, None]
    noise = torch.randn(2, 2, 32, 24, 2, generator=torch.Generator().manual_seed(0))
    np.save(path, (fft2c(image.to(torch.complex64)) + 0.01 * torch.view_as_complex(noise)).numpy())
    return path


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an app with a queue of 2, for images of at most 128² pixels.

    It runs in its own process; SIGTERM ends it, after which its temporary files are gone.
    """
    pytest.importorskip("gradio", reason="the page needs Gradio: pip install pnpcm[app]")
    folder = tmp_path_factory.mktemp("temporary")
    words = ["app", "--port", "0", "--queue", "2", "--max-pixels", str(128 * 128)]
    process = subprocess.Popen(
        [sys.executable, "-m", "pnpcm", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process.stdout.readline().split()[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    assert process.returncode == 0
    assert list(folder.iterdir()) == []
