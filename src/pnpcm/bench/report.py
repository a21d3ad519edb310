"""report: one self-contained page, a CSV file and LaTeX tables from the rows of a benchmark."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pnpcm.bench import figures
from pnpcm.bench.figures import Curve
from pnpcm.bench.run import PICTURES
from pnpcm.bench.scores import LEAST_SIDE, METRICS, conventions
from pnpcm.bench.sections import Section
from pnpcm.bench.spec import digest
from pnpcm.bench.stats import (
    FEW_IMAGES,
    LEVEL,
    RESAMPLES,
    SEED,
    Cell,
    Group,
    cells,
    failure,
    least,
    marks,
    mean,
    newest,
)
from pnpcm.bench.store import Saved, Store
from pnpcm.bench.tables import heading, number, to_csv, to_tex
from pnpcm.errors import ArgumentError, MissingExtraError
from pnpcm.io.files import read_image, write_text
from pnpcm.metrics.kid import LEAST, kid, vgg_features
from pnpcm.metrics.lpips import available

MOST_PLOTTED = 24
"""Groups that are plotted, the first ones: a plot takes a tenth of a second and 15 kB."""
KID_DIGITS = 4
PLOTTED = ("psnr", "lpips-vgg", "lpips-alex")
COLUMNS = (
    "key", "spec", "data", "image", "number", "task", "sigma_y", "seed", "prior", "method", "steps",
    "scores", "nfe", "vjps", "seconds", "parameters_from", "trials", "failed", "environment",
    "finished",
)  # fmt: skip
Groups = dict[Group, list[Cell]]


FILES = ("report.html", "table.csv", "table.tex")
"""Names of the files of a report."""


def report(
    store: Store,
    out: Path,
    *,
    spec: Mapping[str, Any],
    reference: str | Mapping[str, str] | None = None,
    tables: Mapping[str, str] | None = None,
    sections: Sequence[Section] = (),
) -> list[Path]:
    """Write ``report.html``, ``table.csv`` and ``table.tex`` into ``out``.

    ``spec``: a spec as a dictionary, e.g. of the file NAME.spec.json beside the rows; rows with
    other names are left out. ``reference``: method that the others are compared with, or one for
    every table; None: the first method of the spec. ``tables``: name of a spec in the store →
    table of the page that its rows are part of; rows of other specs are left out. ``sections``:
    first parts of the page.
    """
    page = _template()
    saved = list(store.rows(COLUMNS))
    named = saved
    if tables is not None:
        named = [row | {"table": tables[row["spec"]]} for row in saved if row["spec"] in tables]
    rows = newest(named, spec)
    if not rows:
        raise ArgumentError(
            f"store {store.folder} has {len(saved)} rows, but none of the spec "
            f"{spec.get('name')!r}; run `pnpcm bench` first"
        )
    order = _Order(spec, rows)
    metrics = order.metrics
    reference = order.methods[0] if reference is None else reference
    shown = _Pictures(store.folder / PICTURES)
    groups = order.sorted(cells(rows, metrics=metrics, reference=reference))
    groups = _with_kid(groups, rows, shown)
    title = str(spec.get("name") or "benchmark")
    values = {
        "title": title,
        "spec": _spec(spec),
        "spec_text": json.dumps(spec, indent=2, ensure_ascii=False, default=str),
        "facts": _facts(rows, saved, groups),
        "environments": _environments(rows),
        "metrics": [_metric(name) for name in metrics],
        "reference": reference if isinstance(reference, str) else None,
        "level": f"{100 * LEVEL:g}",
        "resamples": RESAMPLES,
        "rough": FEW_IMAGES if _is_rough(groups) else None,
        "sections": [_section(i, each) for i, each in enumerate(sections)],
        "pictures": _picture_sections(rows, shown, order),
        "tables": [_table(i, g, each, metrics) for i, (g, each) in enumerate(groups.items())],
        "plots": _plots(groups, metrics, order),
        "trajectories": _trajectories(rows, shown, order),
        "failures": _failures(groups),
        "error_scale": figures.ERROR_SCALE,
        "colour_map": figures.COLOUR_MAP,
        "gradient": figures.gradient(),
        "quality": figures.QUALITY,
        "error_quality": figures.ERROR_QUALITY,
        "small": figures.SMALL,
        "largest": figures.LARGEST,
    }
    out.mkdir(parents=True, exist_ok=True)
    every = [cell for each in groups.values() for cell in each]
    tex = to_tex(groups, metrics, title=title)
    for name, text in zip(FILES, (page.render(values), to_csv(every, metrics), tex), strict=True):
        write_text(out / name, text)
    return [out / name for name in FILES]


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("the report needs jinja2; pip install 'pnpcm[bench]'") from error
    figures.matplotlib()  # raises now rather than after the statistics
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["sha256"] = lambda text: b64encode(
        hashlib.sha256(str(text).encode()).digest()
    ).decode()
    source = files("pnpcm.bench").joinpath("report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source)


class _Order:
    """Positions of names: as in the spec, then as in the rows."""

    def __init__(self, spec: Mapping[str, Any], rows: Sequence[Saved]) -> None:
        names = {column: dict.fromkeys(row[column] for row in rows) for column in _PARTS}
        self._place = {}
        for column, part in _PARTS.items():
            known = [str(name) for name in spec.get(part) or () if str(name) in names[column]]
            order = dict.fromkeys((*known, *names[column]))
            self._place[column] = {name: i for i, name in enumerate(order)}
        tables = dict.fromkeys(row.get("table", "") for row in rows)
        self._table = {name: i for i, name in enumerate(tables)}
        self.methods = list(self._place["method"])
        self.several_priors = len(self._place["prior"]) > 1
        scored = dict.fromkeys(name for row in rows for name in row["scores"] or ())
        wanted = [*(spec.get("metrics") or ()), *(name for name in METRICS if name in scored)]
        self.metrics = list(dict.fromkeys(str(name) for name in wanted))

    def of(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Sort key of rows: table, data, task, noise, prior, method, steps."""
        place = {column: self._place[column][values[column]] for column in _PARTS}
        steps, table = values["steps"], self._table[values.get("table", "")]
        first = (table, place["data"], place["task"], values["sigma_y"], place["prior"])
        return (*first, place["method"], -1 if steps is None else steps)

    def sorted(self, groups: Groups) -> Groups:
        """Groups and their cells in this order."""
        places = {}
        for group, each in groups.items():
            found = [(self.of(vars(group) | vars(cell)), cell) for cell in each]
            places[group] = sorted(found, key=lambda pair: pair[0])
        ordered = sorted(places, key=lambda group: places[group][0][0][:5])
        return {group: [cell for _, cell in places[group]] for group in ordered}

    def label(self, row: Mapping[str, Any]) -> str:
        """Method, steps and, if there are several, prior of a row."""
        steps = "" if row["steps"] is None else f", {row['steps']} steps"
        prior = f", prior {row['prior']}" if self.several_priors else ""
        return f"{row['method']}{steps}{prior}"


