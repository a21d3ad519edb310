"""Our U-Net against diffusers' UNet2DModel: two implementations of one network."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor

from golden import random_unet, relative
from pnpcm.errors import ArgumentError, CheckpointError, MissingExtraError
from pnpcm.interop import diffusers_config, load_diffusers, to_diffusers_state
from pnpcm.networks import UNet, UNetConfig
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.diffusion import DiffusionModel

SMALL = UNetConfig(
    image_size=16,
    in_channels=2,
    model_channels=32,
    channel_mult=(1, 2, 2),
    attention_resolutions=(8,),
    num_head_channels=16,
)
VARIANTS = {
    "paper": SMALL,
    "attention at the bottom": replace(SMALL, attention_resolutions=(4,), num_res_blocks=1),
    "attention nowhere": replace(SMALL, attention_resolutions=(), middle_attention=False),
    "legacy order": replace(SMALL, attention_order="legacy"),
    "scale-shift": replace(SMALL, use_scale_shift_norm=True, out_channels=4),
    "plain resampling": replace(SMALL, resblock_updown=False),
    "classes": replace(SMALL, num_classes=5, num_res_blocks=3),
}


def converted(network: UNet) -> Any:
    unet = diffusers.UNet2DModel(**diffusers_config(network.config))
    unet.load_state_dict(to_diffusers_state(network.state_dict(), network.config), strict=True)
    return unet.eval()


def inputs(config: UNetConfig) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn((2, config.in_channels, 16, 16), generator=g)
    return x, torch.tensor([-1553.652, 231.5])


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_values_agree_with_diffusers(name: str) -> None:
    network = random_unet(VARIANTS[name])
    unet = converted(network)
    x, c = inputs(network.config)
    labels = None if network.config.num_classes is None else torch.tensor([4, 0])
    ours = network(x, c, labels)
    theirs = unet(x, c, class_labels=labels).sample
    assert relative(ours, theirs) < 1e-5
    assert sum(p.numel() for p in unet.parameters()) == sum(p.numel() for p in network.parameters())


@torch.no_grad()
def test_wrong_head_order_is_another_network() -> None:
    network = random_unet(SMALL)
    x, c = inputs(SMALL)
    theirs = converted(network)(x, c).sample
    legacy = UNet(replace(SMALL, attention_order="legacy"))
    legacy.load_state_dict(network.state_dict())
    assert relative(legacy(x, c), theirs) > 0.005
    heads = UNet(replace(SMALL, num_head_channels=32))
    heads.load_state_dict(network.state_dict())
    assert relative(heads(x, c), theirs) > 0.005


@pytest.mark.parametrize(
    ("config", "total", "tensors"),
    [
        (UNetConfig(), 526304771, 630),
        (
            UNetConfig(image_size=320, in_channels=2, channel_mult=(1, 1, 2, 2, 4, 4)),
            479037442,
            480,
        ),
    ],
    ids=["256 px", "320 px"],
)
def test_paper_networks_convert_name_by_name(config: UNetConfig, total: int, tensors: int) -> None:
    with torch.device("meta"):
        state = to_diffusers_state(UNet(config).state_dict(), config)
        unet = diffusers.UNet2DModel(**diffusers_config(config))
    assert {n: t.shape for n, t in state.items()} == {
        n: t.shape for n, t in unet.state_dict().items()
    }
    assert len(state) == tensors
    assert sum(t.numel() for t in state.values()) == total
    if config.image_size == 256:
        assert unet.config.down_block_types == (
            *["ResnetDownsampleBlock2D"] * 3,
            *["AttnDownBlock2D"] * 3,
        )


def test_what_diffusers_cannot_express_is_refused() -> None:
    for fields in (
        {"norm": False},
        {"patch": 2},
        {"channel_mult": (2, 2)},
    ):
        with pytest.raises(ArgumentError, match="UNet2DModel has only"):
            diffusers_config(replace(SMALL, **fields))
    with pytest.raises(CheckpointError, match="not a name of pnpcm's U-Net"):
        to_diffusers_state({"foo.weight": torch.zeros(1)}, SMALL)


# --- folders ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    converted(random_unet(SMALL)).save_pretrained(tmp_path / "net")
    return tmp_path / "net"


def as_pipeline(folder: Path, class_name: str, **scheduler: object) -> Path:
    pipeline = folder.parent / "pipeline"
    (pipeline / "scheduler").mkdir(parents=True)
    folder.rename(pipeline / "unet")
    (pipeline / "model_index.json").write_text(json.dumps({"_class_name": class_name}))
    (pipeline / "scheduler" / "scheduler_config.json").write_text(json.dumps(scheduler))
    return pipeline


def test_a_network_folder_becomes_a_prior(folder: Path) -> None:
    prior = load_diffusers(folder)
    assert isinstance(prior, ConsistencyModel)
    assert not prior.training
    assert not any(p.requires_grad for p in prior.parameters())
    assert (prior.network.in_channels, prior.network.image_size, prior.network.stride) == (2, 16, 4)
    x, _ = inputs(SMALL)
    ours = ConsistencyModel(random_unet(SMALL))
    assert relative(prior(x, 0.7), ours(x, 0.7).detach()) < 1e-5
    assert load_diffusers(folder, kind="edm").kind == "edm"
    with pytest.raises(ArgumentError, match="kind must be"):
        load_diffusers(folder, kind="gan")


def test_pipelines_tell_their_kind(folder: Path) -> None:
    pipeline = as_pipeline(folder, "ConsistencyModelPipeline")
    assert isinstance(load_diffusers(str(pipeline)), ConsistencyModel)


def test_ddpm_pipelines_are_vp_if_their_table_is_ours(folder: Path) -> None:
    pipeline = as_pipeline(folder, "DDPMPipeline", beta_schedule="linear", beta_end=0.02)
    prior = load_diffusers(pipeline)
    assert isinstance(prior, DiffusionModel)
    assert prior.kind == "vp"
    config = pipeline / "scheduler" / "scheduler_config.json"
    config.write_text(json.dumps({"beta_schedule": "squaredcos_cap_v2"}))
    with pytest.raises(CheckpointError, match="beta_schedule = squaredcos_cap_v2"):
        load_diffusers(pipeline)


def told_by(prior: ConsistencyModel | DiffusionModel, sigma: float) -> float:
    """The timestep passed to the inner network."""
    told = []
    unet = prior.network.unet
    handle = unet.register_forward_pre_hook(lambda module, inputs: told.append(inputs[1]))
    prior(inputs(SMALL)[0], sigma)
    handle.remove()
    return float(told[0][0])


def test_an_edm_scheduler_says_what_its_network_is_told(folder: Path) -> None:
    """c_noise = ln σ / 4, as diffusers' own scheduler computes it."""
    scheduler = diffusers.EDMEulerScheduler(sigma_data=0.4, sigma_min=0.01, sigma_max=50.0)
    said = {**scheduler.config, "_class_name": "EDMEulerScheduler"}
    pipeline = as_pipeline(folder, "DDPMPipeline", **said)
    prior = load_diffusers(pipeline)
    assert (prior.kind, prior.c_noise) == ("edm", "edm")
    assert (prior.sigma_data, prior.sigma_min, prior.sigma_max) == (0.4, 0.01, 50.0)
    expected = float(scheduler.precondition_noise(torch.tensor(0.3)))
    assert told_by(prior, 0.3) == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(-0.30099320)  # ln 0.3 = −1.2039728
    given = load_diffusers(pipeline, c_noise="openai")
    assert told_by(given, 0.3) == pytest.approx(-300.99320, rel=1e-6)
    config = pipeline / "scheduler" / "scheduler_config.json"
    config.write_text(json.dumps({"_class_name": "EDMEulerScheduler", "prediction_type": "sample"}))
    with pytest.raises(CheckpointError, match="prediction_type = sample"):
        load_diffusers(pipeline)


