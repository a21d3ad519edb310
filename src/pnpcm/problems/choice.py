"""TASKS, the tasks by name; TaskChoice, a task for image files from options, mask or operator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.io.arrays import NUMBER, read_array
from pnpcm.io.photos import SUFFIXES, Photo, read_photo
from pnpcm.io.reading import Budget
from pnpcm.names import TASK_NAMES, Table
from pnpcm.operators.blur import WIDEST_KERNEL
from pnpcm.problems.linear import Deblur, Denoise, Inpaint, SuperRes
from pnpcm.problems.nonlinear import Jpeg, NonlinearDeblur, PhaseRetrievalTask
from pnpcm.problems.task import Custom, Task

# tasks by name -----------------------------------------------------------------------------------
TASKS: Table[type[Task]] = Table(
    "task",
    {
        row.name: row
        for row in (
            Denoise,
            Inpaint,
            SuperRes,
            Deblur,
            Jpeg,
            NonlinearDeblur,
            PhaseRetrievalTask,
        )
    },
)


def build(row: type[Task], options: Mapping[str, Any]) -> Task:
    """The task with the given options; an unknown option is an error."""
    known = [f.name for f in fields(row)]
    for key in options:
        if key not in known:
            takes = ", ".join(known) or "no options"
            raise ArgumentError(f"task {row.name} does not take {key}; it takes: {takes}")
    return row(**options)


@dataclass(frozen=True)
class TaskChoice:
    """``task``: row of ``TASKS`` with its ``options``; or ``operator``: module:name of your own.

    For inpainting, ``mask``: image in which white is to be filled, or a folder of masks named like
    the images; ``mask_color``: colour of the pixels to be filled. Errors that concern every file
    are raised in the constructor.
    """

    task: str | None = None
    operator: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    mask: Path | None = None
    mask_color: str | None = None

    def __post_init__(self) -> None:
        has_mask = self.mask is not None or self.mask_color is not None
        if self.operator is not None:
            if self.task is not None or self.options:
                raise ArgumentError("--operator is given: leave --task and its options out")
            return
        if self.task is None:
            if self.options or has_mask:
                raise ArgumentError(f"--task is missing; expected one of {', '.join(TASKS)}")
            return
        _ = TASKS[self.task]  # raises, with the nearest name
        if self.task == "phase-retrieval":
            raise ArgumentError(
                "phase-retrieval needs a measurement file of `pnpcm simulate`; give NAME.npz and "
                "leave --task out"
            )
        if has_mask and self.task != "inpaint":
            raise ArgumentError(f"--task {self.task} does not take a mask; --task inpaint does")
        if self.task == "inpaint":
            if (self.mask is None) == (self.mask_color is None):
                raise ArgumentError(
                    "--task inpaint needs --mask FILE or --mask-color #rrggbb, one of them"
                )
            if self.mask is not None and not self.mask.exists():
                raise ArgumentError(f"mask is {self.mask}, which does not exist; check the path")
        elif self.task == "deblur" and not {"kernel", "gaussian", "motion"} & self.options.keys():
            raise ArgumentError(
                "--task deblur needs the kernel, which is not estimated: give --gaussian "
                "SIZE,SIGMA, --motion LENGTH,ANGLE or --kernel FILE.npy, for example pnpcm restore "
                "photo.jpg --task deblur --gaussian 9,2 (9×9 pixels, a sigma of 2 pixels)"
            )
        elif self.task != "jpeg" or self.options:
            build(TASKS[self.task], self.options)

    @property
    def name(self) -> str:
        """The name of the task, which outputs have in their names."""
        return "custom" if self.operator is not None else self.task or "restored"

    @property
    def growth(self) -> int:
        """Number of restored pixels for each pixel of an image."""
        return self.options.get("factor", SuperRes.factor) ** 2 if self.task == "superres" else 1

    def mask_of(self, path: Path) -> Path | None:
        """The mask of one image: in a folder of masks the one with the name of the image.

        An image of the subfolder S has its mask in S of the folder of masks, if that exists.
        """
        if self.mask is None or not self.mask.is_dir():
            return self.mask
        parents = path.resolve().parent.parts[1:]
        folders = [self.mask.joinpath(*parents[k:]) for k in range(len(parents) + 1)]
        folder = next(each for each in folders if each.is_dir())
        named = [p for p in sorted(folder.iterdir()) if p.stem == path.stem]
        named = [p for p in named if p.suffix.lower() in SUFFIXES and p.is_file()]
        named = [p for p in named if not p.samefile(path)]
        if len(named) != 1:
            found = ", ".join(p.name for p in named) or "none"
            raise ArgumentError(
                f"{path} needs one mask named {path.stem} in the folder --mask {folder}; "
                f"found: {found}"
            )
        return named[0]

    def of(self, photo: Photo, *, max_pixels: int | None = None) -> tuple[Task, tuple[str, ...]]:
        """The task of one image, and notes for its record; ``max_pixels``: limit of its mask."""
        if self.operator is not None:
            return Custom(import_operator(self.operator, tuple(photo.x.shape[1:]))), ()
        if self.task is None:
            raise ArgumentError(
                f"{photo.path} is an image, which needs a task; give --task, one of "
                f"{', '.join(TASK_NAMES)}"
            )
        if self.task == "jpeg" and not self.options:
            return Jpeg.from_file(photo.path), ()
        notes: tuple[str, ...] = ()
        options = dict(self.options)
        mask = self.mask_of(photo.path)
        if mask is not None:
            options["mask"], notes = hole_mask(mask, max_pixels)
        elif self.mask_color is not None:
            options["mask"] = colour_mask(photo, self.mask_color)
        if self.task == "superres" and "factor" not in options:
            notes += (f"factor {SuperRes.factor} (default); --factor sets another",)
        return build(TASKS[self.task], options), notes


def import_operator(name: str, image_shape: tuple[int, ...] | None = None) -> Any:
    """The operator ``module:name``; classes and functions are called, with the shape if taken."""
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
        "give an instance, or a function that returns one"
    ) from last


def read_kernel(path: Path) -> Tensor:
    """The 2-D blur kernel of a ``.npy`` file."""

    def accept(shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or max(shape) > WIDEST_KERNEL:
            raise ArgumentError(
                f"--kernel {path} has shape {shape}, expected a 2-D array with sides of at most "
                f"{WIDEST_KERNEL} pixels"
            )

    values = read_array(path, Budget(NUMBER), format="the .npy file of --kernel", accept=accept)
    if values.dtype.kind not in "fiu":
        raise ArgumentError(f"--kernel {path} has the dtype {values.dtype}, expected real numbers")
    return torch.from_numpy(values.astype(np.float64))


def hole_mask(path: Path, max_pixels: int | None = None) -> tuple[Tensor, tuple[str, ...]]:
    """The mask of kept pixels (1), from a mask image in which white is to be filled, and notes."""
    try:
        x = read_photo(path, max_pixels=max_pixels).x.mean(1)[0]
    except ArgumentError as error:
        raise ArgumentError(f"mask {error}") from error
    white = x > 0
    notes: tuple[str, ...] = ()
    if not bool(((x == 1) | (x == -1)).all()):
        notes = (f"mask {path.name} is not black and white: thresholded at 50 %",)
    _check_holes(white, f"mask {path}", "paint white what is to be filled")
    return (~white).float(), notes


def colour_mask(photo: Photo, colour: str) -> Tensor:
    """The mask of kept pixels (1) of an image: all but ``colour``, with a margin of one pixel."""
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
    what = f"mask_color {colour} in {photo.path}"
    _check_holes(white, what, "give the colour of the pixels to be filled")
    return (~white).float()


def _check_holes(white: Tensor, what: str, move: str) -> None:
    if not bool(white.any()):
        raise ArgumentError(f"{what} marks no pixel; {move}")
    if bool(white.all()):
        raise ArgumentError(f"{what} marks every pixel; some must stay (black in a mask)")
