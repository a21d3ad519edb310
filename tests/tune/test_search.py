"""tune: never worse than its start, resumable, with a preset file for restore."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pnpcm
from pnpcm.catalogue import load_prior
from pnpcm.errors import ArgumentError
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr
from pnpcm.presets import Preset, load_preset
from pnpcm.problems import SuperRes
from pnpcm.problems.measurement import simulate
from pnpcm.recon import restore
from pnpcm.tune.search import SPACE, Tuned, numbers, tune

DATA = Path(pnpcm.__file__).parent / "data"


def images() -> Tensor:
    x = read_image(DATA / "Picture_1A_by_freespace.png")
    return torch.cat([x[..., a : a + 24, a : a + 24] for a in (20, 90, 150)])


def search(trials: int, storage: Path | None = None, seed: int = 0) -> Tuned:
    prior = load_prior("gaussian")
    return tune(
        SuperRes(factor=3),
        images(),
        prior,
        prior_name="gaussian",
        sigma_y=0.03,
        trials=trials,
        storage=storage,
        seed=seed,
    )


def test_the_best_is_at_least_what_the_rule_gives() -> None:
    found = search(12)
    assert found.score_before is not None
    assert found.score > found.score_before
    measured = simulate(images(), SuperRes(factor=3), 0.03, seed=0)
    done = restore(
        measured.y,
        measured.task,
        load_prior("gaussian"),
        sigma_y=0.03,
        settings={"noise_scale": 0.0},
    )
    # what the first trial scored is what restore would have done, up to the injected noise
    assert float(psnr(done.x, images()).mean()) == pytest.approx(found.score_before, abs=1.0)


def test_a_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = search(5, tmp_path / "s.study")
    assert first.trials == 5
    more = search(9, tmp_path / "s.study")
    assert more.trials == 9
    assert more.score >= first.score
    assert search(9, tmp_path / "s.study").trials == 9


def test_the_same_seed_finds_the_same() -> None:
    assert search(6).study.best_params == search(6).study.best_params


def test_the_preset_file_is_what_restore_takes(tmp_path: Path) -> None:
    found = search(4)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(found.preset.to_dict()))
    assert load_preset(path).solver == found.preset.solver
    measured = simulate(images()[:1], SuperRes(factor=3), 0.03)
    done = restore(measured.y, measured.task, load_prior("gaussian"), sigma_y=0.03, preset=path)
    assert done.config == found.preset.solver
    assert found.preset.conditions["seen"] == pytest.approx(1 / 9, rel=0.5)


def test_fixed_numbers_are_not_searched() -> None:
    found = tune(
        SuperRes(factor=3),
        images(),
        load_prior("gaussian"),
        prior_name="gaussian",
        trials=5,
        fixed={"mu": 0.25, "noise_scale": 0.5},
    )
    assert found.preset.solver.momentum[0] == 0.25
    assert found.preset.solver.noise_scale == 0.5
    assert set(found.study.best_params) == set(SPACE) - {"mu", "noise_scale"}
    with pytest.raises(KeyError, match="unknown hyperparameter"):
        tune(SuperRes(3), images(), load_prior("gaussian"), prior_name="gaussian", fixed={"m": 1})


def test_points_of_the_space_are_runs() -> None:
    middle = {
        name: (low * high) ** 0.5 if log else (low + high) / 2
        for name, (low, high, log) in SPACE.items()
    }
    assert numbers(middle).sigma_end == pytest.approx(middle["sigma_start"] * middle["fall"])


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="expected one of psnr, lpips, mix"):
        tune(SuperRes(), images(), load_prior("gaussian"), prior_name="gaussian", metric="ssim")
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(ArgumentError, match="a preset needs prior, operator"):
        load_preset(tmp_path / "p.json")
    with pytest.raises(ArgumentError, match="PnPCMConfig cannot be built"):
        Preset.from_dict({"solver": {"type": "PnPCMConfig"}, "colour": 1})