_PARTS = {"data": "data", "task": "tasks", "prior": "priors", "method": "methods"}


def _section(i: int, section: Section) -> dict[str, Any]:
    """A section with its figure as SVG."""
    svg = None
    if section.figure is not None:
        with figures.styled():
            svg = figures.inline(section.figure(), f"s{i}")
    return {"id": f"section-{i}", "section": section, "svg": svg}


# what was run ------------------------------------------------------------------------------------
def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that the page shows, with None for those that are not in the dictionary."""
    shown = {
        "data": ("words", "count", "side"),
        "tasks": ("task", "options"),
        "methods": ("method", "preset", "aim", "settings", "samples", "trials"),
    }
    parts = {
        part: {name: {field: (row or {}).get(field) for field in fields} for name, row in rows}
        for part, fields in shown.items()
        for rows in [dict(spec.get(part) or {}).items()]
    }
    return {"words": spec.get("words"), **parts}


def _facts(rows: Sequence[Saved], saved: Sequence[Saved], groups: Groups) -> dict[str, Any]:
    finished = sorted(row["finished"] for row in rows if row["finished"])
    return {
        "rows": len(rows),
        "failed": sum(cell.failed for each in groups.values() for cell in each),
        "left_out": len(saved) - len(rows),
        "groups": len(groups),
        "methods": len({row["method"] for row in rows}),
        "images": len({(row["data"], row["number"]) for row in rows}),
        "priors": list(dict.fromkeys(row["prior"] for row in rows)),
        "first": finished[0] if finished else None,
        "last": finished[-1] if finished else None,
    }


def _environments(rows: Iterable[Saved]) -> list[dict[str, Any]]:
    count = Counter(json.dumps(row["environment"] or {}, sort_keys=True) for row in rows)
    return [{"values": json.loads(text), "rows": n} for text, n in count.most_common()]


def _metric(name: str) -> dict[str, Any]:
    row = METRICS[name]
    return {
        "name": name,
        "heading": heading(name),
        "convention": conventions([name])[name],
        "larger": row.larger_is_better,
    }


def _is_rough(groups: Groups) -> bool:
    pairs = (d for each in groups.values() for cell in each for d in cell.differences.values())
    return any(pair.images < FEW_IMAGES for pair in pairs)


# tables ------------------------------------------------------------------------------------------
def _table(i: int, group: Group, found: Sequence[Cell], metrics: Sequence[str]) -> dict[str, Any]:
    used = [name for name in metrics if any(name in cell.scores for cell in found)]
    ranks = {name: marks(found, name) for name in used}
    return {
        "id": f"table-{i}",
        "group": group,
        "metrics": [_metric(name) for name in used],
        "rows": [
            {
                "cell": cell,
                "kid": None
                if cell.kid is None
                else [number(v, KID_DIGITS) for v in (cell.kid.mean, cell.kid.std)],
                "scores": [_score(cell, name, ranks[name]) for name in used],
                "nfe": number(mean(cell.nfe), _digits(mean(cell.nfe))),
                "vjps": number(mean(cell.vjps), _digits(mean(cell.vjps))),
                "least": _seconds(least(cell.seconds), mean(cell.seconds)),
                "seconds": _seconds(mean(cell.seconds), mean(cell.seconds)),
            }
            for cell in found
        ],
        "searched": any(cell.trials is not None for cell in found),
        "kid": any(cell.kid is not None for cell in found),
    }


def _score(cell: Cell, name: str, ranks: Mapping[Any, int]) -> dict[str, Any]:
    score, pair, digits = cell.scores.get(name), cell.differences.get(name), METRICS[name].digits
    shown: dict[str, Any] = {
        "mean": number(mean(score), digits),
        "std": number(score.std, digits) if score and score.std is not None else None,
        "value": score.mean if score else None,
        "count": score.count if score else 0,
        "rank": ranks.get((cell.method, cell.steps)),
        "incomplete": score is not None and name not in cell.complete,
        "difference": None,
    }
    if pair is not None:
        ends = None if pair.low is None else [number(v, digits) for v in (pair.low, pair.high)]
        shown["difference"] = number(pair.mean, digits, sign=True)
        shown |= {"interval": ends, "better": pair.better, "images": pair.images}
        shown["win_rate"] = f"{100 * pair.win_rate:.0f}"
    return shown


def _digits(value: float | None) -> int:
    """Counts are whole numbers, except the mean of different ones."""
    return 0 if value is None or value == round(value) else 1


def _seconds(value: float | None, like: float | None) -> str:
    """Seconds with the decimals that suit ``like``, so that minimum and mean have the same."""
    like = like or 0.0
    return number(value, 0 if like >= 100 else 2 if like >= 1 else 3)


# pictures ----------------------------------------------------------------------------------------
class _Pictures:
    """Files of the folder of pictures, which is listed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = {p.name for p in folder.glob("*.png")} if folder.is_dir() else set()
        self._steps: dict[str, list[int]] = defaultdict(list)
        for name in self._names:
            if found := re.fullmatch(r"(\w+)\.(\d+)\.png", name):
                self._steps[found[1]].append(int(found[2]))

    def find(self, name: str) -> Path | None:
        return self._folder / name if name in self._names else None

    def iterates(self, key: str) -> list[Path]:
        return [self._folder / f"{key}.{k}.png" for k in sorted(self._steps.get(key, ()))]

    def shared(self, row: Saved, kind: str) -> Path | None:
        """The true image or the one before, which the rows of a measurement share."""
        level = row["sigma_y"]
        for value in dict.fromkeys((repr(level), repr(int(level)) if level == int(level) else "")):
            if value:
                measured = (row["data"], row["number"], row["task"], json.loads(value), row["seed"])
                if found := self.find(f"{digest(*measured)}.{kind}.png"):
                    return found
        return None


