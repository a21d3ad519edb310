"""What several commands share: their options, and how words become values."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm.errors import ArgumentError
from pnpcm.names import TASK_NAMES

if TYPE_CHECKING:
    from torch import Tensor

    from pnpcm.recon import Options
    from pnpcm.recon.batch import Outcome

TaskName = Annotated[str | None, typer.Option("--task", help=f"One of {', '.join(TASK_NAMES)}.")]
Factor = Annotated[int | None, typer.Option(help="superres: 2, 3, 4, 8 …")]
Downsampler = Annotated[str | None, typer.Option(help="superres: bicubic or area.")]
Kernel = Annotated[Path | None, typer.Option(help="deblur: kernel as a 2-D .npy file.")]
Gaussian = Annotated[str | None, typer.Option(help="deblur: SIZE,SIGMA of a Gaussian, e.g. 5,10.")]
Motion = Annotated[str | None, typer.Option(help="deblur: LENGTH,ANGLE of a motion, e.g. 15,30.")]
Boundary = Annotated[
    str | None, typer.Option(help="deblur: unknown (default), zero, circular or reflect.")
]
LinearLight = Annotated[bool, typer.Option(help="deblur: light was blurred, not pixel values.")]
Quality = Annotated[int | None, typer.Option(help="jpeg: 1…100, instead of the file's own tables.")]
Length = Annotated[float | None, typer.Option(help="nonlinear-deblur: pixels of motion.")]
Angle = Annotated[float | None, typer.Option(help="nonlinear-deblur: degrees.")]
ReferenceOperator = Annotated[
    bool,
    typer.Option(
        "--reference-operator",
        help="deblur, jpeg, phase-retrieval: as in the authors' released code; "
        "the scores of the presets …-reference belong to it.",
    ),
]
KernelWizard = Annotated[
    Path | None,
    typer.Option(help="nonlinear-deblur: the paper's network, its file GOPRO_wVAE.pth."),
]

# fields of Options
Method = Annotated[
    str | None, typer.Option(help="pnp-cm, dpir, pnp-admm, diffpir, dps …; default: the task's.")
]
Aim = Annotated[
    str,
    typer.Option(help="fidelity (closest to the truth), perception (injected noise), or 0 to 1."),
]
SigmaY = Annotated[str, typer.Option(help="Noise of the input on the [0, 1] scale, or auto.")]
Steps = Annotated[int | None, typer.Option(help="Network evaluations.")]
PresetName = Annotated[str | None, typer.Option("--preset", help="Name or file of a preset.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Any hyperparameter, e.g. rho_start=0.1.")
]
Samples = Annotated[int, typer.Option(help="Independent results: mean and spread.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Tile = Annotated[int, typer.Option(help="Side of the prior's tiles: bounds memory.")]
Halo = Annotated[int | None, typer.Option(help="Pixels seen around a tile; default: all needed.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps …")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per input on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved plan only.")]


def options(sigma_y: str, set_: list[str] | None, **fields: Any) -> Options:
    """The object that command line, Python and app share, from the words of a command."""
    from pnpcm.recon import Options

    fields["aim"] = _value(fields["aim"])
    return Options(sigma_y=noise(sigma_y), settings=parse_settings(set_ or []), **fields)


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` words of the command line; lists are separated by commas."""
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
    """Progress and one line (or JSON object) per input; the exit code tells of failures."""
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
            _tell(outcome, detailed=count == 1)
    if failed:
        raise typer.Exit(2 if failed == count == 1 else 1)


@contextmanager
def slices_bar(*, disable: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for the slices of one scan after the other, on the terminal only."""
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


def _tell(outcome: Outcome, *, detailed: bool) -> None:
    if outcome.message and detailed:
        print(outcome.message)
    judged = outcome.record.get("check", {})
    verdict = "; ".join([judged.get("verdict", ""), *judged.get("warnings", [])])
    print(f"{outcome.status}: {outcome.output}" + ("" if detailed else f" · {verdict}"))


def in_its_spelling(message: str, command: Callable[..., None]) -> str:
    """A message of the library with the arguments of ``command`` in the shell's spelling.

    ``sigma_y`` becomes ``--sigma-y`` everywhere, ``steps=0`` and "steps is", "steps must" become
    ``--steps 0`` and "--steps is", "--steps must".
    """
    for name in inspect.signature(command).parameters:
        option = "--" + name.rstrip("_").replace("_", "-")
        after = r"(?![\w-])" if "_" in name.rstrip("_") else r"(?= (?:is|must|has|are|holds) |=)"
        message = re.sub(rf"(?<![\w./-]){re.escape(name.rstrip('_'))}{after}", option, message)
        message = message.replace(f"{option}=", f"{option} ")
    return message


def given(**options: Any) -> dict[str, Any]:
    """The options that the user gave, read into values."""
    found = {k: v for k, v in options.items() if v is not None and v is not False}
    for name in ("gaussian", "motion"):
        if name in found:
            found[name] = _pair(name, found[name])
    if "kernel" in found:
        found["kernel"] = _kernel(found["kernel"])
    if "reference_operator" in found:
        found["reference"] = found.pop("reference_operator")
    if "kernel_wizard" in found:  # measurement files are read from other folders
        found["kernel_wizard"] = str(found["kernel_wizard"].resolve())
    return found


def noise(text: str) -> float | None:
    """``--sigma-y``: a number, or None for auto."""
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
    """The array of a ``.npy`` file, or the first of an ``.npz``, that the option ``name`` gives."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
    except (OSError, ValueError, EOFError, IndexError) as error:
        raise ArgumentError(f"{name} {path} is no readable .npy file ({error})") from error


def _kernel(path: Path) -> Tensor:
    import numpy as np
    import torch

    values = read_array("kernel", path)
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ArgumentError(
            f"kernel {path} has shape {values.shape} and dtype {values.dtype}, expected a 2-D "
            "array of real numbers"
        )
    return torch.from_numpy(values.astype(np.float64))
