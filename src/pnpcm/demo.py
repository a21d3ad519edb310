"""The demo: seven inverse problems on bundled photographs and a phantom, in 4 to 8 evaluations.

No weights are needed: the prior is the exact denoiser of 1/f² Gaussian images. With it and
ρ_k = (noise_std/σ_k)² the iteration heads for the posterior mean, so noise injection, which
helps a learned prior past its averages, is switched off here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import DataStep, Prior, Result
from pnpcm.files import Picture, read_image, save_picture, stack, strip, write_json, write_text
from pnpcm.metrics import psnr, ssim
from pnpcm.mri import gaussian1d, phantom, simulate_scan
from pnpcm.operators import (
    JPEG,
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    NonlinearBlur,
    OperatorBase,
    PhaseRetrieval,
    SuperResolution,
    measure,
)
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.schedules import linspace
from pnpcm.solvers import CGStep, GradientStep, PnPCM, PnPCMConfig, ProxStep

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """One inverse problem of the demo: what is measured, and how it is solved and shown."""

    note: str
    x_true: Tensor
    operator: OperatorBase
    prior: Prior
    data_step: DataStep
    sigma_y: float = 0.05
    n_steps: int = 4
    before: Map | None = None  # y to what one has without pnpcm; None: y itself
    measured: Map | None = None  # y to a picture (B, 1|3, H, W); None: y itself
    shown: Map | None = None  # x to a picture; None: x itself


@dataclass(frozen=True)
class Row:
    """One line of the demo's table."""

    task: str
    note: str
    psnr_before: float
    psnr: float
    ssim: float
    nfe: int
    seconds: float


def run_demo(out: Path, *, seed: int = 0) -> Iterator[Row]:
    """Solve every task, write pictures, table and configurations to ``out``, yield the rows."""
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    sheets: list[Picture] = []
    record: dict[str, Any] = {"seed": seed, "prior": "gaussian (1/f², exact denoiser)"}
    for task, make in TASKS.items():
        generator = torch.Generator().manual_seed(seed)
        problem = make(generator)
        y = measure(problem.operator, problem.x_true, problem.sigma_y, generator=generator)
        config = map_config(problem)
        result = PnPCM(problem.prior, config)(y, problem.operator, generator=generator)
        row, panels = _judge(task, problem, y, result)
        sheets.append(strip(panels))
        save_picture(out / f"{task}.png", sheets[-1])
        rows.append(row)
        record[task] = {
            "operator": repr(problem.operator),
            "sigma_y": problem.sigma_y,
            "solver": config.to_dict(),
            "result": asdict(row),
        }
        yield row
    save_picture(out / "overview.png", stack(sheets))
    write_json(out / "results.json", record)
    write_text(out / "table.md", markdown(rows))


def map_config(problem: Problem) -> PnPCMConfig:
    """σ_k falling from 0.5 to 0.3, ρ_k = (noise_std/σ_k)², a little momentum, no injection.

    Ends and momentum were picked from a grid of 32 on four training crops; no optimum is claimed.
    """
    noise_std, n = 2 * problem.sigma_y, problem.n_steps
    sigmas = tuple(math.exp(v) for v in linspace(math.log(0.5), math.log(0.3), n))
    return PnPCMConfig(
        sigmas=sigmas,
        deltas=(0.0,) * n,
        rhos=tuple((noise_std / s) ** 2 for s in sigmas),
        mu=0.2,
        noise_scale=0.0,
        data_step=problem.data_step,
    )


def markdown(rows: list[Row]) -> str:
    """The table as text."""
    head = "| task | | PSNR before | PSNR | SSIM | NFE | seconds |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| {r.task} | {r.note} | {r.psnr_before:.2f} | {r.psnr:.2f} | {r.ssim:.3f} "
        f"| {r.nfe} | {r.seconds:.1f} |\n"
        for r in rows
    )