def _picture_sections(
    rows: Iterable[Saved], shown: _Pictures, order: _Order
) -> list[dict[str, Any]]:
    """Sections by data, task and noise; in each the images, and of each image the results."""
    pictured = {_image(row) for row in rows if shown.find(f"{row['key']}.png")}
    sections: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Saved]]] = {}
    for row in sorted((row for row in rows if _image(row) in pictured), key=order.of):
        section = sections.setdefault(_part(row), {})
        section.setdefault((row["number"], row["seed"]), []).append(row)
    found = []
    for i, ((table, data, task, level), images) in enumerate(sections.items()):
        panels = [
            {
                "image": own[0]["image"] or f"image {own[0]['number']}",
                "seed": own[0]["seed"],
                "panels": _panels(own, shown, order),
            }
            for _, own in sorted(images.items())
        ]
        found.append(
            {
                "id": f"pictures-{i}",
                "table": table,
                "data": data,
                "task": task,
                "sigma_y": f"{level:g}",
                "images": panels,
                "seeds": len({image["seed"] for image in panels}) > 1,
                "has_errors": any(p["error"] for image in panels for p in image["panels"]),
            }
        )
    return found


def _part(row: Saved) -> tuple[Any, ...]:
    return (row.get("table", ""), row["data"], row["task"], row["sigma_y"])


