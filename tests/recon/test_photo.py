"""restore: better than the measurement, independent of the rest of the batch, with a report."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d

import pnpcm
from pnpcm.core import Operator
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr
from pnpcm.operators import FunctionOperator, GaussianBlur, Inpainting, SuperResolution, measure
from pnpcm.priors import DenoiserPrior, DiffusionModel
from pnpcm.problems import (
    Deblur,
    Denoise,
    Inpaint,
    Jpeg,
    NonlinearDeblur,
    PhaseRetrievalTask,
    SuperRes,
    Task,
    samples_image,
)
from pnpcm.problems.measurement import simulate
from pnpcm.problems.task import conditioning
from pnpcm.recon import Options, Restoration, restore
from pnpcm.recon.photo import restore_with
from pnpcm.recon.plan import Priors

DATA = Path(pnpcm.__file__).parent / "data"


def photo(side: int = 96) -> Tensor:
    x = read_image(DATA / "Wine_by_Jakkub_Mede.png")
    return x[..., 60 : 60 + side, 60 : 60 + side].contiguous()


TASKS: dict[str, tuple[Task, float]] = {
    "denoise": (Denoise(), 0.08),
    "inpaint": (Inpaint(missing=0.6), 0.05),
    "superres": (SuperRes(factor=3), 0.03),
    "deblur": (Deblur(gaussian=(7, 2.0)), 0.02),
    "jpeg": (Jpeg(quality=8), 0.0),
    "nonlinear-deblur": (NonlinearDeblur(), 0.03),
}


@pytest.mark.parametrize("name", TASKS)
def test_beats_what_one_had(name: str) -> None:
    task, sigma_y = TASKS[name]
    x = photo()
    measured = simulate(x, task, sigma_y, seed=1)
    done = restore(measured.y, measured.task, sigma_y=None if name == "denoise" else sigma_y)
    before = measured.task.baseline(measured.task.problem(measured.y))
    assert float(psnr(done.x, x)) > float(psnr(before, x))
    nfe = {"denoise": 1, "nonlinear-deblur": 4}.get(name, 8)
    assert done.result.nfe == done.config.nfe == nfe
    assert re.search("rule|preset|one call|tuned row", done.plan.parameters_from)
    assert done.check.ratio > 0
    assert name == "jpeg" or done.plan.sigma_y == pytest.approx(sigma_y, rel=0.25)


def test_fidelity_uses_the_denoiser_and_perception_the_consistency_model() -> None:
    measured = simulate(photo(64), SuperRes(4), 0.05, seed=0)
    kinds = {
        aim: restore(measured.y, measured.task, sigma_y=0.05, aim=aim).plan.to_dict()["prior_kind"]
        for aim in ("fidelity", "perception")
    }
    assert kinds == {"fidelity": "edm", "perception": "consistency"}
    named = restore(measured.y, measured.task, sigma_y=0.05, preset="natural/superres-4")
    assert named.plan.to_dict()["prior_kind"] == "consistency"
    assert named.result.nfe == 4


def test_an_aim_between_the_two_blends_their_priors() -> None:
    """(1 − a) D + a f, exactly so in denoising, at the cost of both."""
    x = photo(48)
    y = x + 0.2 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    ends = [restore(y, Denoise(), sigma_y=0.1, aim=aim).x for aim in ("fidelity", "perception")]
    between = restore(y, Denoise(), sigma_y=0.1, aim=0.25)
    apart = (between.x - torch.lerp(*ends, 0.25)).abs()  # equal but where ends are clamped
    assert float(apart.median()) < 1e-5
    assert float(apart.mean()) < 1e-4
    assert between.result.nfe == 2
    assert "denoiser and consistency model" in between.report()
    small = SuperRes(2).operator((3, 48, 48)).A(x)
    loop = [restore(small, SuperRes(2), sigma_y=0.01, aim=aim) for aim in (0.0, 0.5, 1.0)]
    assert [one.result.nfe for one in loop] == [8, 16, 8]
    near, far = (float((one.x - loop[1].x).square().mean()) for one in (loop[0], loop[2]))
    assert max(near, far) < float((loop[0].x - loop[2].x).square().mean())


@pytest.mark.parametrize("sigma_y", [0.05, 0.2])
def test_denoising_for_perception_is_one_call_of_the_consistency_model(sigma_y: float) -> None:
    x = photo(64)
    y = x + 2 * sigma_y * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    done = restore(y, Denoise(), sigma_y=sigma_y, aim="perception")
    with torch.no_grad():
        expected = pnpcm.load_prior("natural", kind="consistency")(y, 2 * sigma_y).clamp(-1, 1)
    assert done.result.nfe == 1
    assert torch.allclose(done.x, expected, atol=1e-4)
    several = restore(y, Denoise(), sigma_y=sigma_y, aim="perception", steps=2)
    assert several.result.nfe == 2


def test_inpainting_with_noise_is_not_behind_pnp_admm_with_the_same_evaluations() -> None:
    measured = simulate(photo(64), Inpaint(missing=0.3), 0.01, seed=0)
    default, other = (
        restore(measured.y, measured.task, sigma_y=0.01, **choice)
        for choice in ({}, {"method": "pnp-admm", "steps": 8})
    )
    assert (default.plan.method, default.result.nfe, other.result.nfe) == ("pnp-cm", 8, 8)
    assert psnr(default.x, photo(64)) > psnr(other.x, photo(64))


@pytest.mark.parametrize("name", ["scratches", "half"])
def test_inpainting_without_noise_is_ahead_of_the_biharmonic_fill(name: str) -> None:
    biharmonic = pytest.importorskip("skimage.restoration").inpaint_biharmonic
    x, hole = photo(64), torch.zeros(64, 64, dtype=torch.bool)
    if name == "scratches":
        for k in range(0, 60, 12):  # three pixels wide, of several slopes
            for i in range(64):
                hole[i, (torch.arange(3) + k + i * k // 64) % 64] = True
    else:
        hole = torch.rand((64, 64), generator=torch.Generator().manual_seed(0)) < 0.5
    done = restore(x, Inpaint(mask=~hole))
    assert (done.plan.method, done.plan.sigma_y, done.result.nfe) == ("pnp-cm", 0, 8)
    assert done.plan.to_dict()["prior_kind"] == "edm"
    assert torch.equal(done.x[..., ~hole], x[..., ~hole])
    y = torch.where(hole, 0, x)[0].movedim(0, -1).double().numpy()
    filled = torch.from_numpy(biharmonic(y, hole.numpy(), channel_axis=-1)).movedim(-1, 0)[None]
    assert float(psnr(done.x, x)) > float(psnr(filled.float(), x)) + 0.5


def test_every_sample_keeps_the_known_pixels() -> None:
    x = photo(32)
    kept = torch.rand((32, 32), generator=torch.Generator().manual_seed(0)) < 0.5
    done = restore(x, Inpainting(kept), samples=3)
    assert done.std is not None
    for each in (done.x, done.sample):
        assert torch.equal(each[..., kept], x[..., kept])
    assert float(done.std[..., kept].max()) == 0
    assert float(done.std[..., ~kept].mean()) > 1e-4


def test_a_bare_operator_and_its_task_give_the_same() -> None:
    x = photo(64)
    operator = SuperResolution((3, 64, 64), 4)
    y = measure(operator, x, 0.05, generator=torch.Generator().manual_seed(0))
    bare = restore(y, operator, sigma_y=0.05)
    assert bare.plan.parameters_from == "preset natural-edm/superres-4"
    assert torch.equal(bare.x, restore(y, SuperRes(4), sigma_y=0.05).x)


def test_one_seed_one_result_and_other_seeds_differ() -> None:
    y = measure(Inpainting(torch.ones(48, 48)), photo(48), 0.1, generator=torch.Generator())
    again = [restore(y, Denoise(), seed=s, settings={"noise_scale": 1.0}).x for s in (3, 3, 4)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


def test_tiles_change_nothing() -> None:
    """320 pixels are one window of at most 640 + 256, or two of at most 32 + 256."""
    x = photo(160)[..., :40, :]
    x = torch.cat([x, x.flip(-1)], -1)
    y = measure(Inpainting(torch.ones(40, 320)), x, 0.05, generator=torch.Generator())
    whole, tiled = (restore(y, Denoise(), sigma_y=0.05, tile=t) for t in (640, 32))
    assert float((whole.x - tiled.x).abs().max()) < 1e-5
    assert not any("tiles" in note for note in tiled.notes)
    coarse = restore(y, Denoise(), sigma_y=0.05, tile=32, halo=16)
    assert float((whole.x - coarse.x).abs().max()) > 1e-5
    assert "tiles of the prior are approximate: halo of 16 pixels" in coarse.notes


def test_a_batch_equals_its_images() -> None:
    x = torch.cat([photo(48), photo(48).flip(-1)])
    operator = GaussianBlur((3, 48, 48))
    y = measure(operator, x, 0.05, generator=torch.Generator().manual_seed(0))
    settings = {"noise_scale": 0.5}
    both = restore(y, operator, sigma_y=0.05, seed=5, settings=settings).x
    for i in range(2):
        one = restore(y[i], operator, sigma_y=0.05, seed=5 + i, settings=settings).x
        assert float((both[i : i + 1] - one).abs().max()) < 1e-5


def test_samples_have_mean_spread_and_one_of_them(tmp_path: Path) -> None:
    x = photo(48)
    measured = simulate(x, Inpaint(missing=0.8), 0.05, seed=0)
    done = restore(measured.y, measured.task, sigma_y=0.05, samples=5, seed=7)
    assert done.std is not None
    assert done.x.shape == done.std.shape == done.sample.shape == x.shape
    fewer = restore(measured.y, measured.task, sigma_y=0.05, samples=2, seed=7)
    assert (done.result.nfe, fewer.result.nfe) == (5 * done.config.nfe, 2 * done.config.nfe)
    assert f"{done.result.nfe} network evaluations\n" in done.report()
    assert float((fewer.sample - done.sample).abs().max()) < 1e-5  # the first is that of the seed
    assert float(done.std.mean()) > 1e-4
    written = done.save(tmp_path / "out.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in written)
    assert np.load(tmp_path / "out.std.npy").shape == (1, 3, 48, 48)


def test_grey_images_pass_a_colour_prior() -> None:
    x = photo(64).mean(1, keepdim=True)
    y = measure(Inpainting(torch.ones(64, 64)), x, 0.08, generator=torch.Generator())
    done = restore(y, Denoise(), sigma_y=0.08)
    assert done.x.shape == x.shape
    assert float(psnr(done.x, x)) > float(psnr(y, x)) + 1
    assert any("grey" in note for note in done.notes)


class Bayer:
    """One colour per pixel; only A and its adjoint."""

    def __init__(self, side: int) -> None:
        pattern = torch.zeros(3, 2, 2)
        pattern[0, 0, 0] = pattern[1, 0, 1] = pattern[1, 1, 0] = pattern[2, 1, 1] = 1
        self.pattern = pattern.repeat(1, side // 2, side // 2)

    def A(self, x: Tensor) -> Tensor:
        return (self.pattern * x).sum(1, keepdim=True)

    def A_adjoint(self, y: Tensor) -> Tensor:
        return self.pattern * y


class EverySecondRow:
    def A(self, x: Tensor) -> Tensor:
        return x[..., ::2, :]

    def A_adjoint(self, y: Tensor) -> Tensor:
        return torch.stack([y, 0 * y], dim=-2).flatten(-3, -2)


def bilinear_bayer(y: Tensor) -> Tensor:
    """Means of the measured neighbours of each colour."""
    weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).expand(3, 1, 3, 3)
    pattern = Bayer(y.shape[-1]).pattern[None]
    total, count = (conv2d(v, weights, padding=1, groups=3) for v in (pattern * y, pattern))
    return total / count


def bilinear_rows(y: Tensor) -> Tensor:
    below = torch.cat([y[..., 1:, :], y[..., -1:, :]], dim=-2)
    return torch.stack([y, (y + below) / 2], dim=-2).flatten(-3, -2)


@pytest.mark.parametrize(
    ("operator", "interpolate", "ahead"),
    [(Bayer(96), bilinear_bayer, 3.0), (EverySecondRow(), bilinear_rows, 1.0)],
)
@pytest.mark.parametrize("sigma_y", [0.01, 0.05])
def test_operators_of_users_that_sample_are_ahead_of_interpolation(
    operator: Operator, interpolate: Callable[[Tensor], Tensor], ahead: float, sigma_y: float
) -> None:
    x = photo(96)
    y = measure(operator, x, sigma_y, generator=torch.Generator().manual_seed(0))
    done = restore(y, operator, sigma_y=sigma_y)
    assert float(psnr(done.x, x)) > float(psnr(interpolate(y).clamp(-1, 1), x)) + ahead
    assert done.plan.parameters_from == "levels for an operator without presets"
    assert done.report().startswith(f"{type(operator).__name__}, ")


def test_an_operator_of_a_user_that_blurs() -> None:
    x = photo(48)
    operator = FunctionOperator(lambda v: (v + v.roll(1, -1)) / 2, (3, 48, 48), linear=True)
    y = measure(operator, x, 0.05, generator=torch.Generator())
    done = restore(y, operator, sigma_y=0.05)
    assert float(psnr(done.x, x)) > float(psnr(y, x)) + 3


def test_a_linear_flag_without_an_adjoint_is_a_nonlinear_problem() -> None:
    class Half:
        linear = True

        def A(self, x: Tensor) -> Tensor:
            return x / 2

    assert conditioning(Half(), photo(16)) == (1.0, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "samples"),
    [
        (Bayer(48), True),
        (EverySecondRow(), True),
        (FunctionOperator(lambda v: 3 * avg_pool2d(v, 4), (3, 48, 48), linear=True), True),
        (FunctionOperator(lambda v: (v + v.roll(1, -1)) / 2, (3, 48, 48), linear=True), False),
        (GaussianBlur((3, 48, 48), size=5, sigma=2.0), False),
    ],
)
def test_sampling_and_blurring_are_told_apart(operator: Operator, samples: bool) -> None:
    y = operator.A(photo(48))
    gain, _ = conditioning(operator, y)
    assert samples_image(operator, y, gain) is samples


def test_signs_of_phase_retrieval() -> None:
    x = photo(48)
    measured = simulate(x, PhaseRetrievalTask(), 0.01, seed=0)
    with pytest.raises(ArgumentError, match="sigma_y cannot be estimated"):
        restore(measured.y, measured.task)
    told = restore(measured.y, measured.task, sigma_y=0.01, reference=x, steps=2)
    guessed = restore(measured.y, measured.task, sigma_y=0.01, steps=2)
    assert any("reference" in n for n in told.notes)
    assert any("may be wrong" in n for n in guessed.notes)
    flips = (told.x * guessed.x).flatten(2).sum(-1).sign()
    assert torch.allclose(told.x, guessed.x * flips[..., None, None], atol=1e-5)


def test_the_check_tells_a_wrong_noise_level_and_a_wrong_operator() -> None:
    x = photo(96)
    operator = GaussianBlur((3, 96, 96), 9, 2.0)
    y = measure(operator, x, 0.03, generator=torch.Generator())
    right = restore(y, operator, sigma_y=0.03)
    assert 0.7 < right.check.ratio < 1.3
    assert "up to the noise" in right.check.verdict
    mirrored = y.flip(-1)
    y_wrong = torch.where(torch.rand(y.shape, generator=torch.Generator()) < 0.2, mirrored, y)
    wrong = restore(y_wrong, operator, sigma_y=0.03)
    assert wrong.check.ratio > 1.3
    assert right.check.prior_ratio is not None
    noise = torch.rand((1, 3, 96, 96), generator=torch.Generator().manual_seed(1)) * 2 - 1
    strange = restore(noise, Denoise(), sigma_y=0.01)
    assert strange.check.prior_ratio is not None
    assert strange.check.prior_ratio > right.check.prior_ratio


def test_the_user_wins() -> None:
    y = photo(48)
    done = restore(y, Denoise(), sigma_y=0.05, steps=3, settings={"mu": 0.11, "rho_start": 0.2})
    assert done.config.n_steps == 3
    assert (done.config.mu, done.config.rhos[0]) == (0.11, pytest.approx(0.2))
    named = restore(photo(64)[..., :16, :16], SuperRes(4), preset="celeba-hq/superres-4")
    assert named.plan.parameters_from == "preset celeba-hq/superres-4"
    with pytest.raises(UnknownNameError, match="did you mean"):
        restore(y, Denoise(), preset="natural/superres-5")


def test_the_record_is_plain_and_the_report_readable() -> None:
    done = restore(photo(48), Denoise(), sigma_y=0.05)
    assert isinstance(done, Restoration)
    record = json.loads(json.dumps(done.to_dict()))
    assert (record["method"], record["prior_kind"], record["nfe"]) == ("dpir", "edm", 1)
    assert record["solver"]["type"] == "DPIRConfig"
    assert record["operator"] == "Denoising()"
    assert {"prior", "plan", "solve", "check"} <= record["seconds"].keys()
    assert record["seconds"]["prior"] > 0
    assert "1 network evaluation\n" in done.report()


@pytest.mark.parametrize(("preset", "foreign"), [("mri/r4", True), ("natural/superres-4", False)])
def test_a_preset_of_another_operator_is_noted(preset: str, foreign: bool) -> None:
    y = torch.zeros(1, 3, 8, 8)
    notes = restore(y, SuperRes(4), preset=preset, sigma_y=0.05).notes
    assert (f"preset {preset} is for mri, not for superresolution" in notes) == foreign
    assert any("is for" in note for note in notes) == foreign


def test_notes_say_what_one_level_of_noise_does_not() -> None:
    x = torch.linspace(-0.8, 0.8, 96).expand(1, 3, 80, 96)
    generator = torch.Generator().manual_seed(0)
    n = torch.randn((1, 3, 81, 97), generator=generator)
    white = n[..., 1:, 1:]
    means = torch.nn.functional.avg_pool2d(n, 2, stride=1) * 2
    measured = {
        "": x + 0.1 * white,
        "depends on brightness": x + 0.1 * (1 + x) * white,
        "is not white": x + 0.1 * means,
    }
    for words, y in measured.items():
        notes = [n for n in restore(y, Denoise()).notes if n.startswith("the noise")]
        assert len(notes) == bool(words)
        assert all(words in note for note in notes)
        assert not any("the noise" in n for n in restore(y, Denoise(), sigma_y=0.05).notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma_y": -1.0}, "sigma_y must be"),
        ({"sigma_y": "low"}, "sigma_y must be a number or 'auto'"),
        ({"sigma_y": 25.0}, r"\[0, 1\] scale; 25 of 255 is 0.098: write 0.098 or .*25/255"),
        ({"steps": 0}, "steps must be"),
        ({"samples": 0}, "samples must be"),
        ({"prior": "naturall"}, "did you mean 'natural'"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str) -> None:
    with pytest.raises((ArgumentError, UnknownNameError), match=message):
        restore(photo(32), Denoise(), **({"sigma_y": 0.05} | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [1, 3])
def test_levels_that_the_denoiser_was_not_trained_for_are_noted_once(
    samples: int, tmp_path: Path
) -> None:
    """A denoiser for 0.002 … 0.2 (on [-1, 1]), run at 0.5, √0.05 = 0.224 and 0.1."""
    prior = DenoiserPrior(lambda x, sigma: x, sigma_min=0.001, sigma_max=0.1)
    done = restore(
        torch.zeros(1, 3, 8, 8),
        SuperRes(2),
        prior,
        method="pnp-admm",
        sigma_y=0.05,
        samples=samples,
        settings={"sigma_start": 0.5, "sigma_end": 0.1},
        steps=3,
    )
    noted = [note for note in done.notes if "outside the range" in note]
    assert len(noted) == 1
    assert "0.224 … 0.5" in noted[0]
    assert "0.002 … 0.2" in noted[0]
    assert f"note: {noted[0]}" in done.report()
    done.save(tmp_path / "x.png")
    assert noted[0] in json.loads((tmp_path / "x.result.json").read_text())["notes"]


class Counted(torch.nn.Module):
    """A network of stride 8 that returns zeros and counts its calls."""

    stride, calls = 8, 0

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        self.calls += 1
        return torch.zeros_like(x)


@pytest.mark.parametrize(
    ("tile", "samples", "runs", "calls"),
    [
        (96, 1, 1, 3),
        (96, 2, 1, 3),  # both samples in one batch
        (16, 1, 1, 3 * 15),  # 5 · 3 tiles without overlap
        (16, 2, 2, 3 * 15 * 2),
    ],
)
def test_progress_counts_steps_and_tiles(tile: int, samples: int, runs: int, calls: int) -> None:
    """Three steps on 80×48 pixels."""
    network = Counted()
    options = Options(sigma_y=0.05, steps=3, samples=samples, tile=tile, halo=0)
    told: list[tuple[float, int]] = []
    priors = Priors(DiffusionModel(network))
    y = torch.zeros(1, 3, 80, 48)
    restore_with(
        y, Denoise(), options, priors, watch=lambda done, total: told.append((done, total))
    )
    assert [total for _, total in told] == [3 * runs] * (calls + 1)
    assert [done for done, _ in told] == pytest.approx(np.linspace(0, 3 * runs, calls + 1))
    before = network.calls
    network(y, torch.zeros(1))
    assert (network.calls, len(told)) == (before + 1, calls + 1)  # the hook is gone


def test_progress_of_a_method_without_a_network_counts_its_iterations() -> None:
    told: list[float] = []
    seen: list[int] = []
    options = Options(sigma_y=0.05, method="tv", settings={"n_iter": 4})
    restore_with(
        photo(16),
        Denoise(),
        options,
        Priors("natural"),
        callback=lambda step: seen.append(step.k),
        watch=lambda done, total: told.append(done / total),
    )
    assert told == [0, 0.25, 0.5, 0.75, 1]
    assert seen == [1, 2, 3, 4]
