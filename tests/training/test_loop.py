"""The loop: resume after kill −9, processes, accumulation, guards, and the files of a run."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pnpcm import load_prior
from pnpcm.errors import ArgumentError, CheckpointError
from pnpcm.priors.checkpoint import read_header
from pnpcm.training import DivergedError, train
from pnpcm.training.recipe import OptimizerConfig, Recipe
from pnpcm.training.state import Averages, learning_rate
from small import NETWORK, recipe, write_data

QUICK: dict[str, Any] = {"log_every": 1, "checkpoint_minutes": 60.0}


def losses(run: Path) -> list[float]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]


def write_recipe(folder: Path, plan: Recipe) -> Path:
    import yaml

    values = {k: v for k, v in plan.to_dict().items() if k != "type"}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(_without_types(values)), encoding="utf-8")
    return path


def _without_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_types(v) for k, v in value.items() if k != "type"}
    return [_without_types(v) for v in value] if isinstance(value, list) else value


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "pnpcm", "train", "edm", *map(str, arguments)]


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_kill_and_resume_give_the_same_losses(tmp_path: Path) -> None:
    """kill −9 in the middle; the same command again ends with the losses of an undisturbed run."""
    write_data(tmp_path, 256)
    plan = recipe(tmp_path, "edm", steps=60, batch=16, report=QUICK | {"checkpoint_minutes": 1e-3})
    path = write_recipe(tmp_path, plan)
    train(plan, tmp_path)
    out = tmp_path / "killed"
    process = subprocess.Popen(
        command(path, "--out", out), env=ENVIRONMENT, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        log = out / "log.jsonl"
        if (out / "state.pt").exists() and log.exists() and log.read_text().count("\n") > 15:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = torch.load(out / "state.pt", weights_only=True)["step"]
    assert 0 < done < 60, "the run ended before it could be killed"
    subprocess.run(command(path, "--out", out), env=ENVIRONMENT, check=True, capture_output=True)
    assert losses(out) == pytest.approx(losses(tmp_path / "run"), rel=1e-5)
    assert len(losses(out)) == 60


def test_two_processes_equal_one(tmp_path: Path) -> None:
    write_data(tmp_path, 256)
    plan = recipe(tmp_path, "edm", steps=10, batch=16, report=QUICK)
    path = write_recipe(tmp_path, plan)
    train(plan, tmp_path)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]  # or CPUs
    launch += ["--num_processes=2", "--num_machines=1", "--mixed_precision=no"]
    launch += ["--dynamo_backend=no", "--main_process_port=0"]
    run = command(path, "--out", tmp_path / "both")[1:]
    on_this_machine = ENVIRONMENT | {"GLOO_SOCKET_IFNAME": "lo"}  # whatever its name resolves to
    done = subprocess.run([*launch, *run], env=on_this_machine, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "both") == pytest.approx(losses(tmp_path / "run"), rel=1e-5)
    header = read_header(tmp_path / "both" / "prior.safetensors")
    assert header["info"]["training"][-1]["processes"] == 2
    one, two = (load_prior(tmp_path / run / "prior.safetensors") for run in ("run", "both"))
    x = torch.randn(2, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(two(x, 0.3), one(x, 0.3), rtol=1e-3, atol=1e-4)


def test_accumulation_changes_nothing(tmp_path: Path) -> None:
    write_data(tmp_path, 128)
    for name, parts in (("whole", 1), ("parts", 4)):
        plan = recipe(tmp_path, "edm", steps=6, batch=16, accumulate=parts, report=QUICK, out=name)
        train(plan, tmp_path)
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=1e-4)


def test_max_time_stops_with_a_checkpoint_and_goes_on(tmp_path: Path) -> None:
    write_data(tmp_path, 128)
    plan = recipe(tmp_path, "edm", steps=8, batch=8, report=QUICK)
    train(plan, tmp_path, max_seconds=1e-9)
    assert len(losses(tmp_path / "run")) == 1
    train(plan, tmp_path)
    assert len(losses(tmp_path / "run")) == 8


def test_another_recipe_does_not_continue_a_run(tmp_path: Path) -> None:
    write_data(tmp_path, 64)
    train(recipe(tmp_path, "edm", steps=2, batch=8), tmp_path)
    with pytest.raises(ArgumentError, match="belongs to a run with another batch"):
        train(recipe(tmp_path, "edm", steps=2, batch=16), tmp_path)


def test_a_file_with_another_noise_input_is_refused(tmp_path: Path) -> None:
    write_data(tmp_path, 64)
    train(recipe(tmp_path, "edm", steps=1, batch=8, prior={"c_noise": "edm"}), tmp_path)
    file = tmp_path / "run" / "prior.safetensors"
    assert load_prior(file).c_noise == "edm"  # type: ignore[attr-defined]
    more: dict[str, Any] = {"steps": 1, "batch": 8, "init_from": str(file), "out": "next"}
    with pytest.raises(CheckpointError) as refusal:
        train(recipe(tmp_path, "edm", **more), tmp_path)
    assert str(refusal.value) == (
        f"{file} has c_noise 'edm' (0.25 ln σ), the recipe 'openai' (250 ln σ); "
        "set prior.c_noise to the former"
    )
    train(recipe(tmp_path, "edm", prior={"c_noise": "edm"}, **more), tmp_path)
    assert load_prior(tmp_path / "next" / "prior.safetensors").c_noise == "edm"  # type: ignore[attr-defined]


def test_a_denoiser_of_low_noise_is_trained_without_samples(tmp_path: Path) -> None:
    write_data(tmp_path, 64)
    for sigma_max, drawn in ((80.0, True), (1.0, False)):
        out = f"run{sigma_max:g}"
        report = QUICK | {"sample_size": 8, "sample_steps": 2}
        more: dict[str, Any] = {"prior": {"sigma_max": sigma_max}, "out": out, "report": report}
        train(recipe(tmp_path, "edm", steps=1, batch=8, **more), tmp_path)
        assert (tmp_path / out / "prior.safetensors").exists()
        assert (tmp_path / out / "samples.png").exists() == drawn


def test_runs_from_before_a_field_existed_are_continued(tmp_path: Path) -> None:
    write_data(tmp_path, 64)
    train(recipe(tmp_path, "edm", steps=2, batch=8, report=QUICK), tmp_path)
    path = tmp_path / "run" / "state.pt"
    content = torch.load(path, weights_only=True)
    values = json.loads(content["recipe"])
    del values["prior"]["c_noise"]
    torch.save(content | {"recipe": json.dumps(values)}, path)
    train(recipe(tmp_path, "edm", steps=4, batch=8, report=QUICK), tmp_path)
    assert len(losses(tmp_path / "run")) == 4


def test_nan_guard_skips_counts_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad batch is skipped and does not change the weights; many stop the run."""
    from pnpcm.training import losses as module

    write_data(tmp_path, 64)
    good = module.EDMLoss.__call__
    bad: set[int] = {2}

    def sometimes(self: Any, nets: Any, batch: Any) -> torch.Tensor:
        loss = good(self, nets, batch)
        return loss * math.nan if batch.step in bad else loss

    monkeypatch.setattr(module.EDMLoss, "__call__", sometimes)
    train(recipe(tmp_path, "edm", steps=4, batch=8, report=QUICK), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [line["skipped"] for line in lines if "loss" in line] == [0, 0, 1, 1]
    assert load_prior(tmp_path / "run/prior.safetensors") is not None  # finite, or it would raise
    bad |= set(range(1000))
    with pytest.raises(DivergedError, match=r"lower optimizer\.lr"):
        train(recipe(tmp_path, "edm", steps=50, batch=8, out="hopeless"), tmp_path)


def test_a_run_leaves_prior_log_curve_samples_and_card(tmp_path: Path) -> None:
    write_data(tmp_path, 64)
    report = QUICK | {
        "evaluate_every": 2,
        "validation": [{"kind": "npz", "path": "gaussian.npz"}],
        "images": 8,
        "sigmas": [0.1, 1.0],
        "sample_size": 2,
        "sample_steps": 3,
    }
    card = {"licence": "CC0", "data": "Gaussian numbers"}
    train(recipe(tmp_path, "edm", steps=4, batch=8, report=report, card=card), tmp_path)
    run = tmp_path / "run"
    names = {path.name for path in run.iterdir()}
    assert names == {
        *("prior.safetensors", "state.pt", "log.jsonl", "curve.png"),
        *("samples.png", "card.md", "recipe.json"),
    }
    info = read_header(run / "prior.safetensors")["info"]
    assert info["licence"] == "CC0"
    assert info["training"][-1]["steps"] == 4
    assert set(info["training"][-1]["psnr_by_sigma"]) == {"0.1", "1"}
    text = (run / "card.md").read_text(encoding="utf-8")
    assert "CC0" in text
    assert "| edm | 4 |" in text


def test_a_collapse_is_told_and_what_was_good_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path, 64)
    scores = iter((30.0, 29.0, 21.0, 22.0))
    monkeypatch.setattr(
        "pnpcm.training.report.denoising_psnr", lambda prior, x, sigma: next(scores)
    )
    report = QUICK | {
        "evaluate_every": 2,
        "validation": [{"kind": "npz", "path": "gaussian.npz"}],
        "images": 8,
        "sigmas": [0.2],
    }
    train(recipe(tmp_path, "edm", steps=8, batch=8, report=report), tmp_path)
    kept = read_header(tmp_path / "run" / "prior-before-fall.safetensors")["info"]["training"][-1]
    assert (kept["steps"], kept["psnr_by_sigma"]) == (4, {"0.2": 29.0})
    assert "PSNR at sigma 0.2 fell by 8.0 dB" in capsys.readouterr().out


