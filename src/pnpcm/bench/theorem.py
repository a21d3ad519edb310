"""theorem: Theorem 1 of the paper in numbers, for a Gaussian prior and for a network.

Deblurring one image with constant level σ, constant penalty, no momentum and no clamp. The noise
η_k that is added to the input of the prior in iteration k has the standard deviation 0, NOISE/k²
(summable) or NOISE (constant).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.bench.figures import colour, matplotlib
from pnpcm.bench.sections import Section, TextTable, markdown
from pnpcm.catalogue import load_prior
from pnpcm.core import Operator, Prior, Step
from pnpcm.evaluation.images import Images
from pnpcm.io.files import write_atomically, write_text
from pnpcm.linalg import jacobian_norm, norm
from pnpcm.operators import GaussianBlur, measure
from pnpcm.places import existing
from pnpcm.priors import GaussianPrior
from pnpcm.solvers import PnPCM, PnPCMConfig

LEVEL = 0.3
"""Level σ at which the prior is evaluated."""
NOISE = 0.1
SIGMA_Y = 0.05
RHO = (2 * SIGMA_Y / LEVEL) ** 2
COMPARED = (1, 2, 4, 8, 16)
"""Iterations whose step is repeated without noise."""
SIDE, OWN_SIDE = 64, 256
"""Side of the bundled photograph, and of a user's image for the network."""
SHOWN = (1, 2, 5, 10, 20, 50, 100, 200)
NO_NOISE = 1e-12
"""Levels of a configuration are positive; this one changes nothing."""


def noises(n_steps: int) -> dict[str, tuple[float, ...]]:
    """Standard deviations of the injected noise for k = 1 … n."""
    return {
        "none": (NO_NOISE,) * n_steps,
        "summable": tuple(NOISE / k**2 for k in range(1, n_steps + 1)),
        "constant": (NOISE,) * n_steps,
    }


# runs --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Trace:
    """Δ_k and ‖η_k‖ of a run, and the inputs of the prior with and without the noise of a step."""

    residuals: tuple[float, ...]
    noise_norms: tuple[float, ...]
    noisy: tuple[Tensor, ...]
    quiet: tuple[Tensor, ...]


