"""Denoisers as priors: files in KAIR's layout, levels of their training, solvers, tiles."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from denoisers import GOLDEN, LEVEL, PUBLISHED, golden_image, golden_state, published_shapes
from golden import gen, relative
from pnpcm import GaussianPrior, PnPCM, PnPCMConfig, load_prior, save_prior
from pnpcm.errors import ArgumentError, CheckpointError
from pnpcm.interop import from_denoiser
from pnpcm.networks.kair import build_denoiser
from pnpcm.operators import SuperResolution, measure
from pnpcm.priors import DenoiserPrior, GreyPrior, TiledPrior
from pnpcm.priors.checkpoint import load_own, read_header
from pnpcm.solvers import SOLVERS

NAMES = {"drunet": "drunet_color.pth", "ffdnet": "ffdnet_color.pth", "dncnn": "dncnn_25.pth"}


def save_golden(name: str, path: Path) -> Path:
    """The small network with golden values, as a file."""
    state = build_denoiser(GOLDEN[name].config).state_dict()
    shapes = {key: tuple(t.shape) for key, t in state.items()}
    torch.save(golden_state(shapes), path)
    return path


@pytest.fixture(params=list(GOLDEN))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def file(name: str, tmp_path: Path) -> Path:
    return save_golden(name, tmp_path / NAMES[name])


def any_load(path: Path | str, **options: Any) -> Any:
    return load_prior(path, **options)


# --- files --------------------------------------------------------------------------------------


def test_a_loaded_file_has_the_values_of_kair(name: str, file: Path) -> None:
    golden = GOLDEN[name]
    prior = any_load(file)
    assert isinstance(prior, DenoiserPrior)
    assert (prior.kind, prior.value_range, prior.nfe_per_call) == ("edm", (0.0, 1.0), 1)
    assert prior.network.config == golden.config
    assert prior.info == {"name": file.stem}  # what records call it
    assert not prior.training
    assert not any(p.requires_grad for p in prior.parameters())
    x = golden_image(golden.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 0.1 is not quite the level of dncnn_25
        single, y = prior(x.float(), LEVEL), prior.double()(x, LEVEL)
    assert float(y.sum()) == pytest.approx(golden.total, abs=2e-9)
    assert float(y.square().sum()) == pytest.approx(golden.squares, abs=2e-9)
    assert y[0, 0, 0, :4].tolist() == pytest.approx(golden.first, abs=1e-9)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), y, atol=1e-4)


@pytest.mark.parametrize("published", PUBLISHED)
def test_files_of_the_published_shapes_load_strictly(
    published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one number seen as a whole tensor, which is refused: a file of 130 MB in a few kB
    monkeypatch.setattr("pnpcm.priors.files.check_held", lambda path, state: None)
    shapes = published_shapes(published)
    state = {k: torch.zeros(1).expand(shape) for k, shape in shapes.items()}
    path = tmp_path / published
    torch.save(state, path)
    prior = any_load(path)
    parameters, channels = PUBLISHED[published]
    assert sum(p.numel() for p in prior.parameters()) == parameters
    x = torch.full((1, channels, 9, 10), 0.5)
    out = prior(x, 25 / 255)
    assert torch.equal(out, x if published.startswith("dncnn") else 0 * x)
    with pytest.raises(ArgumentError, match=f"this prior was trained on {channels}"):
        prior(torch.zeros(1, channels + 1, 8, 8), 25 / 255)
    first = next(iter(shapes))
    for edit, message in (
        ({"extra.weight": torch.zeros(1)}, "not a guided-diffusion|unexpected"),
        ({first: torch.zeros(*shapes[first][:2], 5, 5)}, "misshapen"),
    ):
        torch.save(state | edit, path)
        with pytest.raises(CheckpointError, match=message):
            any_load(path)
    del state[list(shapes)[-1]]
    torch.save(state, path)
    with pytest.raises(CheckpointError, match=r"1 missing \((m_tail.weight|model\.\d+\.bias)\)"):
        any_load(path)


def test_files_are_never_executed(tmp_path: Path) -> None:
    target = tmp_path / "executed"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (target,))

    path = tmp_path / "drunet_color.pth"
    torch.save({"m_head.weight": torch.zeros(1), "w": Bomb()}, path)
    with pytest.raises(CheckpointError, match="is not executed"):
        any_load(path)
    pickled = path.with_suffix(".pkl")
    pickled.write_bytes(pickle.dumps({"w": Bomb()}))
    with pytest.raises(CheckpointError, match=r"is a pickle.*DiffusionModel.*c_noise='edm'"):
        any_load(pickled)
    assert not target.exists()


def test_what_a_denoiser_does_not_take_is_refused(file: Path) -> None:
    for options, message in (
        ({"kind": "consistency"}, "a denoiser \\(kind 'edm'\\); leave kind out"),
        ({"network": {"image_size": 64}}, "leave network out"),
        ({"c_noise": "edm"}, "leave c_noise out"),
        ({"sigma_min": 0.3, "sigma_max": 0.2}, "0 ≤ sigma_min < sigma_max, got 0.3 and 0.2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            any_load(file, **options)
    assert any_load(file, kind="edm").kind == "edm"


# --- levels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "title", "low", "high"),
    [
        ("drunet", "drunet_color.pth", 0.255, 50),  # 0.001 of [0, 1] stands for 0
        ("drunet", "renamed.pt", 0.255, 50),
        ("ffdnet", "ffdnet_color.pth", 0.255, 75),
        ("dncnn", "dncnn_15.pth", 14.5, 15.5),
        ("dncnn", "dncnn_50.pth", 49.5, 50.5),
        ("dncnn", "dncnn_gray_blind.pth", 0.255, 55),
    ],
)
def test_trained_levels(name: str, title: str, low: float, high: float, tmp_path: Path) -> None:
    path = save_golden(name, tmp_path / title)
    prior = any_load(path)
    assert (prior.sigma_min, prior.sigma_max) == pytest.approx((low / 255, high / 255))
    given = any_load(path, sigma_min=0.1, sigma_max=0.2)
    assert (given.sigma_min, given.sigma_max) == (0.1, 0.2)


def test_a_dncnn_without_its_level_asks_for_it(tmp_path: Path) -> None:
    path = save_golden("dncnn", tmp_path / "denoiser.pth")
    with pytest.raises(CheckpointError, match=r"level it was trained for; .*dncnn_25\.pth"):
        any_load(path)
    prior = any_load(path, sigma_min=0.09, sigma_max=0.11)
    assert (prior.sigma_min, prior.sigma_max) == (0.09, 0.11)


def test_other_levels_become_the_nearest_trained_one_with_a_note(tmp_path: Path) -> None:
    prior = any_load(save_golden("drunet", tmp_path / "drunet_color.pth"))
    x = golden_image((3, 16, 16)).float()
    ends = prior(x, 50 / 255), prior(x, 0.001)
    with pytest.warns(
        UserWarning, match=r"sigma is 0\.5.* 0\.001 to 0\.1961.*evaluated at 0\.1961"
    ):
        assert torch.equal(prior(x, 0.5), ends[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a note is made once
        assert torch.equal(prior(x, 0.0), ends[1])
        both = prior(torch.cat([x, x]), torch.tensor([0.0, 7.0]))
    assert torch.allclose(both, torch.cat(ends[::-1]), atol=1e-6)
    fresh = any_load(tmp_path / "drunet_color.pth")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sigma in (0.001, 0.1, 50 / 255, torch.tensor([50 / 255])):
            fresh(x, sigma)


def test_dncnn_serves_one_level_and_says_so(tmp_path: Path) -> None:
    prior = any_load(save_golden("dncnn", tmp_path / "dncnn_25.pth"))
    x = golden_image((1, 16, 16)).float()
    expected = prior(x, 25 / 255)
    with pytest.warns(UserWarning, match=r"sigma is 0.2, .*trained for 0.09608 to 0.1"):
        assert torch.equal(prior(x, 0.2), expected)


# --- solvers ------------------------------------------------------------------------------------


def gaussian(x: Tensor, sigma: float) -> Tensor:
    """E[x₀ | x] for pixels of mean ½ and deviation ¼ on [0, 1]."""
    return 0.5 + (x - 0.5) * 0.25**2 / (0.25**2 + sigma**2)


@pytest.mark.parametrize("method", ["dpir", "pnp-admm", "diffpir", "pnp-cm"])
def test_solvers_take_a_denoiser_on_unit_range(method: str) -> None:
    """The same Gaussian on [-1, 1], with mean 0 and deviation ½, gives the same image."""
    there = from_denoiser(gaussian, sigma_min=0.001, sigma_max=40.0)
    here = GaussianPrior(0.0, 0.5, kind="edm")
    solver = SOLVERS[method]
    config: Any = solver.config_type.example()
    operator = SuperResolution((3, 16, 16), 2)
    x = torch.rand((1, 3, 16, 16), generator=gen(), dtype=torch.float64) * 2 - 1
    y = measure(operator, x, 0.05, generator=gen(1))
    a, b = (solver(p, config)(y, operator, generator=gen(2)) for p in (here, there))
    assert a.nfe == b.nfe > 0
    assert relative(b.x, a.x) < 1e-6


@pytest.mark.parametrize("method", ["dpir", "pnp-admm", "diffpir", "pnp-cm"])
def test_solvers_take_a_drunet_file(method: str, tmp_path: Path) -> None:
    prior = any_load(save_golden("drunet", tmp_path / "drunet_color.pth"))
    solver = SOLVERS[method]
    config: Any = (
        PnPCMConfig(sigmas=(0.3, 0.1), deltas=(0.1, 0.1), rhos=(0.5, 1.0), noise_scale=0.0)
        if method == "pnp-cm"
        else solver.config_type.example()
    )
    operator = SuperResolution((3, 16, 16), 2)
    y = measure(operator, 2 * golden_image((3, 16, 16)).float() - 1, 0.05, generator=gen(1))
    result = solver(prior, config)(y, operator, generator=gen(2))
    assert result.x.shape == (1, 3, 16, 16)
    assert bool(result.x.isfinite().all())
    assert result.nfe == config.nfe


def test_one_step_of_pnp_cm_is_the_denoiser_in_its_own_units(tmp_path: Path) -> None:
    """x₁ = 2 D((z + 1)/2, s/2) − 1 with z = prox at 0 and s = (1 + δ) σ, written out."""
    prior = any_load(save_golden("drunet", tmp_path / "drunet_color.pth"))
    config = PnPCMConfig(sigmas=(0.2,), deltas=(0.5,), rhos=(1.0,), noise_scale=0.0, clamp=False,
                         init="zero")  # fmt: skip

    class Identity:
        def A(self, x: Tensor) -> Tensor:
            return x

        def A_adjoint(self, y: Tensor) -> Tensor:
            return y

        def prox_l2(self, z: Tensor, y: Tensor, gamma: float) -> Tensor:
            return (gamma * y + z) / (gamma + 1)

    y = 2 * golden_image((3, 16, 16)).float() - 1
    x = PnPCM(prior, config)(y, Identity()).x
    expected = 2 * prior((y / 2 + 1) / 2, 0.15) - 1
    assert torch.allclose(x, expected, atol=1e-5)


# --- tiles, grey images, our own format ---------------------------------------------------------


@pytest.mark.parametrize("size", [(40, 285), (37, 290)])
def test_tiles_are_the_whole(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    whole = any_load(save_golden(name, tmp_path / NAMES[name])).double()
    if name == "ffdnet":
        for p in whole.parameters():  # else it ignores the image
            p.abs_()
    tiled = TiledPrior(whole, tile=32)
    assert tiled.exact
    assert max(size) > tiled.tile + 2 * tiled.halo
    shape = (whole.network.in_channels, *size)
    x = torch.rand((1, *shape), generator=gen(), dtype=torch.float64)
    expected = whole(x, 25 / 255)
    assert torch.allclose(tiled(x, 25 / 255), expected, atol=1e-9)
    assert float(expected.std()) > 0.01


def test_grey_images_go_through_a_colour_denoiser(tmp_path: Path) -> None:
    prior = any_load(save_golden("drunet", tmp_path / "drunet_color.pth"))
    x = golden_image((1, 16, 16)).float()
    expected = prior(x.expand(-1, 3, -1, -1), 3**0.5 * 0.1).mean(1, keepdim=True)
    assert torch.allclose(GreyPrior(prior)(x, 0.1), expected, atol=1e-6)


def test_denoisers_are_saved_in_our_format(name: str, file: Path, tmp_path: Path) -> None:
    prior, path = any_load(file, sigma_min=0.01, sigma_max=0.3), tmp_path / "own.safetensors"
    save_prior(prior, path, info={"name": "mine"})
    assert read_header(path)["options"] == {
        "sigma_min": 0.01,
        "sigma_max": 0.3,
        "value_range": [0.0, 1.0],
    }
    back = any_load(path)
    assert isinstance(back, DenoiserPrior)
    assert (back.sigma_min, back.sigma_max, back.info) == (0.01, 0.3, {"name": "mine"})
    assert back.network.config == GOLDEN[name].config
    x = golden_image(GOLDEN[name].shape).float()
    assert torch.equal(back(x, 0.1), prior(x, 0.1))
    with pytest.raises(CheckpointError, match="a denoiser without scalings; expected"):
        load_own(path)
    with pytest.raises(ArgumentError, match="leave sigma_max out"):
        any_load(path, sigma_max=0.2)
    with pytest.raises(ArgumentError, match=r"must hold a networks\.UNet"):
        save_prior(from_denoiser(gaussian), tmp_path / "x.safetensors")
