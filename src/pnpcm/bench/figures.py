"""Figures of a report: pictures and error maps as data URIs, plots as inline SVG."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pnpcm.errors import MissingExtraError
from pnpcm.io.files import Picture

SMALL = 96
"""Pictures up to this side are embedded without loss; iterates are reduced to it."""
LARGEST = 512
QUALITY = 85
ERROR_QUALITY = 60
"""Of error maps above side 96; the colours of noise take many bytes."""
ERROR_SCALE = 0.2
"""Value of |x − x_true| at the end of the colour map."""
COLOUR_MAP = "inferno"
COLOURS = (
    "#3f86c9", "#dd7a33", "#3f9e62", "#cc5571", "#8f70c9", "#9b7d52", "#2ca5b3", "#c66bb0",
    "#9d9c2b", "#7d8a92",
)  # fmt: skip
MARKERS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("*", "★"), ("P", "✚"))
"""Markers of matplotlib, and the same shape as a character for legends."""
INK = "#010203"
"""Colour of text and axes in plots, replaced by the text colour of the page."""


@dataclass(frozen=True)
class Embedded:
    """A picture as a data URI, with its size as stored in the page."""

    uri: str
    width: int
    height: int


def embed(path: Path) -> Embedded:
    """A picture file: without loss up to side 96, else as WebP with side up to 512."""
    with Image.open(path) as picture:
        return _embedded(picture, LARGEST)


def thumbnail(path: Path) -> Embedded:
    """A picture file as WebP, reduced to side 96."""
    with Image.open(path) as picture:
        return _webp(picture, SMALL, QUALITY)


def error_map(path: Path, truth: Path) -> Embedded | None:
    """|x − x_true| on [0, 1], mean of the channels, in colours; None if the sizes differ."""
    with Image.open(path) as a, Image.open(truth) as b:
        if a.size != b.size:
            return None
        x, x_true = (np.asarray(p.convert("RGB"), dtype=np.float32) / 255 for p in (a, b))
    error = np.abs(x - x_true).mean(2)
    level = np.minimum(error / ERROR_SCALE, 1) * 255
    picture = Image.fromarray(level.round().astype(np.uint8)).convert("P")
    picture.putpalette(colours().tobytes())
    return _embedded(picture, LARGEST, ERROR_QUALITY)


@cache
def colours() -> Any:
    """256 colours ``(256, 3)`` of the error maps, uint8."""
    from_matplotlib = matplotlib().colormaps[COLOUR_MAP](np.arange(256))
    return (255 * from_matplotlib[:, :3]).round().astype(np.uint8)


def gradient() -> str:
    """The colour map as colours of a CSS gradient."""
    return ", ".join(f"#{r:02x}{g:02x}{b:02x}" for r, g, b in colours()[:: 255 // 5])


def _embedded(picture: Picture, side: int, quality: int = QUALITY) -> Embedded:
    if max(picture.size) > SMALL:
        return _webp(picture, side, quality)
    file = io.BytesIO()
    picture.save(file, "png")
    return Embedded(_uri(file.getvalue(), "png"), *picture.size)


def _webp(picture: Picture, side: int, quality: int) -> Embedded:
    picture = picture.convert("RGB")
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)  # never enlarges
    file = io.BytesIO()
    picture.save(file, "webp", quality=quality)
    return Embedded(_uri(file.getvalue(), "webp"), *picture.size)


def _uri(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


# plots -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Curve:
    """Points (cost, score) of a method; ``number``: its position in the legend."""

    number: int
    points: tuple[tuple[float, float], ...]


def colour(number: int) -> str:
    """Colour of the n-th method."""
    return COLOURS[number % len(COLOURS)]


def shape(number: int) -> str:
    """Marker of the n-th method, as a character."""
    return MARKERS[number % len(MARKERS)][1]


def plot(curves: Sequence[Curve], *, name: str, xlabel: str, ylabel: str) -> str:
    """Scores against a cost on a logarithmic axis, as SVG for a page.

    Points of a method are joined in the order of cost. A point without cost is a dashed line.
    ``name`` prefixes the identifiers, which must differ between the plots of a page.
    """
    matplotlib()
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(4.2, 2.9))
        axes = figure.add_axes((0.185, 0.17, 0.785, 0.79))
        for curve in curves:
            marker = MARKERS[curve.number % len(MARKERS)][0]
            points = sorted(point for point in curve.points if point[0] > 0)
            if points:
                axes.plot(
                    *zip(*points, strict=True), marker=marker, color=colour(curve.number),
                    linewidth=1.2, markersize=6,
                )  # fmt: skip
            for _, score in (point for point in curve.points if point[0] <= 0):
                axes.axhline(score, color=colour(curve.number), linestyle="--", linewidth=1)
        axes.set_xscale("log")
        axes.margins(y=0.08)
        costs = [cost for curve in curves for cost, _ in curve.points if cost > 0]
        _ticks(axes, costs)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(color=INK, alpha=0.12, linewidth=0.6)
        return inline(figure, name)


@contextmanager
def styled() -> Iterator[None]:
    """Figures that are made and saved within have the colours and the font size of a page."""
    style = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK)
    style |= {"xtick.color": INK, "ytick.color": INK, "font.size": "9"}
    more = {"svg.fonttype": "none", "svg.hashsalt": "pnpcm", "axes.spines.top": False}
    with matplotlib().rc_context(style | more | {"axes.spines.right": False}):
        yield


def inline(figure: Any, name: str) -> str:
    """A figure as SVG for a page, whose identifiers begin with ``name``."""
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return _inline(file.getvalue(), name)


def _ticks(axes: Any, costs: Sequence[float]) -> None:
    """Ticks at multiples of powers of ten, of which fewer are used for a wider range."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = (min(costs), max(costs)) if costs else (1.0, 10.0)
    low, high = low / 1.3, high * 1.3
    axes.set_xlim(low, high)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    decades = np.log10(high / low)
    factors = (1, 2, 3, 4, 6, 8) if decades < 0.9 else (1, 2, 4) if decades < 2.2 else (1,)
    ticks = [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _inline(svg: str, name: str) -> str:
    """SVG inside a page: no head, no namespaces, own identifiers, text in the page's colour."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg)
    return svg.replace(INK, "currentColor").replace("<svg", '<svg aria-hidden="true"', 1)


def matplotlib() -> Any:
    """The module, imported when it is needed."""
    try:
        import matplotlib as module
    except ImportError as error:
        raise MissingExtraError(
            "the report needs matplotlib; pip install 'pnpcm[bench]'"
        ) from error
    return module
