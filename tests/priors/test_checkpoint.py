"""Checkpoints: architectures inferred from weights, round trips, and invalid files."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from golden import random_unet
from pnpcm.errors import ArgumentError, CheckpointError, UnknownNameError
from pnpcm.networks import UNet, UNetConfig
from pnpcm.priors.checkpoint import (
    export_openai,
    infer_config,
    load_openai,
    load_own,
    load_pt,
    read_header,
    save_prior,
)
from pnpcm.priors.consistency import ConsistencyModel, SmoothNetwork
from pnpcm.priors.diffusion import DiffusionModel

SMALL = UNetConfig(
    image_size=16,
    in_channels=1,
    model_channels=32,
    channel_mult=(1, 2),
    num_res_blocks=1,
    attention_resolutions=(8,),
    num_head_channels=16,
)
SIZES = {
    "small": SMALL,
    "64 px": replace(
        SMALL,
        image_size=64,
        in_channels=3,
        channel_mult=(1, 2, 2),
        attention_resolutions=(16,),
        num_head_channels=8,
    ),
    "two blocks": replace(SMALL, num_res_blocks=2),
    "three blocks, classes": replace(SMALL, num_res_blocks=3, num_classes=7),
    "scale-shift, variance": replace(SMALL, use_scale_shift_norm=True, out_channels=2),
    "plain resampling": replace(SMALL, resblock_updown=False),
    "plain, no attention": replace(SMALL, resblock_updown=False, attention_resolutions=()),
    "one level": replace(SMALL, channel_mult=(2,)),
    "half multiplier": replace(SMALL, model_channels=64, channel_mult=(0.5, 1)),
    "no middle": replace(SMALL, middle_attention=False),
    "no norm": replace(SMALL, norm=False, middle_attention=False, attention_resolutions=()),
    "legacy": replace(SMALL, attention_order="legacy"),
    "default table": replace(SMALL, image_size=64, channel_mult=None, attention_resolutions=(8,)),
}
PAPER = {
    "256 px": UNetConfig(),
    "320 px": UNetConfig(image_size=320, in_channels=2, channel_mult=(1, 1, 2, 2, 4, 4)),
    "ImageNet-64": UNetConfig(
        image_size=64,
        model_channels=192,
        num_res_blocks=3,
        use_scale_shift_norm=True,
        num_classes=1000,
    ),
    "512 px": UNetConfig(image_size=512, attention_order="legacy", out_channels=6),
}


def as_published(state: dict[str, Tensor], config: UNetConfig) -> dict[str, Tensor]:
    """guided-diffusion's legacy files hold 1-D convolutions."""
    if config.attention_order != "legacy":
        return state
    attention = ("qkv.weight", "proj_out.weight")
    return {n: t.squeeze(-1) if n.endswith(attention) else t for n, t in state.items()}


def image(channels: int = 1, size: int = 16, batch: int = 2) -> Tensor:
    g = torch.Generator().manual_seed(5)
    return torch.randn((batch, channels, size, size), generator=g)


@pytest.fixture
def pt(tmp_path: Path) -> Path:
    path = tmp_path / "cd_small.pt"
    torch.save(random_unet(SMALL).state_dict(), path)
    return path


HEADS = {"num_head_channels": 16}


# --- infer_config -------------------------------------------------------------------------------


def same_architecture(inferred: UNetConfig, config: UNetConfig) -> None:
    assert inferred.channels == config.channels
    assert inferred.attention_factors == config.attention_factors
    spelled_otherwise = {
        "image_size": None,
        "channel_mult": (1,),
        "attention_resolutions": None,
        "attention_ds": (),
        "num_head_channels": 1,
    }
    assert replace(inferred, **spelled_otherwise) == replace(config, **spelled_otherwise)


