"""The published parameters: their counted cost and their units."""

from typing import Any

import pytest
import torch

from golden import gen
from pnpcm import OPERATORS, SOLVERS, measure
from pnpcm.baselines import BASELINES, LINEAR, NONLINEAR, Baseline
from pnpcm.errors import UnknownNameError
from pnpcm.priors import StationaryGaussianPrior
from pnpcm.priors.controlled import ControlledModel
from pnpcm.tune.methods import SCANS
from rows import check_rows

EVALUATIONS = {
    # docs/methods/README.md; PnP-DM's 2034 belongs to none of its published settings
    "pnp-cm/official": 4,
    "pnp-cm/fastmri": 4,
    "dps/official": 1000,
    "dps/lsun": 1000,
    "dps/fastmri": 1000,
    "pigdm/official": 100,
    "diffpir/official": 100,
    "dpnp/official": 2923,
    "pnp-dm/official": 1861,
    "pnp-dm/lsun": 2121,
    "dds/official": 100,
    "dds/fastmri": 100,
    "cm-iterative/official": 40,
    "cosign/official": 4,
    "cm4ir/official": 4,
    "ddrm/official": 20,
    "dpir/official": 8,
}
DIFFERENTIATED = {"dps": 1000, "pigdm": 100, "dpnp": 500}
PUBLISHED = {name: row for name, row in BASELINES.items() if row.tuned_on is None}


def example(row: Baseline) -> tuple[Any, torch.Tensor]:
    """A small problem of the kind the row is for."""
    kind = "mri" if row.task in SCANS else "inpainting" if row.task in LINEAR else "jpeg"
    operator, x = OPERATORS[kind].example(gen(), size=(8, 8))
    return operator, measure(operator, x, 0.05, generator=gen(1))


@pytest.mark.parametrize("key", EVALUATIONS)
def test_the_counter_confirms_the_published_evaluations(key: str) -> None:
    row = next(r for name, r in BASELINES.items() if name.startswith(f"{key}/"))
    solver = SOLVERS[row.method]
    operator, y = example(row)
    prior: Any = StationaryGaussianPrior(kind="edm" if "edm" in solver.kinds else "consistency")
    if row.method == "cosign":
        prior = ControlledModel.example()
    result = solver(prior, row.solver)(y, operator, generator=gen(2))
    assert result.nfe == row.solver.nfe == EVALUATIONS[key]  # type: ignore[attr-defined]
    assert result.vjps == DIFFERENTIATED.get(row.method, 0)


def test_phase_retrieval_of_pnp_dm_has_the_count_of_its_smaller_coupling() -> None:
    assert BASELINES["pnp-dm/official/phase-retrieval"].solver.nfe == 1491  # type: ignore[attr-defined]


def test_pnp_cm_has_the_rows_of_its_paper() -> None:
    """Phase retrieval in 8 iterations; the authors' JPEG step size, for accumulated gradients."""
    own = {name: row for name, row in PUBLISHED.items() if row.method == "pnp-cm"}
    official = {f"pnp-cm/official/{task}" for task in LINEAR + NONLINEAR}
    assert set(own) == official | {"pnp-cm/fastmri/r4", "pnp-cm/fastmri/r8"}
    solver: Any = own["pnp-cm/official/phase-retrieval"].solver
    assert solver.nfe == 8
    jpeg: Any = own["pnp-cm/official/jpeg-5"].solver
    assert (jpeg.data_step.lr, jpeg.data_step.reference) == (5e-4, True)


def test_units_are_those_of_images_between_minus_one_and_one() -> None:
    """σ_y = 0.05 is 0.10 here; DiffPIR's λ = 7 was made for 0.05 (docs/methods/diffpir.md)."""
    diffpir: Any = BASELINES["diffpir/official/deblur-gauss"].solver
    assert (diffpir.lam, diffpir.noise_std) == (7 / 4, 0.10)
    for row in PUBLISHED.values():
        assert getattr(row.solver, "noise_std", 0.0) in (0.0, 0.10)
    assert BASELINES["dps/fastmri/r4"].solver.zeta == 0.85  # type: ignore[attr-defined]
    assert BASELINES["dps/lsun/superres-4"].solver.zeta == 1.0  # type: ignore[attr-defined]
    assert BASELINES["pnp-dm/lsun/superres-4"].solver.slope == 14.9  # type: ignore[attr-defined]


def test_every_row_is_a_configuration_of_its_method() -> None:
    def check(row: Baseline) -> None:
        assert isinstance(row.solver, SOLVERS[row.method].config_type)
        assert Baseline.from_dict(row.to_dict()) == row
        assert row.source

    check_rows(BASELINES.items(), check)


def test_an_unknown_row_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="dps/official/superres-4"):
        BASELINES["dps/official/superres"]