def _image(row: Saved) -> tuple[Any, ...]:
    return (*_part(row), row["number"], row["seed"])


def _panels(rows: Sequence[Saved], shown: _Pictures, order: _Order) -> list[dict[str, Any]]:
    truth = shown.shared(rows[0], "truth")
    before = shown.shared(rows[0], "before")
    found = [_panel(label, "", path) for label, path in (("truth", truth), ("before", before))]
    if truth is not None and before is not None:
        found[1]["error"] = figures.error_map(before, truth)
    for row in rows:
        path, reason = shown.find(f"{row['key']}.png"), failure(row)
        if path is None and reason is None:
            continue
        panel = _panel(order.label(row), "" if reason else _caption(row, order.metrics), path)
        panel["failed"] = reason
        if path is not None and truth is not None:
            panel["error"] = figures.error_map(path, truth)
        found.append(panel)
    return [panel for panel in found if panel["picture"] or panel["failed"]]


def _panel(label: str, caption: str, path: Path | None) -> dict[str, Any]:
    picture = None if path is None else figures.embed(path)
    return {"label": label, "caption": caption, "picture": picture, "error": None, "failed": None}


def _caption(row: Saved, metrics: Sequence[str]) -> str:
    """The PSNR, or the first metric, of a row."""
    scores = row["scores"]
    name = next((name for name in ("psnr", *metrics) if name in scores), None)
    if name is None:
        return ""
    unit = f" {METRICS[name].unit}" if METRICS[name].unit else ""
    return f"{name.upper()} {number(scores[name], METRICS[name].digits)}{unit}"


