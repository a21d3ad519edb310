"""Form: the values of the page, as task, options, command line and Python code."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pnpcm import catalogue
from pnpcm.arguments import check_choice, check_count, check_number
from pnpcm.errors import ArgumentError
from pnpcm.mri.masks import MaskChoice
from pnpcm.mri.readers import HDF5_SUFFIXES
from pnpcm.problems import TaskChoice
from pnpcm.problems.choice import read_kernel
from pnpcm.problems.linear import BOUNDARIES
from pnpcm.problems.measurement import SUFFIX
from pnpcm.recon import AIMS, Options
from pnpcm.recon.photo import DEFAULT_PRIOR
from pnpcm.solvers import SOLVERS

TASK_LABELS = {
    "denoise": "Remove noise",
    "inpaint": "Fill marked areas",
    "superres": "Enlarge",
    "deblur": "Undo a known blur",
    "jpeg": "Remove JPEG artefacts",
    "nonlinear-deblur": "Undo camera shake",
    "mri": "Reconstruct an MRI scan",
}
"""Tasks of images, and of scans. Phase retrieval has no image as input; its measurement files are
taken."""
SCAN_SUFFIXES = (*HDF5_SUFFIXES, ".dat", ".mat", ".npy")
"""Raw scans of one file. Those of BART are two; an .npz file is a measurement here."""
NOISES = ("automatic", "estimated", "known")
BLURS = ("gaussian", "motion", "kernel")
DEFAULT_METHOD = "default"
NO_METHOD = "none"
METHODS = tuple(name for name in SOLVERS if name != "cosign")
"""CoSIGN needs a ControlNet that was trained for one operator and is not offered."""
MAX_SAMPLES, MAX_STEPS, MAX_FACTOR, MAX_KERNEL = 16, 1000, 8, 99
MAX_SLICE, MAX_WORDS = 9999, 200


def prior_names() -> tuple[str, ...]:
    """The priors of photographs in the catalogue; that of scans is left out."""
    return tuple(name for name in catalogue.names() if name != "mri")


def is_measurement(name: str) -> bool:
    """Whether a file of this name is a measurement file, which stores its task."""
    return name.lower().endswith(SUFFIX)


def is_scan(name: str) -> bool:
    """Whether a file of this name is a raw scan."""
    return name.lower().endswith(SCAN_SUFFIXES)


@dataclass(frozen=True)
class Form:
    """The values of the page.

    ``noise``: "automatic" (the default of the task), "estimated" from the image, or "known":
    ``sigma_y``. ``method``, ``second``: rows of ``SOLVERS``, "default" and "none"; with a second
    one both are computed. ``steps``, ``quality``: 0 leaves the choice to the plan or to the file.
    ``blur``: "gaussian" (``size``, ``width``), "motion" (``length``, ``angle``) or "kernel" (a
    file). Of a scan ``slice`` is computed, with every ``acceleration``-th line where that is not 1;
    ``key`` and ``axes`` say where k-space is in a file of arrays. The others are fields of
    :class:`Options` and of the tasks.
    """

    task: str = "denoise"
    noise: str = "automatic"
    sigma_y: float = 0.05
    aim: str = "fidelity"
    method: str = DEFAULT_METHOD
    second: str = NO_METHOD
    steps: int = 0
    samples: int = 1
    seed: int = 0
    prior: str = DEFAULT_PRIOR
    factor: int = 4
    downsampler: str = "bicubic"
    blur: str = "gaussian"
    size: int = 9
    width: float = 2.0
    length: float = 15.0
    angle: float = 30.0
    boundary: str = "unknown"
    linear_light: bool = False
    quality: int = 0
    slice: int = 0
    acceleration: int = 1
    key: str = ""
    axes: str = ""

    def __post_init__(self) -> None:
        check_choice("task", self.task, tuple(TASK_LABELS))
        check_choice("noise", self.noise, NOISES)
        check_choice("aim", self.aim, tuple(AIMS))
        check_choice("method", self.method, (DEFAULT_METHOD, *METHODS))
        check_choice("second method", self.second, (NO_METHOD, DEFAULT_METHOD, *METHODS))
        check_choice("prior", self.prior, prior_names())  # a name: never a path or a Hub id
        check_choice("blur", self.blur, BLURS)
        check_choice("boundary", self.boundary, BOUNDARIES)
        check_number("sigma_y", self.sigma_y, 0, 1)
        check_count("steps", self.steps, 0, MAX_STEPS)
        check_count("samples", self.samples, 1, MAX_SAMPLES)
        check_count("seed", self.seed, 0, 2**31 - 1)
        check_count("factor", self.factor, 2, MAX_FACTOR)
        check_count("size", self.size, 1, MAX_KERNEL)
        check_number("width", self.width, 0, MAX_KERNEL, open_low=True)
        check_number("length", self.length, 1, MAX_KERNEL)
        check_number("angle", self.angle, -360, 360)
        check_count("quality", self.quality, 0, 100)
        check_count("slice", self.slice, 0, MAX_SLICE)
        check_count("acceleration", self.acceleration, 1, MAX_FACTOR)
        for name in ("key", "axes"):
            if len(getattr(self, name)) > MAX_WORDS:
                raise ArgumentError(f"{name} has more than {MAX_WORDS} letters; give the name only")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Form:
        """The form of the page's values: numbers arrive as int, float or None (an empty field)."""
        found: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in values:
                continue
            value, kind = values[field.name], type(getattr(cls, field.name))
            if value is None:
                raise ArgumentError(f"{field.name} is empty; give a value")
            if kind in (int, float) and not _is_number(value, kind):
                what = "a whole number" if kind is int else "a number"
                raise ArgumentError(f"{field.name} is {value!r}, expected {what}")
            found[field.name] = kind(value)
        return cls(**found)

    # what is computed ----------------------------------------------------------------------------
    @property
    def methods(self) -> tuple[str, ...]:
        """The methods to compute, one or two."""
        return (self.method,) if self.second == NO_METHOD else (self.method, self.second)

    @property
    def enlargement(self) -> int:
        """Side of the result relative to the side of the image."""
        return self.factor if self.task == "superres" else 1

    def task_values(self) -> dict[str, Any]:
        """The options of the task, as fields of its class, without the kernel of a file."""
        if self.task == "superres":
            other = {} if self.downsampler == "bicubic" else {"downsampler": self.downsampler}
            return {"factor": self.factor} | other
        if self.task == "deblur":
            kernels: dict[str, dict[str, Any]] = {
                "gaussian": {"gaussian": (self.size, self.width)},
                "motion": {"motion": (self.length, self.angle)},
                "kernel": {},
            }
            other = {} if self.boundary == "unknown" else {"boundary": self.boundary}
            light = {"linear_light": True} if self.linear_light else {}
            return kernels[self.blur] | other | light
        if self.task == "jpeg":
            return {"quality": self.quality} if self.quality else {}
        if self.task == "nonlinear-deblur":
            return {"length": self.length, "angle": self.angle}
        return {}

    def choice(self, image: Path, mask: Path | None, kernel: Path | None) -> TaskChoice:
        """The task of one file; that of a measurement file is stored in it."""
        if image.suffix == SUFFIX:
            return TaskChoice()
        values = self.task_values()
        if self.task == "inpaint" and mask is None:
            raise ArgumentError("no area is marked; paint over it with the brush, or give a mask")
        if self.task == "deblur" and self.blur == "kernel":
            if kernel is None:
                raise ArgumentError("the kernel file is missing; give a .npy file or choose a blur")
            values["kernel"] = read_kernel(kernel)
        return TaskChoice(self.task, options=values, mask=mask if self.task == "inpaint" else None)

    def option_values(self, method: str) -> dict[str, Any]:
        """The fields of :class:`Options` that differ from their defaults."""
        sigma_y = {"automatic": None, "estimated": "auto", "known": self.sigma_y}[self.noise]
        found = {
            "prior": self.prior,
            "method": None if method == DEFAULT_METHOD else method,
            "aim": self.aim,
            "sigma_y": sigma_y,
            "steps": self.steps or None,
            "samples": self.samples,
            "seed": self.seed,
        }
        if self.task == "mri":  # the prior of the list is one of photographs
            found["prior"] = DEFAULT_PRIOR
        usual = {"prior": DEFAULT_PRIOR, "aim": "fidelity", "samples": 1, "seed": 0}
        return {k: v for k, v in found.items() if v != usual.get(k)}

    def options(self, method: str) -> Options:
        """The options of the reconstruction with ``method``."""
        return Options(**self.option_values(method))

    # scans ---------------------------------------------------------------------------------------
    def reading(self) -> dict[str, str]:
        """Where k-space is in a file of arrays: the arguments of ``read_scan`` that are given."""
        return {k: v for k in ("key", "axes") if (v := getattr(self, k).strip())}

    def mask(self) -> MaskChoice | None:
        """The undersampling of a full scan."""
        if self.acceleration == 1:
            return None
        return MaskChoice(MASK, float(self.acceleration), seed=self.seed)

    # the same in other words ---------------------------------------------------------------------
    def command(self, method: str, image: str) -> str:
        """The command line that computes the same; ``image``: name of the user's file."""
        if self.task == "mri":
            words = ["pnpcm", "mri", image, "--slices", str(self.slice), *_flags(self.reading())]
            if self.acceleration != 1:
                words += ["--mask", MASK, "--acceleration", str(self.acceleration)]
            words += [*_flags(self.option_values(method)), "--format", ",".join(SCAN_FORMATS)]
            out = ["--out", f"out/{method}"] if len(self.methods) > 1 else []
            return shlex.join(words + out)
        words = ["pnpcm", "restore", image]
        if not is_measurement(image):
            words += ["--task", self.task, *_flags(self.task_values())]
            if self.task == "inpaint":
                words += ["--mask", MASK_NAME]
            if self.task == "deblur" and self.blur == "kernel":
                words += ["--kernel", KERNEL_NAME]
        words += _flags(self.option_values(method))
        if len(self.methods) > 1:
            words += ["--out", f"out/{method}"]
        return shlex.join(words)

    def code(self, method: str, image: str) -> str:
        """Python code that computes the same; ``image``: name of the user's file."""
        values = self.option_values(method)
        if self.task == "mri":
            mask = ""
            if self.acceleration != 1:
                arguments = f"{MASK!r}, {float(self.acceleration)}, seed={self.seed}"
                mask = f", mask=MaskChoice({arguments}).draw(scan.size)"
            return _SCAN.format(
                imports="from pnpcm.mri.masks import MaskChoice\n" if mask else "",
                scan=", ".join(filter(None, (repr(image), _keywords(self.reading())))),
                choices=f"slices=[{self.slice}]{mask}, options=pnpcm.Options({_keywords(values)})",
                formats=list(SCAN_FORMATS),
            )
        if is_measurement(image):
            given = "" if "sigma_y" in values else "sigma_y=measured.sigma_y"
            chosen = ", ".join(filter(None, (given, _keywords(values))))
            return _MEASURED.format(image=image, options=chosen)
        more, imports = "", []
        options = [f"{k!r}: {v!r}" for k, v in self.task_values().items()]
        if self.task == "inpaint":
            more, imports = f', mask=Path("{MASK_NAME}")', [_IMPORT_PATH]
        if self.task == "deblur" and self.blur == "kernel":
            options.append(f'"kernel": read_kernel(Path("{KERNEL_NAME}"))')
            imports = [_IMPORT_PATH, "from pnpcm.problems.choice import read_kernel\n"]
        if options:
            more = f", options={{{', '.join(options)}}}" + more
        return "".join(imports) + _PHOTO.format(
            image=image, choice=f"{self.task!r}{more}", options=_keywords(values)
        )


