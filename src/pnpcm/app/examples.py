"""Examples of the page: bundled photographs, degraded, with the values that restore them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageChops, ImageDraw
from torch import Tensor

from pnpcm.io.files import Picture, read_image, save_picture, to_picture
from pnpcm.mri import gaussian1d, phantoms, write_simulated
from pnpcm.problems import Deblur, Denoise, SuperRes, Task
from pnpcm.problems.measurement import preview, simulate


@dataclass(frozen=True)
class Example:
    """A degraded photograph or a scan; ``values``: fields of ``Form`` that differ from their
    defaults; ``picture``: what is shown of a file that is not an image."""

    label: str
    image: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    mask: Path | None = None
    picture: Path | None = None


def make_examples(folder: Path) -> tuple[Example, ...]:
    """Write the images of the examples to ``folder``."""
    folder.mkdir(parents=True)
    noisy = _measured("picosdeeuropa_by_Aitzol_Berasategi.png", Denoise(), 0.1)
    small = _measured("friends_by_Aitzol_Berasategi.png", SuperRes(factor=4), 0.0)
    moved = _measured("Picture_0B_by_freespace.png", Deblur(motion=(11, 30)), 0.01)
    scratched = to_picture(_photo("seeding_by_Clements_Engelhardt.png")[0])
    mask = _scratches(scratched.size)
    scratched.paste("white", mask=mask)
    pictures = {
        "noise": noisy,
        "scratches": scratched,
        "scratches-mask": mask,
        "small": small,
        "motion": moved,
    }
    for name, picture in pictures.items():
        save_picture(folder / f"{name}.png", picture)
    coarse = to_picture(_photo("Wine_by_Jakkub_Mede.png")[0])
    coarse.save(folder / "coarse.jpg", quality=10)
    return (
        Example("Noise", folder / "noise.png"),
        Example(
            "Scratches",
            folder / "scratches.png",
            {"task": "inpaint"},
            mask=folder / "scratches-mask.png",
        ),
        Example("JPEG", folder / "coarse.jpg", {"task": "jpeg"}),
        Example("Small", folder / "small.png", {"task": "superres", "factor": 4}),
        Example(
            "Moved",
            folder / "motion.png",
            {"task": "deblur", "blur": "motion", "length": 11.0, "angle": 30.0},
        ),
        *_scan(folder),
    )


def _scan(folder: Path) -> list[Example]:
    """An undersampled scan of a phantom; none without the library of its format."""
    if find_spec("h5py") is None:
        return []
    scan, picture = folder / "scan.h5", folder / "scan.png"
    image = phantoms(1, (128, 128))
    mask = gaussian1d(128, 4, 12, generator=torch.Generator().manual_seed(0))
    write_simulated(scan, image, n_coils=8, noise_std=0.005, mask=mask)
    save_picture(picture, to_picture(2 * image / image.max() - 1))
    return [Example("MRI", scan, {"task": "mri"}, picture=picture)]


def _photo(name: str) -> Tensor:
    with as_file(files("pnpcm") / "data" / name) as path:
        return read_image(path)


def _measured(name: str, task: Task, sigma_y: float) -> Picture:
    y = preview(simulate(_photo(name), task, sigma_y))
    assert y is not None  # the measurements of these tasks are images
    return to_picture(y)


def _scratches(size: tuple[int, int]) -> Picture:
    """A mask of four thin lines, white where the image is scratched."""
    mask = Image.new("L", size)
    draw = ImageDraw.Draw(mask)
    for i, (top, bottom) in enumerate(((20, 35), (95, 70), (150, 190), (230, 205))):
        draw.line((0, top, size[0], bottom), fill=255, width=2 + i % 2)
    return ImageChops.lighter(mask, mask.transpose(Image.Transpose.TRANSPOSE))
