"""Options, parsers and output that several commands use."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo

from pnpcm.errors import ArgumentError
from pnpcm.names import TASK_NAMES

if TYPE_CHECKING:
    from torch import Tensor

    from pnpcm.recon import Options
    from pnpcm.recon.batch import Outcome

TaskName = Annotated[str | None, typer.Option("--task", help=f"One of {', '.join(TASK_NAMES)}.")]
Factor = Annotated[
    int | None, typer.Option(help="superres: downsampling factor, an integer ≥ 2; default: 4.")
]
Downsampler = Annotated[str | None, typer.Option(help="superres: bicubic (default) or area.")]
Kernel = Annotated[Path | None, typer.Option(help="deblur: .npy file of a 2-D kernel.")]
Gaussian = Annotated[
    str | None, typer.Option(help="deblur: SIZE,SIGMA of a Gaussian kernel in pixels, e.g. 5,10.")
]
Motion = Annotated[
    str | None,
    typer.Option(help="deblur: LENGTH,ANGLE of a motion kernel in pixels, degrees, e.g. 15,30."),
]
Boundary = Annotated[
    str | None,
    typer.Option(help="deblur: boundary, unknown (default), zero, circular or reflect."),
]
LinearLight = Annotated[
    bool, typer.Option(help="deblur: the blur acts on linear light, not on sRGB values.")
]
Quality = Annotated[
    int | None, typer.Option(help="jpeg: quality 1…100; default: the file's own tables.")
]
Length = Annotated[float | None, typer.Option(help="nonlinear-deblur: motion in pixels.")]
Angle = Annotated[
    float | None, typer.Option(help="nonlinear-deblur: direction of motion in degrees.")
]
ReferenceOperator = Annotated[
    bool,
    typer.Option(
        "--reference-operator",
        help="deblur, jpeg, phase-retrieval: the operator of the authors' released code, "
        "for which the presets …-reference list the scores.",
    ),
]
Missing = Annotated[
    float | None,
    typer.Option(help="inpaint: share of pixels removed at random, in [0, 1); default: 0.7."),
]
KernelWizard = Annotated[
    Path | None,
    typer.Option(help="nonlinear-deblur: file of the paper's blur network, GOPRO_wVAE.pth."),
]

# fields of Options
Method = Annotated[
    str | None,
    typer.Option(help="Solver: pnp-cm, dpir, pnp-admm, diffpir, dps …; default: by task."),
]
PriorName = Annotated[
    str, typer.Option("--prior", help="Prior: natural, faces, a file, a folder or a Hub id.")
]
Aim = Annotated[
    str,
    typer.Option(help="fidelity (closest to the truth), perception (injected noise), or 0 to 1."),
]
SigmaY = Annotated[
    str, typer.Option(help="Noise std of the input on the [0, 1] scale, or auto (estimated).")
]
Steps = Annotated[
    int | None, typer.Option(help="Number of steps; default: the preset's or the rule's.")
]
StepRule = Annotated[
    str | None,
    typer.Option(
        help="--preset with --steps: ends (default: its first and last levels stay) or released "
        "(the paper's presets: as in the authors' code)."
    ),
]
PresetName = Annotated[str | None, typer.Option("--preset", help="Name or file of a preset.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set one hyperparameter, e.g. rho_start=0.1; repeatable."),
]
Samples = Annotated[
    int, typer.Option(help="Number of independent samples; more than 1 give mean and std.")
]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Tile = Annotated[
    int, typer.Option(help="Side of the prior's tiles in pixels; smaller ones need less memory.")
]
Halo = Annotated[
    int | None,
    typer.Option(help="Overlap around a tile in pixels; default: the network's receptive field."),
]
Device = Annotated[str, typer.Option(help="Device of the computation: cpu, cuda, mps …")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per input.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]


def options(sigma_y: str, set_: list[str] | None, **fields: Any) -> Options:
    """The :class:`Options` of a command; ``sigma_y`` and ``set_`` are parsed from text."""
    from pnpcm.recon import Options

    fields["aim"] = _value(fields["aim"])
    return Options(sigma_y=noise(sigma_y), settings=parse_settings(set_ or []), **fields)


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """The values of ``name=value`` arguments; commas separate the entries of a list."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals and text):
            raise ArgumentError(f"--set is {pair!r}, expected name=value, e.g. rho_start=0.1")
        found[name.strip()] = _value(text.strip())
    return found


