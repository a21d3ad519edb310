"""The result as one HTML file: slices, errors, sampling and record, with its pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pnpcm import __version__
from pnpcm.io.files import Picture
from pnpcm.mri.writers.pictures import (
    PERCENTILE,
    evenly,
    magnitude_montage,
    shade,
    std_montage,
    tile,
    window,
)
from pnpcm.mri.writers.volume import NO_GEOMETRY, Array, Volume, to_array, upright

MOST_ROWS = 8
SIDES = {1: 480, 4: 288}
"""Number of slices → side of each in the montage; of more slices 192."""
ERROR_GAIN = 5
RADIOLOGICAL = (
    " Slices are turned to the usual view: the patient's front or head at the top, the patient's "
    "left (in sagittal slices: the back) at the right."
)
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d8dde3;
  --paper: #ffffff; --shade: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa4af; --line: #343b43;
  --paper: #14171a; --shade: #1d2125; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.7rem; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; border-bottom: 1px solid var(--line); }
h3 { margin: 1.25rem 0 .4rem; font-size: 1rem; }
p, figcaption, summary { color: var(--soft); max-width: 46rem; }
p { margin: .4rem 0; }
p.check { color: var(--ink); padding-left: .7rem; border-left: 5px solid #15803d; }
p.check.care { border-color: #b45309; }
.scroll { overflow-x: auto; }
.tables { display: flex; flex-wrap: wrap; gap: 0 2.5rem; align-items: flex-start; }
.tables > section { max-width: 100%; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .3rem .9rem .3rem .5rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; }
thead th { background: var(--shade); }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
table.slices td, table.slices th { padding: .25rem .4rem .25rem 0; border: 0; text-align: left; }
figure { margin: 0 0 1.5rem; }
img { display: block; max-width: 100%; height: auto; }
table.slices img { max-width: none; width: min(256px, 22vw); min-width: 120px; }
img.mask { image-rendering: pixelated; border: 1px solid var(--line); }
"""


def write_html(volume: Volume, folder: Path) -> list[Path]:
    """``NAME.html``: self-contained, without scripts and links; every text is escaped."""
    volume = upright(volume)
    slices, h, w = volume.shape
    voxel = " × ".join(f"{length:.4g}" for length in volume.geometry.voxel)
    side = next((side for most, side in SIDES.items() if slices <= most), 192)
    place = f"voxels of {voxel} mm" if volume.geometry.known else NO_GEOMETRY
    parts = [
        f"<h1>{escape(volume.name)}</h1>",
        f"<p>{slices} {'slice' if slices == 1 else 'slices'} of {h} × {w} pixels, {place}. "
        f"Reconstructed by pnpcm {__version__}.</p>",
        *_check(volume.record.get("check")),
        "<h2>Slices</h2>",
        _figure(
            magnitude_montage(volume, side=side),
            "Montage of magnitudes",
            f"Magnitude; white is the {PERCENTILE}th percentile of the volume. Numbers are slice "
            f"indices from 0.{RADIOLOGICAL if volume.geometry.known else ''}",
        ),
    ]
    if volume.std is not None:
        parts.append(
            _figure(
                std_montage(volume, side=side),
                "Montage of standard deviations",
                "Standard deviation, on the scale at its upper right.",
            )
        )
    if volume.reference is not None or volume.std is not None:
        parts += ["<h2>Slice by slice</h2>", _rows(volume)]
    parts += ["<h2>Sampling</h2>", _mask(volume)]
    parts += ["<h2>Record</h2>", record_tables(volume.record)]
    body = "\n".join(parts)
    path = folder / f"{volume.name}.html"
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(volume.name)} · pnpcm</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n",
        encoding="utf-8",
    )
    return [path]


def _check(check: Any) -> list[str]:
    """The sentences of the self-check, if the record has one."""
    if not isinstance(check, Mapping) or not {"verdict", "fit"} <= check.keys():
        return []
    sentences = [check["verdict"], check["fit"], *(check.get("warnings") or ())]
    kind = "good" if check.get("ok") else "care"
    text = "; ".join(str(sentence) for sentence in sentences)
    return [f'<p class="check {kind}">Self-check: {escape(text)}.</p>']


