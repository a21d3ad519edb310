"""The numbers of the README: they come from committed rows and are written between marks.

    python tools/readme_tables.py            # rewrites the numbers in README.md
    python tools/readme_tables.py --check    # exit code 1 if they differ from the committed rows

Sources: ``benchmarks/results/defaults.jsonl`` (``pnpcm bench``, kept by ``benchmarks/results.py``)
and ``docs/figures/figures.json`` (``tools/readme_figures.py``). A part of the README begins with
``<!-- NAME -->`` and ends with ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TASKS = {  # of the spec defaults: (task, sigma_y) → head of the column
    ("inpaint-70", 0.05): "inpainting",
    ("superres-4", 0.05): "super-resolution",
    ("deblur-gauss", 0.05): "deblurring",
}
DEFAULTS = {  # of the spec defaults: method → words
    "restore": "`pnpcm restore` (PnP-CM loop, denoiser)",
    "PnP-CM, perception": "PnP-CM, consistency model (`--aim perception`)",
    "DPIR": "DPIR",
    "PnP-ADMM": "PnP-ADMM",
    "before": "before",
}


def rows(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line and the cells of ``benchmarks/results/NAME.jsonl``."""
    path = ROOT / "benchmarks" / "results" / f"{name}.jsonl"
    head, *cells = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return head, cells


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def scores(cell: dict[str, Any]) -> str:
    """PSNR / LPIPS, means over the images."""
    found = cell["scores"]
    return f"{mean(found['psnr']):.2f} / {mean(found['lpips-vgg']):.3f}"


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


def defaults() -> str:
    """Photographs: the defaults of restore beside single methods."""
    head, cells = rows("defaults")
    lines = []
    for method, words in DEFAULTS.items():
        own = {(c["task"], c["sigma_y"]): c for c in cells if c["method"] == method}
        chosen = [own[key] for key in TASKS]
        counts = sorted({c["nfe"] for c in chosen})
        seconds = f"{mean([c['seconds'] for c in chosen]):.1f}" if counts != [0] else "–"
        nfe = "/".join(map(str, counts))
        lines.append([words, *(scores(c) for c in chosen), nfe, seconds])
    images = {len(c["images"]) for c in cells}
    seeds = {seed for c in cells for seed in c["seeds"]}
    return (
        table(["PSNR (dB) / LPIPS", *TASKS.values(), "NFE", "seconds"], lines)
        + f"\n\n`{head['command']}` of {head['finished']}: prior `natural`, "
        f"{_one(images)} crops of 128×128 of\nCBSD68, sigma_y 0.05, seed {_one(seeds)}, "
        f"one CPU core; seconds are the mean of the three tasks. {ahead(cells)}"
    )


def ahead(cells: list[dict[str, Any]]) -> str:
    """The methods with a higher PSNR than restore, in words."""
    psnr = {(c["method"], c["task"], c["sigma_y"]): mean(c["scores"]["psnr"]) for c in cells}
    found = [
        f"{method} in {words} (+{gain:.2f} dB)"
        for method in DEFAULTS
        for key, words in TASKS.items()
        if (gain := psnr[method, *key] - psnr["restore", *key]) >= 0.005
    ]
    return f"Ahead of\n`restore` in PSNR: {'; '.join(found) or 'none'}."


def figure() -> str:
    """The sentence on evaluations and seconds."""
    found = json.loads((ROOT / "docs" / "figures" / "figures.json").read_text(encoding="utf-8"))
    tasks = found["tasks"]
    nfe = [row["nfe"] for row in tasks]
    seconds = [row["seconds"] for row in tasks]
    return (
        f"Each image of the figure takes {min(nfe)} network evaluations (NFE), phase retrieval "
        f"{max(nfe)}, and at most\n"
        f"{max(seconds):.0f} seconds on one of two busy CPU cores, without a GPU."
    )


def scan() -> str:
    """The numbers of the figure of a scan."""
    found = json.loads((ROOT / "docs" / "figures" / "figures.json").read_text(encoding="utf-8"))
    own = found["mri"]
    return (
        f"PSNR {own['psnr']['zero-filled']:.1f} → {own['psnr']['reconstruction']:.1f} dB; "
        f"mean error {100 * own['mean error']:.1f} %, mean spread {100 * own['mean spread']:.1f} % "
        f"of the maximum;\n{own['nfe']} evaluations for {own['samples']} samples, "
        f"{own['seconds']:.0f} seconds."
    )


def _one(values: set[Any]) -> Any:
    (value,) = values
    return value


PARTS: dict[str, Callable[[], str]] = {
    "figure": figure,
    "defaults": defaults,
    "scan": scan,
}


def updated(text: str) -> str:
    """The text with the numbers of the committed rows."""
    for name, make in PARTS.items():
        part = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(part.findall(text)) != 1:
            raise ValueError(f"README.md needs <!-- {name} --> … <!-- end --> once")
        words = make()
        text = part.sub(lambda m, words=words: f"{m[1]}{words}\n{m[2]}", text)
    return text


def main() -> int:
    old = README.read_text(encoding="utf-8")
    new = updated(old)
    if "--check" in sys.argv[1:]:
        return int(old != new)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
