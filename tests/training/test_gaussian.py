"""Training with an exact answer: Gaussian data, whose denoiser and flow are known.

Errors are root mean squares over fresh noisy images, relative to the spread of the data. Levels
up to 5, ten times the largest deviation of the data, keep each run below half a minute.
"""

from pathlib import Path

import pytest

from pnpcm import load_prior
from pnpcm.core import Prior
from pnpcm.training import train
from small import exact, fresh, recipe, write_data

SIGMAS = (0.05, 0.2, 0.5, 2.0, 5.0)
PRIOR = {"sigma_max": 5.0}
EDM_LOSS = {"P_mean": -0.8, "P_std": 1.3}


def errors(prior: Prior, kind: str) -> list[float]:
    x, noise = fresh(512)
    found = []
    for sigma in SIGMAS:
        noisy = x + sigma * noise
        difference = prior(noisy, sigma) - exact(noisy, sigma, kind)
        found.append(float(difference.square().mean().sqrt() / x.std()))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and a trained teacher."""
    path = tmp_path_factory.mktemp("gaussian")
    write_data(path)
    plan = recipe(path, "edm", steps=800, out="edm", prior=PRIOR, loss=EDM_LOSS)
    train(plan, path)
    return path


def test_edm_finds_the_denoiser(folder: Path) -> None:
    found = errors(load_prior(folder / "edm/prior.safetensors"), "edm")
    print("EDM", [f"{e:.3f}" for e in found])
    assert max(found) < 0.1
    untrained = errors_of_a_new_network(folder)
    assert max(untrained) > 3 * max(found)  # the bound means something


def errors_of_a_new_network(folder: Path) -> list[float]:
    plan = recipe(folder, "edm", steps=1, out="new", prior=PRIOR, loss=EDM_LOSS)
    train(plan, folder)
    return errors(load_prior(folder / "new/prior.safetensors"), "edm")


@pytest.mark.parametrize(
    ("method", "bound", "changes"),
    [
        ("distill", 0.1, {"teacher": "edm/prior.safetensors", "loss": {"points": 18, "ema": 0.9}}),
        (
            "ect",
            0.25,
            {
                "init_from": "edm/prior.safetensors",
                "loss": {"stage": 160, "P_mean": 0.0, "P_std": 1.5},
                "optimizer": {"kind": "adamw", "lr": 1e-3, "warmup": 50, "schedule": "cosine"},
            },
        ),
        ("consistency", 0.2, {"steps": 1200, "loss": {"s1": 20, "mu0": 0.8}}),
    ],
)
def test_consistency_models_find_the_end_of_the_flow(
    folder: Path, method: str, bound: float, changes: dict[str, object]
) -> None:
    settings = {"steps": 800, "out": method, "prior": PRIOR} | changes
    train(recipe(folder, method, **settings), folder)
    found = errors(load_prior(folder / method / "prior.safetensors"), "consistency")
    print(method, [f"{e:.3f}" for e in found])
    assert max(found) < bound
    # and not merely the teacher's answer, the posterior mean, which is something else
    mean = errors(load_prior(folder / "edm/prior.safetensors"), "consistency")
    assert max(found) < max(mean) / 2
