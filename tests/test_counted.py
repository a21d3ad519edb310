"""CountedPrior: clamped levels are reported once, in the units of the problem."""

from dataclasses import replace

import pytest
import torch

from pnpcm.counted import CountedPrior
from pnpcm.operators import SuperResolution
from pnpcm.priors import DenoiserPrior, GaussianPrior
from pnpcm.solvers import PnPCM, PnPCMConfig

CONFIG = PnPCMConfig(sigmas=(0.5, 0.3, 0.1), deltas=(0.0,) * 3, rhos=(1.0,) * 3, noise_scale=0.0)


def narrow() -> DenoiserPrior:
    """Trained for 0.001 … 0.1 on [0, 1], which is 0.002 … 0.2 on [-1, 1]."""
    return DenoiserPrior(lambda x, sigma: x, sigma_min=0.001, sigma_max=0.1)


def test_levels_inside_the_range_and_at_its_ends_need_no_note() -> None:
    prior = CountedPrior(narrow())
    for level in (0.002, 0.05, 0.2, 0.2 * (1 + 1e-7)):
        prior(torch.zeros(1, 3, 4, 4), level)
    assert prior.note is None


def test_the_note_names_the_extreme_levels_and_the_range() -> None:
    prior = CountedPrior(narrow())
    x = torch.zeros(2, 3, 4, 4)
    prior(x, 0.3)
    assert prior.note is not None
    assert prior.note.startswith("noise level 0.3 lies outside")
    prior(x, torch.tensor([0.1, 0.5]))
    assert prior.note == (
        "noise levels 0.3 … 0.5 lie outside the range that the prior was trained for, "
        "0.002 … 0.2 (images in [-1, 1]); clamped to that range"
    )


def test_a_level_below_the_range_is_noted() -> None:
    prior = CountedPrior(GaussianPrior(0.0, 0.5, sigma_min=0.01, sigma_max=1.0))
    prior(torch.zeros(1, 1, 4, 4), 0.001)
    assert prior.note is not None
    assert "noise level 0.001 lies outside" in prior.note


@pytest.mark.parametrize("sigmas", [(0.5, 0.3, 0.1), (0.2, 0.1, 0.05)])
def test_results_of_solvers_hold_the_note(sigmas: tuple[float, ...]) -> None:
    operator = SuperResolution((3, 8, 8), 2)
    result = PnPCM(narrow(), replace(CONFIG, sigmas=sigmas))(torch.zeros(1, 3, 4, 4), operator)
    assert len(result.notes) == (sigmas[0] > 0.2)
    assert all("0.3 … 0.5" in note for note in result.notes)
