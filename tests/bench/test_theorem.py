"""Theorem 1 in numbers: the bound per step as a law, limits of runs, the files of the command."""

import csv
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from golden import gen
from pnpcm import GaussianPrior, StationaryGaussianPrior
from pnpcm.bench import theorem
from pnpcm.bench.sections import markdown
from pnpcm.bench.theorem import LEVEL, NOISE, Study, gaussian_study, network_study, study
from pnpcm.cli import app


def image(size: int = 12) -> Tensor:
    return torch.rand((1, 3, size, size), generator=gen()) * 2 - 1


@pytest.fixture(scope="module")
def gaussian() -> Study:
    return gaussian_study(image())


def test_the_constant_of_the_gaussian_prior(gaussian: Study) -> None:
    """√((S² + σ_min²)/(S² + σ²)), S = 0.5."""
    expected = ((0.5**2 + 0.002**2) / (0.5**2 + LEVEL**2)) ** 0.5
    assert gaussian.exact
    assert gaussian.lipschitz == pytest.approx(expected, rel=1e-12)
    assert gaussian.size == 3 * 12 * 12


@pytest.mark.parametrize("kind", ["consistency", "edm"])
@pytest.mark.parametrize("std", [0.1, 0.5, 2.0])
def test_the_bound_holds_per_step(kind: str, std: float) -> None:
    prior = GaussianPrior(0.0, std, kind=kind)
    factor = float(prior.shrink(image(), torch.tensor(LEVEL)).max())
    found = study("", prior, image(), n_steps=16, lipschitz=lambda run: factor, exact=True)
    assert [step.k for step in found.steps] == [1, 2, 4, 8, 16]
    for step in found.steps:
        assert step.difference <= step.bound
        # the noise moves x and u by exactly L‖η‖ each: no difference exceeds the bound, and the
        # later ones, where little else moves, are a good part of it
        assert step.k == 1 or step.difference > 0.2 * step.bound


def test_both_sides_of_a_step_by_hand(gaussian: Study) -> None:
    """The first step: z_1 is the same, and f is linear, so all norms can be computed."""
    run, step = gaussian.traces["constant"], gaussian.steps[0]
    c, z, v = gaussian.lipschitz, run.quiet[0], run.noisy[0]
    root = gaussian.size**0.5
    for total, expected in ((v, step.noisy), (z, step.quiet)):
        x = c * total
        moved = x.norm() + z.norm() + (z - x).norm()  # x_0 = z_0 = u_0 = 0
        assert float(moved) / root == pytest.approx(expected, rel=1e-9)
    assert step.bound == pytest.approx(2 * c * float((v - z).norm()) / root, rel=1e-9)
    assert run.noise_norms[0] / root == pytest.approx(NOISE, rel=0.15)


def test_summable_noise_converges_and_constant_noise_does_not(gaussian: Study) -> None:
    last = {kind: run.residuals[-1] for kind, run in gaussian.traces.items()}
    assert last["none"] < 1e-9
    assert last["summable"] < 1e-4
    assert last["constant"] > NOISE
    summable = gaussian.traces["summable"].residuals
    assert summable[-1] / summable[99] == pytest.approx(0.25, rel=0.25)  # ∝ 1/k²
    constant = gaussian.traces["constant"].residuals
    assert min(constant[20:]) > 0.8 * max(constant[20:])


def test_the_summed_bound_is_exceeded_along_a_run(gaussian: Study) -> None:
    left, right = gaussian.summed
    noise = gaussian.traces["summable"].noise_norms
    assert right == pytest.approx(2 * gaussian.lipschitz * sum(noise) / gaussian.size**0.5)
    assert left > right
    text = markdown(theorem.sections([gaussian]))
    assert f"Σ(Δ_k − Δ_k⁰) = {left:.4f}" in text
    assert f"= {right:.4f}: exceeded." in text
    assert "it may be exceeded" in text


def test_an_estimated_constant_is_found_by_power_iteration() -> None:
    """In place of a network: a prior whose Jacobian is known."""
    std = torch.full((3, 12, 12), 0.2)
    std[0, 3, 4] = 0.9
    found = network_study("p", GaussianPrior(0.0, std), image(), n_steps=4)
    exact = ((0.9**2 + 0.002**2) / (0.9**2 + LEVEL**2)) ** 0.5
    assert found.lipschitz == pytest.approx(exact, rel=2e-3)
    assert found.lipschitz < exact + 1e-6
    assert not found.exact
    assert [step.k for step in found.steps] == [1, 2, 4]
    assert "lower estimate" in markdown(theorem.sections([found]))


def test_the_command_writes_text_table_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a Gaussian prior in place of the network of ``natural``."""
    asked = []

    def load(name: str) -> StationaryGaussianPrior:
        asked.append(name)
        return StationaryGaussianPrior()

    monkeypatch.setattr(theorem, "load_prior", load)
    monkeypatch.setattr(theorem, "SIDE", 16)
    out = tmp_path / "new" / "out"
    done = CliRunner().invoke(app, ["reproduce", "theorem", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert asked == ["natural"]
    text = (out / "theorem.md").read_text(encoding="utf-8")
    assert text in done.stdout
    assert "## prior natural" in text
    with (out / "theorem.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * (200 + 32)
    last = {r["noise_kind"]: float(r["delta"]) for r in rows if r["prior"] == "Gaussian prior"}
    assert last["none"] < last["summable"] < last["constant"]
    assert "<svg" in (out / "theorem.svg").read_text(encoding="utf-8")
