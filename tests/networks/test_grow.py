"""A grown network computes the function of the smaller one and can learn with all its weights."""

from __future__ import annotations

import pytest
import torch

from pnpcm.errors import ArgumentError
from pnpcm.networks import UNet, UNetConfig
from pnpcm.networks.grow import grow

SMALL = UNetConfig(
    image_size=None, in_channels=2, model_channels=8, channel_mult=(1, 1.5, 2), num_res_blocks=1,
    attention_ds=(), middle_attention=False, norm=False, patch=2, use_scale_shift_norm=True,
    resblock_updown=False,
)  # fmt: skip


def network(config: UNetConfig, seed: int) -> UNet:
    generator = torch.Generator().manual_seed(seed)
    net = UNet(config).double()
    for weight in net.parameters():  # also those that start at zero
        weight.data = 0.2 * torch.randn(weight.shape, generator=generator).double()
    return net


@pytest.mark.parametrize(
    "changes",
    [
        {"num_res_blocks": 3},
        {"channel_mult": (2, 2.5, 2.75)},
        {"channel_mult": (1, 2, 3), "num_res_blocks": 2},
        {"channel_mult": (1.5, 2, 3), "use_scale_shift_norm": False},
    ],
)
def test_grown_network_equals_the_small_one(changes):
    old = UNetConfig(**{**vars(SMALL), **{k: v for k, v in changes.items() if "use" in k}})
    small, large = network(old, 0), UNet(UNetConfig(**{**vars(old), **changes})).double()
    before = {name: weight.clone() for name, weight in large.named_parameters()}
    grow(small, large)
    x, c_noise = torch.randn(2, 2, 16, 24).double(), torch.tensor([-300.0, 40.0])
    torch.testing.assert_close(large(x, c_noise), small(x, c_noise))
    assert sum(p.numel() for p in large.parameters()) > sum(p.numel() for p in small.parameters())

    large(x, c_noise).square().sum().backward()
    for name, weight in large.named_parameters():  # no weight is stuck at a stationary point
        moved = weight.grad is not None and bool(weight.grad.abs().sum() > 0)
        started = not torch.equal(weight, before[name])
        assert moved or not started or "emb_layers" in name or "in_layers" in name, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channel_mult": (1, 1.25, 2)}, "only become larger"),
        ({"patch": 1}, "patch"),
        ({"norm": True, "model_channels": 64, "channel_mult": (1, 2, 4)}, "model_channels, norm"),
        ({"channel_mult": (2, 2, 2)}, "must differ in both"),
        ({"channel_mult": (1, 2)}, "number of levels"),
    ],
)
def test_a_network_that_cannot_grow_is_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        grow(UNet(SMALL), UNet(UNetConfig(**{**vars(SMALL), **changes})))
