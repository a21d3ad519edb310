"""Denoisers in KAIR's layout: published names, shapes and values."""

import pytest
import torch
from torch import Tensor, nn

from denoisers import (
    GOLDEN,
    LEVEL,
    PUBLISHED,
    golden_image,
    golden_state,
    published_shapes,
)
from pnpcm.core import Config
from pnpcm.errors import ArgumentError, CheckpointError, ShapeError
from pnpcm.networks.kair import DenoiserConfig, build_denoiser, infer_denoiser


def shapes_of(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in network.state_dict().items()}


def golden_network(name: str) -> nn.Module:
    network = build_denoiser(GOLDEN[name].config)
    network.load_state_dict(golden_state(shapes_of(network)))
    return network.double().requires_grad_(False)


@pytest.mark.parametrize("name", ["drunet", "dncnn"])
def test_values_are_those_of_kair(name: str) -> None:
    golden, network = GOLDEN[name], golden_network(name)
    assert sum(p.numel() for p in network.parameters()) == golden.parameters
    y = network(golden_image(golden.shape), torch.tensor([LEVEL], dtype=torch.float64))
    assert y.shape == (1, *golden.shape)
    assert float(y.sum()) == pytest.approx(golden.total, abs=2e-9)
    assert float(y.square().sum()) == pytest.approx(golden.squares, abs=2e-9)
    assert y[0, 0, 0, :4].tolist() == pytest.approx(golden.first, abs=1e-9)


def test_ffdnet_has_those_of_kair_once_its_odd_sides_are_padded() -> None:
    golden, network = GOLDEN["ffdnet"], golden_network("ffdnet")
    assert sum(p.numel() for p in network.parameters()) == golden.parameters
    x, level = golden_image(golden.shape), torch.tensor([LEVEL], dtype=torch.float64)
    with pytest.raises(ShapeError, match=r"x is 23×31, sides must be multiples of 2"):
        network(x, level)
    even = torch.nn.functional.pad(x, (0, 1, 0, 1), mode="replicate")
    y = network(even, level)[..., :23, :31]
    assert float(y.sum()) == pytest.approx(golden.total, abs=2e-9)
    assert float(y.square().sum()) == pytest.approx(golden.squares, abs=2e-9)
    assert y[0, 0, 0, :4].tolist() == pytest.approx(golden.first, abs=1e-9)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_have_these_names_and_shapes(name: str) -> None:
    parameters, channels = PUBLISHED[name]
    expected = published_shapes(name)
    state = {key: torch.empty(shape, device="meta") for key, shape in expected.items()}
    config = infer_denoiser(state)
    assert config is not None
    assert config.architecture == name.split("_")[0]
    assert config.in_channels == channels
    with torch.device("meta"):
        network = build_denoiser(config)
    assert list(shapes_of(network).items()) == list(expected.items())  # and in this order
    assert sum(p.numel() for p in network.parameters()) == parameters


def test_the_default_is_the_published_drunet() -> None:
    with torch.device("meta"):
        assert shapes_of(build_denoiser(DenoiserConfig())) == published_shapes("drunet_color.pth")


def test_ffdnet_sees_pixels_and_level_where_they_belong() -> None:
    """Weights that give y = x − σ for each of the four pixels; σ is the fifth channel.

    The published rule for its weights closes every ReLU of the second layer, so that the values
    above do not depend on the image.
    """
    network = build_denoiser(DenoiserConfig("ffdnet", 1, (5,), 2)).double().requires_grad_(False)
    for p in network.parameters():
        p.zero_()
    first, last = (p for p in network.parameters() if p.ndim == 4)
    first[:, :, 1, 1] = torch.eye(5)
    last[:, :4, 1, 1] = torch.eye(4)
    last[:, 4, 1, 1] = -1
    x = golden_image((1, 6, 8))
    y = network(torch.cat([x, x / 2]), torch.tensor([0.05, 0.01], dtype=torch.float64))
    assert torch.allclose(y, torch.cat([x - 0.05, x / 2 - 0.01]), atol=1e-12)