@pytest.mark.parametrize("name", [*SIZES, *PAPER])
def test_architecture_is_read_off_the_weights(name: str) -> None:
    config = (SIZES | PAPER)[name]
    with torch.device("meta"):
        state = as_published(UNet(config).state_dict(), config)
    inferred = infer_config(state, num_head_channels=config.num_head_channels)
    same_architecture(inferred, config)
    assert inferred.num_head_channels == config.num_head_channels
    known = name in PAPER or name == "default table"
    assert inferred.image_size == (config.image_size if known else None)


def test_weights_of_something_else_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"not a guided-diffusion U-Net.*time_embed"):
        infer_config({"conv.weight": torch.zeros(3, 3)})
    state = dict(random_unet(SMALL).state_dict())
    del state["input_blocks.1.0.out_layers.3.weight"]
    with pytest.raises(CheckpointError, match=r"input_blocks\.1\.0\.out_layers\.3\.weight"):
        infer_config(state, num_head_channels=16)


# --- .pt files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, c in SIZES.items() if c.num_classes is None])
def test_pt_files_load_strictly_with_equal_values(name: str, tmp_path: Path) -> None:
    config = SIZES[name]
    network = random_unet(config)
    torch.save(as_published(network.state_dict(), config), tmp_path / "net.pt")
    kind = "vp" if config.out_channels else "consistency"
    prior = load_openai(
        tmp_path / "net.pt", kind=kind, network={"num_head_channels": config.num_head_channels}
    )
    assert not prior.training
    assert not any(p.requires_grad for p in prior.parameters())
    x, c = image(config.in_channels), torch.tensor([-300.0, 100.0])
    torch.testing.assert_close(prior.network(x, c), network(x, c), rtol=1e-5, atol=1e-5)


def test_file_names_tell_edm_from_consistency(pt: Path) -> None:
    edm = pt.rename(pt.with_name("edm_small_ema.pt"))
    prior = load_openai(edm, network=HEADS)
    assert isinstance(prior, DiffusionModel)
    assert prior.kind == "edm"
    renamed = edm.rename(edm.with_name("ct_edm_small.pt"))
    assert isinstance(load_openai(renamed, network=HEADS), ConsistencyModel)
    assert load_openai(renamed, network=HEADS, kind="edm").kind == "edm"
    with pytest.raises(ArgumentError, match="kind must be one of consistency, edm, vp"):
        load_openai(renamed, kind="ddpm")


def test_given_configuration_wins_over_the_inferred_one(pt: Path) -> None:
    by_config = load_openai(pt, network=SMALL)
    assert by_config.network.config == SMALL
    by_dict = load_openai(pt, network={"image_size": 16, **HEADS})
    same_architecture(by_dict.network.config, SMALL)
    assert by_dict.network.image_size == 16
    full = {k: v for k, v in SMALL.to_dict().items() if k not in ("type", "attention_ds")}
    assert load_openai(pt, network=full).network.config == SMALL
    legacy = load_openai(pt, network=replace(SMALL, attention_order="legacy"))
    x = image()
    torch.testing.assert_close(by_config(x, 0.5), by_dict(x, 0.5))
    change = (legacy(x, 0.5) - by_config(x, 0.5)).norm() / by_config(x, 0.5).norm()
    assert change > 0.005  # loads without complaint, and is another network
    heads = load_openai(pt, network={"num_head_channels": 32})
    assert (heads(x, 0.5) - by_config(x, 0.5)).norm() > 0.005 * x.norm()
    with pytest.raises(UnknownNameError, match="did you mean 'num_head_channels'"):
        load_openai(pt, network={"num_heads_channels": 4, **HEADS})


