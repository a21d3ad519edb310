"""Tiles against the whole image: borders, odd sizes, batches, levels, cost."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golden import gen, random_unet
from pnpcm import PnPCM, PnPCMConfig
from pnpcm.errors import ArgumentError
from pnpcm.networks import UNetConfig
from pnpcm.operators import Inpainting
from pnpcm.priors import ConsistencyModel, DiffusionModel, GaussianPrior, GreyPrior, TiledPrior

LEAN = UNetConfig(
    image_size=None,
    model_channels=8,
    channel_mult=(1, 2),
    num_res_blocks=1,
    patch=2,
    resblock_updown=False,
    norm=False,
    middle_attention=False,
)
RADIUS = LEAN.receptive_radius or 0
SIGMA = 0.7


def prior(config: UNetConfig = LEAN) -> ConsistencyModel:
    return ConsistencyModel(random_unet(config)).requires_grad_(False)


def image(*shape: int) -> Tensor:
    return torch.randn(shape, generator=gen(1))


class Watch(nn.Module):
    """Records the shapes of the inputs of ``network``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.inner, self.config, self.stride = network, network.config, network.stride
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        self.shapes.append(tuple(x.shape))
        out: Tensor = self.inner(x, c_noise)
        return out


@pytest.mark.parametrize(
    "size",
    [
        (160, 168),  # multiples of the stride, tiles do not divide them
        (157, 203),  # padded by 3 and by 1
        (150, 12),  # one axis is a single tile
        (1, 170),  # padded by replication: one row cannot be mirrored
        (161, 161),  # the last tile begins one pixel before the border
    ],
)
def test_tiles_are_the_whole(size: tuple[int, int]) -> None:
    whole = prior()
    tiled = TiledPrior(whole, tile=20)
    assert tiled.exact
    assert tiled.halo >= RADIUS
    assert max(size) > tiled.tile + 2 * tiled.halo
    x = image(1, 3, *size)
    before = x.clone()
    expected = whole(x, SIGMA)
    torch.testing.assert_close(tiled(x, SIGMA), expected, rtol=0, atol=1e-5)
    assert torch.equal(x, before)
    assert float((expected - x).abs().max()) > 0.1  # the network has a say


def test_a_short_halo_is_seen_and_called_inexact() -> None:
    whole = prior()
    short = TiledPrior(whole, tile=20, halo=8)
    x = image(1, 3, 157, 12)
    assert not short.exact
    difference = (short(x, SIGMA) - whole(x, SIGMA)).abs().amax((0, 1, 3))
    assert float(difference.max()) > 1e-4
    assert float(difference[0]) < 0.2 * float(difference.max())  # borders are where they were


def test_the_halo_is_as_large_as_it_must_be() -> None:
    whole = ConsistencyModel(random_unet(LEAN, dtype=torch.float64)).requires_grad_(False)
    x = image(1, 3, 203, 13).double()
    full, short = (
        float((TiledPrior(whole, tile=20, halo=halo)(x, SIGMA) - whole(x, SIGMA)).abs().max())
        for halo in (None, RADIUS - 2 * LEAN.stride)
    )
    assert full < 1e-13
    assert short > 1e-10


def test_tiles_are_of_equal_size_and_bound_the_memory() -> None:
    watch = Watch(random_unet(LEAN))
    tiled = TiledPrior(ConsistencyModel(watch), tile=30)
    side = tiled.tile + 2 * tiled.halo
    assert (tiled.tile, tiled.halo % LEAN.stride) == (32, 0)
    tiled(image(2, 3, side + 41, side + 3), SIGMA)
    assert len(watch.shapes) == 2 * 3 * 2  # images, rows of tiles (41 = 32 + 9), columns
    ((_, _, *size),) = set(watch.shapes)
    assert max(size) <= side


class Bounded(nn.Module):
    """A network of radius 195 and stride 8 that is the identity."""

    stride, in_channels = 8, 3

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(receptive_radius=195)

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        return x


def wide(**options: Any) -> TiledPrior:
    return TiledPrior(ConsistencyModel(Bounded()), **options)


