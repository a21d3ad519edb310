"""Training a ControlNet: new hints per step, changed weights, loss, resuming, catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor
from typer.testing import CliRunner

from ddpm import karras
from golden import random_unet
from pnpcm import ConsistencyModel, DiffusionModel, load_prior
from pnpcm.cli import app
from pnpcm.errors import ArgumentError, CheckpointError, UnknownNameError
from pnpcm.networks import UNetConfig
from pnpcm.operators import SuperResolution
from pnpcm.priors.checkpoint import save_prior
from pnpcm.priors.controlled import ControlledModel, read_control
from pnpcm.rng import generators
from pnpcm.training import estimate, read_recipe, train
from pnpcm.training.cosign_loss import CosignLoss
from pnpcm.training.recipe import Recipe
from pnpcm.training.state import TrainState
from pnpcm.training.step import Batch, Nets
from small import NETWORK, recipe

RECIPES = Path(__file__).parents[2] / "recipes"
CONFIG = UNetConfig.from_dict(NETWORK)
SUPERRES: dict[str, Any] = {"options": {"factor": 2}, "distances": {"l2": 1.0}}
QUICK: dict[str, Any] = {"log_every": 1, "checkpoint_minutes": 60.0, "evaluate_every": 10**9}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Constant 4×4 images, and an uninformative prior."""
    grey = np.random.default_rng(0).uniform(-0.9, 0.9, (128, 1, 1))
    np.savez(tmp_path / "gaussian.npz", images=np.broadcast_to(grey, (128, 4, 4)).astype("f4"))
    prior = ConsistencyModel(random_unet(CONFIG, 0))
    save_prior(prior, tmp_path / "cm.safetensors", info={"name": "grey-cm"}, dtype=torch.float16)
    return tmp_path


def plan(folder: Path, **changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "init_from": "cm.safetensors", "loss": SUPERRES, "report": QUICK, "batch": 16, "steps": 6
    }  # fmt: skip
    return recipe(folder, "cosign", **(values | changes))


def losses(run: Path) -> list[float]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]


# the loss ----------------------------------------------------------------------------------------
def batch(n: int, seed: int = 0, size: int = 8) -> Batch:
    x = torch.rand((n, 1, size, size), generator=torch.Generator().manual_seed(7)) * 2 - 1
    return Batch(x, generators(range(seed, seed + n)), 0, 10)


def student(seen: list[Any], out: Callable[[Tensor], Tensor]) -> Nets:
    def call(x: Tensor, sigma: Tensor, *, hint: Tensor) -> Tensor:
        seen.append((x, sigma, hint))
        return out(x)

    return Nets(call)


def test_levels_are_all_but_the_last_of_the_grid() -> None:
    seen: list[Any] = []
    CosignLoss(**SUPERRES)(student(seen, torch.zeros_like), batch(4000, size=2))
    levels, counts = seen[0][1].unique(return_counts=True)
    assert len(levels) == 39
    assert levels.flip(0).tolist() == pytest.approx(karras(40)[:39])
    assert counts.min() > 60  # of 103 expected


def test_noise_of_level_t_and_noiseless_hints() -> None:
    seen: list[Any] = []
    given = batch(64)
    loss = CosignLoss(options={"factor": 2}, sigma_y=0.0, distances={"l2": 1.0})
    values = loss(student(seen, lambda x: torch.zeros_like(x)), given)
    x_t, t, hint = seen[0]
    spread = (x_t - given.x).flatten(1).std(1) / t
    assert float(spread.mean()) == pytest.approx(1.0, abs=0.05)
    operator = SuperResolution((1, 8, 8), 2)
    assert torch.allclose(hint, operator.A_dagger(operator.A(given.x)), atol=1e-6)
    assert torch.allclose(values, given.x.square().flatten(1).mean(1))


def test_hints_have_twice_sigma_y_and_depend_on_the_sample_alone() -> None:
    loss = CosignLoss("gaussian-blur", {"size": 3, "sigma": 1.0}, distances={"l2": 1.0})
    x = batch(50, size=16).x
    clean = CosignLoss("gaussian-blur", {"size": 3, "sigma": 1.0}, 0.0).hint(x, [])
    hint = loss.hint(x, generators(range(50)))
    assert float((hint - clean).std()) == pytest.approx(0.1, rel=0.02)
    assert torch.equal(hint[3:5], loss.hint(x[3:5], generators((3, 4))))
    assert not torch.allclose(hint, loss.hint(x, generators(range(50, 100))))