def _rows(volume: Volume) -> str:
    """A row for each of up to eight slices, over one window for all that is compared."""
    chosen, magnitude = evenly(len(volume.image), MOST_ROWS), volume.magnitude()
    reference = None if volume.reference is None else to_array(volume.reference)
    std = None if volume.std is None else to_array(volume.std)
    top = window(magnitude if reference is None else reference)
    panels: list[tuple[str, Array, float, bool]] = [("reconstruction", magnitude, top, False)]
    text = f"Grey: 0 to {top:.3g}."
    if reference is not None:
        error = np.abs(magnitude - reference)
        panels.append(("reference", reference, top, False))
        panels.append((f"error ×{ERROR_GAIN}", error, top / ERROR_GAIN, False))
        text = (
            f"Reconstruction and reference: grey from 0 to {top:.3g}. Error: "
            f"|reconstruction − reference| ×{ERROR_GAIN} on the same scale, so white is an error "
            f"of {top / ERROR_GAIN:.3g}."
        )
    if std is not None:
        panels.append(("standard deviation", std, window(std), True))
        text += f" Standard deviation: colours from 0 to {window(std):.3g}."
    head = "".join(f"<th>{escape(name)}</th>" for name, *_ in panels)
    lines = []
    for k in chosen:
        cells = "".join(
            "<td>"
            + _image(tile(v[k], end, volume, side=320, colour=colour), f"{name} of slice {k}")
            + "</td>"
            for name, v, end, colour in panels
        )
        lines.append(f"<tr><th>{k}</th>{cells}</tr>")
    return (
        f'<p>{escape(text)}</p>\n<div class="scroll"><table class="slices"><thead><tr><th></th>'
        f"{head}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
    )


def _mask(volume: Volume) -> str:
    mask = volume.mask.detach().cpu().bool().numpy()
    count, total = int(mask.sum()), mask.size
    if mask.ndim == 1:
        what = f"{count} of {total} phase-encode lines (white) measured"
        mask = np.tile(mask, (max(1, total // 4), 1))
    else:
        what = f"{count} of {total} positions (white) of {mask.shape[0]} × {mask.shape[1]} measured"
    picture = shade(mask.astype(np.float32), 1.0)
    factor = max(1, 512 // picture.width)
    picture = picture.resize(
        (picture.width * factor, picture.height * factor), Image.Resampling.NEAREST
    )
    rate = f", acceleration {total / count:.3g}" if count else ""
    caption = f"K-space, zero frequency in the centre: {what}{rate}. Phase encoding runs across."
    return _figure(picture, "Sampling mask", caption, style=' class="mask"')


def _figure(picture: Picture, alt: str, caption: str, *, style: str = "") -> str:
    image = _image(picture, alt, style=style)
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def _image(picture: Picture, alt: str, *, style: str = "") -> str:
    buffer = BytesIO()
    picture.save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    size = f'width="{picture.width}" height="{picture.height}"'
    return f'<img{style} {size} alt="{escape(alt)}" src="data:image/png;base64,{data}">'


# record as tables --------------------------------------------------------------------------------
LONG = 8
"""Lists of more values than this are folded."""


def record_tables(record: Mapping[str, Any]) -> str:
    """One titled table for each group of the record; single values come first, together."""
    single = {key: value for key, value in record.items() if not _is_group(value)}
    groups = {key: value for key, value in record.items() if _is_group(value)}
    sections = [f"<section>{_pairs(single)}</section>"] if single else []
    for key, value in groups.items():
        words = str(key).replace("_", " ")
        title = escape(words[:1].upper() + words[1:])
        sections.append(f"<section><h3>{title}</h3>{_table(value)}</section>")
    if not sections:
        return "<p>Nothing was recorded.</p>"
    return '<div class="tables">' + "\n".join(sections) + "</div>"


def _table(value: Any) -> str:
    """A matrix for rows of one kind (scores by convention, by slice), else names and values."""
    if isinstance(value, Mapping):
        rows = list(value.items())
        if len(rows) > 0 and all(_is_flat(row) for _, row in rows):
            return _matrix(rows)
        return _pairs(value)
    folded = len(value) > LONG
    matrix = _matrix([(str(k), row) for k, row in enumerate(value)])
    return f"<details><summary>{len(value)} rows</summary>{matrix}</details>" if folded else matrix


def _matrix(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    head = "".join(f"<th>{escape(str(c))}</th>" for c in columns)
    lines = []
    for name, row in rows:
        cells = "".join(f"<td>{text(row[c]) if c in row else '–'}</td>" for c in columns)
        lines.append(f"<tr><th>{escape(str(name))}</th>{cells}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _pairs(values: Mapping[str, Any]) -> str:
    """Two columns; groups below are spelled out as ``group · name``."""
    lines = [
        f"<tr><th>{escape(key)}</th><td>{text(value)}</td></tr>" for key, value in _flat(values)
    ]
    return f'<div class="scroll"><table><tbody>{"".join(lines)}</tbody></table></div>'


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{name} · ")
        else:
            found.append((name, value))
    return found


def text(value: Any) -> str:
    """A value as escaped HTML: five digits of a number, long lists folded."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{escape(str(k))} {text(v)}" for k, v in value.items()) or "–"
    if isinstance(value, list | tuple):
        joined = ", ".join(text(v) for v in value) or "–"
        if len(value) > LONG:
            return f"<details><summary>{len(value)} values</summary>{joined}</details>"
        return joined
    return escape(str(value))


def _is_group(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list | tuple) and len(value) > 0 and all(_is_flat(v) for v in value)


def _is_flat(value: Any) -> bool:
    """A mapping of single values."""
    if not isinstance(value, Mapping) or not value:
        return False
    return not any(isinstance(v, Mapping | list | tuple) for v in value.values())
