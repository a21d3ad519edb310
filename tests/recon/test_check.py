"""Self-check: every sentence is triggered by a constructed case, not by its right counterpart."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pnpcm
from pnpcm.io.files import read_image
from pnpcm.mri import birdcage_maps
from pnpcm.operators import JPEG, Inpainting, MultiCoilMRI, SuperResolution
from pnpcm.operators.traits import Misfit
from pnpcm.problems import Deblur, Denoise, Inpaint, Jpeg, SuperRes, Task
from pnpcm.problems.measurement import simulate
from pnpcm.recon import Restoration, restore
from pnpcm.recon.check import Check, check

DATA = Path(pnpcm.__file__).parent / "data"


def photo(side: int = 96) -> Tensor:
    x = read_image(DATA / "Wine_by_Jakkub_Mede.png")
    return x[..., 60 : 60 + side, 60 : 60 + side].contiguous()


def noise(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def judge(error: Tensor | None, x: Tensor | None = None, **more: Any) -> Check:
    """The check of an image with this y − A(x), without a prior."""
    misfit = Misfit(1.0, 1.0, "noise_std √m", error=error)
    return check(photo() if x is None else x, [misfit], None, **more)


def restored(truth: Task, sigma_y: float, declared: Task, told: float, **more: Any) -> Restoration:
    measured = simulate(photo(), truth, sigma_y, seed=0)
    task = measured.task if isinstance(declared, Inpaint) else declared
    return restore(measured.y, task, sigma_y=told, **more)


# structure of the residual -----------------------------------------------------------------------
@pytest.mark.parametrize(("down", "right"), [(0, 1), (1, 0), (1, 1)])
def test_the_correlation_is_that_of_neighbours(down: int, right: int) -> None:
    """n[i] + n[i − lag]: a correlation of ½ at the lag, 0 at the others."""
    white = noise((1, 3, 65, 65)).numpy()
    error = white[..., 1:, 1:] + white[..., 1 - down : 65 - down, 1 - right : 65 - right]
    found = judge(torch.from_numpy(error))
    flat = error[..., : 64 - down, : 64 - right].ravel(), error[..., down:, right:].ravel()
    mean_free = np.corrcoef(*flat)[0, 1]
    assert found.correlation == pytest.approx(mean_free, abs=0.01)
    assert found.correlation == pytest.approx(0.5, abs=0.05)
    (sentence,) = found.warnings
    assert "y − A(x) are correlated (0." in sentence
    assert not found.ok


def test_white_noise_is_not_correlated_in_any_number_of_pixels() -> None:
    for side in (8, 16, 32, 64):
        for seed in range(10):
            found = judge(noise((1, 1, side, side), seed))
            assert found.warnings == ()
            assert found.correlation is not None


def test_pixels_that_were_not_measured_do_not_count() -> None:
    """Equal neighbours have correlation 1, however few of them are known."""
    error = noise((1, 1, 32, 1)).expand(1, 1, 32, 32)
    known = (torch.rand((1, 1, 32, 32), generator=torch.Generator().manual_seed(1)) < 0.3).float()
    assert judge(error * known).correlation == pytest.approx(1.0)
    assert judge(torch.zeros(1, 1, 32, 32)).correlation is None
    assert judge(None).correlation is None


def test_a_wrong_kernel_leaves_structure() -> None:
    task, other = Deblur(motion=(15, 30)), Deblur(motion=(15, 120))
    right = restored(task, 0.02, task, 0.02, steps=4).check
    wrong = restored(task, 0.02, other, 0.02, steps=4).check
    assert not any("correlated" in w for w in right.warnings), right
    assert any("correlated" in w for w in wrong.warnings), wrong
    assert right.ok
    assert not wrong.ok


# noise -------------------------------------------------------------------------------------------
def test_noise_that_is_left_in_the_result_is_named() -> None:
    clean, noisy = photo(), photo() + 2 * 0.06 * noise((1, 3, 96, 96))
    assert judge(None, clean, sigma_y=0.06).ok
    found = judge(None, noisy, sigma_y=0.06)
    assert found.noise_left == pytest.approx(0.06, rel=0.15)
    (sentence,) = found.warnings
    assert "noise of about 0.06 is left in the result: sigma_y is too low" in sentence.replace(
        f"{found.noise_left:.2g}", "0.06"
    )


def test_too_low_a_noise_level_leaves_noise_in() -> None:
    right, wrong = (restored(Denoise(), 0.1, Denoise(), told).check for told in (0.1, 0.02))
    assert right.ok, right
    assert any("is left in the result" in w for w in wrong.warnings)
    assert wrong.fit == "not judged, since noise is left in the result"
    assert not wrong.ok


def test_too_high_a_noise_level_is_compared_with_the_noise_of_y() -> None:
    right, wrong = (restored(Denoise(), 0.05, Denoise(), told).check for told in (0.05, 0.15))
    assert right.noise_y == pytest.approx(0.05, rel=0.15)
    assert right.ok, right
    assert any("sigma_y is 0.15: detail is removed as noise" in w for w in wrong.warnings)
    assert not wrong.ok


def test_eight_steps_leave_no_noise_in() -> None:
    """σ = 50/255, beyond the presets of eight steps: not below four steps, and no noise."""
    x, found = photo(), {}
    for steps in (4, 8):
        done = restored(Denoise(), 50 / 255, Denoise(), 50 / 255, steps=steps, method="pnp-cm")
        assert not any("left in the result" in w for w in done.check.warnings)
        found[steps] = -10 * math.log10(float((done.x - x).square().mean()) / 4)
    assert found[8] > found[4] - 0.3


# words for data without noise --------------------------------------------------------------------
NOISELESS: dict[str, tuple[Task, str]] = {
    "superres": (SuperRes(2), "the result explains the data up to"),
    "jpeg": (Jpeg(20), "the result explains the data up to"),
    "inpaint": (Inpaint(missing=0.3), "the result contains the data exactly"),
}


@pytest.mark.parametrize("name", NOISELESS)
def test_without_noise_nothing_is_said_about_it(name: str) -> None:
    task, verdict = NOISELESS[name]
    found = restored(task, 0.0, task, 0.0).check
    assert verdict in found.verdict
    assert "sigma_y" not in " ".join(found.lines())
    assert found.ok, found


def test_a_noise_level_that_is_not_confirmed_may_be_too_high() -> None:
    low = Misfit(0.3, 1.0, "noise_std √m")
    assert "sigma_y may be too high" in check(photo(), [low], None).verdict
    assert "sigma_y may" not in check(photo(), [low], None, sigma_y=0.1, noise_y=0.1).verdict
    rounding = Misfit(0.3, 1.0, "noise_std √m", noisy=False)
    assert check(photo(), [rounding], None).verdict == "the result explains the data up to rounding"


def test_a_method_without_a_prior_is_not_said_to_have_one() -> None:
    lines = judge(None).lines()
    assert "prior: not used by this method" in lines
    assert not any("file" in line for line in lines)


def test_what_a_residual_is_compared_with() -> None:
    """Without noise: rounding, 1/√12 of 2/255; up to 1 % of the range, 0.02, is no fault."""
    x = photo(32)
    rounding = 2 / 255 / math.sqrt(12)
    exact = SuperResolution((3, 32, 32), 2).misfit(x, torch.zeros(1, 3, 16, 16), 0.0)
    assert exact.expected == pytest.approx(rounding * math.sqrt(3 * 16 * 16))
    assert exact.tolerance == pytest.approx(0.02 / rounding)
    assert (exact.noisy, exact.error) == (False, None)
    mask = torch.ones(32, 32)
    mask[:, ::2] = 0
    noisy = Inpainting(mask).misfit(x, torch.zeros_like(x), 0.1)
    assert (noisy.noisy, noisy.tolerance) == (True, 1.3)
    assert torch.equal(noisy.error, -x * mask)  # type: ignore[arg-type]
    jpeg = JPEG(20).misfit(x, x, 0.0)
    assert (jpeg.noisy, jpeg.tolerance, jpeg.residual) == (False, 1.3, 0.0)


def test_a_scan_has_neither_structure_nor_noise_of_an_image() -> None:
    operator = MultiCoilMRI(birdcage_maps(2, (16, 16)), torch.ones(16))
    x = 0.1 * noise((1, 2, 16, 16))
    misfit = operator.misfit(x, operator.A(x) + 0.01, 0.01)
    found = check(x, [misfit], None, clamped=False)
    assert (misfit.tolerance, misfit.error) == (1.3, None)
    assert (found.correlation, found.noise_left, found.noise_y) == (None, None, None)
    assert found.warnings == ()


def test_the_record_of_a_check_is_read_back_also_an_older_one() -> None:
    found = judge(noise((1, 3, 32, 32)), sigma_y=0.05, noise_y=0.05)
    assert Check.from_dict(found.to_dict()) == found
    new = {"tolerance", "correlation", "noise_left", "noise_y"}
    old = {k: v for k, v in found.to_dict().items() if k not in new}
    assert Check.from_dict(old).ok
