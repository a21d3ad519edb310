"""Options and parsers that several commands use."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo

from pnpcm.cli.display import starting
from pnpcm.errors import ArgumentError
from pnpcm.io.reading import read_json
from pnpcm.names import TASK_NAMES

if TYPE_CHECKING:
    from pnpcm.problems import Task
    from pnpcm.recon import Options

TaskName = Annotated[str | None, typer.Option("--task", help=f"One of {', '.join(TASK_NAMES)}.")]
Missing = Annotated[
    float | None,
    typer.Option(help="inpaint: share of pixels removed at random, in [0, 1); default: 0.7."),
]
Workers = Annotated[int | None, typer.Option(help="Number of processes on this machine (dask).")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a running dask scheduler, tcp://host:port.")
]
LAST_SEED = 2**62
Seed = Annotated[
    int, typer.Option(help="Seed of all random numbers.", min=-LAST_SEED, max=LAST_SEED)
]
MaxPixels = Annotated[
    int | None,
    typer.Option(
        help="Largest number of pixels of an image, or of k-space samples of a slice, that is "
        "read; default: what the memory of this machine allows."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per input.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]


# options of several commands ---------------------------------------------------------------------
def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command whose parameter ``name`` is the result of ``groups[name]``.

    On the command line the parameters of the group take the place of ``name``, so that each option
    is spelled once and every command has it in the same words.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        members = {name: _parameters(group) for name, group in groups.items()}

        @wraps(command)
        def call(**given: Any) -> None:
            with starting():
                for name, group in groups.items():
                    given[name] = group(**{p.name: given.pop(p.name) for p in members[name]})
            command(**given)

        found = [q for p in _parameters(command) for q in members.get(p.name, [p])]
        call.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in found}
        return call

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters with their annotations as objects; ``Options`` would import torch."""
    hints = get_type_hints(function, localns={"Options": Any}, include_extras=True)
    own = inspect.signature(function).parameters.values()
    return [p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in own]