MASK = "gaussian1d"
"""The mask of lines with which a full scan is undersampled."""
SCAN_FORMATS = ("nifti",)
MASK_NAME, KERNEL_NAME = "mask.png", "kernel.npy"
"""Names of the mask and the kernel in the command line and the code."""
_IMPORT_PATH = "from pathlib import Path\n"
_PHOTO = """\
import pnpcm
from pnpcm.io.photos import read_photo
from pnpcm.problems import TaskChoice

photo = read_photo({image!r})
task, notes = TaskChoice({choice}).of(photo)
done = pnpcm.restore(photo.x, task, options=pnpcm.Options({options}))
print(done.report())
done.save("restored.png", like=photo)
"""
_MEASURED = """\
from pathlib import Path
import pnpcm
from pnpcm.problems.measurement import read_measurement

measured = read_measurement(Path({image!r}))
options = pnpcm.Options({options})
done = pnpcm.restore(measured.y, measured.task, options=options)
print(done.report())
done.save("restored.png")
"""

_SCAN = """\
import pnpcm
from pnpcm.mri import read_scan
{imports}from pnpcm.mri.writers import write_volume

scan = read_scan({scan})
volume = pnpcm.reconstruct(scan, {choices})
write_volume(volume, ".", {formats})
"""


def _keywords(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in values.items())


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return kind is float or value == int(value)


def _flags(values: Mapping[str, Any]) -> list[str]:
    """The values as words of the command line."""
    words = []
    for name, value in values.items():
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, tuple):
            words.append(",".join(map(str, value)))
        elif value is not True:
            words.append(str(value))
    return words
