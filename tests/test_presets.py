"""PRESETS: the scores of their rows, and the statements of docs/usage.md about them."""

from dataclasses import replace
from pathlib import Path

import pytest

from pnpcm import PRESETS
from pnpcm.presets import Preset

PUBLISHED = {
    "celeba-hq/superres-4": (27.27, 0.285),
    "celeba-hq/inpaint-70": (29.23, 0.201),
    "celeba-hq/deblur-gauss-reference": (28.94, 0.249),
    "celeba-hq/jpeg-5-reference": (26.14, 0.356),
    "celeba-hq/nonlinear-deblur-reference": (24.55, 0.304),
    "celeba-hq/phase-retrieval-reference": (22.18, 0.422),
}
"""Main tables of the paper, CelebA-HQ: PSNR and LPIPS (VGG)."""
STEPS = {"jpeg-5": (5e-4, 100, 0.8), "nonlinear-deblur": (0.05, 100, 0.8)}
STEPS |= {"phase-retrieval": (0.4, 1000, 0.95)}
"""Step size, steps and decay of the inner optimiser in the authors' task files."""


def faces() -> dict[str, Preset]:
    return {name: row for name, row in PRESETS.items() if row.prior == "celeba-hq"}


def test_a_published_score_stands_where_its_operator_and_optimiser_are() -> None:
    scores = {n: tuple(row.expected.values()) for n, row in faces().items() if row.expected}
    assert scores == PUBLISHED


def test_a_reference_row_has_the_numbers_of_its_task() -> None:
    rows = {n: row for n, row in faces().items() if n.endswith("-reference")}
    assert len(rows) == 4
    for name, row in rows.items():
        own = PRESETS[name.removesuffix("-reference")]
        assert replace(row.solver, data_step=own.solver.data_step) == own.solver
        assert dict(row.options) != dict(own.options)
        assert (row.operator, row.sigma_y) == (own.operator, own.sigma_y)


def test_reference_rows_run_the_inner_optimiser_of_the_task_files() -> None:
    for task, numbers in STEPS.items():
        step = PRESETS[f"celeba-hq/{task}-reference"].solver.data_step
        assert (step.lr, step.n_iter, step.lr_decay) == numbers  # type: ignore[attr-defined]
        assert step.reference  # type: ignore[attr-defined]


def test_every_row_round_trips_through_json_values() -> None:
    for row in PRESETS.values():
        assert Preset.from_dict(row.to_dict()) == row


@pytest.mark.parametrize("page", ["README.md", "docs/usage.md"])
def test_pages_say_how_many_presets_inject_no_noise(page: str) -> None:
    shipped = [r.solver for r in PRESETS.values() if r.prior in ("natural", "faces", "mri")]
    quiet = sum(config.noise_scale < 0.1 for config in shipped)
    text = " ".join((Path(__file__).parents[1] / page).read_text(encoding="utf-8").split())
    assert f"below 0.1 in {quiet} of {len(shipped)}" in text
