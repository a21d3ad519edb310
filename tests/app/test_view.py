"""What is shown of a result: verdicts, pictures of iterations, spread."""

import numpy as np
import pytest
import torch
from PIL import Image

from pnpcm.app.view import MAX_THUMBS, SHOWN_SIDE, THUMB_SIDE, Iterates, View, reduced, verdict
from pnpcm.core import Step
from pnpcm.recon.check import Check

GOOD = Check(
    residual=1.0,
    expected=1.0,
    ratio=1.0,
    clipped=0.0,
    prior_ratio=1.0,
    domain_ratio=0.5,
    unit="",
    verdict="the result explains the data up to the noise",
    fit="the image is like those the prior was trained on",
)


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "good"),
        ({"warnings": ("noise is left",)}, "care"),
        ({"domain_ratio": 1.5}, "care"),
        ({"ratio": 1.5}, "care"),
        ({"ratio": 3.0, "verdict": "the result does not explain the data: steps"}, "bad"),
    ],
)
def test_the_colour_follows_the_self_check(changes: dict[str, object], level: str) -> None:
    found = verdict(Check.from_dict(GOOD.to_dict() | changes))
    assert found.level == level
    assert found.sentences[0].startswith("Data: the result")
    if "warnings" in changes:
        assert found.sentences[-1] == "Noise is left."


def step(k: int, x: torch.Tensor) -> Step:
    return Step(k=k, sigma=1 / k, x=x)


@pytest.mark.parametrize("steps", [1, 12, 13, 1000])
def test_a_run_of_any_length_keeps_few_pictures_and_the_last(steps: int) -> None:
    iterates = Iterates()
    for k in range(1, steps + 1):
        iterates(step(k, torch.full((1, 3, 4, 6), 2 * k / steps - 1)))
        assert len(iterates._kept) <= MAX_THUMBS
    found = iterates.pictures(None, None)
    assert len(found) == min(steps, MAX_THUMBS) or MAX_THUMBS / 2 <= len(found) <= MAX_THUMBS
    assert found[-1][1] == f"{steps}: σ {1 / steps:.2g}"
    assert found[-1][0].getpixel((0, 0)) == (255, 255, 255)
    numbers = [int(caption.split(":")[0]) for _, caption in found]
    assert numbers == sorted(set(numbers))


def test_pictures_of_the_second_sample_are_not_mixed_in() -> None:
    iterates = Iterates()
    for value in (-1.0, 1.0):
        for k in (1, 2):
            iterates(step(k, torch.full((1, 1, 4, 4), value)))
    found = iterates.pictures(None, None)
    assert [picture.getpixel((0, 0)) for picture, _ in found] == [0, 0]


def test_pictures_are_cut_to_the_requested_part() -> None:
    x = torch.full((1, 1, 400, 600), -1.0)
    x[..., 100:300, 200:500] = 1
    iterates = Iterates()
    iterates(step(1, x))
    ((picture, _),) = iterates.pictures((100, 200, 200, 300), None)
    assert max(picture.size) <= THUMB_SIDE
    assert picture.size == (96, 64)  # 192/600 of 300×200
    assert np.asarray(picture).min() > 100  # nothing of the black border but a mixed edge
    assert np.asarray(picture)[2:-2, 2:-2].min() == 255


def test_iterates_that_are_no_pictures_are_left_out() -> None:
    iterates = Iterates()
    iterates(step(1, torch.zeros(1, 2, 8, 8)))
    assert iterates.pictures(None, None) == []


def test_large_pictures_are_reduced_and_small_ones_are_not() -> None:
    wide = Image.new("RGB", (4 * SHOWN_SIDE, 10))
    wide.info["icc_profile"] = b"profile"
    small = reduced(wide, SHOWN_SIDE)
    assert small.size == (SHOWN_SIDE, 2)  # 2.5 rounds to even
    assert small.info["icc_profile"] == b"profile"
    assert reduced(small, SHOWN_SIDE) is small


@pytest.mark.parametrize(
    ("nfe", "words"), [(0, "0 network evaluations"), (1, "1 network evaluation")]
)
def test_the_cost_of_a_result_is_one_line(nfe: int, words: str) -> None:
    picture = Image.new("RGB", (4, 4))
    view = View(
        method="pnp-cm",
        before=picture,
        after=picture,
        spread=None,
        verdict=verdict(GOOD),
        iterates=[],
        seconds={"plan": 0.25, "solve": 1.0},
        report="",
        record={"nfe": nfe},
        files=(),
        command="",
        code="",
    )
    assert view.cost == f"pnp-cm, {words}, 1.2 s"