def options(
    prior: Annotated[
        str | None,
        typer.Option(
            help="Prior: natural, faces, mri, a file, a folder or hf:owner/name; "
            "default: natural, for scans mri."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Solver: pnp-cm, dpir, pnp-admm, diffpir, dps …; default: by task."),
    ] = None,
    aim: Annotated[
        str,
        typer.Option(help="fidelity (closest to the truth), perception (more detail), or 0 to 1."),
    ] = "fidelity",
    sigma_y: Annotated[
        str | None,
        typer.Option(
            help="Noise std of the input on the [0, 1] scale, as 0.1 or 25/255, or auto "
            "(estimated); default: auto, for inpaint 0 (known pixels are kept bit for bit), for "
            ".npz files their own."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Number of steps; default: the preset's or the rule's.")
    ] = None,
    step_rule: Annotated[
        str | None,
        typer.Option(
            help="--preset with --steps: ends (default: its first and last levels stay) or "
            "released (the paper's presets: as in the authors' code)."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Name or file of a preset.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set one hyperparameter, e.g. rho_start=0.1; repeatable."),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Number of independent samples; more than 1 give mean and std.")
    ] = 1,
    seed: Seed = 0,
    device: Annotated[
        str, typer.Option(help="Device of the computation: cpu, cuda, mps …")
    ] = "cpu",
) -> Options:
    """The :class:`Options` of a reconstruction."""
    from pnpcm.recon import Options

    return Options(
        prior=prior,
        method=method,
        aim=_value(aim),
        sigma_y=sigma_y if sigma_y in (None, "auto") else noise_level(sigma_y, "auto or "),
        steps=steps,
        step_rule=step_rule,
        preset=preset,
        settings=parse_settings(set_ or []),
        samples=samples,
        seed=seed,
        device=device,
    )


def task_values(
    factor: Annotated[
        int | None, typer.Option(help="superres: downsampling factor, an integer ≥ 2; default: 4.")
    ] = None,
    downsampler: Annotated[
        str | None, typer.Option(help="superres: bicubic (default) or area.")
    ] = None,
    kernel: Annotated[Path | None, typer.Option(help="deblur: .npy file of a 2-D kernel.")] = None,
    gaussian: Annotated[
        str | None,
        typer.Option(help="deblur: SIZE,SIGMA of a Gaussian kernel in pixels, e.g. 5,10."),
    ] = None,
    motion: Annotated[
        str | None,
        typer.Option(
            help="deblur: LENGTH,ANGLE of a motion kernel in pixels, degrees, e.g. 15,30."
        ),
    ] = None,
    linear_light: Annotated[
        bool, typer.Option(help="deblur: the blur acts on linear light, not on sRGB values.")
    ] = False,
    quality: Annotated[
        int | None, typer.Option(help="jpeg: quality 1…100; default: the file's own tables.")
    ] = None,
    length: Annotated[
        float | None, typer.Option(help="nonlinear-deblur: motion in pixels.")
    ] = None,
    angle: Annotated[
        float | None, typer.Option(help="nonlinear-deblur: direction of motion in degrees.")
    ] = None,
    reference_operator: Annotated[
        bool,
        typer.Option(
            "--reference-operator",
            help="deblur, jpeg, phase-retrieval: the operator of the authors' released code, "
            "for which the presets …-reference list the scores.",
        ),
    ] = False,
    kernel_wizard: Annotated[
        Path | None,
        typer.Option(help="nonlinear-deblur: file of the paper's blur network, GOPRO_wVAE.pth."),
    ] = None,
) -> dict[str, Any]:
    """The options of a task that were given, as fields of its class."""
    from pnpcm.problems.choice import read_kernel

    found = {
        "factor": factor,
        "downsampler": downsampler,
        "kernel": None if kernel is None else read_kernel(kernel),
        "gaussian": None if gaussian is None else _pair("gaussian", gaussian),
        "motion": None if motion is None else _pair("motion", motion),
        "linear_light": linear_light or None,
        "quality": quality,
        "length": length,
        "angle": angle,
        "reference": reference_operator or None,
        # absolute: the measurement file may be read from another folder
        "kernel_wizard": None if kernel_wizard is None else str(kernel_wizard.resolve()),
    }
    return {name: value for name, value in found.items() if value is not None}


def simulated_task(task: str | None, values: dict[str, Any], missing: float | None) -> Task:
    """The task that is simulated on clean images; ``inpaint`` without a mask draws one."""
    from pnpcm.problems import TASKS, build

    if task is None:
        raise ArgumentError(f"--task is missing; expected one of {', '.join(TASK_NAMES)}")
    if missing is None and task == "inpaint" and "mask" not in values:
        missing = 0.7
    return build(TASKS[task], values if missing is None else values | {"missing": missing})


# values ------------------------------------------------------------------------------------------
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


def noise_level(text: str, other: str = "") -> float:
    """The number of ``--sigma-y``: 0.1 or 25/255. ``other``: words that are allowed as well."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / (float(below) if slash else 1.0)
    except (ValueError, ZeroDivisionError) as error:
        raise ArgumentError(
            f"sigma_y is {text!r}, expected {other}a number like 0.05 or 25/255"
        ) from error


def added_noise(text: str) -> float:
    """The number of ``--sigma-y`` of simulated noise, at most 1."""
    from pnpcm.recon import Options

    level = noise_level(text)
    Options(sigma_y=level)  # refuses a level of another scale
    return level


def _pair(name: str, text: str) -> tuple[float, float]:
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ArgumentError(f"{name} is {text!r}, expected two numbers such as 5,10") from error
    return first, second


def read_array(name: str, path: Path) -> Any:
    """The array of a ``.npy`` file, or the first of an ``.npz``, given as option ``name``."""
    from pnpcm.io import arrays
    from pnpcm.io.reading import Budget

    budget = Budget(arrays.NUMBER)
    return arrays.read_array(path, budget, format=f"the .npy file of --{name}")


def check_output(path: Path, own: Callable[[Path], bool], what: str, move: str = "") -> None:
    """Refuse to replace a file that is not ``own``, an earlier output of the same command."""
    if os.path.lexists(path) and not own(path):
        raise ArgumentError(
            f"output {path} exists and is not {what}; rename it, or give another output{move}"
        )


def check_folder(folder: Path, names: Iterable[str], own: bool, what: str) -> None:
    """Refuse a folder with files of these names, unless it is ``own``: of the same command."""
    for name in () if own else names:
        check_output(folder / name, lambda _: False, what)


def has_fields(path: Path, fields: Iterable[str]) -> bool:
    """Whether a file is JSON with these fields."""
    try:
        return set(fields) <= {*read_json(path, "JSON")}
    except ArgumentError:
        return False


OTHERWISE = {
    "set": "set_index",
    "settings": "set_",
    "n_coils": "coils",
    "n_slices": "slices",
    "noise_std": "noise",
    "formats": "format",
    "coil_maps": "maps",
}
"""Arguments of the library whose option has another name."""


# messages ---------------------------------------------------------------------------------------
def in_its_spelling(message: str, command: Callable[..., None]) -> str:
    """A message of the library with the options of ``command`` as they are typed in a shell.

    ``sigma_y`` becomes ``--sigma-y`` everywhere, ``steps=0`` and "steps is", "steps must" become
    ``--steps 0`` and "--steps is", "--steps must", "give mask" becomes "give --mask",
    ``whiten=False`` becomes ``--no-whiten``. Positional arguments keep their names.
    """
    hints = get_type_hints(command, include_extras=True)
    for name, option in OTHERWISE.items():
        if option in inspect.signature(command).parameters:
            places = rf"(?<![\w./-]){name}(?= (?:is|are|must) )|(?<=give ){name}(?!\w)"
            places += rf"|(?<=leave ){name}(?= out)"
            message = re.sub(places, option.rstrip("_"), message)
    for name in inspect.signature(command).parameters:
        if any(isinstance(m, ArgumentInfo) for m in getattr(hints[name], "__metadata__", ())):
            continue
        word = re.escape(name.rstrip("_"))
        option = "--" + name.rstrip("_").replace("_", "-")
        after = r"(?![\w-])" if "_" in word else r"(?= (?:is|must|has|are|holds) |=)"
        places = rf"(?<![\w./-]){word}{after}|(?<=give ){word}(?![\w=.-])|(?<=leave ){word}(?= out)"
        message = re.sub(rf"(?<![\w./-]){word}=False(?!\w)", f"--no-{option[2:]}", message)
        message = re.sub(places, option, message).replace(f"{option}=", f"{option} ")
    return message
