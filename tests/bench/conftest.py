"""A benchmark of a few seconds: two images of 32×32 pixels, methods with and without a prior."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

TINY: dict[str, Any] = {
    "data": {"noise": {"path": "images"}},
    "tasks": {
        "superres-2": {"task": "superres", "options": {"factor": 2}},
        "jpeg-20": {"task": "jpeg", "options": {"quality": 20}},
    },
    "methods": {
        "wiener": {"method": "wiener"},
        "tv": {"method": "tv"},
        "pnp-cm": {"method": "pnp-cm", "steps": [2]},
    },
    "priors": ["natural"],
    "metrics": ["psnr", "ssim"],
    "pictures": 1,
}
"""``wiener`` and ``tv`` have no numbers for JPEG, which is not linear."""


@pytest.fixture(scope="session")
def write_spec() -> Callable[..., Path]:
    """A function that writes images and a spec to a folder, with some fields replaced."""

    def write(folder: Path, **changes: Any) -> Path:
        images = folder / "images"
        images.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for i in range(2):
            coarse = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((32, 32)).save(images / f"{i}.png")
        path = folder / "tiny.yaml"
        values = {name: value for name, value in (TINY | changes).items() if value is not None}
        path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def same() -> Callable[[Any], list[tuple[Any, ...]]]:
    """A function: what must not depend on processes, shards and interruptions, sorted by key."""
    columns = ("key", "scores", "config_hash", "y_hash", "failed", "nfe", "image", "method")

    def values(rows: Iterator[dict[str, Any]]) -> list[tuple[Any, ...]]:
        found = ({n: row[n] for n in columns} for row in rows)
        return sorted((tuple(one.items()) for one in found), key=lambda items: str(items[0]))

    return values