class _Recorded:
    """A prior that keeps its inputs."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        self.value_range, self.nfe_per_call = prior.value_range, prior.nfe_per_call
        self.sigma_min, self.sigma_max = prior.sigma_min, prior.sigma_max
        self.inputs: list[Tensor] = []

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        self.inputs.append(x.clone())
        return self.prior(x, sigma)


def trace(
    prior: Prior, y: Tensor, operator: Operator, noise: Sequence[float], *, seed: int = 0
) -> Trace:
    """A run of PnP-CM on one image with noise of these standard deviations."""
    config = PnPCMConfig(
        sigmas=tuple(noise),
        deltas=tuple(LEVEL / s - 1 for s in noise),
        rhos=(RHO,) * len(noise),
        clamp=False,
    )
    recorded, steps = _Recorded(prior), list[Step]()
    generator = torch.Generator().manual_seed(seed)
    result = PnPCM(recorded, config)(y, operator, generator=generator, callback=steps.append)
    quiet = [_required(steps[0].z)]  # z_k + u_{k−1}, u_0 = 0
    quiet += [_required(b.z) + _required(a.u) for a, b in pairwise(steps)]
    pairs = zip(recorded.inputs, quiet, strict=True)
    return Trace(
        tuple(result.residuals[:, 0].tolist()),
        tuple(float(norm(v - v_quiet)) for v, v_quiet in pairs),
        tuple(recorded.inputs),
        tuple(quiet),
    )


def _required(value: Tensor | None) -> Tensor:
    assert value is not None  # PnP-CM passes x, z and u to every callback
    return value


# the study ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class OneStep:
    """Step k of the run with constant noise, and the same step without its noise."""

    k: int
    noisy: float
    quiet: float
    bound: float

    @property
    def difference(self) -> float:
        return self.noisy - self.quiet


@dataclass(frozen=True)
class Study:
    """Runs of one prior; ``exact``: whether ``lipschitz`` is known, not estimated."""

    name: str
    lipschitz: float
    exact: bool
    size: int
    traces: dict[str, Trace]
    steps: tuple[OneStep, ...]

    @property
    def summed(self) -> tuple[float, float]:
        """Σ(Δ_k − Δ_k⁰) of the run with summable noise, and (2L/√P) Σ‖η_k‖."""
        run, still = self.traces["summable"], self.traces["none"]
        left = sum(run.residuals) - sum(still.residuals)
        return left, bound(self.lipschitz, self.size, sum(run.noise_norms))


def bound(lipschitz: float, size: int, noise_norm: float) -> float:
    """(2L/√P) ‖η‖"""
    return 2 * lipschitz / math.sqrt(size) * noise_norm


def study(
    name: str,
    prior: Prior,
    x: Tensor,
    *,
    n_steps: int,
    lipschitz: Callable[[Trace], float],
    exact: bool,
) -> Study:
    """All runs on the image ``x`` ``(1, C, H, W)``; ``lipschitz``: L from the constant run."""
    operator, size = GaussianBlur((x.shape[1], x.shape[2], x.shape[3])), x[0].numel()
    y = measure(operator, x, SIGMA_Y, generator=torch.Generator().manual_seed(1))
    levels = noises(n_steps)
    traces = {kind: trace(prior, y, operator, noise) for kind, noise in levels.items()}
    constant = traces["constant"]
    L, steps = lipschitz(constant), []
    for k in (k for k in COMPARED if k <= n_steps):
        still = trace(prior, y, operator, (*levels["constant"][: k - 1], NO_NOISE))
        right = bound(L, size, constant.noise_norms[k - 1])
        steps.append(OneStep(k, constant.residuals[k - 1], still.residuals[-1], right))
    return Study(name, L, exact, size, traces, tuple(steps))


def gaussian_study(x: Tensor, *, n_steps: int = 200) -> Study:
    """The consistency function of N(0, 0.5²) in every pixel, whose L is its factor, in float64."""
    prior, x = GaussianPrior(0.0, 0.5), x.double()
    factor = float(prior.shrink(x, torch.tensor(LEVEL, dtype=x.dtype)).max())
    return study(
        "Gaussian prior", prior, x, n_steps=n_steps, lipschitz=lambda run: factor, exact=True
    )


def network_study(
    name: str, prior: Prior, x: Tensor, *, n_steps: int = 32, n_power: int = 12
) -> Study:
    """A prior with a network: L is the larger norm of its Jacobian at two inputs of a run.

    The inputs are that of the last compared step, and the same without its noise.
    """

    def lipschitz(run: Trace) -> float:
        last = min(COMPARED[-1], n_steps) - 1
        inputs = torch.cat([run.noisy[last], run.quiet[last]])
        found = jacobian_norm(
            lambda v: prior(v, LEVEL),
            inputs,
            generator=torch.Generator().manual_seed(2),
            n_iter=n_power,
            tol=1e-3,
        )
        return float(found.max())

    return study(name, prior, x, n_steps=n_steps, lipschitz=lipschitz, exact=False)


# text, figure, table ---------------------------------------------------------------------------
def sections(studies: Sequence[Study]) -> list[Section]:
    """The studies as sections; docs/method.md section 9 has the statement and its proof."""
    words = (
        "Δ_k = (‖x_k − x_{k−1}‖ + ‖z_k − z_{k−1}‖ + ‖u_k − u_{k−1}‖)/√P of PnP-CM, deblurring one "
        f"image, σ_y = {SIGMA_Y}; the prior is evaluated at σ = {LEVEL}; ρ = {RHO:.4f}; no "
        f"momentum, no clamp. Noise η_k: none, of standard deviation {NOISE}/k² (summable) or "
        f"{NOISE} (constant).",
        "The inequality holds per step from the same state: Δ_k with noise − Δ_k without ≤ "
        "(2L/√P)‖η_k‖. Its sum over a run is not implied, because the states of the two runs "
        "differ from the first noisy step on: it may be exceeded.",
    )
    first = Section("Theorem 1 in numbers", words, figure=lambda: figure(studies))
    return [first, *(_section(s) for s in studies)]


def _section(s: Study) -> Section:
    how = "exact" if s.exact else "Jacobian norm at two inputs, a lower estimate"
    steps = TextTable(
        ("k", "Δ_k with noise", "without", "difference", "(2L/√P)‖η_k‖", ""),
        tuple(
            (
                str(step.k),
                *(f"{v:.5f}" for v in (step.noisy, step.quiet, step.difference, step.bound)),
                "≤" if step.difference <= step.bound else ">",
            )
            for step in s.steps
        ),
        words="One step of the run with constant noise, with and without its noise:",
    )
    last = len(s.traces["none"].residuals)
    runs = TextTable(
        ("k", *s.traces),
        tuple(
            (str(k), *(f"{run.residuals[k - 1]:.2e}" for run in s.traces.values()))
            for k in sorted({*(k for k in SHOWN if k < last), last})
        ),
        words="Whole runs, Δ_k:",
    )
    left, right = s.summed
    verdict = "exceeded" if left > right else "not exceeded"
    summed = (
        f"Summed over the run with summable noise: Σ(Δ_k − Δ_k⁰) = {left:.4f}, the paper's bound "
        f"(2L/√P) Σ‖η_k‖ = {right:.4f}: {verdict}."
    )
    words = (f"L = {s.lipschitz:.4f} ({how}), P = {s.size}.",)
    return Section(s.name, words, (steps, runs), (summed,))


FILES = ("theorem.csv", "theorem.md", "theorem.svg")
COLUMNS = ("prior", "noise_kind", "k", "delta", "noise")


def is_theorem(folder: Path) -> bool:
    """Whether ``theorem.csv`` of a folder is one of :func:`write_theorem`."""
    path = folder / FILES[0]
    if not path.is_file():
        return False
    head = f"{','.join(COLUMNS)}\n".encode()
    with path.open("rb") as file:
        return file.read(len(head)) == head


def to_csv(studies: Sequence[Study]) -> str:
    """One line per prior, kind of noise and iteration; ``noise``: ‖η_k‖/√P."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for s in studies:
        for kind, run in s.traces.items():
            pairs = zip(run.residuals, run.noise_norms, strict=True)
            for k, (delta, eta) in enumerate(pairs, start=1):
                writer.writerow([s.name, kind, k, f"{delta:.6g}", f"{eta / s.size**0.5:.6g}"])
    return file.getvalue()


