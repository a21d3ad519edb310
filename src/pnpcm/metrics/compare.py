"""PSNR, SSIM and LPIPS of two image files, or of all pairs of two folders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.io.photos import SUFFIXES, Photo, read_photo
from pnpcm.metrics import psnr, ssim
from pnpcm.metrics.lpips import available, lpips

NEED, NEED_PERCEPTUAL = 350, 1500
"""Bytes of memory per pixel of a pair of images without and with LPIPS."""
METRICS = ("psnr", "ssim", "lpips_vgg", "lpips_alex")


@dataclass(frozen=True)
class Comparison:
    """Scores of one pair, or their means; None if a metric cannot be computed."""

    name: str
    psnr: float
    ssim: float | None
    lpips_vgg: float | None
    lpips_alex: float | None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no infinity: the PSNR of equal images is null."""
        content = asdict(self) | {"notes": list(self.notes), "equal": math.isinf(self.psnr)}
        return content | {"psnr": self.psnr if math.isfinite(self.psnr) else None}


@dataclass(frozen=True)
class Pairs:
    """Pairs of files (reference, output) of the same stem, and the unpaired files."""

    files: tuple[tuple[Path, Path], ...]
    only_ref: tuple[Path, ...] = ()
    only_out: tuple[Path, ...] = ()


def pair(ref: Path, out: Path) -> Pairs:
    """The pair of two files, or the images of two folders paired by name without suffix.

    An output NAME.TASK.png of ``pnpcm restore`` is paired with NAME.
    """
    for name, path in (("REF", ref), ("OUT", out)):
        if not path.exists():
            raise ArgumentError(f"{name} is {path}, which does not exist")
    if ref.is_dir() != out.is_dir():
        raise ArgumentError(
            f"REF is {ref} and OUT is {out}: one is a folder, the other is not; "
            "give two images or two folders"
        )
    if not ref.is_dir():
        return Pairs(((ref, out),))
    mine = _by_stem(ref)
    theirs = _named_like(mine, _by_stem(out))
    common = sorted(mine.keys() & theirs.keys())
    if not common:
        raise ArgumentError(
            f"no image in {out} is named like one in {ref} ({len(theirs)} and {len(mine)} "
            f"images of {', '.join(SUFFIXES)}); names must agree up to the suffix"
        )
    return Pairs(
        tuple((mine[stem], theirs[stem]) for stem in common),
        tuple(mine[stem] for stem in sorted(mine.keys() - theirs.keys())),
        tuple(theirs[stem] for stem in sorted(theirs.keys() - mine.keys())),
    )


@torch.no_grad()
def compare_files(
    ref: Path, out: Path, *, perceptual: bool = True, max_pixels: int | None = None
) -> Comparison:
    """Scores of ``out`` against ``ref``, on stored pixel values without alpha.

    ``perceptual=False`` omits LPIPS, which takes most of the time and memory. ``max_pixels``:
    larger images are refused; None: what the memory allows.
    """
    need = NEED_PERCEPTUAL if perceptual and available() else NEED
    one, two = (read_photo(path, max_pixels=max_pixels, need=need) for path in (ref, out))
    if one.x.shape[-2:] != two.x.shape[-2:]:
        sizes = ["{3}×{2}".format(*photo.x.shape) for photo in (one, two)]
        raise ArgumentError(
            f"{ref} is {sizes[0]} and {out} is {sizes[1]} pixels; crop or resize one of them"
        )
    x_true, x = one.x, two.x
    if x.shape != x_true.shape:
        x_true, x = (t.expand(-1, 3, -1, -1) for t in (x_true, x))
    return Comparison(
        name=ref.stem if ref.stem == out.stem else f"{ref.stem} / {out.stem}",
        psnr=float(psnr(x, x_true)),
        ssim=_or_none(lambda: ssim(x, x_true)),
        lpips_vgg=_perceptual(x, x_true, "vgg") if perceptual else None,
        lpips_alex=_perceptual(x, x_true, "alex") if perceptual else None,
        notes=_notes(one, two),
    )


def mean(rows: Sequence[Comparison]) -> Comparison:
    """The mean of each metric over the rows that have it; infinite PSNR stays infinite."""
    means: dict[str, Any] = {}
    for metric in METRICS:
        values = [value for row in rows if (value := getattr(row, metric)) is not None]
        means[metric] = sum(values) / len(values) if values else None
    return Comparison(name="mean", **means)


def _by_stem(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
            continue
        if path.stem in found:
            raise ArgumentError(
                f"{folder} has {found[path.stem].name} and {path.name}, which agree up to the "
                "suffix; remove one of them"
            )
        found[path.stem] = path
    return found


def _named_like(refs: dict[str, Path], outs: dict[str, Path]) -> dict[str, Path]:
    """``outs`` with NAME.TASK as NAME if only that is the name of a reference."""
    found: dict[str, Path] = {}
    for stem, path in outs.items():
        name = stem.rpartition(".")[0]
        if stem not in refs and name in refs and name not in outs:
            if name in found:
                raise ArgumentError(
                    f"{path.parent} has {found[name].name} and {path.name}, results of two tasks "
                    f"for {refs[name]}; compare two files, or move one of them"
                )
            stem = name
        found[stem] = path
    return found


def _perceptual(x: Tensor, x_true: Tensor, network: str) -> float | None:
    if not available():
        return None
    return _or_none(lambda: lpips(x, x_true, network=network))


def _or_none(metric: Any) -> float | None:
    try:
        return float(metric())
    except ShapeError:  # shapes agree, so the image is too small for this metric
        return None


def _notes(ref: Photo, out: Photo) -> tuple[str, ...]:
    notes = []
    if ref.x.shape[1] != out.x.shape[1]:
        grey = ref if ref.x.shape[1] == 1 else out
        notes.append(f"{grey.path.name} is grey and compared as three equal channels")
    if ref.alpha is not None or out.alpha is not None:
        notes.append("alpha is not compared")
    if ref.icc != out.icc:
        notes.append("colour profiles differ, values are compared as stored")
    return tuple(notes)
