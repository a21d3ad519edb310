"""Deblurring with unknown borders: CG on the whole padded image against CG on its border.

``python benchmarks/speed/deblur_canvas.py [--size 256 1024] [--memory]``

Both solve the prox of ``Compose(Crop, Blur circular)`` on the image of ``canvas_for`` to the same
tolerance; CPU seconds of one thread depend on the machine, iterations and ratio on the code.
``--memory``: peak memory beyond the inputs at 12 megapixels, of this prox and of JPEG's data step
in strips, each in its own process.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from pnpcm.linalg import cg
from pnpcm.operators import JPEG, Blur, Compose, Crop, canvas_for, gaussian_kernel, motion_kernel
from pnpcm.operators.base import LinearOperatorBase
from pnpcm.solvers import GradientStep, StripStep

GAMMAS = (1.0, 10.0, 100.0, 1000.0)
LARGE = (3, 4000, 3000)


def random_walk(side: int = 31, steps: int = 400) -> Tensor:
    """Blur kernel of camera shake: histogram of a random walk with momentum."""
    generator = torch.Generator().manual_seed(0)
    kernel = torch.zeros(side, side, dtype=torch.float64)
    place, speed = torch.full((2,), side / 2), torch.zeros(2)
    for _ in range(steps):
        speed = 0.9 * speed + 0.25 * torch.randn(2, generator=generator)
        place = (place + speed).clamp(0, side - 1)
        kernel[int(place[0]), int(place[1])] += 1
    return kernel / kernel.sum()


KERNELS: dict[str, Callable[[], Tensor]] = {
    "gaussian 5, σ 10": lambda: gaussian_kernel(5, 10.0),
    "motion 15, 30°": lambda: motion_kernel(15, 30),
    "random walk 31": random_walk,
}


def problem(kernel: Tensor, shape: tuple[int, int, int]) -> tuple[Compose, Tensor, Tensor]:
    """Operator, a point near the true image, and a noisy measurement."""
    canvas, margins = canvas_for(kernel, shape)
    operator = Compose(Crop(canvas, margins), Blur(kernel, canvas, "circular"))
    g = torch.Generator().manual_seed(1)
    rows, columns = (torch.linspace(0, 40, n) for n in canvas[1:])
    scene = 0.8 * rows.sin()[:, None] * columns.cos() * torch.ones(1, canvas[0], 1, 1)
    y = torch.cat([plane_of(operator, scene[:, c : c + 1]) for c in range(canvas[0])], 1)
    y.add_(torch.randn(y.shape, generator=g), alpha=0.02)
    return operator, scene.add_(torch.randn(scene.shape, generator=g), alpha=0.1), y


def plane_of(operator: Compose, x: Tensor) -> Tensor:
    crop, blur = operator.operators
    return crop._A(blur._A(x))


def counted(work: Callable[[], Tensor], where: str, repeat: int = 2) -> tuple[Tensor, float, float]:
    """Result, number of CG iterations of module ``where`` per call, and the smallest time in s."""
    calls, solves = 0, 0

    def counting(normal: Callable[[Tensor], Tensor], b: Tensor, **options: object) -> Tensor:
        nonlocal solves
        solves += 1

        def step(p: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return normal(p)

        return cg(step, b, **options)  # type: ignore[arg-type]

    times = []
    with patch(f"pnpcm.operators.{where}.cg", counting):
        for _ in range(repeat):
            start = time.process_time()
            x = work()
            times.append(time.process_time() - start)
    return x, calls / max(solves, 1), min(times)


def compare(size: int) -> None:
    print(f"{size}×{size}, one channel")
    print(f"{'kernel':<18}{'γ':>6}{'its':>6}{'s':>8}{'→ its':>8}{'s':>8}{'ratio':>8}{'diff':>10}")
    for name, make in KERNELS.items():
        operator, z, y = problem(make(), (1, size, size))
        assert isinstance(operator, LinearOperatorBase)
        operator.prox_l2(z, y, 1.0)  # the spectrum is computed once and kept
        for gamma in GAMMAS:
            before = partial(LinearOperatorBase._prox_l2, operator, z, y, gamma)
            old, n_old, t_old = counted(before, "base")
            new, n_new, t_new = counted(partial(operator.prox_l2, z, y, gamma), "compose")
            difference = float((new - old).norm() / old.norm())
            print(
                f"{name:<18}{gamma:>6g}{n_old:>6.0f}{t_old:>8.2f}{n_new:>8.0f}{t_new:>8.2f}"
                f"{t_old / t_new:>7.1f}×{difference:>10.1e}",
                flush=True,
            )


# memory ----------------------------------------------------------------------------------------
def large_prox() -> Callable[[], Tensor]:
    operator, z, y = problem(random_walk(), LARGE)
    assert isinstance(operator, LinearOperatorBase)
    return lambda: operator.prox_l2(z, y, 1.0)


def large_jpeg(strips: bool) -> Callable[[], Tensor]:
    y = torch.rand((1, *LARGE), generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1)
    v, operator = 0.9 * y, JPEG(10, chroma="libjpeg")
    step = GradientStep("lbfgs", n_iter=3)
    return lambda: (StripStep(step) if strips else step)(v, y, operator, 0.1, z_prev=y)


WORKS: dict[str, Callable[[], Callable[[], Tensor]]] = {
    "prox": large_prox,
    "strips": lambda: large_jpeg(True),
    "whole": lambda: large_jpeg(False),
}


def measure_memory(name: str) -> None:
    work = WORKS[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    work()
    seconds = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{name:<8} {seconds:6.1f} CPU s   +{(after - before) / 1e6:.2f} GB of {after / 1e6:.2f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Prox of a blur with unknown borders.")
    parser.add_argument("--size", type=int, nargs="*", default=[256, 1024])
    parser.add_argument("--memory", action="store_true", help="peak memory at 12 megapixels")
    parser.add_argument("--only", choices=sorted(WORKS), help="one measurement, in this process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only:
        return measure_memory(options.only)
    for size in options.size:
        compare(size)
    for name in ("prox", "strips") if options.memory else ():
        subprocess.run([sys.executable, __file__, "--only", name], check=True)
    return None


if __name__ == "__main__":
    main()
