"""benchmarks/studies: exact posteriors by integration, EM, scores, a tiny run, the page."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from golden import gen
from pnpcm.rng import randn_like

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "benchmarks/studies"
sys.path.append(str(STUDIES))
injection = importlib.import_module("injection")
mixtures = importlib.import_module("mixtures")

WEIGHTS = torch.tensor([0.4, 0.6], dtype=torch.float64)
MEANS = torch.tensor([[0.5, -0.2], [-0.4, 0.3]], dtype=torch.float64)
COVARIANCES = torch.tensor(
    [[[0.09, 0.05], [0.05, 0.04]], [[0.05, -0.06], [-0.06, 0.16]]], dtype=torch.float64
)
MIXTURE = mixtures.Mixture(WEIGHTS, MEANS, COVARIANCES, (1, 1, 2))


class Matrix:
    """y = M x for images of 1×2 pixels."""

    def __init__(self, *rows: tuple[float, float]) -> None:
        self.rows = torch.tensor(rows, dtype=torch.float64)

    def A(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.rows.to(x).T


def integrated(operator: Matrix, y: Tensor, noise_std: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of x given y, on a grid."""
    axis = np.linspace(-3, 3, 401)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    density = np.zeros(grid.shape[:2])
    for w, m, s in zip(WEIGHTS.numpy(), MEANS.numpy(), COVARIANCES.numpy(), strict=True):
        square = np.einsum("...p,pq,...q->...", grid - m, np.linalg.inv(s), grid - m)
        density += w * np.exp(-square / 2) / np.sqrt(np.linalg.det(s))
    gap = grid @ operator.rows.numpy().T - y.numpy()
    density *= np.exp(-(gap**2).sum(-1) / (2 * noise_std**2))
    density /= density.sum()
    mean = (density[..., None] * grid).sum((0, 1))
    return mean, np.einsum("ij,ijp,ijq->pq", density, grid - mean, grid - mean)


@pytest.mark.parametrize("operator", [Matrix((1.0, 0.5)), Matrix((1.0, 0.0), (0.3, 0.8))])
@pytest.mark.parametrize("noise_std", [0.1, 0.5])
def test_the_posterior_mean_by_integration(operator: Matrix, noise_std: float) -> None:
    for values in ([0.4, 0.1], [-0.5, 0.6]):
        y = torch.tensor(values, dtype=torch.float64)[: len(operator.rows)]
        found = mixtures.Posterior(MIXTURE, operator, y[None], noise_std).mean().flatten()
        expected, _ = integrated(operator, y, noise_std)
        assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_the_posterior_of_one_value_in_closed_form() -> None:
    """N(0.2, 0.3²), y = 2x + noise of 0.5: precision 1/0.09 + 4/0.25."""
    one = torch.ones(1, 1, dtype=torch.float64)
    mixture = mixtures.Mixture(one[0], 0.2 * one, 0.09 * one[None], (1, 1, 1))

    class Double:
        def A(self, x: Tensor) -> Tensor:
            return 2 * x

    found = mixtures.Posterior(mixture, Double(), one.reshape(1, 1, 1, 1), 0.5).mean()
    expected = (0.2 / 0.09 + 2 * 1 / 0.25) / (1 / 0.09 + 4 / 0.25)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_draws_have_the_moments_of_the_posterior() -> None:
    operator, y = Matrix((1.0, 0.5)), torch.tensor([0.1], dtype=torch.float64)
    posterior = mixtures.Posterior(MIXTURE, operator, y.expand(20_000, 1), 0.2)
    draws = posterior.sample(gen()).reshape(-1, 2).double()
    mean, covariance = integrated(operator, y, 0.2)
    assert draws.mean(0).tolist() == pytest.approx(mean.tolist(), abs=0.01)
    assert torch.cov(draws.T).flatten().tolist() == pytest.approx(
        covariance.flatten().tolist(), abs=0.005
    )