def test_wrong_architecture_lists_the_first_names(pt: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_openai(pt, network=replace(SMALL, channel_mult=(1, 2, 2), attention_resolutions=(4,)))
    message = str(caught.value)
    assert "missing (input_blocks.4.0." in message
    assert "unexpected (input_blocks.3.1." in message
    assert "…" in message
    assert "network=None" in message
    with pytest.raises(CheckpointError, match=r"misshapen \(.*weight"):
        load_openai(pt, network=replace(SMALL, channel_mult=(1, 3)))


def test_incomplete_state_dict_names_what_is_missing(pt: Path) -> None:
    state = torch.load(pt, weights_only=True)
    del state["out.2.bias"]
    state["extra"] = torch.zeros(1)
    torch.save(state, pt)
    with pytest.raises(CheckpointError, match=r"1 missing \(out.2.bias\), 1 unexpected \(extra\)"):
        load_openai(pt, network=HEADS)


def test_learned_variance_needs_kind_vp(tmp_path: Path) -> None:
    network = random_unet(SIZES["scale-shift, variance"])
    torch.save(network.state_dict(), tmp_path / "ddpm.pt")
    with pytest.raises(CheckpointError, match=r"2 output channels for 1.*kind='vp'"):
        load_openai(tmp_path / "ddpm.pt", network=HEADS)
    prior = load_openai(tmp_path / "ddpm.pt", network=HEADS, kind="vp")
    assert prior(image(), 0.5).shape == image().shape


def test_old_and_half_precision_pt_files_load(pt: Path) -> None:
    state = torch.load(pt, weights_only=True)
    expected = load_openai(pt, network=HEADS)(image(), 0.5)
    torch.save(state, pt.with_name("old.pt"), _use_new_zipfile_serialization=False)
    old = load_openai(pt.with_name("old.pt"), network=HEADS)
    torch.testing.assert_close(old(image(), 0.5), expected)
    torch.save({n: t.half() for n, t in state.items()}, pt.with_name("half.pt"))
    half = load_openai(pt.with_name("half.pt"), network=HEADS)
    assert {p.dtype for p in half.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["small", "legacy"])
def test_export_returns_to_the_same_network(name: str, tmp_path: Path) -> None:
    prior = ConsistencyModel(random_unet(SIZES[name]))
    export_openai(prior, tmp_path / "out.pt")
    back = load_openai(tmp_path / "out.pt", network=HEADS)
    assert back.network.config.attention_order == SIZES[name].attention_order
    torch.testing.assert_close(back(image(), 0.5), prior(image(), 0.5))
    assert [p.name for p in tmp_path.iterdir()] == ["out.pt"]


@pytest.mark.parametrize(("c_noise", "factor"), [(None, 250.0), ("openai", 250.0), ("edm", 0.25)])
@pytest.mark.parametrize("kind", ["consistency", "edm"])
def test_what_a_pt_network_is_told_can_be_given(
    kind: str, c_noise: str | None, factor: float, pt: Path
) -> None:
    """The bare network, called as the convention says at σ = ½, and the scalings by hand."""
    prior = load_openai(pt, network=HEADS, kind=kind, c_noise=c_noise)
    x = image().double()
    told = torch.full((2,), factor * math.log(0.5))
    low = 0.002 if kind == "consistency" else 0.0
    c_skip, c_out = 0.25 / ((0.5 - low) ** 2 + 0.25), 0.5 * (0.5 - low) / math.sqrt(0.5)
    with torch.no_grad():
        inner = prior.network((x / math.sqrt(0.5)).float(), told).double()
        torch.testing.assert_close(prior(x, 0.5), c_skip * x + c_out * inner, rtol=0, atol=1e-5)


def test_conventions_that_are_none_are_refused(pt: Path) -> None:
    with pytest.raises(ArgumentError, match="c_noise must be 'openai'"):
        load_openai(pt, network=HEADS, c_noise="nvlabs")
    with pytest.raises(ArgumentError, match="kind 'vp' take an index; leave c_noise out"):
        load_openai(pt, network=HEADS, kind="vp", c_noise="edm")


@pytest.mark.parametrize(
    "names",
    [
        ("model.map_layer0.weight", "model.map_layer1.weight", "model.enc.64x64_conv.weight"),
        ("map_layer0.weight", "enc.32x32_block0.conv0.weight", "dec.8x8_in0.norm0.weight"),
    ],
)
def test_networks_of_nvlabs_are_recognised(names: tuple[str, ...], tmp_path: Path) -> None:
    torch.save({name: torch.zeros(2, 2) for name in names}, tmp_path / "edm_ffhq.pt")
    for loader in (load_openai, load_pt):
        with pytest.raises(CheckpointError, match=r"NVlabs' EDM \(.*c_noise='edm'"):
            loader(tmp_path / "edm_ffhq.pt")


# --- our own files ------------------------------------------------------------------------------


LEAN = UNetConfig(
    image_size=None,
    in_channels=2,
    model_channels=8,
    channel_mult=(1, 1.5),
    num_res_blocks=1,
    patch=2,
    norm=False,
    middle_attention=False,
)


@pytest.mark.parametrize("kind", ["consistency", "edm", "vp"])
@pytest.mark.parametrize("config", [SMALL, LEAN], ids=["small", "lean"])
def test_saved_priors_come_back_equal(kind: str, config: UNetConfig, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "sigma_data": 0.3,
        "sigma_min": 0.01,
        "sigma_max": 70.1,
        "value_range": (0.0, 1.0),
        "any_size": True,
        "c_noise": None if kind == "vp" else "edm",
    }
    # channels-last, as loading lays it out: then outputs are equal to the last bit
    network = random_unet(config).to(memory_format=torch.channels_last)
    prior = (
        ConsistencyModel(network, **options)
        if kind == "consistency"
        else DiffusionModel(network, kind=kind, **options)
    )
    info = {"scale": "p99.5=0.8", "card": {"data": ["knee"], "steps": 3}}
    save_prior(prior, tmp_path / "p.safetensors", info=info)
    back = load_own(tmp_path / "p.safetensors")
    assert type(back) is type(prior)
    assert back.kind == kind
    assert {name: getattr(back, name) for name in options} == options
    assert back.network.config == config
    assert back.info == info == read_header(tmp_path / "p.safetensors")["info"]
    assert not any(p.requires_grad for p in back.parameters())
    state = network.state_dict()
    assert all(torch.equal(t, state[name]) for name, t in back.network.state_dict().items())
    x = image(config.in_channels, size=15)
    assert torch.equal(back(x, 0.5), prior(x, 0.5))
    assert back(x, 0.5).is_contiguous()


def test_files_from_before_conventions_were_stored_are_openais(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_prior(DiffusionModel(random_unet(SMALL), c_noise="edm"), path)
    header, weights = read_header(path), load_file(path)
    assert header["options"]["c_noise"] == "edm"
    assert load_own(path).c_noise == "edm"
    del header["options"]["c_noise"]
    save_file(weights, path, metadata={"pnpcm": json.dumps(header)})
    assert load_own(path).c_noise == "openai"
    header["options"]["c_noise"] = "karras"
    save_file(weights, path, metadata={"pnpcm": json.dumps(header)})
    with pytest.raises(CheckpointError, match=r"invalid options \(c_noise must be"):
        load_own(path)


def test_a_loaded_prior_can_be_saved_over_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_prior(ConsistencyModel(random_unet(SMALL)), path, info={"a": 1})
    first = load_own(path)
    expected = first(image(), 0.5)
    save_prior(first, path)
    assert torch.equal(first(image(), 0.5), expected)
    again = load_own(path)
    assert torch.equal(again(image(), 0.5), expected)
    assert again.info == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["p.safetensors"]


def test_replacing_a_file_leaves_priors_loaded_from_it_alone(tmp_path: Path) -> None:
    """Weights may be mapped from the file: it must be replaced, never written into."""
    own, pt = tmp_path / "p.safetensors", tmp_path / "p.pt"
    first, second = (ConsistencyModel(random_unet(SMALL, seed=seed)) for seed in (0, 1))
    save_prior(first, own)
    export_openai(first, pt)
    loaded = [load_own(own), load_openai(pt, network=SMALL)]
    save_prior(second, own)
    export_openai(second, pt)
    for prior in (*loaded, load_own(own)):
        expected = first if prior in loaded else second
        assert torch.equal(prior(image(), 0.5), expected(image(), 0.5))


def test_prior_from_pt_can_be_saved_in_our_format(pt: Path, tmp_path: Path) -> None:
    prior = load_openai(pt, network=HEADS)
    save_prior(prior, tmp_path / "p.safetensors")
    back = load_own(tmp_path / "p.safetensors")
    assert torch.equal(back(image(), 0.5), prior(image(), 0.5))


def test_half_precision_halves_the_file_and_loses_only_rounding(tmp_path: Path) -> None:
    prior = ConsistencyModel(random_unet(SMALL))
    save_prior(prior, tmp_path / "full.safetensors")
    save_prior(prior, tmp_path / "half.safetensors", dtype=torch.float16)
    sizes = [(tmp_path / f"{n}.safetensors").stat().st_size for n in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]
    back = load_own(tmp_path / "half.safetensors")
    for (name, p), q in zip(prior.named_parameters(), back.parameters(), strict=True):
        assert q.dtype == torch.float32
        assert torch.equal(q, p.half().float()), name
    assert not torch.equal(back(image(), 0.5), prior(image(), 0.5))
    torch.testing.assert_close(back(image(), 0.5), prior(image(), 0.5), rtol=0, atol=1e-2)


def test_what_cannot_be_saved_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    prior = ConsistencyModel(random_unet(SMALL))
    with pytest.raises(ArgumentError, match=r"must hold a networks\.UNet"):
        save_prior(ConsistencyModel(SmoothNetwork()), path)
    with pytest.raises(ArgumentError, match="info must be plain JSON"):
        save_prior(prior, path, info={"x": torch.zeros(1)})
    with pytest.raises(ArgumentError, match="info must be plain JSON"):
        save_prior(prior, path, info={"x": math.nan})
    with pytest.raises(ArgumentError, match="is not a folder"):
        save_prior(prior, tmp_path / "nowhere" / "p.safetensors")
    prior.network.out[2].bias.data.fill_(1e6)
    with pytest.raises(ArgumentError, match=r"out.2.bias is not finite in torch.float16"):
        save_prior(prior, path, dtype=torch.float16)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "p.safetensors"
    save_prior(ConsistencyModel(random_unet(SMALL)), path)
    before = path.read_bytes()

    def fail(weights: object, temporary: Path, **_: object) -> None:
        temporary.write_bytes(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr("pnpcm.priors.checkpoint.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        save_prior(ConsistencyModel(random_unet(SMALL, seed=1)), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["p.safetensors"]


# --- files that are none ------------------------------------------------------------------------


class Bomb:
    """A pickle that would write a file when executed."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.target,))


LOADERS = [load_openai, load_own]
FOREIGN = {
    "empty": (b"", "is empty"),
    "html": (b"\n<!DOCTYPE html><html><body>404</body></html>", "web page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS pointer"),
    "random": (bytes((37 * i * i + 11) % 251 for i in range(4000)), "damaged"),
    "text": (b"hello, I am not a checkpoint\n" * 20, "damaged"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_recognised(
    name: str, loader: Callable[[Path], object], tmp_path: Path
) -> None:
    content, message = FOREIGN[name]
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        loader(path)


@pytest.mark.parametrize("loader", LOADERS)
def test_no_file_and_folders_are_refused(loader: Callable[[Path], object], tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.pt"):
        with pytest.raises(CheckpointError, match="is not a file"):
            loader(path)


@pytest.mark.parametrize("kept", [0.02, 0.5, 0.99])
def test_truncated_files_are_refused(kept: float, pt: Path, tmp_path: Path) -> None:
    own = tmp_path / "p.safetensors"
    save_prior(ConsistencyModel(random_unet(SMALL)), own)
    for path, loader in ((pt, load_openai), (own, load_own)):
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(CheckpointError, match="damaged"):
            loader(path)


@pytest.mark.parametrize("loader", LOADERS)
def test_code_in_a_file_is_never_executed(loader: Callable[[Path], object], tmp_path: Path) -> None:
    target = tmp_path / "executed"
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps({"w": Bomb(target)}))
    zipped = tmp_path / "zipped.pt"
    torch.save({"w": Bomb(target)}, zipped)
    for path in (plain, zipped):
        with pytest.raises(CheckpointError, match="damaged"):
            loader(path)
    assert not target.exists()
    pickle.loads(plain.read_bytes())
    assert target.exists()  # the bomb works: the test could have failed


def test_wrappers_and_wrong_types_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    cases: list[tuple[object, str]] = [
        ([torch.zeros(1)], "holds a list"),
        ({}, "holds a dict"),
        ({"model": {"w": torch.zeros(1)}}, "holds a dict under 'model'"),
        ({"w": torch.zeros(1), "step": 3}, "holds a int under 'step'"),
        ({0: torch.zeros(1)}, "holds a Tensor under 0"),
        ({"model.out.2.bias": torch.zeros(1)}, "not a guided-diffusion U-Net"),
    ]
    for content, message in cases:
        torch.save(content, path)
        with pytest.raises(CheckpointError, match=message):
            load_openai(path)


def test_foreign_and_edited_safetensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="without pnpcm's header"):
        load_own(path)
    with pytest.raises(CheckpointError, match="is a safetensors file, not a"):
        load_openai(path)
    save_prior(ConsistencyModel(random_unet(SMALL)), path)
    header, weights = read_header(path), load_file(path)
    edits: list[tuple[dict[str, Any], str]] = [
        ({"format": 99}, "format 99, this pnpcm reads 1; update"),
        ({"kind": "gan"}, "invalid pnpcm header.*'gan'"),
        ({"network": {"type": "UNetConfig", "depth": 3}}, "invalid pnpcm header.*'depth'"),
        ({"network": {"type": "PnPCMConfig"}}, "invalid pnpcm header"),
        ({"network": header["network"] | {"model_channels": "x"}}, "invalid pnpcm header"),
        ({"network": header["network"] | {"channel_mult": [1, 3]}}, "misshapen"),
        ({"options": {"sigma_min": 3.0, "sigma_max": 1.0}}, "invalid options"),
        ({"options": {"color": 3}}, "invalid options"),
        ({"info": 3}, "invalid pnpcm header"),
    ]
    for edit, message in edits:
        save_file(weights, path, metadata={"pnpcm": json.dumps(header | edit)})
        with pytest.raises(CheckpointError, match=message):
            load_own(path)
    for text in ("{", "[]", "{}", "3"):
        save_file(weights, path, metadata={"pnpcm": text})
        with pytest.raises(CheckpointError, match="unreadable pnpcm header"):
            load_own(path)


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    network = random_unet(SMALL)
    with torch.no_grad():
        network.out[2].bias.fill_(float("nan"))
    torch.save(network.state_dict(), tmp_path / "nan.pt")
    with pytest.raises(CheckpointError, match=r"NaN or infinity in out\.2\.bias"):
        load_openai(tmp_path / "nan.pt", network=SMALL)


@pytest.mark.parametrize("style", [list, tuple, lambda v: ",".join(map(str, v))])
def test_guided_diffusions_ways_to_write_lists(tmp_path: Path, style: Callable[..., Any]) -> None:
    config = SIZES["64 px"]
    torch.save(random_unet(config).state_dict(), tmp_path / "x.pt")
    names = {
        "image_size": 64,
        "channel_mult": style((1, 2, 2)),
        "attention_resolutions": style((16,)),
        "num_head_channels": 8,
    }
    prior = load_openai(tmp_path / "x.pt", network=names)
    assert prior.network.config.channels == config.channels
    assert prior.network.config.attention_factors == config.attention_factors
