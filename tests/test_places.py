"""Folders outside the repository: variables, defaults, and the message for missing data."""

from pathlib import Path

import pytest

from pnpcm.errors import ArgumentError
from pnpcm.places import PLACES, existing, place, resolve
from pnpcm.training import read_recipe
from pnpcm.training.data import SourceConfig

RECIPES = Path(__file__).parents[1] / "recipes"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with one data set, named by the variable."""
    (tmp_path / "data" / "natural").mkdir(parents=True)
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_variable_wins(data: Path) -> None:
    assert place("PNPCM_DATA") == data
    assert resolve("$PNPCM_DATA/natural/a.png", Path("/recipes")) == data / "natural" / "a.png"
    assert existing("$PNPCM_DATA/natural") == data / "natural"


@pytest.mark.parametrize("variable", PLACES)
@pytest.mark.parametrize("value", [None, ""])
def test_the_default_starts_from_the_current_folder(
    variable: str, value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty variable is an unset one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(variable, raising=False)
    if value is not None:
        monkeypatch.setenv(variable, value)
    assert place(variable) == (tmp_path / PLACES[variable]).resolve()
    assert place(variable).is_absolute()


def test_other_paths_start_from_the_folder(tmp_path: Path) -> None:
    for path in ("pictures/a.png", "$HOME/a.png", "PNPCM_DATA/a.png", "a/$PNPCM_DATA"):
        assert resolve(path, tmp_path) == tmp_path / path
        assert existing(path, tmp_path) == tmp_path / path  # whoever opens it complains
    assert resolve(tmp_path / "a.png", Path("/recipes")) == tmp_path / "a.png"


def test_missing_data_is_one_sentence(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the missing name, the variable, the folder and a remedy."""
    with pytest.raises(ArgumentError) as caught:
        existing("$PNPCM_DATA/faces")
    assert str(caught.value) == (
        f"$PNPCM_DATA/faces is missing: PNPCM_DATA is {data}; "
        "set it to the folder that holds the data sets"
    )
    monkeypatch.delenv("PNPCM_DATA")
    monkeypatch.chdir(data)
    with pytest.raises(ArgumentError, match=r"PNPCM_DATA is .* by default; set it"):
        existing("$PNPCM_DATA/faces")
    monkeypatch.setenv("PNPCM_RUNS", str(data))
    with pytest.raises(ArgumentError, match="train the recipe that writes it"):
        existing("$PNPCM_RUNS/faces-edm/prior.safetensors")


def test_a_training_source_says_what_is_missing(data: Path) -> None:
    with pytest.raises(ArgumentError, match=r"\$PNPCM_DATA/faces is missing: PNPCM_DATA is"):
        SourceConfig("folder", "$PNPCM_DATA/faces").open(RECIPES)


def committed() -> list[Path]:
    return sorted(p for p in RECIPES.glob("*.yaml") if p.name != "queue.yaml")


@pytest.mark.parametrize("path", committed(), ids=lambda p: p.stem)
def test_recipes_name_folders_outside_by_variable(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNPCM_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "data"))
    recipe = read_recipe(path)
    assert resolve(recipe.out, RECIPES) == tmp_path / "runs" / path.stem
    for start in (recipe.init_from, recipe.teacher):
        inside = start is not None and (RECIPES / start).resolve().is_relative_to(RECIPES.parent)
        assert start is None or inside or resolve(start, RECIPES).is_relative_to(tmp_path)
    for source in (*recipe.data.sources, *recipe.report.validation):
        assert resolve(source.path, RECIPES).is_relative_to(tmp_path / "data")
