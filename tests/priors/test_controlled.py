"""Controlled models: scalings, boundary, files with a fingerprint of their prior, names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from golden import TINY, gen, random_unet
from pnpcm import ConsistencyModel, DiffusionModel, catalogue, load_prior
from pnpcm.counted import CountedPrior
from pnpcm.errors import ArgumentError, CheckpointError, ShapeError, UnknownNameError
from pnpcm.linalg import norm
from pnpcm.networks.control import ControlNet
from pnpcm.operators import GaussianBlur, Inpainting, SuperResolution, measure
from pnpcm.operators.base import LinearOperatorBase
from pnpcm.priors.checkpoint import load_own, read_header, save_prior
from pnpcm.priors.controlled import ControlledModel, fingerprint, load_control, save_control
from pnpcm.solvers import CoSIGN, CoSIGNConfig

TASK = {"operator": "superresolution", "options": {"factor": 2}, "sigma_y": 0.05}


def plain(seed: int = 0) -> ConsistencyModel:
    prior = ConsistencyModel(random_unet(TINY, seed))
    prior.info = {"name": "tiny-cm", "licence": "CC0"}
    return prior


def controlled(seed: int = 0) -> ControlledModel:
    """As after training: every weight of the ControlNet moved."""
    prior = plain(seed)
    control = ControlNet.beside(prior.network)  # type: ignore[arg-type]
    g = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for p in control.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=g))
    return ControlledModel(prior, control, info={"task": TASK})


def images(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    x, hint = torch.randn((2, 2, 3, 10, 11), generator=g).to(dtype)  # sides the network must pad
    return x, hint


def test_a_new_one_is_its_prior_bit_for_bit() -> None:
    prior = plain()
    model = ControlledModel(prior, ControlNet.beside(prior.network))  # type: ignore[arg-type]
    x, hint = images()
    for sigma in (0.002, 0.3, 80.0):
        assert torch.equal(model(x, sigma, hint=50 * hint), prior(x, sigma))
        assert torch.equal(model(x, sigma), prior(x, sigma))


def test_its_network_is_told_what_that_of_its_prior_is_told() -> None:
    openai = plain()
    edm = ConsistencyModel(openai.network, c_noise="edm")
    model = ControlledModel(edm, ControlNet.beside(edm.network))  # type: ignore[arg-type]
    x, hint = images()
    assert torch.equal(model(x, 2.0, hint=hint), edm(x, 2.0))
    assert not torch.allclose(edm(x, 2.0), openai(x, 2.0), atol=1e-3)


def test_scalings_are_those_of_the_consistency_function() -> None:
    """f = c_skip x + c_out F(c_in x, 250 ln σ, c_in h), written out at σ = 2."""
    model = controlled()
    x, hint = (t[..., :8, :8] for t in images())
    total = (2.0**2 + 0.5**2) ** 0.5
    level = torch.full((2,), 250 * torch.log(torch.tensor(2.0)))
    inner = model.network(x / total, level, hint / total)
    skip = 0.25 / (1.998**2 + 0.25)
    expected = skip * x + 0.5 * 1.998 / total * inner
    assert torch.allclose(model(x, 2.0, hint=hint), expected, atol=1e-5)
    assert not torch.allclose(model(x, 2.0), expected, atol=1e-2)


def test_the_hint_may_stay_as_it_is(tmp_path: Path) -> None:
    scaled, (x, hint) = controlled(), images()
    prior = plain()
    raw = ControlledModel(prior, scaled.control, scaled_hint=False)
    total = (2.0**2 + 0.5**2) ** 0.5
    assert torch.allclose(raw(x, 2.0, hint=hint / total), scaled(x, 2.0, hint=hint), atol=1e-5)
    save_control(raw, tmp_path / "raw.safetensors")
    assert load_control(tmp_path / "raw.safetensors", prior).scaled_hint is False


def test_boundary_holds_whatever_the_hint() -> None:
    x, hint = images()
    assert torch.allclose(controlled()(x, 0.002, hint=hint), x, atol=1e-6)


def test_batches_levels_and_dtypes() -> None:
    model, (x, hint) = controlled(), images()
    together = model(x, torch.tensor([0.1, 5.0]), hint=hint)
    alone = model(x[1:], 5.0, hint=hint[1:])
    assert torch.allclose(together[1:], alone, atol=1e-5)
    x64, hint64 = images(torch.float64)
    assert model(x64, 0.3, hint=hint64).dtype == torch.float64
    with pytest.raises(ShapeError, match=r"hint has shape \(2, 3, 5, 5\)"):
        model(x, 0.3, hint=hint[..., :5, :5])


def test_one_call_counts_once() -> None:
    counted, (x, hint) = CountedPrior(controlled()), images()
    counted(x, 80.0, hint=hint)
    assert counted.nfe == 1
    assert counted.prior.kind == "consistency"  # type: ignore[attr-defined]


def test_round_trip_keeps_weights_task_and_words(tmp_path: Path) -> None:
    model, (x, hint) = controlled(), images()
    path = tmp_path / "control.safetensors"
    save_control(model, path, info={"licence": "CC-BY-4.0"})
    again = load_control(path, plain())
    assert torch.allclose(again(x, 3.0, hint=hint), model(x, 3.0, hint=hint), atol=1e-6)
    assert again.info["control"] == {"task": TASK, "licence": "CC-BY-4.0"}
    assert again.info["name"] == "tiny-cm"
    assert not again.training
    assert not any(p.requires_grad for p in again.parameters())
    names = set(load_file(path))
    assert names == set(model.control.state_dict())  # control weights only
    assert not any("output_blocks" in name for name in names)
    header = read_header(path)
    assert header["kind"] == "control"
    assert header["prior"]["name"] == "tiny-cm"


def test_half_precision_halves_the_file(tmp_path: Path) -> None:
    model, (x, hint) = controlled(), images()
    half, full = tmp_path / "half.safetensors", tmp_path / "full.safetensors"
    save_control(model, half, dtype=torch.float16)
    save_control(model, full)
    assert half.stat().st_size < 0.6 * full.stat().st_size
    again = load_control(half, plain())
    assert again.control.hint_conv.weight.dtype == torch.float32
    assert torch.allclose(again(x, 3.0, hint=hint), model(x, 3.0, hint=hint), atol=2e-2)


def test_a_prior_is_recognised_in_half_and_in_full(tmp_path: Path) -> None:
    prior = plain()
    save_prior(prior, tmp_path / "half.safetensors", dtype=torch.float16)
    save_prior(prior, tmp_path / "full.safetensors")
    prints = {
        fingerprint(load_own(tmp_path / f"{n}.safetensors").network) for n in ("half", "full")
    }  # type: ignore[arg-type]
    assert prints == {fingerprint(prior.network)}  # type: ignore[arg-type]
    assert prints != {fingerprint(plain(1).network)}  # type: ignore[arg-type]


def test_wrong_priors_and_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "control.safetensors"
    save_control(controlled(), path)
    other = plain(5)
    other.info["name"] = "other-cm"
    with pytest.raises(CheckpointError, match=r"for the prior 'tiny-cm'.*not for 'other-cm'"):
        load_control(path, other)
    teacher = DiffusionModel(random_unet(TINY, 0), kind="edm")
    with pytest.raises(ArgumentError, match="prior is a DiffusionModel with a UNet"):
        load_control(path, teacher)
    with pytest.raises(ArgumentError, match="with a SmoothNetwork"):
        load_control(path, ConsistencyModel.example())
    with pytest.raises(CheckpointError, match="is a ControlNet, not a prior"):
        load_own(path)
    save_prior(plain(), tmp_path / "prior.safetensors")
    with pytest.raises(CheckpointError, match="holds a prior, not a ControlNet"):
        load_control(tmp_path / "prior.safetensors", plain())


def test_load_prior_finds_controls_by_path_and_by_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    monkeypatch.setattr(catalogue, "SHIPPED", weights)
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path / "home"))
    save_prior(plain(), weights / "tiny-cm.safetensors")
    save_control(controlled(), weights / "tiny-cosign-superres-2.safetensors")
    assert catalogue.names() == ("tiny",)  # a ControlNet is not a prior
    assert [entry.damage for entry in catalogue.entries()] == [None]
    by_task = load_prior("tiny", control="superres-2")
    by_path = load_prior("tiny", control=weights / "tiny-cosign-superres-2.safetensors")
    x, hint = images()
    for prior in (by_task, by_path):
        assert isinstance(prior, ControlledModel)
        assert prior.info["control"]["task"] == TASK
        assert torch.allclose(prior(x, 2.0, hint=hint), controlled()(x, 2.0, hint=hint), atol=1e-6)
    with pytest.raises(UnknownNameError, match="unknown ControlNet of the prior 'tiny'"):
        load_prior("tiny", control="deblur")
    with pytest.raises(CheckpointError, match=r"none\.safetensors is not a file"):
        load_prior("tiny", control=tmp_path / "none.safetensors")


SERVED: dict[str, LinearOperatorBase] = {
    "superres-4": SuperResolution((3, 64, 64), 4),
    "deblur-gauss": GaussianBlur((3, 64, 64)),
    "inpaint-70": Inpainting.random((64, 64), missing=0.7, generator=gen()),
}


@pytest.mark.parametrize("task", SERVED)
def test_shipped_controls_serve_their_task_and_no_other(task: str) -> None:
    """From noise of σ = 80 only the hint can determine the image."""
    assert set(catalogue.controls("faces")) == set(SERVED)
    prior = load_prior("faces", control=task)
    solver = CoSIGN(prior, CoSIGNConfig(sigmas=(80.0,), noise_std=0.1))
    for name, operator in SERVED.items():
        assert (solver.refusal(operator) is None) == (name == task)
    x = load_prior("faces")(80 * torch.randn((2, 3, 64, 64), generator=gen()), 80.0)  # two faces
    y = measure(SERVED[task], x, 0.05, generator=gen(1))
    found = solver(y, SERVED[task], generator=gen(2)).x
    own, swapped = norm(found - x), norm(found - x.flip(0))
    assert bool((own < 0.5 * swapped).all())


def test_the_example_is_a_prior() -> None:
    prior = ControlledModel.example()
    x = torch.zeros(1, 3, 16, 20)
    assert not torch.equal(prior(x, 0.5, hint=x + 1), prior(x, 0.5, hint=x))
    assert torch.equal(ControlledModel.example()(x, 0.5, hint=x), prior(x, 0.5, hint=x))
    assert (prior.sigma_min, prior.sigma_max, prior.value_range) == (0.002, 80.0, (-1.0, 1.0))


def test_the_faces_file_would_be_small(tmp_path: Path) -> None:
    """The ControlNet of a shipped prior takes less than 8 MB in half precision."""
    prior = load_prior("faces")
    assert isinstance(prior, ConsistencyModel)
    model = ControlledModel(prior, ControlNet.beside(prior.network))  # type: ignore[arg-type]
    save_control(model, tmp_path / "control.safetensors", dtype=torch.float16)
    assert 4e6 < (tmp_path / "control.safetensors").stat().st_size < 8e6
