"""Files whose header is wrong on purpose: one sentence each, before anything is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from golden import TINY, random_unet
from pnpcm import ConsistencyModel, DenoiserPrior, catalogue, load_prior, save_prior
from pnpcm.cli import main
from pnpcm.errors import CheckpointError
from pnpcm.networks.control import ControlNet
from pnpcm.networks.kair import DenoiserConfig, build_denoiser
from pnpcm.priors.checkpoint import read_header
from pnpcm.priors.controlled import ControlledModel, load_control, save_control

HUGE = float("1e999")
NETWORKS: dict[str, tuple[dict[str, Any], str]] = {
    "10⁴ blocks": ({"num_res_blocks": 10**4}, r"describes a network of 40004 blocks, but holds"),
    "10⁹ blocks": ({"num_res_blocks": 10**9}, "num_res_blocks must be a positive integer up to"),
    "2000 levels": ({"channel_mult": [1] * 2000}, "4096, got patch 1 and 2000 levels"),
    "12 levels": ({"channel_mult": [1] * 12, "num_res_blocks": 9}, "network of 240 blocks"),
    "infinite multiplier": ({"channel_mult": [1, HUGE]}, "must hold finite numbers, got inf"),
    "large multiplier": ({"channel_mult": [1, 1e200]}, "must be at most 1048576"),
    "word as multiplier": ({"channel_mult": ["x"]}, "must hold finite numbers, got 'x'"),
    "zero patch": ({"patch": 0}, "patch must be a positive integer"),
    "patch of nothing": ({"patch": None}, "patch must be a positive integer"),
    "large patch": ({"patch": 10**5}, "at most 4096, got patch 100000"),
    "negative size": ({"image_size": -64}, "image_size must be a positive integer"),
    "negative channels": ({"in_channels": -3}, "in_channels must be a positive integer"),
    "10¹⁸ channels": ({"model_channels": 10**18}, "model_channels must be a positive integer up"),
    "10¹⁸ classes": ({"num_classes": 10**18}, "num_classes must be a positive integer up"),
    "wide": ({"model_channels": 2**19}, "misshapen"),
}
OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "sigma_max": ({"sigma_max": HUGE}, "sigma_max be finite"),
    "sigma_data": ({"sigma_data": 0.0}, "sigma_data must be positive and finite"),
    "long number": ({"sigma_max": 10**400}, "invalid options"),
    "value_range": ({"value_range": [-HUGE, 1.0]}, r"value_range must be \(low, high\)"),
    "one value": ({"value_range": [1.0]}, "invalid options"),
}


def rewrite(path: Path, header: str, weights: dict[str, torch.Tensor] | None = None) -> None:
    """``path`` with another header, and other weights if given."""
    save_file(load_file(path) if weights is None else weights, path, metadata={"pnpcm": header})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "p.safetensors"
    save_prior(ConsistencyModel(random_unet(TINY)), file)
    return file


@pytest.mark.parametrize("name", NETWORKS)
def test_an_architecture_is_bounded_by_the_tensors_of_its_file(name: str, path: Path) -> None:
    edit, message = NETWORKS[name]
    header = read_header(path)
    header["network"] |= edit
    rewrite(path, json.dumps(header))
    with pytest.raises(CheckpointError, match=message) as caught:
        load_prior(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_finite_numbers(name: str, path: Path) -> None:
    edit, message = OPTIONS[name]
    header = read_header(path)
    header["options"] |= edit
    rewrite(path, json.dumps(header))
    with pytest.raises(CheckpointError, match=message):
        load_prior(path)


@pytest.mark.parametrize("depth", [100, 200_000])
def test_deeply_nested_json_is_not_read(depth: int, path: Path) -> None:
    text = json.dumps(read_header(path) | {"info": {"x": "HERE"}})
    rewrite(path, text.replace('"HERE"', "[" * depth + "]" * depth))
    with pytest.raises(CheckpointError, match=r"unreadable pnpcm header .*(nested|recursion)"):
        load_prior(path)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64, torch.float8_e4m3fn])
def test_weights_are_floats(dtype: torch.dtype, path: Path) -> None:
    weights = load_file(path)
    name = next(iter(weights))
    header = json.dumps(read_header(path))
    rewrite(path, header, weights | {name: torch.zeros(weights[name].shape, dtype=dtype)})
    with pytest.raises(CheckpointError, match=r"not floats of 16, 32 or 64 bits"):
        load_prior(path)


@pytest.mark.parametrize(
    ("architecture", "widths"), [("drunet", (8, 8, 8, 8)), ("dncnn", (8,)), ("ffdnet", (8,))]
)
def test_denoisers_are_bounded_too(
    architecture: str, widths: tuple[int, ...], tmp_path: Path
) -> None:
    config = DenoiserConfig(architecture, 1, widths, 3)
    path = tmp_path / "d.safetensors"
    save_prior(DenoiserPrior(build_denoiser(config)), path)
    header = read_header(path)
    header["network"]["depth"] = 10**6
    rewrite(path, json.dumps(header))
    with pytest.raises(CheckpointError, match="blocks, but holds only"):
        load_prior(path)


def test_control_nets_are_bounded_too(tmp_path: Path) -> None:
    prior = ConsistencyModel(random_unet(TINY))
    path = tmp_path / "c.safetensors"
    save_control(ControlledModel(prior, ControlNet(TINY)), path)
    header = read_header(path)
    header["network"]["num_res_blocks"] = 10**5
    rewrite(path, json.dumps(header))
    with pytest.raises(CheckpointError, match="blocks, but holds only"):
        load_control(path, prior)


def test_one_bad_file_in_the_cache_does_not_break_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "priors"
    folder.mkdir()
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path))
    monkeypatch.setattr(catalogue, "SHIPPED", tmp_path / "none")
    save_prior(ConsistencyModel(random_unet(TINY)), folder / "good.safetensors")
    header = read_header(folder / "good.safetensors")
    deep = "[" * 200_000 + "]" * 200_000
    bad = {
        "deep": json.dumps(header | {"info": 0}).replace('"info": 0', f'"info": {{"a": {deep}}}'),
        "inf": json.dumps(header | {"network": header["network"] | {"channel_mult": [HUGE]}}),
        "list": json.dumps([header]),
        "words": json.dumps(header | {"network": "unet", "options": 3}),
        "kind": json.dumps(header | {"kind": {"a": 1}}),
    }
    for name, text in bad.items():
        save_file(load_file(folder / "good.safetensors"), folder / f"{name}.safetensors",
                  metadata={"pnpcm": text})  # fmt: skip
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "folder.safetensors").mkdir()
    monkeypatch.setattr("sys.argv", ["pnpcm", "priors", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    out = capsys.readouterr().out
    damaged = [line for line in out.splitlines() if line.startswith("damaged: ")]
    assert len(damaged) == len(bad) + 2
    assert sum("good" in line and "cached" in line and "damaged" not in line
               for line in out.splitlines()) == 1  # fmt: skip


def repeated(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of 8000 instead of 8 channels, each a single stored number."""
    sizes = {n: [8000 if side == 8 else side for side in t.shape] for n, t in weights.items()}
    return {name: torch.zeros(1).expand(size) for name, size in sizes.items()}


