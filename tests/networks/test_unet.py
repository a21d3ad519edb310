"""The U-Net against the numbers of the published networks, and its lean options."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from golden import random_unet
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.networks import UNet, UNetConfig
from pnpcm.networks.blocks import AttentionBlock, ResBlock, sinusoids
from pnpcm.priors.consistency import ConsistencyModel

LSUN = UNetConfig(attention_resolutions=(32, 16, 8))
MRI = UNetConfig(
    image_size=320,
    in_channels=2,
    channel_mult=(1, 1, 2, 2, 4, 4),
    attention_resolutions=(32, 16, 8),
)
IMAGENET = UNetConfig(
    image_size=64,
    model_channels=192,
    num_res_blocks=3,
    attention_resolutions=(32, 16, 8),
    use_scale_shift_norm=True,
    num_classes=1000,
)
SMALL64 = UNetConfig(
    image_size=64,
    model_channels=32,
    channel_mult=(1, 2, 2),
    attention_resolutions=(16,),
    num_head_channels=8,
)
SMALL32 = UNetConfig(
    image_size=32,
    in_channels=1,
    model_channels=32,
    channel_mult=(1, 2),
    attention_resolutions=(16,),
    num_head_channels=16,
)
MEDIUM64 = UNetConfig(
    image_size=64, model_channels=64, channel_mult=(1, 2, 4), attention_resolutions=(32, 16)
)
LEAN = UNetConfig(
    image_size=None,
    model_channels=12,
    channel_mult=(1, 2),
    num_res_blocks=1,
    patch=2,
    norm=False,
    middle_attention=False,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(network: UNet, size: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    x = torch.randn((batch, network.in_channels, size, size), generator=generator(1))
    return x.double(), torch.linspace(-1500, 1000, batch).double()


def meta(config: UNetConfig) -> UNet:
    with torch.device("meta"):
        return UNet(config)


# docs/method.md §11: total, time, encoder, middle, decoder, head, tensors
PUBLISHED = {
    "256 px": (LSUN, 526304771, (1312768, 153460224, 44060672, 327463680, 7427), 566),
    "320 px": (MRI, 479037442, (1312768, 134552832, 44060672, 299106048, 5122), 476),
    "ImageNet-64": (IMAGENET, 295899267, None, 541),
    "64 px small": (SMALL64, 1774147, (20736, 498144, 181504, 1072832, 931), 276),
    "32 px small": (SMALL32, 1060673, (20736, 250464, 181504, 607616, 353), 200),
    "64 px medium": (MEDIUM64, 17128963, (82432, 4085440, 2757632, 10201600, 1859), 308),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_counted_like_the_published_networks(name: str) -> None:
    config, total, parts, tensors = PUBLISHED[name]
    network = meta(config)
    assert sum(p.numel() for p in network.parameters()) == total
    assert len(network.state_dict()) == tensors
    if parts is not None:
        prefixes = ("time_embed", "input_blocks", "middle_block", "output_blocks", "out.")
        counts = [
            sum(p.numel() for n, p in network.named_parameters() if n.startswith(prefix))
            for prefix in prefixes
        ]
        assert tuple(counts) == parts


def attending(blocks: nn.Module) -> list[int]:
    stages = list(blocks.children())
    return [i for i, s in enumerate(stages) if any(isinstance(m, AttentionBlock) for m in s)]


def test_attention_sits_where_the_256_px_network_has_it() -> None:
    network = meta(LSUN)
    assert attending(network.input_blocks) == [10, 11, 13, 14, 16, 17]
    assert attending(network.output_blocks) == list(range(9))
    assert len(network.input_blocks) == len(network.output_blocks) == 18
    assert meta(UNetConfig()).state_dict().keys() == network.state_dict().keys()


def test_at_320_px_only_the_middle_attends() -> None:
    network = meta(MRI)
    assert attending(network.input_blocks) == attending(network.output_blocks) == []
    assert isinstance(network.middle_block[1], AttentionBlock)


def test_names_are_those_of_the_published_files() -> None:
    shapes = {n: tuple(t.shape) for n, t in meta(LSUN).state_dict().items()}
    assert shapes["input_blocks.10.1.qkv.weight"] == (1536, 512, 1, 1)
    assert shapes["output_blocks.2.2.out_layers.3.weight"] == (1024, 1024, 3, 3)  # up block
    assert shapes["output_blocks.11.1.in_layers.0.weight"] == (512,)  # up block, no attention
    assert shapes["input_blocks.7.0.skip_connection.weight"] == (512, 256, 1, 1)
    assert "input_blocks.3.0.skip_connection.weight" not in shapes
    plain = meta(replace(SMALL32, resblock_updown=False)).state_dict()
    assert plain["input_blocks.3.0.op.weight"].shape == (32, 32, 3, 3)
    assert plain["output_blocks.2.2.conv.weight"].shape == (64, 64, 3, 3)
    assert meta(IMAGENET).state_dict()["label_emb.weight"].shape == (1000, 768)


def test_embedding_has_the_golden_values() -> None:
    golden = [0.90476, -0.83409, -0.53954, 0.97717, -0.42591, -0.55163, -0.84196, -0.21244]
    value = sinusoids(torch.tensor([-214.06827], dtype=torch.float64), 8)
    torch.testing.assert_close(value[0], torch.tensor(golden).double(), atol=6e-6, rtol=0)


def test_a_new_network_gives_zero_and_its_residual_blocks_are_skips() -> None:
    network = UNet(SMALL32)
    x, c = (t.float() for t in inputs(network, 32))
    assert torch.equal(network(x, c), torch.zeros_like(x))
    block = network.input_blocks[1][0]
    h, emb = torch.randn(1, 32, 8, 8, generator=generator()), torch.ones(1, 128)
    assert torch.equal(block(h, emb), h)


@pytest.mark.parametrize(
    "config",
    [
        SMALL32,
        replace(SMALL32, resblock_updown=False, attention_order="legacy"),
        replace(SMALL32, use_scale_shift_norm=True, out_channels=2),
        LEAN,
    ],
    ids=["paper", "plain", "vp", "lean"],
)
def test_a_batch_equals_its_images(config: UNetConfig) -> None:
    network = random_unet(config, dtype=torch.float64)
    x, c = inputs(network, 32, batch=3)
    whole = network(x, c)
    assert whole.shape == (3, config.out_channels or config.in_channels, 32, 32)
    singles = torch.cat([network(x[i : i + 1], c[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(whole, singles, rtol=1e-9, atol=1e-9)
    assert (network(x, c + 10) - whole).abs().max() > 1e-3  # the noise level is heard


def test_channels_last_gives_the_same() -> None:
    network = random_unet(SMALL32, dtype=torch.float64)
    x, c = inputs(network, 32)
    expected = network(x, c)
    network.to(memory_format=torch.channels_last)
    fast = network(x.to(memory_format=torch.channels_last), c)
    torch.testing.assert_close(fast, expected, rtol=1e-9, atol=1e-9)


def test_residual_block_is_its_formula() -> None:
    """A 1-channel block without norm, computed by hand with centre-only convolutions."""
    block = ResBlock(1, 1, emb_channels=1, norm=False).double()
    weights = {"in_layers.2": 2.0, "emb_layers.1": 3.0, "out_layers.3": 5.0}
    with torch.no_grad():
        for name, value in weights.items():
            layer = block.get_submodule(name)
            for p in layer.parameters():
                p.zero_()
            layer.weight.reshape(-1)[layer.weight.numel() // 2] = value

    def silu(v: float) -> float:
        return v / (1 + math.exp(-v))

    expected = 0.7 + 5 * silu(2 * silu(0.7) + 3 * silu(0.4))
    x = torch.full((1, 1, 3, 3), 0.7, dtype=torch.float64)
    out = block(x, torch.tensor([[0.4]], dtype=torch.float64))
    torch.testing.assert_close(out, torch.full_like(x, expected))


def test_attention_is_its_formula_and_knows_two_orders() -> None:
    qkv_first = AttentionBlock(4, head_channels=2, legacy=False, norm=False).double()
    legacy = AttentionBlock(4, head_channels=2, legacy=True, norm=False).double()
    g = generator()
    for p in qkv_first.parameters():
        p.data = torch.randn(p.shape, generator=g).double()
    legacy.load_state_dict(qkv_first.state_dict())
    x = torch.randn((1, 4, 2, 3), generator=g).double()

    def by_hand(order: str) -> Tensor:
        rows = torch.einsum("oc,cn->on", qkv_first.qkv.weight[:, :, 0, 0], x[0].flatten(1))
        rows = rows + qkv_first.qkv.bias[:, None]
        out = []
        for head in range(2):
            starts = [4 * p + 2 * head if order == "qkv" else 6 * head + 2 * p for p in range(3)]
            q, k, v = (rows[s : s + 2] for s in starts)
            weights = torch.softmax((q * 2**-0.25).T @ (k * 2**-0.25), dim=1)
            out.append(v @ weights.T)
        h = (
            qkv_first.proj_out.weight[:, :, 0, 0] @ torch.cat(out)
            + qkv_first.proj_out.bias[:, None]
        )
        return x + h.reshape(1, 4, 2, 3)

    torch.testing.assert_close(qkv_first(x), by_hand("qkv"))
    torch.testing.assert_close(legacy(x), by_hand("legacy"))
    assert (qkv_first(x) - legacy(x)).norm() > 0.01 * x.norm()


def test_labels_are_heard_and_demanded() -> None:
    network = random_unet(replace(SMALL32, num_classes=5), dtype=torch.float64)
    x, c = inputs(network, 16)
    first = network(x, c, torch.tensor([0, 1]))
    second = network(x, c, torch.tensor([0, 2]))
    assert torch.equal(first[0], second[0])
    assert not torch.allclose(first[1], second[1])
    with pytest.raises(ArgumentError, match="num_classes = 5"):
        network(x, c)
    with pytest.raises(ArgumentError, match="num_classes = None"):
        random_unet(SMALL32, dtype=torch.float64)(x, c, torch.tensor([0, 1]))


def test_lean_network_has_no_layer_that_sees_the_whole_image() -> None:
    network = random_unet(LEAN, dtype=torch.float64)
    assert not any(isinstance(m, (nn.GroupNorm, AttentionBlock)) for m in network.modules())
    radius = LEAN.receptive_radius
    assert radius is not None
    assert radius < 90
    x, c = inputs(network, 192, batch=1)
    far = x.clone()
    far[..., 96 + radius + 1 :] += 100
    near = x.clone()
    near[..., 96 + 8] += 100
    out, out_far, out_near = (network(v, c)[..., 96] for v in (x, far, near))
    assert (out - out_far).abs().max() < 1e-10
    assert (out - out_near).abs().max() > 1e-3
    assert SMALL32.receptive_radius is None


@pytest.mark.parametrize("lean", [LEAN, replace(LEAN, resblock_updown=False, patch=1)])
def test_receptive_radius_bounds_the_gradient(lean: UNetConfig) -> None:
    network = random_unet(lean, dtype=torch.float64)
    x, c = inputs(network, 192, batch=1)
    x.requires_grad_()
    radius = lean.receptive_radius or 0
    for centre in (95, 96):
        (grad,) = torch.autograd.grad(network(x, c)[0, 0, centre, centre], x)
        touched = grad[0].abs().sum((0, 1)).nonzero().flatten()
        assert centre - radius <= touched.min()
        assert touched.max() <= centre + radius


def test_lean_network_commutes_with_shifts_by_its_stride() -> None:
    network = random_unet(LEAN, dtype=torch.float64)
    assert network.stride == 4
    x, c = inputs(network, 224, batch=1)
    margin = 96
    shifted = network(x.roll(network.stride, dims=-1), c).roll(-network.stride, dims=-1)
    inside = (..., slice(margin, -margin))
    torch.testing.assert_close(shifted[inside], network(x, c)[inside], rtol=1e-9, atol=1e-9)


def test_without_norm_signals_keep_their_size_and_training_moves() -> None:
    """A deep norm-free network must neither fade nor explode before its first update."""
    config = replace(LEAN, channel_mult=(1, 2, 2, 2), num_res_blocks=2, patch=1)
    with torch.random.fork_rng():  # constructors draw from the global state only
        torch.manual_seed(0)
        network = UNet(config)
    sizes: list[float] = []
    network.out[0].register_forward_hook(lambda _m, _a, out: sizes.append(out.std().item()))
    x, c = (t.float() for t in inputs(network, 16))
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    losses = []
    for _ in range(24):
        loss = (network(x, c) - x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert 0.65 < sizes[0] < 1.5  # 0.4 with PyTorch's default initialisation of the skips
    assert losses[-1] < 0.7 * losses[0]


def test_priors_pad_any_size_and_refuse_other_channels() -> None:
    prior = ConsistencyModel(random_unet(LEAN, dtype=torch.float64))
    x = torch.randn((2, 3, 37, 50), generator=generator(2)).double()
    out = prior(x, torch.tensor([0.3, 5.0]))
    assert out.shape == x.shape
    padded = torch.nn.functional.pad(x, (0, 2, 0, 3), mode="reflect")
    expected = prior(padded, torch.tensor([0.3, 5.0]))[..., :37, :50]
    torch.testing.assert_close(out, expected)
    with pytest.raises(ShapeError, match="1 channels, this prior was trained on 3"):
        prior(x[:, :1], 0.3)


def test_priors_hold_sized_networks_to_their_size() -> None:
    prior = ConsistencyModel(random_unet(SMALL32, dtype=torch.float64))
    x = torch.randn((1, 1, 30, 32), generator=generator(2)).double()
    with pytest.raises(ShapeError, match="32×32"):
        prior(x, 0.3)
    prior.any_size = True
    assert prior(x, 0.3).shape == x.shape


def test_bare_network_refuses_what_does_not_fit() -> None:
    network = random_unet(SMALL32, dtype=torch.float64)
    x, c = inputs(network, 32)
    with pytest.raises(ShapeError, match="multiples of 2"):
        network(x[..., :31], c)
    with pytest.raises(ShapeError, match=r"\(B, 1, H, W\)"):
        network(x.expand(-1, 3, -1, -1), c)
    with pytest.raises(ShapeError, match="c_noise has shape"):
        network(x, c[:1])


BAD = [
    ({"image_size": 320}, "channel_mult must be given for image_size 320"),
    ({"image_size": None}, "channel_mult must be given"),
    ({"channel_mult": ()}, "channel_mult is empty"),
    ({"model_channels": 40}, "multiples of 32"),
    ({"model_channels": 33, "norm": False, "num_head_channels": 1}, "even"),
    ({"model_channels": 0}, "model_channels must be a positive integer up to .*, got 0"),
    ({"in_channels": 1.5}, "in_channels must be a positive integer"),
    ({"image_size": 72, "channel_mult": (1, 1, 1, 1, 1)}, "multiple of patch"),
    ({"num_head_channels": 48}, "num_head_channels must divide"),
    ({"attention_order": "new"}, "attention_order must be"),
    ({"attention_ds": (3,)}, "attention_ds must hold powers of 2 up to 32"),
    ({"attention_ds": (64,)}, "attention_ds"),
    ({"attention_ds": (8,), "attention_resolutions": (32,)}, "only one of the two"),
    ({"image_size": None, "channel_mult": (1,), "attention_resolutions": (8,)}, "image size"),
    ({"attention_resolutions": (0,)}, "attention_resolutions must be a positive integer"),
    ({"dropout": 1.0}, "dropout must lie"),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_bad_numbers_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        UNetConfig(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [LSUN, MRI, IMAGENET, SMALL64, LEAN])
def test_config_survives_json(config: UNetConfig) -> None:
    assert UNetConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_attention_by_factor_equals_attention_by_resolution() -> None:
    by_factor = replace(SMALL64, image_size=None, attention_resolutions=None, attention_ds=[4])
    assert by_factor.attention_factors == SMALL64.attention_factors == (4,)
    assert meta(by_factor).state_dict().keys() == meta(SMALL64).state_dict().keys()
