"""Files written by other tools: each is restored, or refused with one sentence (`make slow`).

Files are written by Pillow, OpenCV and ImageMagick; without the tool a case is skipped. Every case
is its own process of `pnpcm restore`. Checked are the exit code, the sentence, that a restored
image is better than the degraded one if the clean one is known, and that no partial file is left.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter
from torch import Tensor

import pnpcm
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr

pytestmark = pytest.mark.slow
PHOTOS = Path(pnpcm.__file__).parent / "data"
SIDE = 160


@dataclass(frozen=True)
class Case:
    """``words``: options of restore; ``code``: its exit code; ``clean``: to compare with."""

    name: str
    made_by: str
    make: Callable[[Path], Path]
    words: Sequence[str]
    code: int = 0
    clean: bool = True
    says: str = ""


def photo(side: int = SIDE, offset: int = 40) -> Image.Image:
    with Image.open(PHOTOS / "Wine_by_Jakkub_Mede.png") as whole:
        return whole.convert("RGB").crop((offset, offset, offset + side, offset + side))


def noisy(std: float = 15, side: int = SIDE) -> Image.Image:
    values = np.asarray(photo(side), np.float64)
    values = values + np.random.default_rng(0).normal(0, std, values.shape)
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def scribbled(folder: Path) -> Path:
    image, mask = photo(), Image.new("L", (SIDE, SIDE))
    for each, colour in ((image, "red"), (mask, "white")):
        draw = ImageDraw.Draw(each)
        draw.line((10, 10, 150, 90, 30, 140), fill=colour, width=4)
        draw.text((60, 20), "hello", fill=colour)
    mask.save(folder / "mask-of-scribbles.png")
    return save(image, folder / "scribbles.png")


def cut(folder: Path, name: str, source: Image.Image, **options: object) -> Path:
    path = save(source, folder / name, **options)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def text(folder: Path) -> Path:
    path = folder / "text.png"
    path.write_text("this is not a picture")
    return path


def empty(folder: Path) -> Path:
    (folder / "empty").mkdir(exist_ok=True)
    return folder / "empty"


def sixteen(folder: Path) -> Path:
    import tifffile

    values = np.asarray(noisy(), np.float64) * 257 + np.random.default_rng(1).normal(
        0, 60, (SIDE, SIDE, 3)
    )
    path = folder / "sixteen.tif"
    tifffile.imwrite(path, np.clip(values, 0, 65535).astype(np.uint16), photometric="rgb")
    return path


def rgba(folder: Path) -> Path:
    image = noisy().convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize((SIDE, SIDE)))
    return save(image, folder / "rgba.png")


def panorama(folder: Path) -> Path:
    wide = Image.new("RGB", (1600, 96))
    for k in range(10):
        wide.paste(noisy().crop((0, 0, 160, 96)), (160 * k, 0))
    return save(wide, folder / "panorama.png")


def opencv_cases() -> list[Case]:
    def write(
        path: Path, change: Callable[[Any, Any], Any], flag: str = "", value: int = 0
    ) -> Path:
        import cv2

        clean = np.asarray(noisy() if flag == "IMWRITE_WEBP_QUALITY" else photo())
        flags = [getattr(cv2, flag), value] if flag else []
        cv2.imwrite(str(path), cv2.cvtColor(change(cv2, clean), cv2.COLOR_RGB2BGR), flags)
        return path

    return [
        Case(
            "Gaussian blur",
            "OpenCV",
            lambda f: write(f / "cvblur.png", lambda cv2, x: cv2.GaussianBlur(x, (9, 9), 2)),
            ("--task", "deblur", "--gaussian", "9,2", "--sigma-y", "0.003"),
        ),
        Case(
            "JPEG quality 10",
            "OpenCV",
            lambda f: write(f / "cv10.jpg", lambda cv2, x: x, "IMWRITE_JPEG_QUALITY", 10),
            ("--task", "jpeg"),
        ),
        Case(
            "reduced by area",
            "OpenCV",
            lambda f: write(
                f / "cvsmall.png",
                lambda cv2, x: cv2.resize(x, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
            ),
            ("--task", "superres", "--factor", "2", "--downsampler", "area"),
        ),
        Case(
            "WebP with noise",
            "OpenCV",
            lambda f: write(f / "cv.webp", lambda cv2, x: x, "IMWRITE_WEBP_QUALITY", 101),
            ("--task", "denoise"),
        ),
    ]


def imagemagick_cases() -> list[Case]:
    def convert(folder: Path, name: str, *words: str) -> Path:
        source = save(photo(), folder / "magick-source.png")
        subprocess.run(["convert", str(source), *words, str(folder / name)], check=True)
        return folder / name

    return [
        Case(
            "Gaussian blur",
            "ImageMagick",
            lambda f: convert(f, "magick-blur.png", "-gaussian-blur", "0x1.5"),
            ("--task", "deblur", "--gaussian", "11,1.5", "--sigma-y", "0.003"),
        ),
        Case(
            "CMYK JPEG",
            "ImageMagick",
            lambda f: convert(f, "magick-cmyk.jpg", "-colorspace", "CMYK"),
            ("--task", "denoise"),
            0,
            False,
        ),
        Case(
            "grey 16-bit PNG",
            "ImageMagick",
            lambda f: convert(f, "magick-grey.png", "-colorspace", "Gray", "-depth", "16"),
            ("--task", "superres", "--factor", "2"),
            0,
            False,
        ),
        Case(
            "animated GIF",
            "ImageMagick",
            lambda f: convert(f, "magick.gif", "-duplicate", "1"),
            ("--task", "denoise"),
            2,
            False,
        ),
    ]


def pillow_cases() -> list[Case]:
    denoise = ("--task", "denoise")
    return [
        Case("noise, PNG", "Pillow", lambda f: save(noisy(), f / "noisy.png"), denoise),
        Case(
            "JPEG quality 5",
            "Pillow",
            lambda f: save(photo(), f / "q5.jpg", quality=5),
            ("--task", "jpeg"),
        ),
        Case(
            "JPEG quality 10, progressive, 4:4:4",
            "Pillow",
            lambda f: save(photo(), f / "q10.jpg", quality=10, progressive=True, subsampling=0),
            ("--task", "jpeg"),
        ),
        Case(
            "grey JPEG quality 8",
            "Pillow",
            lambda f: save(photo().convert("L"), f / "grey.jpg", quality=8),
            ("--task", "jpeg"),
            0,
            False,
        ),
        Case(
            "blurred, real border",
            "Pillow",
            lambda f: save(
                photo(220, 10).filter(ImageFilter.GaussianBlur(1.5)).crop((30, 30, 190, 190)),
                f / "blur.png",
            ),
            ("--task", "deblur", "--gaussian", "11,1.5", "--sigma-y", "0.003"),
        ),
        Case(
            "reduced bicubically",
            "Pillow",
            lambda f: save(photo().resize((40, 40), Image.Resampling.BICUBIC), f / "small.png"),
            ("--task", "superres", "--factor", "4", "--sigma-y", "0.005"),
        ),
        Case(
            "scribbles, mask",
            "Pillow",
            scribbled,
            ("--task", "inpaint", "--mask", "{folder}/mask-of-scribbles.png", "--sigma-y", "0.005"),
        ),
        Case(
            "scribbles, colour",
            "Pillow",
            scribbled,
            ("--task", "inpaint", "--mask-color", "#ff0000", "--sigma-y", "0.005"),
        ),
        Case("16-bit TIFF", "tifffile", sixteen, denoise, 0, False),
        Case("RGBA PNG", "Pillow", rgba, denoise, 0, False),
        Case(
            "palette PNG",
            "Pillow",
            lambda f: save(noisy().convert("P"), f / "palette.png"),
            denoise,
            0,
            False,
        ),
        Case(
            "1-pixel-wide",
            "Pillow",
            lambda f: save(noisy().crop((0, 0, 1, SIDE)), f / "thin.png"),
            (*denoise, "--sigma-y", "0.06"),
            0,
            False,
        ),
        Case(
            "1-pixel-wide, noise unknown",
            "Pillow",
            lambda f: save(noisy().crop((0, 0, 1, SIDE)), f / "thin.png"),
            denoise,
            2,
            False,
            "sigma_y",
        ),
        Case("panorama", "Pillow", panorama, denoise, 0, False),
        Case(
            "truncated JPEG",
            "Pillow",
            lambda f: cut(f, "cut.jpg", photo(), quality=90),
            ("--task", "jpeg"),
            2,
            False,
        ),
        Case("truncated PNG", "Pillow", lambda f: cut(f, "cut.png", photo()), denoise, 2, False),
        Case("text named .png", "–", text, denoise, 2, False),
        Case("empty folder", "–", empty, denoise, 2, False, "without pictures"),
        Case("missing file", "–", lambda f: f / "nowhere.png", denoise, 2, False, "does not exist"),
        Case(
            "mask of another size",
            "Pillow",
            lambda f: (scribbled(f), save(photo(100), f / "a.png"))[1],
            ("--task", "inpaint", "--mask", "{folder}/mask-of-scribbles.png"),
            2,
            False,
            "mask is 160×160",
        ),
        Case(
            "PNG as JPEG task",
            "Pillow",
            lambda f: save(photo(), f / "a.png"),
            ("--task", "jpeg"),
            2,
            False,
        ),
    ]


def is_there(tool: str) -> bool:
    """Whether the tool that writes the file of a case can be used."""
    if tool == "OpenCV":
        return find_spec("cv2") is not None
    if tool != "ImageMagick":
        return True
    if shutil.which("convert") is None:
        return False
    said = subprocess.run(["convert", "-version"], capture_output=True, text=True, check=False)
    return said.returncode == 0 and "ImageMagick" in said.stdout


CASES = [*pillow_cases(), *opencv_cases(), *imagemagick_cases()]


@pytest.mark.parametrize("case", CASES, ids=[f"{c.made_by}: {c.name}" for c in CASES])
def test_a_file_is_restored_or_refused_with_one_sentence(case: Case, tmp_path: Path) -> None:
    if not is_there(case.made_by):
        pytest.skip(f"{case.made_by} is not installed")
    source, out = case.make(tmp_path), tmp_path / "out"
    words = [w.format(folder=tmp_path) for w in case.words]
    command = [sys.executable, "-m", "pnpcm", "restore", str(source), *words, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == case.code, done.stderr
    assert "Traceback" not in done.stderr
    left = sorted(p.name for p in out.glob("*")) if out.exists() else []
    assert not any(name.startswith(".") for name in left)
    if case.code:
        assert left == []
        assert done.stderr.count("\n") == 1
        assert case.says in done.stderr
        return
    picture = next(out / name for name in left if not name.endswith(".json"))
    if case.clean:
        truth = as_tensor(photo(), tmp_path)
        with Image.open(source) as measured:
            before = measured.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        assert psnr(read_image(picture), truth) > psnr(as_tensor(before, tmp_path), truth)


def as_tensor(image: Image.Image, folder: Path) -> Tensor:
    return read_image(save(image, folder / "as-tensor.png"))
