"""The report page and its tables, from rows made by hand; no weights, no connection."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pnpcm.bench.figures import Curve, embed, error_map, plot, thumbnail
from pnpcm.bench.report import report
from pnpcm.bench.sections import Section, TextTable, markdown
from pnpcm.bench.spec import digest
from pnpcm.bench.store import COLUMNS, Store
from pnpcm.bench.tables import escape_tex, number
from pnpcm.errors import ArgumentError, MissingExtraError, UnknownNameError
from pnpcm.io.files import read_image
from pnpcm.metrics.kid import kid, vgg_features
from pnpcm.metrics.lpips import available

SPEC = {
    "name": "by hand", "words": "rows <b>by hand</b>", "metrics": ["psnr", "lpips-vgg"],
    "data": {"photos": {"words": "noise & more", "count": 4, "side": 64}},
    "tasks": {"deblur": {"task": "deblur", "options": {"width": 3}}},
    "methods": {"best": {}, "second": {"trials": 40}, "last": {}, "<script>": {}},
    "priors": ["natural"],
}  # fmt: skip
PSNR = {"best": 26.0, "second": 25.0, "last": 21.0, "<script>": 22.0}


def row(method: str, number: int, psnr: float | None, **more: Any) -> dict[str, Any]:
    scores = None if psnr is None else {"psnr": psnr, "lpips-vgg": 1 - psnr / 100}
    return {
        "key": digest(method, number, more), "data": "photos", "image": f"{number}.png",
        "number": number, "task": "deblur", "sigma_y": 0.05, "seed": 0, "prior": "natural",
        "method": method, "steps": None, "scores": scores, "nfe": 4 if psnr else None, "vjps": 0,
        "seconds": {"solve": 0.5 + number}, "trials": None, "parameters_from": "preset <x>",
        "failed": "diverged <i>at once</i>" if psnr is None else None,
        "environment": {"torch": "2.<4>"}, "finished": "2025-01-01T00:00:00+00:00",
    } | more  # fmt: skip


def rows_by_hand() -> list[dict[str, Any]]:
    found = [row(m, i, p + i / 4, steps=None) for m, p in PSNR.items() for i in range(4)]
    for each in found:
        each["trials"] = 40 if each["method"] == "second" else None
    found[-1] |= {"scores": None, "failed": "diverged <i>at once</i>"}
    return found


def stored(folder: Path, rows: Iterable[dict[str, Any]]) -> Store:
    """Rows in a store, in one transaction: ``Store.writing`` waits for the disk at each row."""
    store = Store(folder)
    with store.writing():
        pass
    lines = [
        [json.dumps(r.get(c)) if COLUMNS[c] == "JSON" else r.get(c) for c in COLUMNS] for r in rows
    ]
    with sqlite3.connect(store.file) as base:
        base.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * len(COLUMNS))})", lines)
    base.close()
    return store


def with_pictures(store: Store, side: int = 64, count: int = 2) -> None:
    folder = store.folder / "pictures"
    folder.mkdir()
    generator = np.random.default_rng(0)

    def save(name: str) -> None:
        coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((side, side)).save(folder / name)

    for saved in store.rows():
        if saved["number"] < count:
            shared = digest(*(saved[c] for c in ("data", "number", "task", "sigma_y", "seed")))
            for name in (f"{shared}.truth.png", f"{shared}.before.png"):
                save(name)
            if saved["failed"] is None:
                for name in (".png", ".0.png", ".1.png"):
                    save(saved["key"] + name)


class Page(HTMLParser):
    """Elements with their attributes, and balanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.elements, self._open = text, list[tuple[str, dict[str, str]]](), list[str]()
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in {"meta", "img", "br", "link"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    store = stored(folder / "rows", rows_by_hand())
    with_pictures(store)
    written = report(store, folder / "out", spec=SPEC)
    assert [path.name for path in written] == ["report.html", "table.csv", "table.tex"]
    return folder / "out"


@pytest.fixture(scope="module")
def page(made: Path) -> Page:
    return Page((made / "report.html").read_text(encoding="utf-8"))


def test_page_loads_nothing(page: Page) -> None:
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "//" not in re.sub(
        r"data:image/\w+;base64,[\w+/=]+|^\s*// .*$", "", page.text, flags=re.M
    )
    assert page.all("link") == page.all("iframe") == []
    assert all(script == {} for script in page.all("script"))
    assert all(image["src"].startswith("data:image/") for image in page.all("img")[:-1])
    policy = next(
        m["content"] for m in page.all("meta") if "content" in m and "src" in m["content"]
    )
    assert policy.startswith("default-src 'none'; img-src data:")


def test_labels_of_strangers_are_escaped(page: Page) -> None:
    assert len(page.all("script")) == 1
    assert page.text.count("<script>") == 1
    assert "&lt;script&gt;" in page.text
    assert page.all("i") == [{"role": "img", "aria-label": "colour map inferno"}]
    assert "diverged &lt;i&gt;at once&lt;/i&gt;" in page.text
    assert "rows &lt;b&gt;by hand&lt;/b&gt;" in page.text
    assert "preset &lt;x&gt;" in page.text
    assert "torch 2.&lt;4&gt;" in page.text
    assert "noise &amp; more" in page.text


def test_best_and_second_best_are_marked(page: Page) -> None:
    body = page.text[page.text.index("<tbody>") : page.text.index("</tbody>")]
    lines = {name: re.search(rf'<th scope="row" data-value="{name}".*?</tr>', body, re.S)
             for name in ("best", "second", "last")}  # fmt: skip
    # means over four images: p + 0.375; LPIPS is 1 − PSNR / 100, smaller is better
    for name, rank, psnr, lpips in (("best", 1, "26.38", "0.736"), ("second", 2, "25.38", "0.746")):
        line = lines[name]
        assert line is not None
        assert f'<span class="rank{rank}">{psnr}</span>' in line[0]
        assert f'<span class="rank{rank}">{lpips}</span>' in line[0]
    assert lines["last"] is not None
    assert "rank" not in lines["last"][0]
    assert "Δ −5.00 ▼" in lines["last"][0]
    assert "[−5.00, −5.00]" in lines["last"][0]
    assert "Δ +0.050 ▼" in lines["last"][0]
    assert "wins 0 % of 4" in lines["last"][0]
    assert lines["second"] is not None
    assert "second †" in lines["second"][0]
    assert '<td data-value="40">40</td>' in lines["second"][0]


def test_pictures_have_texts_and_error_maps(page: Page) -> None:
    images = page.all("img")
    assert all(image["alt"] for image in images[:-1])  # the last one is that of the dialog
    plain = [image for image in images if "plain" in image.get("class", "")]
    assert len(plain) == 2 * (2 + 4)  # truth, before and four methods of two images
    assert "best, 0.png, PSNR 26.00 dB" in {image["alt"] for image in plain}
    assert sum("error" in image.get("class", "").split() for image in images) == 2 * 5
    assert "|x − x_true|" in page.text
    assert sum("iterate" in image["alt"] for image in images) == 4 * 2
    assert all("type" in button for button in page.all("button"))


def test_failures_are_listed_and_not_scored(page: Page) -> None:
    text = page.text[page.text.index('<h2 id="failures">') :]
    assert "<b>&lt;script&gt;</b>" in text
    assert "1 of 4: diverged" in text
    assert "1 failed" in page.text


def test_conventions_and_environment_are_stated(page: Page) -> None:
    assert "clamped to [0, 1], range 1, all channels, no crop; larger is better" in page.text
    assert "VGG-16, no resizing; smaller is better" in page.text
    assert "16 reconstructions of 4 images with 4 methods" in page.text
    assert "WebP with quality 85" in page.text


def test_csv_has_the_numbers(made: Path) -> None:
    with (made / "table.csv").open(encoding="utf-8", newline="") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert list(lines) == list(PSNR)
    offsets = np.arange(4) / 4
    for name in ("best", "second", "last"):
        scores = PSNR[name] + offsets
        assert float(lines[name]["psnr_mean"]) == scores.mean()
        assert float(lines[name]["psnr_std"]) == scores.std(ddof=1)
        assert int(lines[name]["psnr_count"]) == 4
    assert float(lines["second"]["psnr_difference"]) == -1
    assert float(lines["second"]["psnr_win_rate"]) == 0
    assert lines["best"]["psnr_difference"] == ""
    assert (lines["best"]["is_reference"], lines["second"]["trials"]) == ("1", "40")
    assert lines["<script>"]["failures"] == "1"
    assert lines["<script>"]["reasons"] == "1× diverged <i>at once</i>"
    assert float(lines["<script>"]["seconds_min"]) == 0.5
    assert float(lines["<script>"]["seconds_mean"]) == 1.5


def test_tex_is_well_formed(made: Path) -> None:
    text = (made / "table.tex").read_text(encoding="utf-8")
    plain = re.sub(r"\\.", "", re.sub(r"(?m)^%.*$", "", text))
    depth = np.cumsum([(c == "{") - (c == "}") for c in plain])
    assert depth.min() >= 0
    assert depth[-1] == 0
    assert plain.count("$") % 2 == 0
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    columns = re.search(r"\\begin\{tabular\}\{(l r*|lr*)\}", text)
    assert columns is not None
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(body) == 1 + 4
    assert {line.count(" & ") + 1 for line in body} == {len(columns[1])}
    assert r"\textbf{26.38} $\pm$ 0.32 & \textbf{0.736}" in text
    assert r"second$^{\dagger 40}$ & \underline{25.38}" in text
    assert r"\textless{}script\textgreater{}" in text
    assert "sigma\\_y" in text


def test_labels_cannot_be_commands_of_tex() -> None:
    assert escape_tex("\\input{a}_b %\n$^~#&") == (
        r"\textbackslash{}input\{a\}\_b \% \$\textasciicircum{}\textasciitilde{}\#\&"
    )


def test_numbers_of_tables() -> None:
    assert number(-0.126, 2) == "−0.13"
    assert number(0.5, 1, sign=True) == "+0.5"
    assert number(-0.001, 2, sign=True) == "0.00"
    assert number(None, 2) == "–"


def test_reference_is_chosen_and_must_exist(tmp_path: Path) -> None:
    store = stored(tmp_path / "rows", rows_by_hand())
    page = report(store, tmp_path / "out", spec=SPEC, reference="last")[0].read_text("utf-8")
    assert "Δ +5.00 ▲" in page
    with pytest.raises(UnknownNameError, match="did you mean 'second'"):
        report(store, tmp_path / "out", spec=SPEC, reference="secnd")


def test_rows_of_other_specs_are_left_out(tmp_path: Path) -> None:
    store = stored(tmp_path / "rows", [*rows_by_hand(), row("unknown", 0, 50.0)])
    page = report(store, tmp_path / "out", spec=SPEC)[0].read_text("utf-8")
    assert "unknown" not in page
    assert "1 rows of the store" in page
    with pytest.raises(ArgumentError, match="has 17 rows, but none of the spec 'other'"):
        report(store, tmp_path, spec={"name": "other", "methods": {"none": {}}})


def test_a_spec_may_be_partial_and_scores_missing(tmp_path: Path) -> None:
    odd = row("classical", 0, 20.0, nfe=0, sigma_y=0.0, seconds=None)
    odd["scores"] = {"psnr": 20.0}
    store = stored(tmp_path / "rows", [odd, row("broken", 0, None, sigma_y=0.0)])
    page = Page(report(store, tmp_path / "out", spec={})[0].read_text("utf-8"))
    assert "LPIPS" not in page.text
    assert "stroke-dasharray" in page.text  # no evaluations: a dashed line


def test_levels_without_noise_find_their_pictures(tmp_path: Path) -> None:
    """A spec may contain the whole number 0, which the store returns as 0.0."""
    store = stored(tmp_path / "rows", [row("a", 0, 20.0, sigma_y=0.0)])
    with_pictures(store)
    folder = tmp_path / "rows" / "pictures"
    other, name = (digest("photos", 0, "deblur", level, 0) for level in (0.0, 0))
    (folder / f"{other}.truth.png").rename(folder / f"{name}.truth.png")
    page = report(store, tmp_path / "out", spec={})[0].read_text("utf-8")
    assert 'alt="truth, 0.png"' in page


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_missing_packages_are_named(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored(tmp_path / "rows", rows_by_hand())
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module}; pip install 'pnpcm\[bench\]'"):
        report(store, tmp_path / "out", spec=SPEC)


def test_pictures_are_lossless_up_to_96_pixels(tmp_path: Path) -> None:
    for side, kind, reduced in ((96, "png", 96), (200, "webp", 96)):
        Image.new("RGB", (side, side), "red").save(tmp_path / "a.png")
        assert embed(tmp_path / "a.png").uri.startswith(f"data:image/{kind};base64,")
        assert embed(tmp_path / "a.png").width == side
        assert thumbnail(tmp_path / "a.png").width == reduced
    Image.new("L", (600, 300)).save(tmp_path / "b.png")
    assert (embed(tmp_path / "b.png").width, embed(tmp_path / "b.png").height) == (512, 256)
    assert error_map(tmp_path / "a.png", tmp_path / "b.png") is None


def test_error_map_ends_at_its_scale(tmp_path: Path) -> None:
    from base64 import b64decode
    from io import BytesIO

    Image.new("L", (8, 8), 0).save(tmp_path / "truth.png")
    Image.fromarray(np.array([[0, 51], [102, 255]], dtype=np.uint8)).resize(
        (8, 8), Image.Resampling.NEAREST
    ).save(tmp_path / "x.png")
    found = error_map(tmp_path / "x.png", tmp_path / "truth.png")
    assert found is not None
    pixels = np.asarray(Image.open(BytesIO(b64decode(found.uri.split(",")[1]))).convert("RGB"))
    assert pixels[0, 0].tolist() == [0, 0, 4]  # inferno: first and last colour
    for place in ((0, 7), (7, 0), (7, 7)):  # 51 / 255 = 0.2
        assert pixels[place].tolist() == [252, 255, 164]


def test_plot_is_inline_svg_without_names() -> None:
    svg = plot([Curve(0, ((1.0, 20.0), (100.0, 25.0)))], name="p7", xlabel="NFE", ylabel="PSNR")
    assert svg.startswith("<svg")
    assert "xmlns" not in svg
    identifiers = re.findall(r'\bid="([^"]*)"', svg)
    assert len(identifiers) == len(set(identifiers))
    assert all(name.startswith("p7-") for name in identifiers)
    assert set(re.findall(r"(?:href=\"#|url\(#)([^\")]*)", svg)) <= set(identifiers)
    assert "currentColor" in svg


def test_ten_thousand_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = (
        row(f"method {m}", i, float(generator.normal(25, 2)), task=f"task {t}", nfe=2**m)
        for t in range(5)
        for i in range(200)
        for m in range(10)
    )
    store = stored(tmp_path / "rows", rows)
    page, table, _ = report(store, tmp_path / "out", spec={"name": "many"})
    assert len(table.read_text("utf-8").splitlines()) == 1 + 50
    assert page.stat().st_size < 1_000_000


def test_pictures_are_compressed(tmp_path: Path) -> None:
    store = stored(tmp_path / "rows", [row("a", i, 20.0) for i in range(3)])
    with_pictures(store, side=256, count=3)
    page = report(store, tmp_path / "out", spec={})[0]
    assert page.stat().st_size < 9 * 100_000  # 50 pictures: 5 MB


@pytest.mark.skipif(not available(), reason="LPIPS weights are not installed")
def test_twenty_pictures_give_the_distance_of_the_sets(tmp_path: Path) -> None:
    """``best`` has 20 pictures, ``last`` 19, of which the distance is not computed."""
    rows = [row("best", i, 26.0) for i in range(20)] + [row("last", i, 21.0) for i in range(19)]
    store = stored(tmp_path / "rows", rows)
    with_pictures(store, side=16, count=20)
    report(store, tmp_path, spec=SPEC)
    text = (tmp_path / "table.csv").read_text(encoding="utf-8")
    lines = {r["method"]: r for r in csv.DictReader(text.splitlines())}
    assert lines["last"]["kid-lpips-vgg_mean"] == ""
    folder = tmp_path / "rows" / "pictures"
    sets = []
    for name in (lambda r: r["key"], truth_of):
        names = [name(r) for r in rows[:20]]
        images = torch.cat([read_image(folder / f"{n}.png") for n in names])
        sets.append(vgg_features(images))
    expected = kid(*sets, generator=torch.Generator().manual_seed(20_250_922))
    assert float(lines["best"]["kid-lpips-vgg_mean"]) == pytest.approx(expected.mean, rel=1e-3)
    assert float(lines["best"]["kid-lpips-vgg_std"]) == pytest.approx(expected.std, rel=1e-3)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.text.count("KID (LPIPS-VGG)") == 1


def truth_of(saved: dict[str, Any]) -> str:
    shared = digest(*(saved[c] for c in ("data", "number", "task", "sigma_y", "seed")))
    return f"{shared}.truth"


def test_a_page_of_several_tables_keeps_them_apart(tmp_path: Path) -> None:
    """The same methods in two tables: two groups with references of their own, sections first."""
    rows = [row(m, i, 20 + i + 4 * k, spec=name, steps=k)
            for k, name in enumerate(("first-a", "second-a", "other"))
            for m in ("best", "last") for i in range(2)]  # fmt: skip
    store = stored(tmp_path, rows)
    section = Section(
        "by <hand>", ("above",), (TextTable(("method", "paper"), (("best", "1 / 2"),)),), ("below",)
    )
    page, table, _ = report(
        store,
        tmp_path,
        spec=SPEC,
        tables={"first-a": "first", "second-a": "second"},
        reference={"first": "last", "second": "best"},
        sections=[section],
    )
    text = page.read_text(encoding="utf-8")
    Page(text)
    assert "first · photos · deblur" in text
    assert "by &lt;hand&gt;" in text
    assert text.index("1 / 2") < text.index('id="tables"')
    with table.open(encoding="utf-8") as file:
        lines = {(r["table"], r["method"]): r for r in csv.DictReader(file)}
    assert set(lines) == {(t, m) for t in ("first", "second") for m in ("best", "last")}
    assert [k for k, r in lines.items() if r["is_reference"] == "1"] == [
        ("first", "last"), ("second", "best"),
    ]  # fmt: skip
    assert "| best | 1 / 2 |" in markdown([section])