def figure(studies: Sequence[Study]) -> Any:
    """Δ_k against k on logarithmic axes, one panel per prior; a figure of matplotlib."""
    matplotlib()
    from matplotlib.figure import Figure

    made = Figure(figsize=(4.5 * len(studies), 3.4), layout="constrained")
    for axes, s in zip(made.subplots(1, len(studies), squeeze=False)[0], studies, strict=True):
        for number, (kind, run) in enumerate(s.traces.items()):
            ks = range(1, len(run.residuals) + 1)
            axes.loglog(ks, run.residuals, color=colour(number), label=kind)
        axes.set(title=s.name, xlabel="iteration k", ylabel=r"$\Delta_k$")
        axes.legend(title="noise")
    return made


def write_theorem(out: Path, *, prior: str | None = None, data: str | None = None) -> list[Section]:
    """Write ``theorem.md``, ``theorem.csv`` and ``theorem.svg`` into ``out``; their sections.

    ``prior``: a checkpoint instead of ``natural``. ``data``: a folder whose first image is used,
    for the network with 256×256 pixels, instead of a bundled photograph of 64×64.
    """
    folder = Path(__file__).parents[1] / "data" if data is None else existing(data)
    sides = (SIDE, SIDE if data is None else OWN_SIDE)
    small, image = (Images(folder, size=side, limit=1).image(0) for side in sides)
    name = "natural" if prior is None else prior
    studies = [gaussian_study(small), network_study(f"prior {name}", load_prior(name), image)]
    found = sections(studies)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / FILES[0], to_csv(studies))  # first, since it tells whose the folder is
    write_text(out / FILES[1], markdown(found))
    write_atomically(out / FILES[2], lambda path: figure(studies).savefig(path, format="svg"))
    return found
