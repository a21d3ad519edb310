"""A ControlNet has no effect at first; in training only its own weights change."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from golden import random_unet
from pnpcm.errors import ArgumentError
from pnpcm.networks import UNet, UNetConfig
from pnpcm.networks.control import ControlledUNet, ControlNet

LEAN = UNetConfig(
    image_size=None,
    model_channels=12,
    channel_mult=(1, 2),
    num_res_blocks=1,
    patch=2,
    norm=False,
    middle_attention=False,
    resblock_updown=False,
)
FULL = UNetConfig(
    image_size=16,
    in_channels=1,
    model_channels=32,
    channel_mult=(1, 2),
    attention_resolutions=(8,),
    num_head_channels=16,
    use_scale_shift_norm=True,
)


def inputs(config: UNetConfig) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x, hint = torch.randn((2, 2, config.in_channels, 16, 16), generator=g)
    return x, torch.tensor([-500.0, 300.0]), hint


def disturb(control: ControlNet, seed: int = 3) -> None:
    """Change every weight, as training does."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in control.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=g))


@pytest.mark.parametrize("config", [LEAN, FULL], ids=["lean", "full"])
def test_a_new_control_changes_not_a_bit(config: UNetConfig) -> None:
    network = random_unet(config, 0)
    controlled = ControlledUNet(network, ControlNet.beside(network))
    x, c_noise, hint = inputs(config)
    expected = network(x, c_noise)
    assert expected.abs().max() > 0.1
    for h in (hint, 100 * hint, torch.zeros_like(hint)):
        assert torch.equal(controlled(x, c_noise, h), expected)
    disturb(controlled.control)
    assert not torch.allclose(controlled(x, c_noise, hint), expected, atol=1e-2)
    assert torch.equal(controlled(x, c_noise), expected)  # no hint: the network itself


def test_controls_go_with_the_skips() -> None:
    """One per encoder block, first convolution and downsampling, with the shape of its skip."""
    network = random_unet(FULL, 0)
    control = ControlNet.beside(network)
    x, c_noise, hint = inputs(FULL)
    controls, middle = control(x, c_noise, hint)
    skips, h, _ = network.encode(x, c_noise)
    assert len(controls) == len(skips) == len(network.input_blocks) == len(network.output_blocks)
    assert [c.shape for c in controls] == [s.shape for s in skips]
    assert middle.shape == h.shape
    assert control.hint_conv.weight.shape == (32, 1, 3, 3)
    assert ControlNet(LEAN).hint_conv.weight.shape == (12, 12, 3, 3)  # 3 channels × 2 × 2 pixels


@pytest.mark.parametrize("place", range(5))
def test_each_control_reaches_its_own_skip(place: int) -> None:
    """A bias in one 1×1 convolution equals the same constant added to that skip, or the middle."""
    network = random_unet(LEAN, 1)
    control = ControlNet.beside(network)
    x, c_noise, hint = inputs(LEAN)
    skips, middle, emb = network.encode(x, c_noise)
    assert len(skips) == 4
    conv = [*control.skip_convs, control.middle_conv][place]
    with torch.no_grad():
        conv.bias.fill_(0.7)
        parts = [*skips, middle]
        parts[place] = parts[place] + 0.7
        expected = network.decode(parts[:4], parts[4], emb)
        assert torch.allclose(ControlledUNet(network, control)(x, c_noise, hint), expected)
        assert not torch.allclose(expected, network(x, c_noise), atol=1e-4)


def test_gradients_reach_the_control_and_nothing_else() -> None:
    network = random_unet(LEAN, 0)
    controlled = ControlledUNet(network, ControlNet.beside(network)).train()
    x, c_noise, hint = inputs(LEAN)
    before = {name: t.clone() for name, t in controlled.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in controlled.parameters() if p.requires_grad], 0.1)

    def step() -> set[str]:
        optimizer.zero_grad()
        (controlled(x, c_noise, hint) - hint).square().mean().backward()
        optimizer.step()
        now = controlled.state_dict()
        return {name for name, t in before.items() if not torch.equal(t, now[name])}

    zeros = {n for n in before if "skip_convs" in n or "middle_conv" in n}
    assert step() == zeros  # all else stands behind zeros
    assert step() - zeros >= {"control.hint_conv.weight", "control.input_blocks.0.0.weight"}
    assert not any(name.startswith("frozen.") for name in step())


def test_the_hint_moves_the_output_of_a_trained_control() -> None:
    network = random_unet(LEAN, 0)
    controlled = ControlledUNet(network, ControlNet.beside(network))
    x, c_noise, hint = inputs(LEAN)
    hint.requires_grad_()
    (g,) = torch.autograd.grad(controlled(x, c_noise, hint).sum(), hint, allow_unused=True)
    assert g.abs().max() == 0
    disturb(controlled.control)
    (g,) = torch.autograd.grad(controlled(x, c_noise, hint).sum(), hint)
    assert g.abs().max() > 1e-4


def test_the_frozen_part_never_drops_out() -> None:
    config = replace(LEAN, dropout=0.5)
    network = random_unet(config, 0)
    controlled = ControlledUNet(network, ControlNet.beside(network)).train()
    assert controlled.control.training
    assert not network.training
    x, c_noise, hint = inputs(config)
    assert torch.equal(controlled(x, c_noise, hint), network(x, c_noise))


def test_labels_are_refused() -> None:
    with pytest.raises(ArgumentError, match="num_classes is 10"):
        ControlNet(replace(LEAN, num_classes=10))


def test_making_one_draws_no_random_numbers() -> None:
    network = UNet(LEAN)
    state = torch.get_rng_state()
    ControlNet.beside(network.double())
    assert torch.equal(torch.get_rng_state(), state)
    assert {p.dtype for p in ControlNet.beside(network).parameters()} == {torch.float64}
