"""Recipes: files, overrides, error messages; the paper's recipes at full and at narrow width."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from pnpcm.cli import app
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.training import estimate, read_recipe, train
from pnpcm.training.recipe import Recipe

RECIPES = Path(__file__).parents[2] / "recipes"
PAPER = {
    "celebahq256-edm": (526_304_771, 3_550_000, 16),
    "celebahq256-cd": (526_304_771, 1_175_000, 32),
    "fastmri320-edm": (479_037_442, 1_000_000, 4),
    "fastmri320-cd": (479_037_442, 700_000, 4),
}


QUEUE = RECIPES / "queue.yaml"
COMMITTED = sorted(path for path in RECIPES.rglob("*.yaml") if path != QUEUE)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.stem)
def test_every_committed_recipe_is_readable(path: Path) -> None:
    """Its name is that of the file, which may have a number: a prior is trained in several runs."""
    recipe = read_recipe(path)
    assert recipe.name in (path.stem, re.sub(r"-\d+$", "", path.stem))
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_the_queue_lists_committed_recipes() -> None:
    names = yaml.safe_load(QUEUE.read_text(encoding="utf-8"))
    assert names
    assert {RECIPES / name for name in names} <= set(COMMITTED)


@pytest.mark.parametrize("name", PAPER)
def test_dry_run_of_the_paper_s_recipes(name: str) -> None:
    parameters, steps, batch = PAPER[name]
    recipe = read_recipe(RECIPES / "paper" / f"{name}.yaml")
    cost = estimate(recipe)
    assert (cost.parameters, cost.steps, cost.samples) == (parameters, steps, steps * batch)
    assert recipe.ema[0] == 0.9999432189950708
    done = CliRunner().invoke(
        app, ["train", recipe.method, str(RECIPES / f"paper/{name}.yaml"), "--dry-run"]
    )
    assert done.exit_code == 0
    assert f"{parameters:,}".replace(",", " ") in done.output


def narrow(folder: Path, name: str, **changes: str) -> Recipe:
    """The paper's recipe with the same structure, 32 channels wide, on 32-px images."""
    given = {
        "out": str(folder / name),
        "steps": "3",
        "batch": "2",
        "precision": "fp32",
        "network.model_channels": "32",
        "network.num_head_channels": "32",
        "network.image_size": "32",
        "network.channel_mult": "[1, 1, 2, 2]",
        "report.log_every": "1",
    } | changes
    overrides = [f"{key}={value}" for key, value in given.items()]
    return read_recipe(RECIPES / "paper" / f"{name}.yaml", None, overrides)


def test_three_steps_of_the_face_recipes(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 38, 40, 3), dtype=np.uint8)
    for i, array in enumerate(pixels):
        Image.fromarray(array).save(folder / f"{i}.png")
    sources = f"[{{kind: folder, path: {folder}, options: {{size: 32}}}}]"
    run = train(narrow(tmp_path, "celebahq256-edm", **{"data.sources": sources}), tmp_path)
    changes: dict[str, Any] = {"data.sources": sources, "teacher": str(run / "prior.safetensors")}
    # LPIPS is tried where its weights are; elsewhere the same three steps with l2
    from pnpcm.metrics.lpips import available

    if not available():
        changes["loss.distance"] = "l2"
    run = train(narrow(tmp_path, "celebahq256-cd", **changes), tmp_path)
    assert (run / "log.jsonl").read_text().count('"loss"') == 3


def test_three_steps_of_the_knee_recipes(tmp_path: Path) -> None:
    import h5py

    rng = np.random.default_rng(0)
    shape = (12, 3, 40, 36)
    kspace = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    with h5py.File(tmp_path / "volume.h5", "w") as file:
        file["kspace"] = kspace.astype(np.complex64)
    sources = f"[{{kind: fastmri, path: {tmp_path}, options: {{size: 32, skip: 5}}}}]"
    changes = {"data.sources": sources, "data.workers": "0"}
    run = train(narrow(tmp_path, "fastmri320-edm", **changes), tmp_path)
    changes["teacher"] = str(run / "prior.safetensors")
    run = train(narrow(tmp_path, "fastmri320-cd", **changes), tmp_path)
    assert (run / "log.jsonl").read_text().count('"loss"') == 3


def test_overrides_win_and_are_checked(tmp_path: Path) -> None:
    path = RECIPES / "natural-edm.yaml"
    recipe = read_recipe(path, "edm", ["optimizer.lr=1e-5", "ema=[0.5, 0.9]", "loss.wide=0.2"])
    assert (recipe.optimizer.lr, recipe.ema, recipe.loss.wide) == (1e-5, (0.5, 0.9), 0.2)
    with pytest.raises(UnknownNameError, match="did you mean 'lr'"):
        read_recipe(path, "edm", ["optimizer.lrr=1"])
    with pytest.raises(ArgumentError, match="must look like"):
        read_recipe(path, "edm", ["nonsense"])
    with pytest.raises(ArgumentError, match="expected a number"):
        read_recipe(path, "edm", ["optimizer.lr=fast"])
    with pytest.raises(ArgumentError, match="expected int"):
        read_recipe(path, "edm", ["steps=2.5"])
    with pytest.raises(ArgumentError, match=r"evaluate_every must be a whole number, at least 1"):
        read_recipe(path, "edm", ["report.evaluate_every=0"])
    with pytest.raises(ArgumentError, match="is for 'pnpcm train edm'"):
        read_recipe(path, "distill")
    with pytest.raises(ArgumentError, match="which is not a file"):
        read_recipe(tmp_path / "none.yaml")


def test_distillation_asks_for_its_teacher() -> None:
    path = RECIPES / "paper" / "celebahq256-cd.yaml"
    with pytest.raises(ArgumentError, match="teacher is missing"):
        read_recipe(path, "distill", ["teacher=null"])


def test_bad_times_are_refused() -> None:
    path = str(RECIPES / "natural-edm.yaml")
    done = CliRunner().invoke(app, ["train", "edm", path, "--max-time", "soon"])
    assert isinstance(done.exception, ArgumentError)
    assert "max_time is 'soon'" in str(done.exception)


def test_memory_grows_with_the_batch() -> None:
    path = RECIPES / "natural-edm.yaml"
    small, large = (estimate(read_recipe(path, None, [f"batch={b}"])) for b in (8, 32))
    assert large.activation_bytes == 4 * small.activation_bytes
    assert large.state_bytes == small.state_bytes == 4 * 5 * small.parameters
