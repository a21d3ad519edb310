"""View: what the page shows of a result. Pictures are reduced to the size of a screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.core import Step
from pnpcm.io.files import Picture, to_picture
from pnpcm.io.photos import Photo, upright
from pnpcm.mri.writers.pictures import tile
from pnpcm.mri.writers.pictures import window as largest
from pnpcm.mri.writers.volume import Volume, to_array
from pnpcm.mri.writers.volume import upright as upright_volume
from pnpcm.names import count_of
from pnpcm.problems.task import Window
from pnpcm.recon.check import UNEXPLAINED, Check
from pnpcm.recon.photo import Solved, heat

SHOWN_SIDE, THUMB_SIDE = 1600, 192
"""Largest sides in pixels of the pictures of a result and of its iterates."""
MAX_THUMBS = 12


@dataclass(frozen=True)
class Verdict:
    """The self-check in words; ``level``: "good", "care" or "bad", the colour on the page."""

    level: str
    title: str
    sentences: tuple[str, ...]


TITLES = {
    "good": "Self-check passed",
    "care": "Look at this result with care",
    "bad": "Do not use this result",
}


def verdict(check: Check) -> Verdict:
    """The verdict of a self-check: "bad" if the result does not explain the data."""
    level = "good" if check.ok else "care"
    if check.verdict.startswith(UNEXPLAINED):
        level = "bad"
    data = f"Data: {check.verdict} (residual {check.ratio:.2f} × expected)."
    return Verdict(
        level, TITLES[level], (data, f"Prior: {check.fit}.", *map(_ended, check.warnings))
    )


def _ended(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:].rstrip(".") + "."


class Iterates:
    """Callback of a solver: keeps small pictures of at most ``MAX_THUMBS`` iterations.

    After the limit every second one is dropped and only every second of the following is kept, and
    so on, so that memory is bounded for a run of any length; the last iteration is always kept.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[int, float, Picture]] = []
        self._last: tuple[int, float, Picture] | None = None
        self._every, self._size = 1, (1, 1)
        self._again = False

    def __call__(self, step: Step) -> None:
        self._again |= self._last is not None and step.k <= self._last[0]  # the next samples
        if self._again or step.x.shape[1] not in (1, 3) or step.x.is_complex():
            return
        picture = to_picture(step.x[0])
        self._size = picture.size
        one = step.k, step.sigma, reduced(picture, THUMB_SIDE)
        self._last = one
        if (step.k - 1) % self._every == 0:
            self._kept.append(one)
        if len(self._kept) > MAX_THUMBS:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def of_scan(self, step: Step) -> None:
        """The same for the complex images of a scan, of which the magnitude is kept."""
        x = step.x[:1].reshape(1, -1, 2, *step.x.shape[-2:])  # sets of coil maps
        magnitude = x.square().sum((1, 2)).sqrt()[None]
        top = float(magnitude.max()) or 1.0
        self(replace(step, x=2 * magnitude / top - 1))

    def slices(self, volume: Volume) -> list[tuple[Picture, str]]:
        """The pictures of a scan, cut to the size of ``volume`` and turned as it is."""
        (_, height, width), (w, h) = volume.shape, self._size
        window = (h // 2 - height // 2, w // 2 - width // 2, height, width)
        return [
            (shown_slice(_as_slice(picture, volume), THUMB_SIDE), words)
            for picture, words in self.pictures(window, None)
        ]

    def pictures(self, window: Window | None, photo: Photo | None) -> list[tuple[Picture, str]]:
        """The pictures, cut to the requested part and upright, each with a caption."""
        kept = [one for one in self._kept if one is not self._last]
        last = [] if self._last is None else [self._last]
        found = []
        for k, sigma, picture in [*kept[: MAX_THUMBS - 1], *last]:
            part = upright(picture.crop(self._box(picture, window)), photo)
            found.append((part, f"{k}: σ {sigma:.2g}" if sigma > 0 else f"{k}"))
        return found

    def _box(self, picture: Picture, window: Window | None) -> tuple[int, int, int, int]:
        if window is None:
            return (0, 0, *picture.size)
        top, left, height, width = window
        x, y = (small / large for small, large in zip(picture.size, self._size, strict=True))
        corners = left * x, top * y, (left + width) * x, (top + height) * y
        a, b, c, d = (round(value) for value in corners)
        return a, b, max(a + 1, c), max(b + 1, d)


@dataclass(frozen=True)
class View:
    """A result as it is shown: pictures, verdict, times, files and the same in other words.

    ``spread``: the standard deviation of the samples as a picture, with the value of white.
    ``files``: result and record first.
    """

    method: str
    before: Picture
    after: Picture
    spread: tuple[Picture, str] | None
    verdict: Verdict
    iterates: list[tuple[Picture, str]]
    seconds: Mapping[str, float]
    report: str
    record: Mapping[str, Any]
    files: tuple[Path, ...]
    command: str
    code: str

    @property
    def cost(self) -> str:
        """Method, network evaluations and time in one line."""
        evaluations = count_of(int(self.record["nfe"]), "network evaluation")
        return f"{self.method}, {evaluations}, {sum(self.seconds.values()):.1f} s"


def shown(x: Tensor, photo: Photo | None) -> Picture:
    """The first image of a batch as it is shown: upright and not larger than a screen."""
    return reduced(upright(to_picture(x[0]), photo), SHOWN_SIDE)


def spread(solved: Solved) -> tuple[Picture, str] | None:
    """The map of the standard deviation of the samples, and its scale; None for one sample."""
    std = solved.restoration.std
    if std is None:
        return None
    mean = std[0].mean(0)
    note = (
        f"Standard deviation of {solved.restoration.plan.options.samples} samples: mean "
        f"{50 * float(mean.mean()):.2f} %, largest {50 * float(mean.max()):.1f} % of the range. "
        "Bright: the samples differ."
    )
    return shown(heat(mean)[None], solved.photo), note


def shown_slice(volume: Volume, side: int = SHOWN_SIDE // 2) -> Picture:
    """The magnitude of the first slice, upright and in the proportions of its voxels."""
    turned = upright_volume(volume)
    values = turned.magnitude()
    return tile(values[0], largest(values), turned, side=side)


def _as_slice(picture: Picture, volume: Volume) -> Volume:
    """A picture of a slice as a volume with the geometry of ``volume``."""
    values = torch.from_numpy(np.array(picture.convert("L"), np.float32))
    return replace(volume, image=values[None] + 0j, std=None, reference=None)


def scan_spread(volume: Volume) -> tuple[Picture, str] | None:
    """The map of the standard deviation of the samples, and its scale; None for one sample."""
    if volume.std is None:
        return None
    turned = upright_volume(volume)
    assert turned.std is not None
    std, top = to_array(turned.std), float(turned.magnitude().max()) or 1.0
    white = largest(std)
    note = (
        f"Standard deviation of the samples: mean {100 * float(std.mean()) / top:.2f} % of the "
        f"largest magnitude; white: {100 * white / top:.1f} %. Bright: the samples differ."
    )
    return tile(std[0], white, turned, side=SHOWN_SIDE // 2, colour=True).convert("RGB"), note


def reduced(picture: Picture, side: int) -> Picture:
    """``picture`` with sides of at most ``side`` pixels."""
    if max(picture.size) <= side:
        return picture
    scale = side / max(picture.size)
    width, height = (max(1, round(n * scale)) for n in picture.size)
    small = picture.resize((width, height))
    small.info = dict(picture.info)
    return small