def _value(text: str) -> Any:
    if "," in text:
        return tuple(_value(part) for part in text.split(",") if part)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def show(
    outcomes: Iterable[Outcome], count: int, command: Callable[..., None], *, as_json: bool
) -> None:
    """Print progress and one line (or JSON object) per input; exit with 1 or 2 on failures."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    failed = 0
    quiet = not console.is_terminal or count == 1
    for outcome in track(outcomes, command.__name__, count, console=console, disable=quiet):
        failed += outcome.status == "failed"
        if as_json:
            print(json.dumps(_line(outcome), ensure_ascii=False), flush=True)
        elif outcome.status == "failed":
            print(f"pnpcm: {in_its_spelling(outcome.message, command)}", file=sys.stderr)
        else:
            _print(outcome, detailed=count == 1)
    if failed:
        raise typer.Exit(2 if failed == count == 1 else 1)


@contextmanager
def slices_bar(*, disable: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for the slices of each scan, shown only on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=disable or not console.is_terminal) as bar:
        lines: dict[str, Any] = {}

        def show(name: str, done: int, count: int) -> None:
            if name not in lines:
                lines[name] = bar.add_task(f"{name}, slices", total=count)
            bar.update(lines[name], completed=done)

        yield show


def _line(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {"input": str(outcome.input), "status": outcome.status}
    if outcome.status == "failed":
        return found | {"error": outcome.message}
    return found | {"output": str(outcome.output)} | dict(outcome.record)


def _print(outcome: Outcome, *, detailed: bool) -> None:
    if outcome.message and detailed:
        print(outcome.message)
    judged = outcome.record.get("check", {})
    verdict = "; ".join([judged.get("verdict", ""), *judged.get("warnings", [])])
    print(f"{outcome.status}: {outcome.output}" + ("" if detailed else f" · {verdict}"))


def in_its_spelling(message: str, command: Callable[..., None]) -> str:
    """A message of the library with the options of ``command`` as they are typed in a shell.

    ``sigma_y`` becomes ``--sigma-y`` everywhere, ``steps=0`` and "steps is", "steps must" become
    ``--steps 0`` and "--steps is", "--steps must". Positional arguments keep their names.
    """
    hints = get_type_hints(command, include_extras=True)
    for name in inspect.signature(command).parameters:
        if any(isinstance(m, ArgumentInfo) for m in getattr(hints[name], "__metadata__", ())):
            continue
        option = "--" + name.rstrip("_").replace("_", "-")
        after = r"(?![\w-])" if "_" in name.rstrip("_") else r"(?= (?:is|must|has|are|holds) |=)"
        message = re.sub(rf"(?<![\w./-]){re.escape(name.rstrip('_'))}{after}", option, message)
        message = message.replace(f"{option}=", f"{option} ")
    return message


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, parsed into values."""
    found = {k: v for k, v in options.items() if v is not None and v is not False}
    for name in ("gaussian", "motion"):
        if name in found:
            found[name] = _pair(name, found[name])
    if "kernel" in found:
        found["kernel"] = _kernel(found["kernel"])
    if "reference_operator" in found:
        found["reference"] = found.pop("reference_operator")
    if "kernel_wizard" in found:  # absolute: the measurement file may be read from another folder
        found["kernel_wizard"] = str(found["kernel_wizard"].resolve())
    return found


def noise(text: str) -> float | None:
    """The number given as ``--sigma-y``, or None for auto."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentError(f"sigma_y is {text!r}, expected auto or a number like 0.05") from error


def _pair(name: str, text: str) -> tuple[float, float]:
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ArgumentError(f"{name} is {text!r}, expected two numbers such as 5,10") from error
    return first, second


def read_array(name: str, path: Path) -> Any:
    """The array of a ``.npy`` file, or the first of an ``.npz``, given as option ``name``."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
    except (OSError, ValueError, EOFError, IndexError) as error:
        raise ArgumentError(f"--{name} {path} is not a readable .npy file ({error})") from error


def _kernel(path: Path) -> Tensor:
    import numpy as np
    import torch

    values = read_array("kernel", path)
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ArgumentError(
            f"--kernel {path} has shape {values.shape} and dtype {values.dtype}, expected a 2-D "
            "array of real numbers"
        )
    return torch.from_numpy(values.astype(np.float64))
