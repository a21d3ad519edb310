"""Tables of the paper: specs that can be run, published numbers beside means of stored rows."""

from pathlib import Path

import pytest

from pnpcm.bench.paper import PUBLISHED
from pnpcm.bench.reproduce import TABLES, beside, domains, markdown, sensitivity, specs
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.presets import PRESETS
from pnpcm.solvers import PnPCMConfig


def test_published_numbers_by_hand() -> None:
    """Cells read off the tables of the paper."""
    cells = {(p.table, p.data, p.task, p.method, p.nfe, p.sigma_y): p for p in PUBLISHED}
    assert len(cells) == len(PUBLISHED) == 48 + 22 + 16 + 12 + 6 + 18
    ours = cells["main", "celeba-hq", "deblur-gauss", "PnP-CM", 4, 0.05]
    assert (ours.psnr, ours.second) == (28.94, 0.249)
    assert cells["main", "lsun-bedroom", "phase-retrieval", "DPnP", 2923, 0.05].psnr == 18.55
    assert cells["main", "fastmri-pdfs", "r8", "DDS", 100, 0.05].second == 0.740
    assert cells["momentum", "fastmri-pd", "r8", "momentum", 20, 0.05].second == 0.879
    assert cells["nfe-noise", "celeba-hq", "inpaint-70", "PnP-CM", 2, 0.025].psnr == 28.77


@pytest.mark.parametrize("table", [*TABLES, "all"])
def test_every_table_has_specs_without_any_data_folder(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))
    found = specs(table)
    assert found or table in ("momentum", "theorem")  # scans need the data folder; no rows
    for spec in found:
        rows = list(spec.rows(limit=1))
        assert rows
        assert {row.prior for row in rows} == {"natural"}


def test_with_a_checkpoint_the_presets_and_operators_are_those_of_the_paper(tmp_path: Path) -> None:
    found = {s.name: s for s in specs("main", prior="model.pt", data=str(tmp_path))}
    deblur = found["main-celeba-hq-deblur-gauss"]
    assert deblur.tasks["deblur-gauss"].options["reference"] is True
    assert deblur.methods["PnP-CM"].preset == "pnp-cm/official/deblur-gauss"
    assert deblur.data["celeba-hq"].side == 256
    with pytest.raises(ArgumentError, match="prior is given without data"):
        domains(prior="model.pt")


def test_unknown_table() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ablation'"):
        specs("ablations")


def test_the_centre_of_the_sensitivity_study_is_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """from_paper with the factors 1 gives the published preset; no factor leaves ±25 %."""
    preset = PRESETS["celeba-hq/deblur-gauss"].solver
    built = PnPCMConfig.from_paper(100, 0.1, preset.deltas, rho=(-4, 6.5), mu=0.1)
    assert (built.sigmas, built.rhos) == (preset.sigmas, preset.rhos)
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))
    (spec,) = (s for d in domains() for s in sensitivity(d))
    for name, row in spec.methods.items():
        if name != "published":
            ratios = [a / b for a, b in zip(row.settings["deltas"], preset.deltas, strict=True)]
            assert all(0.75 <= r <= 1.25 for r in ratios)
            assert 0.075 <= row.settings["mu"] <= 0.125


def row(method: str, psnr: float, lpips: float, **more: object) -> dict[str, object]:
    return {
        "spec": "ablation-celeba-hq", "data": "celeba-hq", "task": "superres-4", "method": method,
        "sigma_y": 0.05, "steps": None, "nfe": 4, "failed": None,
        "scores": {"psnr": psnr, "lpips-vgg": lpips},
    } | more  # fmt: skip


def test_means_stand_beside_the_published_numbers() -> None:
    rows = [
        row("injection, momentum", 20.0, 0.4),
        row("injection, momentum", 22.0, 0.2),
        row("injection, momentum", 99.0, 0.0, failed="diverged"),
        row("injection, momentum", 50.0, 0.0, spec="main-celeba-hq"),
    ]
    cells = beside("ablation", rows)
    assert len(cells) == 12
    (ours,) = (c for c in cells if c.count)
    assert (ours.psnr, ours.second, ours.count) == (21.0, pytest.approx(0.3), 2)
    text = markdown("ablation", cells)
    assert "21.00 / 0.300 (paper 27.27 / 0.285)" in text
    assert "– (paper 22.93 / 0.461)" in text
