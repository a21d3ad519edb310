"""Strips against the whole picture: where rows are independent, nothing may differ."""

import json
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from golden import gen, relative
from pnpcm.core import Config, Operator
from pnpcm.errors import ArgumentError, OperatorError
from pnpcm.operators import JPEG, GaussianBlur
from pnpcm.solvers import GradientStep, PnPCMConfig, ProxStep, StripStep
from pnpcm.solvers.data_steps import data_objective


class Rows:
    """A(x) = d · x with d of its own in every row: cells of ``row_cell`` rows, solved exactly."""

    row_cell = 4

    def __init__(self, d: Tensor) -> None:
        self.d = d

    def A(self, x: Tensor) -> Tensor:
        return self.d[: x.shape[-2], None] * x


@dataclass(frozen=True)
class Recorder(Config):
    """Returns the start and records the rows of each call."""

    seen = []  # type: ignore[var-annotated]  # noqa: RUF012

    def __call__(
        self, v: Tensor, y: Tensor, operator: Operator, rho: float, *, z_prev: Tensor | None
    ) -> Tensor:
        self.seen.append((int(v[0, 0, 0, 0]), v.shape[-2]))
        assert torch.equal(v, y)
        return v if z_prev is None else z_prev


def picture(height: int = 72, width: int = 40) -> Tensor:
    """Smooth colours with edges, and a little noise."""
    i, j = torch.meshgrid(torch.linspace(0, 6, height), torch.linspace(0, 4, width), indexing="ij")
    planes = [0.6 * torch.sin(i + c) * torch.cos(j * (c + 1)).sign() for c in range(3)]
    return torch.stack(planes)[None] + 0.05 * torch.randn((2, 3, height, width), generator=gen(1))


@pytest.mark.parametrize(
    ("chroma", "seen"),
    [
        ("codec", [(0, 32), (32, 32), (64, 6)]),  # 40 rows hold two cells of 16
        ("libjpeg", [(0, 48), (16, 54), (48, 22)]),  # and a cell beyond, where there is one
        ("smooth", [(0, 64), (0, 70), (32, 38)]),  # or two
    ],
)
def test_strips_are_whole_cells_with_their_margin(chroma: str, seen: list[tuple[int, int]]) -> None:
    v = torch.arange(70.0)[:, None].expand(1, 1, 70, 8).clone()
    Recorder.seen.clear()
    z = StripStep(Recorder(), rows=40)(v, v, JPEG(chroma=chroma), 1.0, z_prev=-v)  # type: ignore[arg-type]
    assert torch.equal(z, -v)
    assert Recorder.seen == seen


def test_a_strip_is_at_least_one_cell() -> None:
    v = torch.arange(24.0)[:, None].expand(1, 1, 24, 8).clone()
    Recorder.seen.clear()
    StripStep(Recorder(), rows=1)(v, v, JPEG(subsampling="4:2:2"), 1.0, z_prev=None)
    assert Recorder.seen == [(0, 8), (8, 8), (16, 8)]


def test_exact_inner_steps_give_the_unsplit_answer() -> None:
    """Every row has the closed form (d y + ρ v)/(d² + ρ); L-BFGS reaches it strip by strip."""
    d = torch.tensor([0.5, 1.0, 2.0, 1.5]).double().repeat(5)
    operator, rho = Rows(d), 0.3
    v, y = torch.randn((2, 2, 3, 18, 5), generator=gen()).double()
    step = StripStep(GradientStep("lbfgs", n_iter=30), rows=8)
    z = step(v, y, operator, rho, z_prev=None)
    rows = d[:18, None]
    exact = (rows * y + rho * v) / (rows**2 + rho)
    assert relative(z, exact) < 1e-7
    assert relative(z, step.inner(v, y, operator, rho, z_prev=None)) < 1e-7


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
def test_plain_descent_on_jpeg_is_the_same_in_strips(subsampling: str) -> None:
    """With fixed step sizes the cells of the codec are independent."""
    operator = JPEG(20, subsampling=subsampling, chroma="codec")
    x = picture()
    y, v = operator.acquire(x), x + 0.1
    step = GradientStep("sgd", 0.3, 5, lr_decay=1.0)
    whole = step(v, y, operator, 0.2, z_prev=y)
    assert torch.allclose(StripStep(step, 32)(v, y, operator, 0.2, z_prev=y), whole, atol=1e-5)
    assert relative(whole, y) > 1e-2


@pytest.mark.parametrize("chroma", ["codec", "smooth", "libjpeg"])
def test_lbfgs_in_strips_reaches_an_objective_as_low(chroma: str) -> None:
    """Each strip has its own line search; cuts through interpolated chroma hardly matter."""
    operator = JPEG(10, chroma=chroma)  # type: ignore[arg-type]
    x = picture()[:1]
    y = operator.acquire(x)
    v, rho = x + 0.1 * torch.randn(x.shape, generator=gen(2)), 0.5
    objective = data_objective(v, y, operator, rho)
    step = GradientStep("lbfgs", n_iter=40)
    start = float(objective(y)[0])
    whole = float(objective(step(v, y, operator, rho, z_prev=y))[0])
    split = float(objective(StripStep(step, 32)(v, y, operator, rho, z_prev=y))[0])
    assert whole < 0.8 * start
    assert split < whole + 0.02 * (start - whole)


def test_round_trip_and_use_in_a_configuration() -> None:
    step = StripStep(GradientStep("adam", 0.1, 9), rows=256)
    again = Config.from_dict(json.loads(json.dumps(step.to_dict())))
    assert again == step
    config = PnPCMConfig(sigmas=(1.0,), deltas=(0.1,), rhos=(0.5,), data_step=step)
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_refusals() -> None:
    x = torch.zeros(1, 3, 32, 32)
    with pytest.raises(OperatorError, match=r"GaussianBlur has no row_cell.*inner step"):
        StripStep(ProxStep())(x, x, GaussianBlur((3, 32, 32)), 1.0, z_prev=None)
    with pytest.raises(ArgumentError, match="rows must be a whole number, at least 1, got 0"):
        StripStep(ProxStep(), rows=0)
    with pytest.raises(ArgumentError, match="inner is 'lbfgs', expected a data step"):
        StripStep("lbfgs")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="y has 16 rows and the image 32"):
        StripStep(GradientStep())(x, x[..., :16, :], JPEG(), 1.0, z_prev=None)
