"""The demo: seven inverse problems on bundled photographs and a phantom, in 4 to 8 evaluations.

Priors and presets are the shipped ones; no parameter is tuned on these images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.catalogue import load_prior
from pnpcm.core import Result
from pnpcm.io.files import Picture, read_image, save_picture, stack, strip, write_json, write_text
from pnpcm.metrics import psnr, ssim
from pnpcm.metrics.lpips import available, lpips
from pnpcm.mri import gaussian1d, intensity_scale, phantom, simulate_scan
from pnpcm.names import count_of
from pnpcm.operators import (
    GaussianBlur,
    Inpainting,
    MultiCoilMRI,
    NonlinearBlur,
    OperatorBase,
    PhaseRetrieval,
    SuperResolution,
    measure,
)
from pnpcm.presets import PRESETS
from pnpcm.problems import Jpeg
from pnpcm.solvers import PnPCM

Map = Callable[[Tensor], Tensor]
RECORD = "results.json"
"""The file that is written first, and again at the end."""


@dataclass(frozen=True)
class Example:
    """One inverse problem of the demo: image, operator, preset, and how it is shown."""

    note: str
    x_true: Tensor
    operator: OperatorBase
    preset: str
    before: Map | None = None  # y → image before restoration; None: y
    measured: Map | None = None  # y → image (B, 1|3, H, W) for display; None: y
    shown: Map | None = None  # x → image for display; None: x


@dataclass(frozen=True)
class Row:
    """One line of the demo's table."""

    task: str
    note: str
    psnr_before: float
    psnr: float
    lpips_before: float | None  # None: the weights of LPIPS are not installed
    lpips: float | None
    ssim: float
    nfe: int
    seconds: float


def outputs() -> tuple[str, ...]:
    """Names of the files of the demo."""
    return (*(f"{task}.png" for task in TASKS), "overview.png", RECORD, "table.md")


def run_demo(out: Path, *, seed: int = 0) -> Iterator[Row]:
    """Solve every task, write images, table and configurations to ``out``, yield the rows."""
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    sheets: list[Picture] = []
    record: dict[str, Any] = {"seed": seed}
    write_json(out / RECORD, record)
    for task in TASKS:
        solved = solve_task(task, seed=seed)
        row, pictures = solved.row, solved.pictures
        panels = [
            (f"{task}: measured", pictures["measured"][0]),
            (f"before {row.psnr_before:.2f} dB", pictures["before"][0]),
            (f"pnpcm, {count_of(row.nfe, 'evaluation')} {row.psnr:.2f} dB", pictures["pnpcm"][0]),
            ("true", pictures["true"][0]),
        ]
        sheets.append(strip(panels))
        save_picture(out / f"{task}.png", sheets[-1])
        rows.append(row)
        record[task] = solved.record
        yield row
    save_picture(out / "overview.png", stack(sheets))
    write_json(out / RECORD, record)
    write_text(out / "table.md", markdown(rows))


def markdown(rows: list[Row]) -> str:
    """The table as text."""
    head = "| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|\n"
    return head + "".join("| " + " | ".join(cells(row)) + " |\n" for row in rows)


COLUMNS = ("task", "", "PSNR (dB)", "LPIPS (VGG)", "SSIM", "NFE", "seconds")


def cells(row: Row) -> tuple[str, ...]:
    """One line of the table as text, before → after; – for missing scores."""
    looks = "–"
    if row.lpips_before is not None and row.lpips is not None:
        looks = f"{row.lpips_before:.3f} → {row.lpips:.3f}"
    scores = f"{row.psnr_before:.2f} → {row.psnr:.2f}", looks, f"{row.ssim:.3f}"
    return (row.task, row.note, *scores, str(row.nfe), f"{row.seconds:.1f}")


@dataclass(frozen=True)
class Solved:
    """One task: its scores, images ``(1, C, H, W)`` in [-1, 1] by name, and configuration."""

    row: Row
    pictures: dict[str, Tensor]  # measured, before, pnpcm, true
    record: dict[str, Any]