def shared(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All weights are parts of one stored tensor."""
    one = torch.zeros(8 * 8 * 9)
    return {name: one[: t.numel()].view(t.shape) for name, t in weights.items()}


def sparse(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t.to_sparse() for name, t in weights.items()}


def without_values(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t.to("meta") for name, t in weights.items()}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (repeated, r"has \d+ bytes, but its tensors need 41\d+ .*shape \(8000, 8000, 3, 3\)"),
        (shared, r"has \d+ bytes, but its tensors need \d+ "),
        (sparse, r"holds model\.0\.weight as a torch.sparse_coo tensor on cpu, expected a dense"),
        (without_values, r"holds model\.0\.weight as a torch.strided tensor on meta"),
    ],
)
def test_weights_of_other_libraries_are_in_their_file(
    edit: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    words: str,
    zipped: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "dncnn_25.pth"
    weights = build_denoiser(DenoiserConfig("dncnn", 1, (8,), 20)).state_dict()
    torch.save(weights, path, _use_new_zipfile_serialization=zipped)
    assert isinstance(load_prior(path), DenoiserPrior)
    torch.save(edit(weights), path, _use_new_zipfile_serialization=zipped)
    monkeypatch.setattr("pnpcm.priors.denoiser.fill", None)  # which would build the weights
    with pytest.raises(CheckpointError, match=words) as caught:
        load_prior(path)
    assert "\n" not in str(caught.value)


DOMAIN = {"mean": [0.0, 1.0], "precision": [[1.0, 0.0], [0.0, 1.0]], "limit": 2.0}
INFOS: dict[str, tuple[Any, str]] = {
    "no object": ([["name", "a"]], "info is a list, expected an object"),
    "name": ({"name": {"a": 1}}, "info.name is not a line of up to 100 characters"),
    "long name": ({"name": "n" * 101}, "info.name is not a line"),
    "control characters": ({"name": "a\x1b[2J"}, "info.name is not a line"),
    "scale": ({"scale": 3}, "info.scale is not a line"),
    "control": ({"control": [1]}, "info.control is not an object"),
    "training": ({"training": {"a": 1}}, "info.training is not a list of objects"),
    "stage": ({"training": [3]}, "info.training is not a list of objects"),
    "table": ({"training": [{"psnr_by_sigma": [1]}]}, "psnr_by_sigma without numbers up to 200"),
    "word": ({"training": [{"psnr_by_sigma": {"0.1": "x"}}]}, "without numbers up to 200"),
    "infinite": ({"training": [{"psnr_by_sigma": {"0.1": -HUGE}}]}, "without numbers up to 200"),
    "large": ({"training": [{"psnr_by_sigma": {"0.1": 1e5}}]}, "without numbers up to 200"),
    "domain": ({"domain": "brains"}, "info.domain is not an object of mean, precision, limit"),
    "part of it": ({"domain": {"mean": [0.0]}}, "info.domain is not an object of mean"),
    "rows": ({"domain": DOMAIN | {"mean": [0.0]}}, "precision has 2 rows for a mean of 1 numbers"),
    "words": ({"domain": DOMAIN | {"mean": ["x", "y"]}}, "could not convert string to float"),
    "not a number": ({"domain": DOMAIN | {"mean": [0.0, float("nan")]}}, "got nan"),
    "no limit": ({"domain": DOMAIN | {"limit": 0}}, "limit positive, got 0"),
    "much": ({"notes": "x" * 2**20}, r"a pnpcm header of \d{7} characters, expected at most"),
}


@pytest.mark.parametrize("name", INFOS)
def test_what_is_told_about_a_training_is_checked_when_it_is_read(name: str, path: Path) -> None:
    edit, message = INFOS[name]
    header = read_header(path)
    rewrite(path, json.dumps(header | {"info": {"domain": DOMAIN, "name": "a"}}))
    load_prior(path)
    rewrite(path, json.dumps(header | {"info": edit}))
    with pytest.raises(CheckpointError, match=message) as caught:
        load_prior(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
