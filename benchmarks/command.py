"""Run ``pnpcm`` in its own process: wall time and peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time


def run_command(words: list[str]) -> tuple[float, float]:
    """Wall time in s and peak memory in GB of a command; exits if the command fails."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "pnpcm", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"pnpcm {' '.join(words)} failed")
    return wall, usage.ru_maxrss / 1024**2
