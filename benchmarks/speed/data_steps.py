"""Times of each data step relative to a lower bound of its work.

``python benchmarks/speed/data_steps.py [--quick] [--json FILE]``

Every step is timed alternately with its bound: the transforms, products, memory traffic or operator
calls that its algorithm must contain. Milliseconds depend on the machine, the ratio of the minima
on the code. Then large images, with memory and, at a size that has both, the relative difference
between their code path and the closed form of small ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.fft import fft, fft2, ifft, ifft2, irfft2, rfft2

import pnpcm.operators as ops
from pnpcm.core import DataStep
from pnpcm.mri import birdcage_maps
from pnpcm.operators.base import LinearOperatorBase
from pnpcm.solvers import CGStep, GradientStep, ProxStep

Shape = tuple[int, int, int]
Work = Callable[[], Any]
Bound = tuple[str, Work]

IMAGE: Shape = (3, 256, 256)
LARGE: Shape = (3, 4000, 3000)
BOTH: Shape = (3, 192, 320)  # a size that has the path of large images and that of small ones
RHO = 0.05


@dataclass(frozen=True)
class Case:
    step: str
    batch: int
    run: Work
    bounds: tuple[Bound, ...]
    calls: int = 1  # operator calls that share the time


@dataclass(frozen=True)
class Row:
    step: str
    batch: int
    milliseconds: float
    bound: str
    bound_ms: float
    ratio: float


@dataclass(frozen=True)
class LargeRow:
    step: str
    seconds: float
    peak_growth_gb: float
    difference: float | None  # None: small images take the same path


# cases -----------------------------------------------------------------------------------------
def prox_cases(batch: int) -> Iterator[Case]:
    """Linear operators; the bound is the time of their transforms and products."""
    z, y, copy, small = (image(batch, 3, n, n) for n in (256, 256, 256, 64))
    D, C, V = (torch.rand(m, n) for m, n in ((64, 256), (64, 64), (256, 256)))

    def case(name: str, operator: Any, *bounds: Bound) -> Case:
        return Case(f"prox {name}", batch, step(ProxStep(), operator, batch), bounds)

    mask = ops.Inpainting.random(IMAGE[1:], generator=torch.Generator().manual_seed(0))
    traffic = ("copy z", lambda: copy.copy_(z)), ("read z and y, write", lambda: z + y)
    yield case("Inpainting", mask, *traffic)

    products = each(lambda: D @ z @ D.T, lambda: C @ small @ C.T, lambda: D.T @ small @ D)
    yield case("SuperResolution ×4", ops.SuperResolution(IMAGE, 4), ("6 GEMMs", products))
    both_axes = each(lambda: V @ z @ V)
    yield case("GaussianBlur 5×5", ops.GaussianBlur(IMAGE), ("4 GEMMs", each(both_axes, times=2)))
    yield case("Blur reflect, even", even_blur(IMAGE), ("6 GEMMs (DCT)", each(both_axes, times=3)))

    pair = each(lambda: irfft2(rfft2(z), s=IMAGE[1:]))
    bound = ("2 rfft2 + irfft2", each(pair, lambda: rfft2(y)))
    yield case("Blur circular", ops.Blur(kernel(), IMAGE, "circular"), bound)
    for boundary in ("zero", "reflect"):
        operator = ops.Blur(kernel(), IMAGE, boundary)
        n = count_calls(operator, "A_adjoint_A", step(ProxStep(), operator, batch))
        bound = (f"{n} × 3 FFT pairs", each(pair, times=3 * n))  # A, Aᵀ, preconditioner
        yield case(f"Blur {boundary} (CG, {n} it.)", operator, bound)


def gradient_cases(batch: int) -> Iterator[Case]:
    """Gradient steps, per operator call; the bound is the time of A and its gradient."""
    x = image(batch, *IMAGE)
    phases: Any = ops.PhaseRetrieval.random(IMAGE[1:], torch.Generator().manual_seed(0))
    for operator in (ops.JPEG(5), ops.NonlinearBlur(), phases):
        y = operator.A(x)
        bare = ("A and its gradient", lambda operator=operator, y=y: operator.A_vjp(x, y))
        for optimizer in ("adam", "lbfgs"):
            run = step(GradientStep(optimizer, lr=0.05, n_iter=5), operator, batch)
            calls = count_calls(operator, "A", run)
            yield Case(f"{optimizer} {type(operator).__name__}/call", batch, run, (bare,), calls)


def mri_cases(batch: int) -> Iterator[Case]:
    """Fifteen coils; bounds of column masks: 1-D FFTs, and the 2-D FFTs of a plain step."""
    maps = torch.nn.functional.normalize(torch.randn(15, 320, 320, dtype=torch.complex64), dim=0)
    block, times = maps[:5].clone(), 10 * 3 * batch  # blocks: the FFT is faster within the cache
    pairs_1d = ("10 × 1-D FFT pairs", each(lambda: ifft(fft(block)), times=times))
    pairs_2d = ("10 × 2-D FFT pairs", each(lambda: ifft2(fft2(block)), times=times))
    columns, points = torch.rand(320) < 0.25, torch.rand(320, 320) < 0.25
    run = step(CGStep(10), ops.MultiCoilMRI(maps, columns), batch)
    yield Case("CG(10) MRI, columns", batch, run, (pairs_1d, pairs_2d))
    run = step(CGStep(10), ops.MultiCoilMRI(maps, points), batch)
    yield Case("CG(10) MRI, 2-D mask", batch, run, (pairs_2d,))
    small, maps = columns[:128], birdcage_maps(8, (128, 128))
    operator = ops.MultiCoilMRI(maps, small)
    y = operator.A(image(batch, 2, 128, 128))
    by_cg = ("CG", lambda: LinearOperatorBase._A_dagger(operator, y, 0.0))
    once = ("factorization", lambda: ops.MultiCoilMRI(maps, small).row_values)
    yield Case("A⁺y MRI 128², columns", batch, lambda: operator.A_dagger(y), (by_cg, once))
    b = 1e3 * operator.A_adjoint(y)
    z = torch.zeros_like(b)
    by_cg = ("CG", lambda: LinearOperatorBase._solve_normal(operator, b, 1e3))
    yield Case("prox MRI 128², columns", batch, lambda: operator.prox_l2(z, y, 1e3), (by_cg, once))


def large_cases() -> Iterator[tuple[str, Callable[[Shape], Any], tuple[str, ...]]]:
    """Name, operator for a shape, and the limit to set to 0 to use the code of large images."""
    dense = "transforms.DENSE_SIDE", "operators.superresolution.DENSE_SIDE"
    yield "prox SuperResolution ×4", lambda shape: ops.SuperResolution(shape, 4), dense
    yield "prox GaussianBlur 5×5 (CG)", ops.GaussianBlur, ("operators.blur.SEPARABLE_SIDE",)
    yield "prox Blur circular", lambda shape: ops.Blur(kernel(), shape, "circular"), ()
    yield "prox Blur reflect, even", even_blur, dense
    yield "prox Blur reflect (CG)", even_blur, ("operators.blur.Blur.decomposed",)


# pieces ----------------------------------------------------------------------------------------
def image(*shape: int) -> Tensor:
    """Smooth waves with low noise, approximately in [-1, 1]."""
    rows, columns = (torch.linspace(0, 9, n) for n in shape[-2:])
    waves = 0.8 * rows.sin()[:, None] * columns.cos()
    return waves + 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(0))


def kernel(side: int = 9) -> Tensor:
    k = torch.rand(side, side, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return k / k.sum()


def even_blur(shape: Shape) -> ops.Blur:
    k = kernel() + kernel().flip(0)
    return ops.Blur((k + k.flip(1)) / 4, shape, "reflect")


def step(data_step: DataStep, operator: Any, batch: int = 1) -> Work:
    """The data step of ``operator`` at a point with a relative distance of 10 % from the image."""
    x = image(batch, *(operator.image_shape or IMAGE))
    v, y = 0.9 * x, operator.A(x)
    return lambda: data_step(v, y, operator, RHO, z_prev=None)


def each(*works: Work, times: int = 1) -> Work:
    """A function that calls all ``works`` in order, ``times`` times."""
    return lambda: deque((work() for _ in range(times) for work in works), maxlen=0)


def count_calls(operator: Any, method: str, run: Work) -> int:
    with patch.object(operator, method, wraps=getattr(operator, method)) as counter:
        run()
    return counter.call_count


# measuring -------------------------------------------------------------------------------------
def measure(case: Case, budget: float) -> Iterator[Row]:
    """Smallest times of step and bounds, alternating for ``budget`` seconds, at least twice."""
    works = (case.run, *(work for _, work in case.bounds))
    each(*works)()  # warm-up
    rounds: list[list[float]] = []
    end = time.perf_counter() + budget
    while len(rounds) < 2 or time.perf_counter() < end:
        rounds.append([seconds(work) for work in works])
    own, *others = (1e3 * min(times) for times in zip(*rounds, strict=True))
    own /= case.calls
    for (what, _), bound_ms in zip(case.bounds, others, strict=True):
        yield Row(case.step, case.batch, own, what, bound_ms, own / bound_ms)


def measure_large() -> Iterator[LargeRow]:
    for name, build, constants in large_cases():
        closed = step(ProxStep(), build(BOTH))()
        with ExitStack() as stack:
            for constant in constants:
                stack.enter_context(patch(f"pnpcm.{constant}", 0))
            error = float((step(ProxStep(), build(BOTH))() - closed).norm() / closed.norm())
            cost = seconds_and_growth(step(ProxStep(), build(LARGE)))
        yield LargeRow(name, *cost, error if constants else None)
    mask = ops.Inpainting.random(LARGE[1:], missing=0.7, generator=torch.Generator().manual_seed(0))
    y = mask.A(image(1, *LARGE))
    yield LargeRow("median fill, 70 % missing", *seconds_and_growth(lambda: mask.x_start(y)), None)


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def seconds_and_growth(work: Work) -> tuple[float, float]:
    """Seconds, and growth of the peak resident memory in GB (Linux only)."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = status_gb("VmRSS")
    return seconds(work), status_gb("VmHWM") - before


