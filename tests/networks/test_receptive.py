"""The receptive radius, compared with the gradient of one output pixel."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from golden import gen, random_unet
from pnpcm.networks import UNetConfig

LEAN = UNetConfig(
    image_size=None,
    in_channels=1,
    model_channels=8,
    channel_mult=(1, 1),
    num_res_blocks=1,
    norm=False,
    middle_attention=False,
)
CONFIGS = {
    # 3×3 convolutions: first, 2 of the encoder, 4 of the middle, 2 + 2 of the decoder, head
    "one level": (replace(LEAN, channel_mult=(1,)), 1 + 2 + 4 + 4 + 1),
    "residual resampling": (LEAN, None),
    "plain resampling": (replace(LEAN, resblock_updown=False), None),
    "patches": (replace(LEAN, patch=2, resblock_updown=False), None),
    "three levels": (replace(LEAN, channel_mult=(1, 1, 1), resblock_updown=False), None),
    "two blocks": (replace(LEAN, num_res_blocks=2), None),
}


def touched(config: UNetConfig, centre: int, size: int) -> Tensor:
    """Columns that the output at ``centre`` depends on, in a network with random weights."""
    network = random_unet(config, dtype=torch.float64)
    x = torch.randn((1, 1, config.stride, size), generator=gen(), dtype=torch.float64)
    x.requires_grad_()
    out = network(x, torch.zeros(1, dtype=torch.float64))
    (grad,) = torch.autograd.grad(out[0, 0, 0, centre], x)
    return grad[0, 0].abs().sum(0).nonzero().flatten()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_gradient_ends_at_the_radius(name: str) -> None:
    """Nothing beyond it, and for some position within the stride something right on it."""
    config, by_hand = CONFIGS[name]
    radius = config.receptive_radius
    assert radius is not None
    assert by_hand in (None, radius)
    middle = (radius // config.stride + 2) * config.stride
    reach = []
    for centre in range(middle, middle + config.stride):
        columns = touched(config, centre, 2 * middle + config.stride)
        reach += [centre - int(columns.min()), int(columns.max()) - centre]
    assert max(reach) == radius
    assert min(reach) > radius - 2 * config.stride


def test_a_layer_that_sees_everything_has_no_radius() -> None:
    assert replace(LEAN, num_head_channels=8, attention_ds=(2,)).receptive_radius is None
    assert replace(LEAN, num_head_channels=8, middle_attention=True).receptive_radius is None
    assert replace(LEAN, model_channels=32, norm=True).receptive_radius is None
    assert replace(LEAN, attention_ds=()).receptive_radius is not None
