"""Peak memory and time of whole solves of a large photograph.

``python benchmarks/big_image.py [--megapixels 12] [--steps 4] [--tasks denoise,inpaint …]``

Every task runs in its own process: PnP-CM with the shipped prior ``natural`` in tiles, injected
noise and momentum (everything that needs memory is on). Peak memory is that of the whole process,
including Python and torch (about 300 MB). ``--steps 1`` is enough to measure it.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

# torch is imported by the child processes only: at its start Linux counts the memory of the
# parent as the child's peak

TASKS = ("denoise", "inpaint", "superres-4", "superres-2")
LIMIT_MB = 3000


class Timed:
    """``work`` with the sum of the seconds of its calls; other members are those of ``work``."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work, self.seconds = work, 0.0

    def __call__(self, *args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.work(*args, **options)
        finally:
            self.seconds += time.perf_counter() - start

    def __getattr__(self, name: str) -> Any:
        return getattr(self.work, name)


def size(megapixels: float) -> tuple[int, int]:
    """Height and width, 4 : 3, in multiples of 8."""
    height = 8 * round(math.sqrt(megapixels * 1e6 * 4 / 3) / 8)
    return height, 8 * round(height * 3 / 32)


def build(task: str, height: int, width: int) -> Any:
    import torch

    from pnpcm.operators import Inpainting, SuperResolution

    if task == "denoise":
        return Inpainting(torch.ones(height, width, dtype=torch.bool))
    if task == "inpaint":
        g = torch.Generator().manual_seed(0)
        return Inpainting.random((height, width), missing=0.7, generator=g)
    return SuperResolution((3, height, width), int(task.removeprefix("superres-")))


def measured(operator: Any, height: int, width: int) -> Any:
    """Measurement of smooth waves by ``operator``, with low noise."""
    import torch

    from pnpcm import measure

    rows, columns = (torch.linspace(0, n / 30, n) for n in (height, width))
    x = (0.8 * rows.sin()[:, None] * columns.cos()).expand(1, 3, height, width)
    return measure(operator, x, 0.05, generator=torch.Generator().manual_seed(1))


def solve(task: str, options: argparse.Namespace) -> dict[str, float]:
    """Run ``task`` in this process and print time and memory."""
    import torch

    import pnpcm
    from pnpcm.priors import TiledPrior

    torch.set_num_threads(options.threads)
    height, width = size(options.megapixels)
    operator = build(task, height, width)
    y = measured(operator, height, width)
    before = peak_mb()
    prior = Timed(TiledPrior(pnpcm.load_prior("natural"), tile=options.tile, halo=options.halo))
    data_step = Timed(pnpcm.ProxStep())
    ramp = [k / max(options.steps - 1, 1) for k in range(options.steps)]
    config = pnpcm.PnPCMConfig(
        sigmas=tuple(0.3 * 0.3**t for t in ramp),
        deltas=(0.2,) * options.steps,
        rhos=tuple(0.1 * 10**t for t in ramp),
        mu=0.2,
        data_step=data_step,
    )
    g = torch.Generator().manual_seed(2)
    result = pnpcm.PnPCM(prior, config)(y, operator, generator=g)
    other = result.seconds - data_step.seconds - prior.seconds
    return {
        "measured, MB": before,
        "peak, MB": peak_mb(),
        "start and solver, s": other,
        "data steps, s": data_step.seconds,
        "prior, s": prior.seconds,
        "prior calls": result.nfe,
    }


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and time of solves of a large image.")
    parser.add_argument("--megapixels", type=float, default=12.0)
    parser.add_argument("--steps", type=int, default=4, help="iterations of the solver")
    parser.add_argument("--tile", type=int, default=640)
    parser.add_argument("--halo", type=int, help="default: that of TiledPrior")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tasks", default=",".join(TASKS), help="tasks, separated by commas")
    parser.add_argument("--child", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(solve(options.child, options)))
        return

    height, width = size(options.megapixels)
    table = Table(title=f"{height}×{width}×3, {options.steps} steps", title_justify="left")
    table.add_column("task")
    for task in options.tasks.split(","):
        command = [sys.executable, __file__, *sys.argv[1:], "--child", task]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout)
        if len(table.columns) == 1:
            for name in row:
                table.add_column(name, justify="right", no_wrap=True)
        over = " !" if row["peak, MB"] > LIMIT_MB else ""
        cells = (f"{v:.1f}" if name.endswith(", s") else f"{v:.0f}" for name, v in row.items())
        table.add_row(task + over, *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