def test_other_networks_are_told_openais_number_unless_given(folder: Path) -> None:
    for kind in ("consistency", "edm"):
        assert told_by(load_diffusers(folder, kind=kind), 0.3) == pytest.approx(-300.9932, rel=1e-6)
        edm = load_diffusers(folder, kind=kind, c_noise="edm")
        assert told_by(edm, 0.3) == pytest.approx(-0.3009932, rel=1e-6)
    with pytest.raises(ArgumentError, match="leave c_noise out"):
        load_diffusers(folder, kind="vp", c_noise="edm")


def test_unknown_pipelines_ask_for_the_kind(folder: Path) -> None:
    pipeline = as_pipeline(folder, "StrangePipeline")
    with pytest.raises(ArgumentError, match="is a StrangePipeline"):
        load_diffusers(pipeline)
    assert load_diffusers(pipeline, kind="edm").kind == "edm"


def test_broken_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a folder nor a Hub id"):
        load_diffusers(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        load_diffusers(tmp_path / "empty")
    weights = folder / "diffusion_pytorch_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="cannot be read by diffusers"):
        load_diffusers(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match="cannot be read by diffusers"):
        load_diffusers(folder)
    (folder / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel"}))
    with pytest.raises(CheckpointError, match="holds a UNet2DConditionModel"):
        load_diffusers(folder)


def test_hub_ids_are_downloaded_once_and_read_as_folders(folder: Path, monkeypatch: Any) -> None:
    asked = []

    def download(name: str, **options: Any) -> str:
        asked.append((name, options["allow_patterns"]))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert isinstance(load_diffusers("hf:someone/some-net"), ConsistencyModel)
    assert asked[0][0] == "someone/some-net"
    assert not any(pattern.endswith((".bin", "*")) for pattern in asked[0][1])  # no pickles

    def refuse(name: str, **options: Any) -> str:
        raise OSError("no connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(CheckpointError, match=r"someone/some-net .*no connection"):
        load_diffusers("hf:someone/some-net")


def test_missing_diffusers_gives_the_pip_line(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "pnpcm\[hf\]"'):
        load_diffusers(folder)
