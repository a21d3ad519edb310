"""Sampling masks: number and position of lines and points, and the generator."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.mri.masks import (
    MASKS,
    POINTS,
    calibration_lines,
    fastmri_lines,
    load_mask,
    poisson,
)

SIZE = (48, 64)


def drawn(name: str, acceleration: float, acs: int, seed: int = 0) -> torch.Tensor:
    size = SIZE if name in POINTS else SIZE[1]
    return MASKS[name](size, acceleration, acs, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("acceleration", [2, 4])
@pytest.mark.parametrize("name", MASKS)
def test_the_centre_is_measured_and_the_count_is_right(name: str, acceleration: int) -> None:
    acs = 8
    mask = drawn(name, acceleration, acs)
    assert mask.dtype == torch.bool
    total = math.prod(SIZE) if name in POINTS else SIZE[1]
    starts = [n // 2 - acs // 2 for n in (SIZE if name in POINTS else SIZE[1:])]
    assert bool(mask[tuple(slice(s, s + acs) for s in starts)].all())
    wanted = total // acceleration
    if name == "equidistant":
        assert int(mask.sum()) == wanted + acs - acs // acceleration
    elif name == "poisson":
        assert abs(int(mask.sum()) - wanted) <= 0.02 * wanted
    else:
        assert int(mask.sum()) == wanted


@pytest.mark.parametrize("name", [n for n in MASKS if n != "equidistant"])
def test_seeds_decide(name: str) -> None:
    assert torch.equal(drawn(name, 4, 4, 1), drawn(name, 4, 4, 1))
    assert not torch.equal(drawn(name, 4, 4, 1), drawn(name, 4, 4, 2))


@pytest.mark.parametrize("name", ["gaussian1d", "gaussian2d", "poisson"])
def test_the_middle_is_denser(name: str) -> None:
    mask = drawn(name, 4, 0).float()
    half = [slice(n // 4, 3 * n // 4) for n in mask.shape]
    inside = float(mask[tuple(half)].mean())
    assert inside > 1.2 * float(mask.mean())


def test_points_of_a_poisson_disc_keep_their_distance() -> None:
    g = torch.Generator().manual_seed(0)
    mask = poisson((40, 40), 8, 0, generator=g)
    points = mask.nonzero().double()
    gaps = torch.cdist(points, points).fill_diagonal_(math.inf).amin(1)
    radius = (points / 20 - 1).norm(dim=1)
    assert float(gaps[radius > 0.5].min()) >= 2  # a uniform draw of 200 has neighbours at 1
    assert float(gaps[radius > 0.9].mean()) > 1.5 * float(gaps[radius < 0.3].mean())


def test_a_budget_that_the_block_exceeds_is_refused() -> None:
    for name in ("gaussian1d", "uniform1d", "gaussian2d", "uniform2d", "poisson"):
        with pytest.raises(ArgumentError, match="acs"):
            drawn(name, 8, 30)
    with pytest.raises(ArgumentError, match="generator"):
        MASKS["uniform1d"](64, 4, 4)
    with pytest.raises(ArgumentError, match="acceleration"):
        drawn("equidistant", 2.5, 4)


def test_masks_from_files(tmp_path: Path) -> None:
    mask = drawn("gaussian1d", 4, 8)
    np.save(tmp_path / "m.npy", mask.numpy().astype(np.float32))
    assert torch.equal(load_mask(tmp_path / "m.npy", SIZE), mask)
    with pytest.raises(ShapeError, match="the k-space needs"):
        load_mask(tmp_path / "m.npy", (48, 60))
    (tmp_path / "t.npy").write_text("no")
    with pytest.raises(ArgumentError, match=r"cannot be read as a \.npy file"):
        load_mask(tmp_path / "t.npy", SIZE)


@pytest.mark.parametrize(
    ("size", "acceleration", "lines"),
    [
        (320, 4, 24),  # the paper's
        (320, 8, 12),
        (320, 2, 24),
        (180, 8, 11),  # 22 lines in all, half of them
        (128, 4, 12),
        (128, 8, 8),
        (64, 4, 8),
        (32, 4, 6),
        (16, 4, 4),  # all there are
        ((128, 128), 8, 12),
        ((24, 24), 8, 6),
    ],
)
def test_calibration_lines_where_nobody_says(
    size: int | tuple[int, int], acceleration: float, lines: int
) -> None:
    assert calibration_lines(size, acceleration) == lines
    name = "gaussian1d" if isinstance(size, int) else "uniform2d"
    mask = MASKS[name](size, acceleration, lines, generator=torch.Generator().manual_seed(0))
    assert int(mask.sum()) <= mask.numel() / acceleration


def test_fastmri_spelling() -> None:
    assert fastmri_lines(368, 0.08) == 29
    with pytest.raises(ArgumentError, match="center_fraction"):
        fastmri_lines(368, 8)