def test_the_posterior_for_the_identity_is_the_denoiser() -> None:
    x = randn_like(torch.zeros(5, 1, 1, 2), gen())
    posterior = mixtures.Posterior(MIXTURE, Matrix((1.0, 0.0), (0.0, 1.0)), x.flatten(1), 0.3)
    assert torch.allclose(posterior.mean(), MIXTURE.prior("edm")(x, 0.3), atol=1e-5)


def test_em_finds_two_groups() -> None:
    """Means and weights of a mixture from its samples; covariances are drawn towards the common."""
    groups = mixtures.Mixture(
        WEIGHTS, torch.tensor([[2.0, 0.0], [-2.0, 1.0]]).double(), COVARIANCES, (1, 1, 2)
    )
    found = mixtures.fit(groups.samples(4000, gen()), 2, n_iter=10, generator=gen(1))
    order = found.weights.argsort()
    assert found.weights[order].tolist() == pytest.approx([0.4, 0.6], abs=0.03)
    assert torch.allclose(found.means[order], groups.means, atol=0.05)
    assert torch.allclose(found.covariances[order], COVARIANCES, atol=0.03)


def test_the_distance_of_a_shifted_set_is_the_shift() -> None:
    x = randn_like(torch.zeros(10, 1, 1, 1), gen())
    one = torch.ones(1, 1, dtype=torch.float64)
    assert injection.sliced_distance(x, x[torch.randperm(10, generator=gen())], one) == 0
    assert injection.sliced_distance(x, x + 0.3, one) == pytest.approx(0.3, abs=1e-6)
    assert injection.sliced_distance(x, x + 0.3, 2 * one) == pytest.approx(0.6, abs=1e-6)


def smooth_images(folder: str, side: int) -> Tensor:
    """In place of the faces of a folder."""
    coarse = randn_like(torch.zeros(900 if folder == "faces" else 8, 1, 3, 3), gen()) * 0.3
    x = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    return x + 0.05 * randn_like(x, gen(1))


def test_a_tiny_run_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(injection, "N_ODE", 4)
    monkeypatch.setattr(injection, "faces", smooth_images)
    monkeypatch.setattr(injection, "TASKS", {"superres-4": injection.TASKS["superres-4"]})
    path = tmp_path / "new" / "rows.csv"
    command = f"injection.py --trials 2 --count 4 --steps 2 --csv {path}"
    monkeypatch.setattr("sys.argv", command.split())
    injection.main()
    rows, text = injection.read_csv(path), capsys.readouterr().out
    assert len(rows) == 2 * (3 + 8 * 3)  # sets × (bounds + cells × choices of numbers)
    exact = {(r.images, r.method): r for r in rows if r.numbers == "exact"}
    for name in ("faces", "drawn"):
        mean, draw = exact[name, "posterior mean"], exact[name, "posterior draw"]
        assert mean.psnr > draw.psnr
        assert exact[name, "truth"].distance == 0
    found = {
        (r.method, r.injection): r
        for r in rows
        if (r.images, r.numbers, r.momentum) == ("drawn", "published", False)
    }
    assert max(r.psnr for r in found.values()) < exact["drawn", "posterior mean"].psnr
    for method in ("consistency function", "denoiser"):
        assert found[method, True] != found[method, False]
    assert "| consistency function, yes, no |" in text
    assert "## drawn, effect of injection" in text


STORED = injection.read_csv(STUDIES / "injection.csv")
PAGE = (ROOT / "docs/injection.md").read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_those_of_the_stored_scores() -> None:
    for numbers in injection.NUMBERS:
        assert injection.table(STORED, "faces", numbers) in PAGE
    assert injection.conclusion(STORED, "faces") in PAGE
    assert injection.conclusion(STORED, "drawn") in PAGE
    assert injection.likelihoods(STORED, "faces") in PAGE


def test_stored_scores_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(injection.as_csv(STORED), encoding="utf-8")
    assert injection.read_csv(path) == STORED


def test_the_command_of_the_page_prints_the_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "python benchmarks/studies/injection.py --tables benchmarks/studies/injection.csv"
    assert command in PAGE
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", command.split()[1:])
    injection.main()
    assert injection.table(STORED, "faces", "published") in capsys.readouterr().out
