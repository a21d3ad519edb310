"""The exact law of a prior draw on the bench, without chains.

With the bench's prior every draw is an affine map of its noise. Row i of the image is
given 1 by the i-th request and 0 by all others, the last row always 0: that row is the mean, the
others are the columns of the map.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pnpcm.counted import CountedPrior
from pnpcm.solvers.base import Run
from solvers.bench import MEAN, STD, Diagonal, close, measurement, prior

DOCUMENTED = {
    0.4: ((0.459, 0.266, 0.180, 0.460), (0.371, 0.312, 0.240, 0.358)),
    0.3: ((0.475, 0.341, 0.250, 0.475), (0.287, 0.257, 0.212, 0.281)),
}
"""Mean and standard deviation of x0 given x0 + eta n = 0.5, from docs/methods/README.md."""


class Probe(Run):
    """Returns unit noise for one row at a time."""

    requests = 0

    def noise(self, x: Tensor) -> Tensor:
        unit = torch.zeros_like(x)
        unit[:, :, self.requests] = 1
        self.requests += 1
        assert self.requests < x.shape[2]
        return unit


def law(draw: Callable[[Run, Tensor], Tensor], rows: int = 200) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of ``draw(run, xn)`` for xn = 0.5; ``rows`` > its requests."""
    y = measurement(1, rows)
    run = Probe(y, Diagonal(), CountedPrior(prior()), None, None, None, (-1.0, 1.0))
    x = draw(run, torch.full_like(y, 0.5)).reshape(rows, 4)
    return x[-1], (x - x[-1]).square().sum(0).sqrt()


def check_law(
    draw: Callable[[Run, Tensor], Tensor],
    eta: float,
    *,
    mean_within: float,
    std_within: float,
    rows: int = 200,
) -> None:
    """The law of the draw is that of x0 given x0 + eta n = 0.5; ``std_within`` is relative."""
    exact_mean = (STD**2 * 0.5 + eta**2 * MEAN) / (STD**2 + eta**2)
    exact_std = STD * eta / torch.sqrt(STD**2 + eta**2)
    close(exact_mean, DOCUMENTED[eta][0], 6e-4)
    close(exact_std, DOCUMENTED[eta][1], 6e-4)
    mean, std = law(draw, rows)
    close(mean, tuple(exact_mean.tolist()), mean_within)
    close(std / exact_std, (1.0,) * 4, std_within)