def test_each_sample_has_its_own_mask() -> None:
    loss = CosignLoss("inpainting", {"missing": 0.7}, distances={"l2": 1.0})
    x = batch(40, size=16).x
    missing = loss.hint(x, generators(range(40))) == 0
    assert float(missing.float().mean()) == pytest.approx(0.7, abs=0.02)
    assert len({tuple(m.flatten().tolist()) for m in missing}) == 40


def test_distances_add_up() -> None:
    both, one, two = (
        CosignLoss(**SUPERRES | {"distances": d})(student([], torch.zeros_like), batch(4))
        for d in ({"l2": 1.0, "l1": "0.5"}, {"l2": 1.0}, {"l1": 1.0})
    )
    assert torch.allclose(both, one + 0.5 * two)


def test_unusable_losses_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown operator 'superres'"):
        CosignLoss("superres")
    with pytest.raises(UnknownNameError, match="did you mean 'lpips'"):
        CosignLoss(distances={"lpip": 1.0})
    with pytest.raises(ArgumentError, match="distances must map names to weights > 0"):
        CosignLoss(distances={})
    with pytest.raises(ArgumentError, match="sigma_y ≥ 0"):
        CosignLoss(sigma_y=-1)
    with pytest.raises(ArgumentError, match=r"'gaussian-blur' cannot be built .* 'factor'"):
        CosignLoss("gaussian-blur", {"factor": 3}).hint(batch(1).x, generators([0]))


# the run -----------------------------------------------------------------------------------------
def test_one_step_changes_the_control_alone(folder: Path) -> None:
    run = train(plan(folder, steps=1), folder)
    student = torch.load(run / "state.pt", weights_only=True)["student"]
    prior, moved = load_prior(folder / "cm.safetensors"), set()
    assert isinstance(prior, ConsistencyModel)
    for name, t in prior.state_dict().items():
        inner = name.removeprefix("network.")
        assert torch.equal(student[f"network.frozen.{inner}"], t)
        if f"network.control.{inner}" in student:
            assert torch.equal(student[f"network.control.{inner}"], t)  # behind zeros
    for name, t in student.items():
        if "_conv" in name and "hint" not in name and t.abs().max() > 0:
            moved.add(name.split(".")[2])
    assert moved == {"skip_convs", "middle_conv"}
    optimised = torch.load(run / "state.pt", weights_only=True)["optimizer"]["state"]
    assert len(optimised) == sum(name.startswith("network.control.") for name in student)