def _trajectories(rows: Iterable[Saved], shown: _Pictures, order: _Order) -> list[dict[str, Any]]:
    """Iterates of the first image of every data set, task and noise level."""
    found: dict[tuple[Any, ...], list[Saved]] = {}
    for row in sorted((row for row in rows if shown.iterates(row["key"])), key=order.of):
        found.setdefault(_part(row), []).append(row)
    sections = []
    for (table, data, task, level), own in found.items():
        first = min((row["number"], row["seed"]) for row in own)
        strips = [
            {
                "label": order.label(row),
                "iterates": [figures.thumbnail(path) for path in shown.iterates(row["key"])],
            }
            for row in own
            if (row["number"], row["seed"]) == first
        ]
        name = next(row["image"] for row in own if (row["number"], row["seed"]) == first)
        sections.append(
            {"table": table, "data": data, "task": task, "sigma_y": f"{level:g}", "image": name,
             "strips": strips}
        )  # fmt: skip
    return sections


# sets of pictures --------------------------------------------------------------------------------
def _with_kid(groups: Groups, rows: Iterable[Saved], shown: _Pictures) -> Groups:
    """The cells with the KID of their pictures, if at least ``LEAST`` colour ones are kept."""
    if not available():
        return groups
    pairs: dict[tuple[Any, ...], list[tuple[Path, Path]]] = defaultdict(list)
    for row in rows:
        path, truth = shown.find(f"{row['key']}.png"), shown.shared(row, "truth")
        if path is not None and truth is not None and failure(row) is None:
            pairs[Group.of(row), row["method"], row["steps"]].append((path, truth))
    features = cache(_features)
    found = {}
    for key, each in pairs.items():
        if len(each) < LEAST:
            continue
        sets = [[f for p in each if (f := features(p[k])) is not None] for k in range(2)]
        if all(len(some) >= LEAST for some in sets):
            x, x_true = (torch.stack(some) for some in sets)
            found[key] = kid(x, x_true, generator=torch.Generator().manual_seed(SEED))
    return {
        group: [replace(c, kid=found.get((group, c.method, c.steps))) for c in each]
        for group, each in groups.items()
    }


def _features(path: Path) -> Tensor | None:
    """Features of a colour picture; None for a grey one, of a scan."""
    with Image.open(path) as picture:
        if picture.mode != "RGB" or min(picture.size) < LEAST_SIDE["lpips-vgg"]:
            return None
    return vgg_features(read_image(path))[0]


# plots and failures ------------------------------------------------------------------------------
def _plots(groups: Groups, metrics: Sequence[str], order: _Order) -> list[dict[str, Any]]:
    """Scores against evaluations and seconds, for the first groups."""
    places = {method: i for i, method in enumerate(order.methods)}
    found = []
    for i, (group, each) in enumerate(islice(groups.items(), MOST_PLOTTED)):
        plots: list[dict[str, str]] = []
        for name in (name for name in PLOTTED if name in metrics):
            for cost, xlabel in (("nfe", "network evaluations (NFE)"), ("seconds", "seconds")):
                curves = _curves(each, name, cost, places)
                if curves:
                    svg = figures.plot(
                        curves, name=f"p{i}-{len(plots)}", xlabel=xlabel, ylabel=heading(name)
                    )
                    plots.append({"svg": svg, "title": f"{heading(name)} against {xlabel}"})
        if plots:
            used = dict.fromkeys(cell.method for cell in each if cell.scores)
            legend = [
                {"label": m, "colour": figures.colour(places[m]), "shape": figures.shape(places[m])}
                for m in used
            ]
            found.append({"group": group, "plots": plots, "legend": legend})
    return found


def _curves(
    found: Sequence[Cell], metric: str, cost: str, places: Mapping[str, int]
) -> list[Curve]:
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell in found:
        score, price = cell.scores.get(metric), getattr(cell, cost)
        if score is not None and price is not None:
            points[cell.method].append((price.mean, score.mean))
    return [Curve(places[method], tuple(each)) for method, each in points.items()]


def _failures(groups: Groups) -> list[dict[str, Any]]:
    return [
        {"group": group, "label": cell.label, "reason": reason, "count": count, "rows": cell.rows}
        for group, each in groups.items()
        for cell in each
        for reason, count in cell.failures.items()
    ]