def test_levels_are_one_per_image_and_only_dncnn_ignores_them() -> None:
    for name, golden in GOLDEN.items():
        network = golden_network(name)
        if name == "ffdnet":
            for p in network.parameters():  # else it ignores everything, see above
                p.abs_()
        x = golden_image((golden.shape[0], 16, 16))
        both = network(torch.cat([x, x]), torch.tensor([0.1, 0.2]))
        assert torch.allclose(both[:1], network(x, torch.tensor([0.1])), atol=1e-12)
        assert torch.allclose(both[1:], network(x, torch.tensor([0.2])), atol=1e-12)
        assert torch.equal(both[0], both[1]) == (name == "dncnn")


def reach(network: nn.Module, channels: int, side: int, pixel: int) -> int:
    """How far from ``pixel`` an input changes the output there, along one axis."""
    x = torch.full((1, channels, 8, side), 0.5, dtype=torch.float64, requires_grad=True)
    y: Tensor = network(x, torch.tensor([LEVEL], dtype=torch.float64))
    y[0, :, :, pixel].sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    seen = x.grad.abs().sum((0, 1, 2)).nonzero().flatten()
    return max(pixel - int(seen.min()), int(seen.max()) - pixel)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_receptive_radius_is_reached_and_not_exceeded(name: str) -> None:
    config, network = GOLDEN[name].config, golden_network(name)
    for p in network.parameters():  # positive weights: no ReLU closes, no path cancels another
        p.abs_()
    if name == "dncnn":
        assert config.receptive_radius == 5
    side = 8 * -(-(2 * config.receptive_radius + 16) // 8)
    centre = side // 2
    pixels = range(centre, centre + config.stride)
    assert max(reach(network, config.in_channels, side, p) for p in pixels) == (
        config.receptive_radius
    )


def test_other_layouts_are_none_and_relatives_are_refused() -> None:
    one = torch.zeros(1)
    assert infer_denoiser({"time_embed.0.weight": one}) is None
    assert infer_denoiser({"model.0.weight": one, "model.1.sub.0.res.0.weight": one}) is None

    def chain(inputs: int, outputs: int, depth: int) -> dict[str, Tensor]:
        sizes = [inputs, *[8] * (depth - 1), outputs]
        return {f"model.{2 * i}.weight": torch.zeros(sizes[i + 1], sizes[i], 3, 3)
                for i in range(depth)}  # fmt: skip

    for relative in (chain(4, 3, 20), chain(2, 1, 20), chain(3, 3, 7), chain(19, 12, 12)):
        with pytest.raises(CheckpointError, match="neither DnCNN nor FFDNet"):
            infer_denoiser(relative)
    with pytest.raises(CheckpointError, match="batch normalisation; merge it"):
        infer_denoiser(chain(1, 1, 17) | {"model.3.running_mean": one})
    with pytest.raises(CheckpointError, match=r"begin like DRUNet's, but m_down1\.1\.weight"):
        infer_denoiser({"m_head.weight": torch.zeros(4, 4, 3, 3), "m_body.0.res.0.weight": one})


def test_configurations_are_checked_and_return_from_json() -> None:
    for golden in GOLDEN.values():
        values = golden.config.to_dict() | {"widths": list(golden.config.widths)}
        assert Config.from_dict(values) == golden.config
        assert golden.config.image_size is None
    for fields, message in (
        ({"architecture": "unet"}, "architecture must be one of drunet, ffdnet, dncnn"),
        ({"widths": (64,)}, "widths must have 4 entries for drunet"),
        ({"architecture": "dncnn"}, "widths must have 1 entries for dncnn"),
        ({"in_channels": 0}, "in_channels must be integers from 1"),
        ({"depth": 1.5}, "depth must be integers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            DenoiserConfig(**fields)  # type: ignore[arg-type]
