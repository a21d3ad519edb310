"""Seconds of each stage of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(stages: dict[str, float], name: str) -> Iterator[None]:
    """Add the time of the block to ``stages[name]``."""
    start = time.perf_counter()
    yield
    stages[name] = stages.get(name, 0.0) + time.perf_counter() - start
