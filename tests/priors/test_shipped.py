"""The priors in the package: small files, complete metadata, and they denoise."""

from importlib.resources import as_file, files

import pytest
import torch
from torch import nn

from pnpcm import PRESETS, catalogue, load_prior
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr
from pnpcm.mri import phantom
from pnpcm.networks import UNet
from pnpcm.networks.blocks import AttentionBlock
from pnpcm.priors.checkpoint import NetPrior
from rows import check_rows

SHIPPED = [entry for entry in catalogue.entries() if entry.shipped]
LOCAL = [entry for entry in SHIPPED if entry.name in ("natural", "mri")]
SCANS = ("r4", "r8")
HELD_OUT = [546, 565, 577, 603, 606, 632]


def identify(entry: catalogue.Entry) -> str:
    return f"{entry.name}-{entry.kind}"


def load(entry: catalogue.Entry) -> NetPrior:
    prior = load_prior(entry.name, kind=entry.kind)
    assert isinstance(prior, NetPrior)
    return prior


def test_teachers_and_models_are_there() -> None:
    assert {(e.name, e.kind) for e in SHIPPED} >= {
        (name, kind) for name in ("natural", "mri") for kind in ("edm", "consistency")
    }


def test_files_are_small_and_carry_their_facts() -> None:
    def check(entry: catalogue.Entry) -> None:
        assert entry.damage is None
        assert entry.bytes <= 12_000_000
        assert entry.info["licence"]
        assert entry.info["data"]
        assert entry.minutes is not None
        assert entry.minutes > 0
        assert entry.card is not None
        prior = load(entry)
        assert (prior.sigma_min, prior.sigma_max) == (0.002, 80.0)

    check_rows(((identify(entry), entry) for entry in SHIPPED), check)


@pytest.mark.parametrize("entry", LOCAL, ids=identify)
def test_nothing_in_them_looks_at_the_whole_image(entry: catalogue.Entry) -> None:
    network = load(entry).network
    assert isinstance(network, UNet)
    assert not [m for m in network.modules() if isinstance(m, nn.GroupNorm | AttentionBlock)]
    assert network.config.receptive_radius is not None


@pytest.mark.parametrize("entry", LOCAL, ids=identify)
def test_a_tile_with_its_surroundings_is_the_whole(entry: catalogue.Entry) -> None:
    """Far pixels do not matter: the left half computed with a halo is that of the whole image."""
    prior = load(entry)
    network = prior.network
    assert isinstance(network, UNet)
    radius, stride = network.config.receptive_radius, network.stride
    assert radius is not None
    half, halo = 2 * stride, -(-radius // stride) * stride
    x = torch.randn(
        (1, network.in_channels, stride, half + halo + 4 * stride),
        generator=torch.Generator().manual_seed(0),
    )
    whole, tile = prior(x, 0.3), prior(x[..., : half + halo].contiguous(), 0.3)
    torch.testing.assert_close(tile[..., :half], whole[..., :half], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["edm", "consistency"])
@pytest.mark.parametrize(("sigma", "gain"), [(0.1, 3.0), (0.4, 7.0)])
def test_natural_denoises_photographs(kind: str, sigma: float, gain: float) -> None:
    with as_file(files("pnpcm") / "data" / "friends_by_Aitzol_Berasategi.png") as path:
        x = read_image(path)[..., :128, :128]
    noisy = x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    denoised = load_prior("natural", kind=kind)(noisy, sigma)
    assert float(psnr(denoised, x)) > float(psnr(noisy, x)) + gain


@pytest.mark.parametrize("kind", ["edm", "consistency"])
def test_mri_denoises_complex_images(kind: str) -> None:
    magnitude = 0.8 * phantom((96, 96))
    x = torch.stack([magnitude * 0.6, magnitude * 0.8])[None]  # a constant phase
    noisy = x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    denoised = load_prior("mri", kind=kind)(noisy, 0.1)
    assert float(psnr(denoised, x)) > float(psnr(noisy, x)) + 5


def test_mri_names_its_scale_and_whom_it_has_not_seen() -> None:
    for kind in ("edm", "consistency"):
        info = catalogue.find("mri", kind).info
        assert info["scale"] == "p99.5=0.8"
        assert info["held_out_ixi_subjects"] == HELD_OUT


def test_every_task_has_a_preset() -> None:
    photos = ("inpaint-70", "superres-4", "deblur-gauss", "jpeg-5", "nonlinear-deblur")
    photos += ("phase-retrieval",)

    def check(place: tuple[str, str]) -> None:
        preset = PRESETS["/".join(place)]
        assert preset.prior == place[0]
        assert preset.expected["psnr"] > 0

    names = sorted({e.name for e in SHIPPED})
    places = [(name, task) for name in names for task in (SCANS if name == "mri" else photos)]
    check_rows((("/".join(place), place) for place in places), check)