def solve_task(task: str, *, seed: int = 0) -> Solved:
    """Measure and solve one row of ``TASKS``, with the preset of its prior."""
    generator = torch.Generator().manual_seed(seed)
    problem = TASKS[task](generator)
    preset = PRESETS[problem.preset]
    y = measure(problem.operator, problem.x_true, preset.sigma_y, generator=generator)
    solver = PnPCM(load_prior(preset.prior), preset.solver)
    result = solver(y, problem.operator, generator=generator)
    row, pictures = _judge(task, problem, y, result)
    record = {
        "operator": repr(problem.operator),
        "preset": problem.preset,
        "prior": preset.prior,
        "sigma_y": preset.sigma_y,
        "solver": preset.solver.to_dict(),
        "result": asdict(row),
    }
    return Solved(row, pictures, record)


def _judge(task: str, problem: Example, y: Tensor, result: Result) -> tuple[Row, dict[str, Tensor]]:
    """Scores and images of one result."""
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
        lpips_before=_lpips(pictures["before"], pictures["true"]),
        lpips=_lpips(pictures["pnpcm"], pictures["true"]),
        ssim=float(ssim(pictures["pnpcm"], pictures["true"])),
        nfe=result.nfe,
        seconds=result.seconds,
    )
    return row, pictures | {"measured": measured(y)}


# the problems ------------------------------------------------------------------------------------
def _photo(name: str) -> Tensor:
    with as_file(files("pnpcm") / "data" / name) as path:
        return read_image(path)


def _lpips(x: Tensor, x_true: Tensor) -> float | None:
    return float(lpips(x, x_true)) if available() else None


def _identity(x: Tensor) -> Tensor:
    return x


def _magnitude(x: Tensor) -> Tensor:
    """The magnitude of two channels (real, imaginary) as an image in [-1, 1]."""
    return 2 * x.square().sum(1, keepdim=True).sqrt() - 1


def _spectrum(y: Tensor) -> Tensor:
    """A Fourier measurement as an image: logarithm of the first channel or coil."""
    value = torch.log10(y[:, :1].abs() + 1e-4)
    low, high = value.amin(), value.amax()
    return 2 * (value - low) / (high - low) - 1


def _inpainting(generator: torch.Generator) -> Example:
    x = _photo("Wine_by_Jakkub_Mede.png")
    operator = Inpainting.random((256, 256), missing=0.7, generator=generator)
    return Example("70 % missing", x, operator, "natural/inpaint-70", before=operator.x_start)


def _superresolution(generator: torch.Generator) -> Example:
    x = _photo("friends_by_Aitzol_Berasategi.png")
    operator = SuperResolution((3, 256, 256), 4)
    return Example("factor 4", x, operator, "natural/superres-4", before=operator.A_dagger)


def _deblurring(generator: torch.Generator) -> Example:
    x = _photo("picosdeeuropa_by_Aitzol_Berasategi.png")
    return Example("5×5, σ 10", x, GaussianBlur((3, 256, 256)), "natural/deblur-gauss")


def _jpeg(generator: torch.Generator) -> Example:
    x = _photo("Picture_0B_by_freespace.png")
    return Example("quality 5", x, Jpeg(5).operator((3, 256, 256)), "natural/jpeg-5")


def _nonlinear_deblurring(generator: torch.Generator) -> Example:
    x = _photo("Picture_1A_by_freespace.png")
    return Example("motion in linear light", x, NonlinearBlur(), "natural/nonlinear-deblur")


def _phase_retrieval(generator: torch.Generator) -> Example:
    x = _photo("seeding_by_Clements_Engelhardt.png")[..., :128, :128].contiguous()
    return Example(
        "75 % unseen, oracle signs",
        x,
        PhaseRetrieval.random((128, 128), generator),
        "natural/phase-retrieval",
        before=lambda y: torch.zeros_like(x),
        measured=_spectrum,
    )


def _mri(generator: torch.Generator) -> Example:
    scan = simulate_scan(phantom((192, 192)), n_coils=8, generator=generator)
    x = scan.x_true * intensity_scale(scan.x_true, "p99.5=0.8")[0]  # units of the prior "mri"
    operator = MultiCoilMRI(scan.coil_maps, gaussian1d(192, 4, 16, generator=generator))
    return Example(
        "phantom, 8 coils, R = 4",
        x,
        operator,
        "mri/r4",
        before=operator.A_adjoint,
        measured=_spectrum,
        shown=_magnitude,
    )


TASKS: dict[str, Callable[[torch.Generator], Example]] = {
    "inpainting": _inpainting,
    "superresolution": _superresolution,
    "deblurring": _deblurring,
    "jpeg": _jpeg,
    "nonlinear-deblurring": _nonlinear_deblurring,
    "phase-retrieval": _phase_retrieval,
    "mri": _mri,
}