def status_gb(field: str) -> float:
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1e6


def show(title: str, rows: Sequence[Row] | Sequence[LargeRow]) -> None:
    table = Table(title=title, title_justify="left")
    for name in asdict(rows[0]):
        table.add_column(name.replace("_", " "), no_wrap=True)
    for row in rows:
        cells = asdict(row).values()
        table.add_row(*(f"{c:.3g}" if isinstance(c, float) else str(c or "–") for c in cells))
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Data steps against the work they must contain.")
    parser.add_argument("--quick", action="store_true", help="short runs, no large images")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--only", choices=["prox", "gradient", "mri"], help="one group of steps")
    options = parser.parse_args()
    torch.set_num_threads(2)

    groups = {
        "prox": (prox_cases, (1, 8)),
        "gradient": (gradient_cases, (1, 8)),
        "mri": (mri_cases, (1, 4, 8)),
    }
    chosen = [groups[options.only]] if options.only else groups.values()
    cases = (case for group, batches in chosen for batch in batches for case in group(batch))
    steps = [row for case in cases for row in measure(case, 0.3 if options.quick else 3.0)]
    show("Data steps", steps)
    large = [] if options.quick or options.only else list(measure_large())
    if large:
        show(f"Large images {LARGE}, difference at {BOTH}", large)
    if options.json:
        numbers = {"steps": [asdict(r) for r in steps], "large": [asdict(r) for r in large]}
        options.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
