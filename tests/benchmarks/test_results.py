"""The committed results belong to numbers and weights of the package, and RESULTS.md to them."""

import importlib.util
import json
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pnpcm import PRESETS
from pnpcm.baselines import BASELINES
from pnpcm.bench import Store, bench, read_spec
from pnpcm.bench.reproduce import specs
from pnpcm.bench.run import finished
from pnpcm.bench.spec import MethodRow
from pnpcm.cli import main
from pnpcm.errors import ArgumentError
from pnpcm.recon.parameters import apply_settings
from rows import check_rows

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILES = sorted((BENCHMARKS / "results").glob("*.jsonl"))
DATA = Path(__file__).parents[2] / "src/pnpcm/data"
SPEC = f"""
data:
  photos: {{path: {DATA}, count: 2, side: 32, words: two photographs}}
tasks:
  superres-4: {{task: superres, options: {{factor: 4}}}}
  jpeg-5: {{task: jpeg, options: {{quality: 5}}}}
methods:
  Wiener: {{preset: wiener/natural/superres-4, trials: 12}}
  before: {{method: before, tasks: [superres-4]}}
metrics: [psnr, ssim]
pictures: 0
"""


def load_module() -> ModuleType:
    found = importlib.util.spec_from_file_location("results", BENCHMARKS / "results.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


results = load_module()


def test_every_cell_was_computed_with_the_numbers_of_the_package() -> None:
    """A cell of a named row or preset; other numbers are chosen by `restore`."""

    def check(place: tuple[dict[str, Any], dict[str, Any]]) -> None:
        head, cell = place
        row = MethodRow.from_dict(head["spec"]["methods"][cell["method"]])
        preset = row.preset_for(cell["prior"], cell["task"])
        if preset is not None and (cell["steps"] is None or row.settings.get("sigmas")):
            source: Any = BASELINES[preset] if preset in BASELINES else PRESETS[preset]
            config: Any = apply_settings(source.solver, row.settings)
            if cell["config"] is None:  # the row of an image that failed has no numbers
                assert all(cell["failed"])
            else:
                assert json.loads(json.dumps(config.to_dict())) == cell["config"]
            assert cell["failed"] or cell["nfe"] == row.samples * getattr(config, "nfe", 0)
        counts = {len(values) for values in cell["scores"].values()}
        failed = sum(reason is not None for reason in cell["failed"] or ())
        assert counts <= {len(cell["images"]) - failed}
        assert counts or failed == len(cell["images"])

    found = [(path, *results.load(path)) for path in FILES]
    places = [(path.stem, head, cell) for path, head, each in found for cell in each]
    check_rows(
        ((f"{stem}: {c['task']}, {c['method']}", (head, c)) for stem, head, c in places), check
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_weights_are_those_of_the_package_or_the_page_says_that_they_are_earlier(
    path: Path,
) -> None:
    head, _ = results.load(path)
    text = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8")
    own = text.split(f"## {path.stem}: ")[1].split("\n## ")[0]
    assert ("**earlier than those of the package**" in own) != results.is_current(head)


def test_a_spec_without_rows_is_refused(tmp_path: Path) -> None:
    spec = read_spec(BENCHMARKS / "specs/small.yaml")
    with pytest.raises(ArgumentError, match="has no rows of small; run make first"):
        results.keep([spec], tmp_path, "make")


def test_the_documents_name_each_spec_and_each_script_of_their_folder() -> None:
    named = {
        "README.md": [*(BENCHMARKS / "specs").glob("*.yaml")],
        "studies/README.md": [*(BENCHMARKS / "studies").glob("*.py")],
        "speed/README.md": [*(BENCHMARKS / "speed").glob("*.py")],
    }
    for page, paths in named.items():
        text = (BENCHMARKS / page).read_text(encoding="utf-8")
        for path in paths:
            name = path.stem if path.suffix == ".yaml" else path.name
            tuned = name.startswith("ablation-tuned-")
            assert f"`{'ablation-tuned-*' if tuned else name}" in text, (page, name)


def test_the_page_is_written_from_the_files() -> None:
    text = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8")
    assert text == results.page(BENCHMARKS / "results"), "run python benchmarks/results.py"


def test_the_commands_of_the_readme_keep_the_rows_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "benchmarks"
    for folder in ("specs", "results"):
        (here / folder).mkdir(parents=True)
    (here / "specs/small.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "HERE", here)
    readme = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    for line in readme.split("```\n")[1].splitlines():
        words = shlex.split(line, comments=True)
        monkeypatch.setattr("sys.argv", words[words[0] == "python" :])
        if words[0] == "python":
            results.main()
            continue
        with pytest.raises(SystemExit, match="0"):
            main()
    rows = finished(read_spec(here / "specs/small.yaml"), Store(tmp_path / "out/small"))
    head, cells = results.load(here / "results/small.jsonl")
    assert head["command"] == "pnpcm bench benchmarks/specs/small.yaml"
    assert results.is_current(head)
    kept = [row for cell in cells for row in results.rows_of(cell)]
    assert len(kept) == len(rows) == 6
    for row in kept:
        names = ("task", "method", "image", "seed", "failed", "trials")
        (same,) = (r for r in rows if all(r[name] == row[name] for name in names))
        wanted = {m: round(v, 5) for m, v in (same["scores"] or {}).items()}
        assert row["scores"] == wanted
    page = (here / "RESULTS.md").read_text(encoding="utf-8")
    assert page.count("\n### photos, ") == 3  # an overview and two tasks
    psnr = [row["scores"]["psnr"] for row in rows if row["method"] == "before"]
    assert f"| before | – | {sum(psnr) / 2:.2f} |" in page
    assert "- Wiener: 2 of 2 failed: " in page
    assert "weights (natural: " in page
    head["weights"] = {"natural": ["0", "1"]}
    assert "**earlier than those of the package**" in results.section(head, cells)


def test_rows_of_reproduce_become_a_file_per_table_and_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))  # so the bundled photographs are used
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(results, "HERE", tmp_path)
    monkeypatch.setattr(results, "KEPT", ("ablation",))
    out = tmp_path / "out"
    with pytest.raises(ArgumentError, match="has no rows of reproduce-ablation-bundled"):
        results.keep_reproduced(out)
    (spec,) = specs("ablation")
    bench(spec, out, limit=1, only=["deblur-gauss"])
    (path,) = results.keep_reproduced(out)
    head, cells = results.load(path)
    assert path.name == "reproduce-ablation-bundled.jsonl"
    assert results.is_current(head)
    assert [c["method"] for c in cells] == list(spec.methods)
    text = results.section(head, cells)
    assert text.startswith("## reproduce-ablation-bundled: ablation: photographs, 128×128")
    psnr = cells[-1]["scores"]["psnr"][0]
    assert f"| injection, momentum | – | {psnr:.2f} |" in text