@pytest.mark.parametrize(("scaled", "sigma"), [(True, 1.0), (False, 80.0)])
def test_it_learns_what_the_hint_shows(folder: Path, scaled: bool, sigma: float) -> None:
    """Constant images, an uninformative prior: only the hint determines the grey value."""
    loss = SUPERRES | {"scaled_hint": scaled}
    fast = {"kind": "adamw", "lr": 1e-2, "clip": 1.0}
    run = train(plan(folder, steps=80, loss=loss, optimizer=fast, ema=[0.9]), folder)
    history = losses(run)
    first, last = sum(history[:10]) / 10, sum(history[-20:]) / 20
    assert last < 0.7 * first
    prior = load_prior(folder / "cm.safetensors", control=run / "control.safetensors")
    assert isinstance(prior, ControlledModel)
    assert prior.scaled_hint is scaled
    noise = sigma * torch.randn((1, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    dark, bright = (prior(noise, sigma, hint=torch.full((1, 1, 4, 4), v)) for v in (-0.6, 0.6))
    gap = float((bright - dark).mean())
    assert gap > 0.1, gap
    assert torch.allclose(prior(noise, prior.sigma_min, hint=noise), noise, atol=1e-4)


def test_a_stopped_run_goes_on_as_if_nothing_had_been(folder: Path) -> None:
    report = QUICK | {"log_every": 1}
    whole = train(plan(folder, out="whole", report=report), folder)
    train(plan(folder, out="parts", report=report), folder, max_seconds=1e-9)
    assert len(losses(folder / "parts")) == 1
    parts = train(plan(folder, out="parts", report=report), folder)
    assert losses(parts) == losses(whole)
    a, b = (torch.load(run / "state.pt", weights_only=True) for run in (whole, parts))
    assert all(torch.equal(t, b["student"][name]) for name, t in a["student"].items())
    pairs = zip(a["averages"][0], b["averages"][0], strict=True)
    assert all(torch.equal(s, t) for s, t in pairs)
    changed = plan(folder, out="parts", loss=SUPERRES | {"sigma_y": 0.1})
    with pytest.raises(ArgumentError, match="another loss"):
        train(changed, folder)


def test_what_a_run_leaves_behind(folder: Path) -> None:
    report = QUICK | {
        "evaluate_every": 3,
        "validation": [{"kind": "npz", "path": "gaussian.npz"}],
        "images": 20,
        "sigmas": [80.0],
    }
    run = train(plan(folder, report=report, ema=[0.9, 0.5], card={"licence": "CC0"}), folder)
    assert {path.name for path in run.iterdir()} == {
        *("control.safetensors", "control-ema-0.5.safetensors", "state.pt", "log.jsonl"),
        *("curve.png", "samples.png", "card.md", "recipe.json"),
    }
    card = (run / "card.md").read_text(encoding="utf-8")
    assert "| cosign | 6 |" in card
    assert "superresolution" in card
    prior = load_prior(folder / "cm.safetensors", control=run / "control.safetensors")
    info = prior.info  # type: ignore[attr-defined]
    task = {"operator": "superresolution", "options": {"factor": 2}, "sigma_y": 0.05}
    assert info["name"] == "grey-cm"
    assert (info["control"]["name"], info["control"]["task"]) == ("small", task)
    assert set(info["control"]["training"][-1]["psnr_by_sigma"]) == {"80"}
    other = ConsistencyModel(random_unet(CONFIG, 1))
    save_prior(other, folder / "other.safetensors", info={"name": "other-cm"})
    with pytest.raises(CheckpointError, match=r"for the prior 'grey-cm'"):
        load_prior(folder / "other.safetensors", control=run / "control.safetensors")


def test_it_stands_beside_a_consistency_model(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="init_from is missing"):
        plan(folder, init_from=None)
    save_prior(DiffusionModel(random_unet(CONFIG, 0), kind="edm"), folder / "edm.safetensors")
    with pytest.raises(ArgumentError, match="init_from is of kind 'edm'"):
        train(plan(folder, init_from="edm.safetensors"), folder)


def test_it_can_start_at_the_control_of_an_earlier_consistency_model(folder: Path) -> None:
    first = train(plan(folder, out="first"), folder) / "control.safetensors"
    other = ConsistencyModel(random_unet(CONFIG, 1))
    save_prior(other, folder / "other.safetensors", info={"name": "other-cm"}, dtype=torch.float16)
    again = plan(folder, init_from="other.safetensors", control_from=str(first))
    started, plain = TrainState(again, folder).student, TrainState(plan(folder), folder).student
    earlier = read_control(first).state_dict()
    assert isinstance(started, ControlledModel)
    assert isinstance(plain, ControlledModel)
    for name, value in started.control.state_dict().items():
        assert torch.equal(value, earlier[name].to(value.dtype)), name
    assert any(
        not torch.equal(v, earlier[k].to(v.dtype)) for k, v in plain.control.state_dict().items()
    )
    with pytest.raises(ArgumentError, match="control_from is given, but method 'edm' trains no"):
        recipe(folder, "edm", control_from=str(first))


# the command -------------------------------------------------------------------------------------
def test_the_command(folder: Path) -> None:
    values = plan(folder, steps=2).to_dict()
    values = {k: v for k, v in values.items() if k not in ("type", "out")} | {"out": "cli"}
    plain = {k: _without_types(v) for k, v in values.items()}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(plain), encoding="utf-8")
    done = CliRunner().invoke(app, ["train", "cosign", str(folder / "recipe.yaml")])
    assert done.exit_code == 0, done.output
    assert (folder / "cli" / "control.safetensors").exists()
    assert "cosign" in CliRunner().invoke(app, ["train", "--help"]).output


def _without_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_types(v) for k, v in value.items() if k != "type"}
    return [_without_types(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("task", ["superres-4", "deblur-gauss", "inpaint-70"])
def test_recipes_of_the_faces(task: str) -> None:
    path = RECIPES / f"faces-cosign-{task}.yaml"
    found = read_recipe(path, "cosign")
    assert found.loss.sigma_y == 0.05
    x = torch.zeros(2, 3, 64, 64)
    assert found.loss.hint(x, generators((0, 1))).shape == x.shape
    half = 46_464 + 1_470_048 + 755_200  # embedding, encoder, middle of the U-Net
    skips = 4 * (48**2 + 48) + 3 * (96**2 + 96) + 2 * (128**2 + 128)
    hint = 48 * (3 * 2 * 2) * 9 + 48
    assert estimate(found).parameters == half + skips + (128**2 + 128) + hint
    faces = read_recipe(RECIPES / "faces-cm.yaml")
    assert found.network == faces.network
    assert found.data == faces.data
