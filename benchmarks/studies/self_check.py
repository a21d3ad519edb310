"""How often the self-check of a result is right: 40 right and 40 wrong cases on photographs.

    python benchmarks/studies/self_check.py [--images FOLDER] [--seed 0] [--out out/self-check]

Needs $PNPCM_DATA. A right case is restored with its operator and noise level, a wrong one with
another kernel, noise level or factor, or it is not a photograph. A case is called right if
``check.ok`` is True for a right case and False for a wrong one. Centre crops (96²) of CBSD68,
which nothing was trained, tuned or chosen on; --images takes another folder, e.g. to choose
thresholds on training images. Prints the table of all cases and the counts; writes them to --out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from images import centre, markdown, pictures
from pnpcm.io.files import read_image, write_text
from pnpcm.metrics import psnr
from pnpcm.places import existing
from pnpcm.problems import Deblur, Denoise, Inpaint, Jpeg, SuperRes, Task
from pnpcm.problems.measurement import simulate
from pnpcm.recon import Options, Restoration
from pnpcm.recon.photo import restore_with
from pnpcm.recon.plan import Priors
from pnpcm.training.sources import Magnitude

SIDE = 96
MOTION = Deblur(motion=(15, 30))
GAUSS = Deblur(gaussian=(9, 2.0))


@dataclass(frozen=True)
class Case:
    """A simulated measurement and what is said about it; ``told``: sigma_y, None: estimated."""

    kind: str
    task: Task
    sigma_y: float
    declared: Task
    told: float | None
    choices: tuple[tuple[str, object], ...] = ()


def right(task: Task, sigma_y: float, *, estimated: bool = False, **choices: object) -> Case:
    return Case("right", task, sigma_y, task, None if estimated else sigma_y, (*choices.items(),))


RIGHT = (
    right(Denoise(), 0.04),
    right(Denoise(), 0.1),
    right(Denoise(), 0.2),
    right(Denoise(), 0.06, estimated=True),
    right(Denoise(), 50 / 255, method="pnp-cm", steps=8),
    right(GAUSS, 0.02),
    right(Deblur(gaussian=(5, 10.0)), 0.05),
    right(Deblur(gaussian=(9, 1.5)), 0.03, estimated=True),
    right(MOTION, 0.02),
    right(Deblur(motion=(9, 75)), 0.01),
    right(SuperRes(2), 0.0),
    right(SuperRes(4), 0.02),
    right(SuperRes(4), 0.0),
    right(SuperRes(3), 0.05, estimated=True),
    right(Inpaint(missing=0.5), 0.0),
    right(Inpaint(missing=0.7), 0.05),
    right(Inpaint(missing=0.3), 0.1),
    right(Jpeg(10), 0.0),
    right(Jpeg(30), 0.0),
    right(Jpeg(70), 0.0),
)
WRONG = (
    Case("kernel", GAUSS, 0.02, Deblur(gaussian=(9, 1.2)), 0.02),
    Case("kernel", GAUSS, 0.02, Deblur(gaussian=(15, 3.0)), 0.02),
    Case("kernel", GAUSS, 0.02, Deblur(motion=(9, 0)), 0.02),
    Case("kernel", MOTION, 0.02, Deblur(motion=(15, 75)), 0.02),
    Case("kernel", MOTION, 0.02, Deblur(motion=(9, 30)), 0.02),
    Case("kernel", Deblur(motion=(9, 75)), 0.01, Deblur(motion=(15, 75)), 0.01),
    Case("noise", Denoise(), 0.1, Denoise(), 0.05),
    Case("noise", Denoise(), 0.1, Denoise(), 0.2),
    Case("noise", Denoise(), 0.06, Denoise(), 0.18),
    Case("noise", GAUSS, 0.03, GAUSS, 0.015),
    Case("noise", Inpaint(missing=0.5), 0.05, Inpaint(missing=0.5), 0.15),
    Case("factor", SuperRes(2), 0.0, SuperRes(4), 0.0),
    Case("factor", SuperRes(4), 0.02, SuperRes(2), 0.02),
    Case("leftover", Denoise(), 0.2, Denoise(), 0.02),
    Case("leftover", Denoise(), 0.1, Denoise(), 0.01),
    Case("leftover", SuperRes(2), 0.1, SuperRes(2), 0.01),
    Case("leftover", GAUSS, 0.05, GAUSS, 0.005),
    Case("foreign", Denoise(), 0.05, Denoise(), 0.05, (("content", "noise"),)),
    Case("foreign", SuperRes(2), 0.02, SuperRes(2), 0.02, (("content", "text"),)),
    Case("foreign", Denoise(), 0.05, Denoise(), 0.05, (("content", "brain"),)),
)


# images ------------------------------------------------------------------------------------------
def photos(folder: Path, seed: int) -> list[Tensor]:
    """Crops of all photographs of a folder, in a random order."""
    paths = pictures(folder)
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(seed))
    found = (read_image(paths[i]) for i in order.tolist())
    return [centre(x, SIDE) for x, _ in zip(found, range(40), strict=False)]


def text(seed: int) -> Tensor:
    """Black letters on white."""
    page = Image.new("L", (SIDE, SIDE), 255)
    draw = ImageDraw.Draw(page)
    letters = torch.randint(97, 123, (10, 24), generator=torch.Generator().manual_seed(seed))
    for i, row in enumerate(letters.tolist()):
        draw.text((4, 4 + 12 * i), "".join(chr(c) if c % 6 else " " for c in row), fill=0)
    grey = torch.tensor(list(page.tobytes()), dtype=torch.float32).reshape(1, 1, SIDE, SIDE)
    return grey.expand(1, 3, SIDE, SIDE) / 127.5 - 1


def noise(seed: int) -> Tensor:
    """Uniform noise."""
    return torch.rand((1, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(seed)) * 2 - 1


def brain(seed: int) -> Tensor:
    """A magnitude slice of a training subject of `mri`, black to white."""
    source = Magnitude(existing("$PNPCM_DATA/mri/ixi_t1_axial_128.npz"), jitter=0.0)
    generator = torch.Generator().manual_seed(seed)
    i = int(torch.randint(len(source), (), generator=generator))
    size = source.image(i, generator).square().sum(0).sqrt()
    return (2 * size / size.max() - 1).expand(1, 3, -1, -1)


FOREIGN: dict[str, Callable[[int], Tensor]] = {"noise": noise, "text": text, "brain": brain}


def run(
    cases: tuple[Case, ...], images: list[Tensor], priors: Priors, seed: int
) -> Iterator[tuple[Case, Restoration, float]]:
    """Each case on two images: its result, and PSNR."""
    for i, case in enumerate(2 * cases):
        choices = dict(case.choices)
        content = choices.pop("content", None)
        x = images[(i + i // 40 * 7) % 40] if content is None else FOREIGN[str(content)](seed + i)
        measured = simulate(x, case.task, case.sigma_y, seed=seed + i)
        declared = measured.task if isinstance(case.declared, Inpaint) else case.declared
        options = Options.of(None, choices | {"sigma_y": case.told})
        done = restore_with(measured.y, declared, options, priors)
        same = done.x.shape == x.shape
        yield case, done, float(psnr(done.x, x)) if same else float("nan")


def words(case: Case) -> str:
    """The measurement, and what was declared where it differs."""

    def of(task: Task, sigma_y: float | None) -> str:
        values = [str(v) for v in task.plain().values()] if not isinstance(task, Denoise) else []
        return " ".join([task.name, *values[:1], "σ", "?" if sigma_y is None else f"{sigma_y:.3g}"])

    said, true = of(case.declared, case.told), of(case.task, case.sigma_y)
    return true if said == true else f"{true} as {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/self-check"))
    options = parser.parse_args()
    folder = options.images or existing("$PNPCM_DATA/natural_test/CBSD68")
    images, priors = photos(folder, options.seed), Priors("natural")
    rows: list[list[str]] = []
    counts: dict[str, list[bool]] = {}
    found = run((*RIGHT, *WRONG), images, priors, options.seed)
    for case, done, score in found:
        good = done.check.ok == (case.kind == "right")
        counts.setdefault(case.kind, []).append(good)
        said = "; ".join(done.check.lines())
        rows.append([case.kind, words(case), f"{score:.2f}", str(good), said])
        print(*rows[-1], sep=" | ", flush=True)
    total = [[kind, f"{sum(each)} of {len(each)}"] for kind, each in counts.items()]
    counted = markdown(("kind", "called right"), total)
    print(f"\n{counted}")
    options.out.mkdir(parents=True, exist_ok=True)
    each = markdown(("kind", "case", "PSNR", "called right", "self-check"), rows)
    write_text(options.out / "table.md", f"{each}\n{counted}")


if __name__ == "__main__":
    main()