def _judge(
    task: str, problem: Problem, y: Tensor, result: Result
) -> tuple[Row, list[tuple[str, Tensor]]]:
    """Scores and pictures of one result."""
    x, x_true, operator = result.x, problem.x_true, problem.operator
    if isinstance(operator, PhaseRetrieval):
        x = operator.resolve_signs(x, x_true, lambda a, b: (a - b).square().flatten(1).mean(1))
    maps = problem.shown, problem.measured, problem.before
    shown, measured, before = (f or _identity for f in maps)
    pictures = {"true": shown(x_true), "before": shown(before(y)), "pnpcm": shown(x)}
    scores = {name: float(psnr(p, pictures["true"])) for name, p in pictures.items()}
    row = Row(
        task=task,
        note=problem.note,
        psnr_before=scores["before"],
        psnr=scores["pnpcm"],
        ssim=float(ssim(pictures["pnpcm"], pictures["true"])),
        nfe=result.nfe,
        seconds=result.seconds,
    )
    panels = [
        (f"{task}: measured", measured(y)[0]),
        (f"before {row.psnr_before:.2f} dB", pictures["before"][0]),
        (f"pnpcm, {row.nfe} evaluations {row.psnr:.2f} dB", pictures["pnpcm"][0]),
        ("true", pictures["true"][0]),
    ]
    return row, panels


# the problems ------------------------------------------------------------------------------------
def _photo(name: str) -> Tensor:
    with as_file(files("pnpcm") / "data" / name) as path:
        return read_image(path)


def _natural() -> StationaryGaussianPrior:
    return StationaryGaussianPrior(kind="edm")


def _identity(x: Tensor) -> Tensor:
    return x


def _magnitude(x: Tensor) -> Tensor:
    """Two channels (real, imaginary) to a picture in [-1, 1]."""
    return 2 * x.square().sum(1, keepdim=True).sqrt() - 1


def _spectrum(y: Tensor) -> Tensor:
    """A Fourier measurement to a picture: logarithm of the first channel or coil."""
    value = torch.log10(y[:, :1].abs() + 1e-4)
    low, high = value.amin(), value.amax()
    return 2 * (value - low) / (high - low) - 1


def _inpainting(generator: torch.Generator) -> Problem:
    x = _photo("Wine_by_Jakkub_Mede.png")
    operator = Inpainting.random((256, 256), missing=0.7, generator=generator)
    return Problem("70 % missing", x, operator, _natural(), ProxStep(), before=operator.x_start)


def _superresolution(generator: torch.Generator) -> Problem:
    x = _photo("friends_by_Aitzol_Berasategi.png")
    operator = SuperResolution((3, 256, 256), 4)
    return Problem("factor 4", x, operator, _natural(), ProxStep(), before=operator.A_dagger)


def _deblurring(generator: torch.Generator) -> Problem:
    x = _photo("picosdeeuropa_by_Aitzol_Berasategi.png")
    return Problem("5×5, σ 10", x, GaussianBlur((3, 256, 256)), _natural(), ProxStep())


def _jpeg(generator: torch.Generator) -> Problem:
    x = _photo("Picture_0B_by_freespace.png")
    return Problem("quality 5", x, JPEG(5), _natural(), GradientStep("lbfgs", n_iter=10))


def _nonlinear_deblurring(generator: torch.Generator) -> Problem:
    x = _photo("Picture_1A_by_freespace.png")
    step = GradientStep("lbfgs", n_iter=10)
    return Problem("motion in linear light", x, NonlinearBlur(), _natural(), step)


def _phase_retrieval(generator: torch.Generator) -> Problem:
    x = _photo("seeding_by_Clements_Engelhardt.png")[..., :128, :128].contiguous()
    return Problem(
        "75 % unseen, oracle signs",
        x,
        PhaseRetrieval.random((128, 128), generator),
        _natural(),
        GradientStep("lbfgs", n_iter=40),
        n_steps=8,
        before=lambda y: torch.zeros_like(x),
        measured=_spectrum,
    )


def _mri(generator: torch.Generator) -> Problem:
    scan = simulate_scan(phantom((192, 192)), n_coils=8, generator=generator)
    operator = MultiCoilMRI(scan.coil_maps, gaussian1d(192, 4, 16, generator=generator))
    return Problem(
        "phantom, 8 coils, R = 4",
        scan.x_true,
        operator,
        StationaryGaussianPrior(0.002, mean=0.0, kind="edm"),
        CGStep(30),
        sigma_y=0.002,
        before=operator.A_adjoint,
        measured=_spectrum,
        shown=_magnitude,
    )


TASKS: dict[str, Callable[[torch.Generator], Problem]] = {
    "inpainting": _inpainting,
    "superresolution": _superresolution,
    "deblurring": _deblurring,
    "jpeg": _jpeg,
    "nonlinear-deblurring": _nonlinear_deblurring,
    "phase-retrieval": _phase_retrieval,
    "mri": _mri,
}