def test_a_cm_remembers_how_its_teacher_was_trained(tmp_path: Path) -> None:
    write_data(tmp_path, 64)
    train(recipe(tmp_path, "edm", steps=2, batch=8, out="edm"), tmp_path)
    start = "edm/prior.safetensors"
    train(recipe(tmp_path, "ect", steps=3, batch=8, out="cm", init_from=start), tmp_path)
    prior = load_prior(tmp_path / "cm/prior.safetensors")
    stages = read_header(tmp_path / "cm/prior.safetensors")["info"]["training"]
    assert [(s["method"], s["steps"]) for s in stages] == [("edm", 2), ("ect", 3)]
    assert prior(torch.zeros(1, 1, 2, 2), prior.sigma_min).abs().max() == 0  # boundary condition


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    write_data(tmp_path, 64)
    train(recipe(tmp_path, "edm", steps=1, batch=8, out="edm"), tmp_path)
    wide = NETWORK | {"model_channels": 32}
    plan = recipe(tmp_path, "ect", steps=1, network=wide, init_from="edm/prior.safetensors")
    with pytest.raises(CheckpointError, match="another network"):
        train(plan, tmp_path)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0]),
        ("cosine", [0.5, 0.5 * (1 + math.cos(math.pi * 0.25)), 0.5, 0.5 * (1 - math.sqrt(0.5))]),
        ("trapezoid", [0.5, 1.0, 1.0, 0.5]),
    ],
)
def test_learning_rates(schedule: str, expected: list[float]) -> None:
    config = OptimizerConfig(lr=2.0, warmup=2, schedule=schedule, decay=0.5)
    found = [learning_rate(config, step, 4) / 2.0 for step in range(4)]
    assert found == pytest.approx(expected)


def test_averages_follow_the_formula() -> None:
    """e ← r e + (1 − r) w, started from the weights."""
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 1.0)
    averages = Averages(module, (0.9, 0.5))
    torch.nn.init.constant_(module.weight, 3.0)
    for k in (1, 2):
        averages.update(module, k)
    assert [float(c[0]) for c in averages.copies] == pytest.approx([3 - 2 * 0.81, 3 - 2 * 0.25])
    torch.nn.init.constant_(module.weight, 1.0)
    warm = Averages(module, (0.9,), warmup=True)
    torch.nn.init.constant_(module.weight, 3.0)
    warm.update(module, 2)
    assert float(warm.copies[0][0]) == pytest.approx(3 - 2 * 3 / 12)
