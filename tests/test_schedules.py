"""Schedules against the tables of docs/method.md §3 and §11."""

import math

import pytest

from pnpcm import PRESETS
from pnpcm.errors import ArgumentError
from pnpcm.schedules import (
    alpha_bar,
    ddpm_decay,
    decay_from,
    inverse_softplus,
    karras,
    softplus,
    softplus_ramp,
)

MRI_T = "0.17644 0.01000 0.01000 0.01000"
PR_T = "0.69371 0.68240 0.67055 0.65813 0.64508 0.63136 0.61690 0.60165"

# preset: t, s, rho, mu in execution order
SEQUENCES = {
    "celeba-hq/superres-4": (
        "0.46536 0.24468 0.01000 0.01000",
        "0.60496 0.25691 0.01200 0.01200",
        "0.01815 0.23396 1.56730 4.01815",
        "0.20000 0.10000 0.06667 0.05000",
    ),
    "celeba-hq/deblur-gauss": (
        "0.32672 0.13200 0.01000 0.01000",
        "0.42474 0.15840 0.01100 0.01100",
        "0.01815 0.47408 3.04859 6.50150",
        "0.10000 0.05000 0.03333 0.02500",
    ),
    "celeba-hq/inpaint-70": (
        "0.32672 0.13200 0.01000 0.01000",
        "0.42474 0.15840 0.01800 0.01800",
        "0.00248 0.69315 6.00248 12.00001",
        "0.05000 0.02500 0.01667 0.01250",
    ),
    "celeba-hq/jpeg-5": (
        "0.69371 0.57062 0.35113 0.01000",
        "0.76308 0.62768 0.42135 0.05000",
        "0.07889 0.36088 1.19422 2.57889",
        "0.05000 0.02500 0.01667 0.01250",
    ),
    "celeba-hq/nonlinear-deblur": (
        "0.69371 0.63515 0.56030 0.45937",
        "0.72840 0.66691 0.58831 0.50531",
        "0.12693 0.23396 0.41437 0.69315",
        "0.05000 0.02500 0.01667 0.01250",
    ),
    "celeba-hq/phase-retrieval-paper": (
        PR_T,
        "0.76308 0.75064 0.73761 0.78975 0.77409 0.75763 0.74028 0.72198",
        "0.12693 0.16559 0.21483 0.27680 0.35373 0.44771 0.56046 0.69315",
        "0.05000 0.02500 0.01667 0.01250 0.01000 0.00833 0.00714 0.00625",
    ),
    "celeba-hq/phase-retrieval": (
        PR_T,
        "1.04057 0.75064 0.73761 0.72394 0.70959 0.69449 0.74028 0.72198",
        "0.00672 0.01273 0.02408 0.04531 0.08449 0.15502 0.27680 0.47408",
        "0.20000 0.10000 0.06667 0.05000 0.04000 0.03333 0.02857 0.02500",
    ),
    "fastmri/pd-r4": (
        MRI_T,
        "0.22937 0.03000 0.07001 0.03500",
        "0.01105 0.03505 0.10846 0.31326",
        "0.20000 0.10000 0.06667 0.05000",
    ),
    "fastmri/pd-r8": (
        MRI_T,
        "0.23819 0.04500 0.08501 0.04500",
        "0.01105 0.02975 0.07889 0.20141",
        "0.50000 0.25000 0.16667 0.12500",
    ),
    "fastmri/pdfs-r4": (
        MRI_T,
        "0.21173 0.04000 0.05000 0.03500",
        "0.07889 0.14832 0.27110 0.47408",
        "0.05000 0.02500 0.01667 0.01250",
    ),
    "fastmri/pdfs-r8": (
        MRI_T,
        "0.24702 0.10501 0.05500 0.02500",
        "0.07889 0.20141 0.47408 0.97408",
        "0.45000 0.22500 0.15000 0.11250",
    ),
}


def numbers(text: str) -> list[float]:
    return [float(v) for v in text.split()]


PAPER = [name for name, row in PRESETS.items() if "paper" in row.source]


