"""Run ``pnpcm`` in its own process: wall time and peak memory; the time of its network alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any


def run_command(words: list[str]) -> tuple[float, float]:
    """Wall time in s and peak memory in GB of a command; exits if the command fails."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "pnpcm", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"pnpcm {' '.join(words)} failed")
    return wall, usage.ru_maxrss / 1024**2


def seconds_of_prior(name: str, kind: str, shape: tuple[int, ...], calls: float) -> float:
    """Seconds of ``calls`` evaluations of a prior: a lower bound for a reconstruction with it."""
    import torch

    import pnpcm

    prior: Any = pnpcm.load_prior(name, kind=kind)
    x = torch.zeros(shape)
    with torch.inference_mode():
        prior(x, 0.1)  # allocations of the first call
        start = time.perf_counter()
        prior(x, 0.1)
    return calls * (time.perf_counter() - start)