def test_few_pixels_are_evaluated_twice() -> None:
    """2000 × 1500 in tiles of 640 with a halo of 128, in units of eight pixels.

    2000 − 2 · 128 needs three centres of 640, which see 2000 + 4 · 128 = 2512 = 8 · 314 pixels, so
    a window 8 · 105 = 840. 1504 − 256 needs two, which see 1504 + 2 · 128 = 2 · 880; the last one
    lacks the four pixels of padding. In all 3 · 840 · 1760 = 1.48 · 2000 · 1500.
    """
    tiled = wide()
    columns, rows = tiled.windows(2000), tiled.windows(1500)
    assert [w.seen.stop - w.seen.start for w in columns] == [840] * 3
    assert [w.seen.stop - w.seen.start for w in rows] == [880, 876]
    assert [(w.kept.start, w.kept.stop) for w in rows] == [(0, 752), (752, 1500)]


@pytest.mark.parametrize(("tile", "halo"), [(640, None), (512, 200), (64, 8), (16, 0), (1, 0)])
def test_every_pixel_is_kept_once_with_its_halo(tile: int, halo: int | None) -> None:
    tiled = wide(tile=tile, halo=halo)
    for n in (1, 7, 8, 16, 17, 25, 199, 400, 769, 1000, 1500, 2000):
        windows = tiled.windows(n)
        kept = [i for w in windows for i in range(w.kept.start, w.kept.stop)]
        assert kept == list(range(n))
        for w in windows:
            assert 0 <= w.seen.start <= max(0, w.kept.start - tiled.halo)
            assert min(n, w.kept.stop + tiled.halo) <= w.seen.stop <= n
            assert w.seen.start % 8 == 0
            assert w.seen.stop - w.seen.start <= tiled.tile + 2 * tiled.halo
        # a window that ends within a unit is mirrored from its own pixels
        assert len(windows) == 1 or windows[-1].seen.stop - windows[-1].seen.start > 8
        assert len({-(-(w.seen.stop - w.seen.start) // 8) for w in windows}) == 1


def test_only_the_full_radius_is_called_exact() -> None:
    default, short, full = wide(), wide(halo=120), wide(halo=195)
    assert [p.halo for p in (default, short, full)] == [128, 120, 200]
    assert [p.exact for p in (default, short, full)] == [False, False, True]
    assert [p.close for p in (default, short, full)] == [True, False, True]
    assert TiledPrior(prior()).halo == -(-RADIUS // LEAN.stride) * LEAN.stride  # below 128


def test_what_fits_into_one_tile_goes_straight_through() -> None:
    watch = Watch(random_unet(LEAN))
    whole = ConsistencyModel(watch)
    tiled = TiledPrior(whole, tile=30)
    x = image(2, 3, tiled.tile + 2 * tiled.halo, 21)
    assert torch.equal(tiled(x, SIGMA), whole(x, SIGMA))
    assert [shape[0] for shape in watch.shapes] == [2, 2]


def test_a_batch_with_its_levels_gives_what_each_image_gives() -> None:
    watch = Watch(random_unet(LEAN))
    whole = ConsistencyModel(watch).requires_grad_(False)
    tiled = TiledPrior(whole, tile=24)
    side = tiled.tile + 2 * tiled.halo
    x, sigma = image(2, 3, side + 14, side + 5), torch.tensor([0.05, 2.0])
    together = tiled(x, sigma)
    assert len(watch.shapes) == 2 * 2 * 2  # images, rows and columns of tiles
    torch.testing.assert_close(together, whole(x, sigma), rtol=0, atol=1e-5)
    for i in range(2):
        alone = tiled(x[i : i + 1], float(sigma[i]))
        torch.testing.assert_close(alone, together[i : i + 1], rtol=0, atol=1e-6)
    with pytest.raises(ArgumentError, match="sigma has 3 values for a batch of 2"):
        tiled(x, torch.ones(3))


def test_gradients_pass_through_tiles() -> None:
    whole = prior()
    x = image(1, 3, 140, 9).requires_grad_()
    weight = image(1, 3, 140, 9)
    gradients = [
        torch.autograd.grad((p(x, SIGMA) * weight).sum(), x)[0]
        for p in (whole, TiledPrior(whole, tile=20))
    ]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=1e-4)


def test_it_has_the_face_of_the_prior_inside() -> None:
    inner = DiffusionModel(random_unet(LEAN), kind="edm", sigma_max=50.0, value_range=(0.0, 1.0))
    inner.info = {"licence": "ours"}
    tiled = TiledPrior(inner)
    assert (tiled.kind, tiled.sigma_min, tiled.sigma_max) == ("edm", 0.002, 50.0)
    assert (tiled.value_range, tiled.nfe_per_call) == ((0.0, 1.0), 1)
    assert tiled.info == {"licence": "ours"}
    assert tiled.to(torch.float64) is tiled
    assert next(inner.parameters()).dtype == torch.float64
    inner.sigma_max = 40.0  # what is changed inside is seen outside
    assert tiled.sigma_max == 40.0
    assert not hasattr(TiledPrior(Nameless(), halo=0), "kind")


def test_one_evaluation_per_image_is_counted() -> None:
    config = PnPCMConfig(sigmas=(0.3, 0.2), deltas=(0.0, 0.0), rhos=(1.0, 1.0), mu=0.2)
    y, operator = 0.5 * image(1, 3, 140, 131), Inpainting(torch.ones(140, 131))
    whole = prior()
    results = [
        PnPCM(p, config)(y, operator, generator=gen(2)) for p in (whole, TiledPrior(whole, tile=20))
    ]
    assert [r.nfe for r in results] == [2, 2]
    torch.testing.assert_close(results[1].x, results[0].x, rtol=0, atol=1e-5)


def test_networks_that_see_everything_are_approximate() -> None:
    config = replace(LEAN, middle_attention=True, num_head_channels=8, image_size=32)
    fixed = prior(config)
    with pytest.raises(ArgumentError, match=r"halo must be given .* GroupNorm or attention"):
        TiledPrior(fixed)
    tiled = TiledPrior(fixed, tile=16, halo=8)  # squares of 32, what the network was trained on
    assert not tiled.exact
    assert tiled(image(1, 3, 70, 45), SIGMA).shape == (1, 3, 70, 45)


class Nameless:
    """A prior without network: f(x, σ) = x / (1 + σ²)."""

    value_range, sigma_min, sigma_max, nfe_per_call = (-1.0, 1.0), 0.002, 80.0, 3

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        return x / (1 + float(sigma) ** 2)


def test_foreign_networks_need_a_halo() -> None:
    with pytest.raises(
        ArgumentError, match="halo must be given for this Nameless: the receptive radius"
    ):
        TiledPrior(Nameless())
    with pytest.raises(ArgumentError, match="halo must be given for this ConsistencyModel"):
        TiledPrior(ConsistencyModel.example())
    tiled = TiledPrior(Nameless(), tile=5, halo=0)
    assert (tiled.exact, tiled.nfe_per_call) == (False, 3)
    x = image(1, 2, 13, 11)
    assert torch.equal(tiled(x, 2.0), x / 5)
    assert torch.equal(TiledPrior(GaussianPrior(), tile=4, halo=0)(x, 1.0), GaussianPrior()(x, 1.0))


def test_grey_images_in_tiles() -> None:
    grey = GreyPrior(prior())
    tiled = TiledPrior(grey, tile=20)
    assert tiled.exact
    x = image(1, 1, 150, 17)
    torch.testing.assert_close(tiled(x, SIGMA), grey(x, SIGMA), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tile": 0}, "tile must be a whole number of pixels, at least 1, got 0"),
        ({"tile": 64.0}, "tile must be a whole number"),
        ({"halo": -1}, "halo must be a whole number of pixels, at least 0, got -1"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        TiledPrior(prior(), **options)


def test_what_is_no_prior_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"lacks value_range.*from_denoiser"):
        TiledPrior(lambda x, sigma: x)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"\(B, C, H, W\)"):
        TiledPrior(prior())(image(3, 8, 8), SIGMA)
