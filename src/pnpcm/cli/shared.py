"""What several commands share: tasks from options, operators by name, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm.errors import ArgumentError
from pnpcm.names import TASK_NAMES

if TYPE_CHECKING:
    from torch import Tensor

    from pnpcm.io.photos import Photo
    from pnpcm.problems import Task

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
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]


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


def import_operator(name: str, image_shape: tuple[int, ...] | None = None) -> Any:
    """The operator ``module:name``; a class or function is called, with the shape if it can be."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise ArgumentError(f"operator is {name!r}, expected module:name, e.g. my_module:MyBlur")
    sys.path.insert(0, "")
    try:
        target = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(f"operator {name!r} cannot be imported: {error}") from error
    if hasattr(target, "A") and not isinstance(target, type):
        return target
    calls: list[Callable[[], Any]] = [target]
    if image_shape is not None:
        calls.insert(0, lambda: target(image_shape))
    for call in calls:
        try:
            return call()
        except TypeError as error:
            last = error
    raise ArgumentError(
        f"operator {name!r} cannot be built without arguments ({last}); "
        "name an instance, or a function that returns one"
    ) from last


def hole_mask(path: Path) -> tuple[Tensor, tuple[str, ...]]:
    """The kept pixels (1) of a mask picture in which white is to be filled."""
    from pnpcm.io.photos import read_photo

    x = read_photo(path).x.mean(1)[0]
    white = x > 0
    notes: tuple[str, ...] = ()
    if not bool(((x == 1) | (x == -1)).all()):
        notes = (f"mask {path.name} is not black and white: thresholded at 50 %",)
    _check_holes(white, f"mask {path}")
    return (~white).float(), notes


def colour_mask(photo: Photo, colour: str) -> Tensor:
    """The kept pixels (1) of a picture with holes painted in ``colour``; one pixel of margin."""
    import torch
    import torch.nn.functional as F

    text = colour.removeprefix("#")
    try:
        values = [int(text[i : i + 2], 16) for i in (0, 2, 4)]
    except ValueError:
        values = []
    if len(text) != 6 or not values:
        raise ArgumentError(f"mask_color is {colour!r}, expected a colour such as #ff0000")
    wanted = torch.tensor(values).reshape(1, 3, 1, 1) / 127.5 - 1
    near = ((photo.x - wanted).abs().amax(1, keepdim=True) <= 0.25).float()
    white = F.max_pool2d(near, 3, stride=1, padding=1)[0, 0] > 0
    _check_holes(white, f"mask_color {colour} in {photo.path}")
    return (~white).float()


def _check_holes(white: Tensor, what: str) -> None:
    if not bool(white.any()):
        raise ArgumentError(f"{what} marks no pixel; white (or the colour) is what gets filled")
    if bool(white.all()):
        raise ArgumentError(f"{what} marks every pixel; white is to be filled, black is kept")


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


def build_task(name: str, options: dict[str, Any]) -> Task:
    """A row of TASKS with the options that the user gave."""
    from pnpcm.problems import TASKS, build

    return build(TASKS[name], options)