@pytest.mark.parametrize("name", PAPER)
def test_preset_gives_the_documented_sequences(name: str) -> None:
    config = PRESETS[name].solver
    t, s, rho, mu = (numbers(row) for row in SEQUENCES[name.removesuffix("-reference")])
    told = [(1 + d) * v for d, v in zip(config.deltas, config.sigmas, strict=True)]
    assert config.told == pytest.approx(told)
    assert config.sigmas == pytest.approx(t, abs=6e-6)
    assert told == pytest.approx(s, abs=2e-5)
    assert config.rhos == pytest.approx(rho, abs=6e-6)
    assert config.momentum == pytest.approx(mu, abs=6e-6)


def test_the_document_covers_every_preset_of_the_paper() -> None:
    assert set(SEQUENCES) == {name.removesuffix("-reference") for name in PAPER}
    assert (len(SEQUENCES), len(PAPER)) == (11, 15)


@pytest.mark.parametrize(
    ("i_N", "bar", "paper", "bar_code", "code"),
    [
        (50, 0.971016, 0.170248, 0.968869, 0.176439),
        (100, 0.897018, 0.320908, 0.893251, 0.326724),
        (150, 0.788321, 0.460085, 0.783445, 0.465355),
        (250, 0.524085, 0.689866, 0.518764, 0.693712),
    ],
)
def test_start_levels(i_N: int, bar: float, paper: float, bar_code: float, code: float) -> None:
    assert alpha_bar()[i_N] == pytest.approx(bar, abs=1e-6)
    assert alpha_bar()[i_N + 2] == pytest.approx(bar_code, abs=1e-6)
    assert ddpm_decay(i_N, 0.1, 1, index_offset=0)[0] == pytest.approx(paper, abs=1e-6)
    assert ddpm_decay(i_N, 0.1, 1)[0] == pytest.approx(code, abs=1e-6)


def test_alpha_sequence_of_superresolution_is_clamped() -> None:
    a = [1 - s**2 for s in ddpm_decay(150, 0.2, 4)]
    assert a == pytest.approx([0.78344, 0.94013, 0.9999, 0.9999], abs=6e-6)


def test_decay_goes_on_from_any_level() -> None:
    """a = 0.84, 0.924, then the ceiling: σ = 0.4, √0.076, 0.01."""
    assert decay_from(0.4, 0.1, 4) == pytest.approx((0.4, math.sqrt(0.076), 0.01, 0.01))
    assert decay_from(0.4, 0.1, 1) == (0.4,)


def test_karras_grid() -> None:
    grid = karras(40)
    assert len(grid) == 40
    expected = {0: 80, 1: 69.45095, 5: 38.26646, 17: 4.36556, 22: 1.38237, 38: 0.00368, 39: 0.002}
    for i, value in expected.items():
        assert grid[i] == pytest.approx(value, abs=6e-6)
    assert karras(151)[67] == pytest.approx(3.99122, abs=6e-6)


def test_softplus_and_its_inverse() -> None:
    for v in (-40.0, -4.0, 0.0, 6.5, 800.0):
        assert inverse_softplus(softplus(v)) == pytest.approx(v, rel=1e-12, abs=1e-12)
    assert softplus_ramp(-4, 4, 1) == (softplus(-4),)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ddpm_decay(999, 0.1, 4), "i_N"),
        (lambda: ddpm_decay(-5, 0.1, 4), "i_N"),
        (lambda: ddpm_decay(100, -0.1, 4), "decay"),
        (lambda: ddpm_decay(100, 0.1, 0), "n must"),
        (lambda: karras(4, sigma_min=3, sigma_max=1), "sigma_min"),
        (lambda: softplus_ramp(0, 1, 0), "n must"),
        (lambda: decay_from(1.0, 0.1, 4), "sigma must lie in"),
    ],
)
def test_bad_schedules_are_refused(call: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        call()  # type: ignore[operator]


def test_closed_form_would_be_imaginary_without_the_ceiling() -> None:
    assert (1 + 0.2) ** 2 * alpha_bar()[152] > 1
    assert all(math.isfinite(s) for s in ddpm_decay(150, 0.2, 50))
