"""A picture of a search: how it went, and where the good values lie."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pnpcm.errors import MissingExtraError
from pnpcm.io.files import write_atomically
from pnpcm.tune.search import SPACE

if TYPE_CHECKING:
    import optuna


def picture_of_search(study: optuna.Study, path: Path) -> None:
    """Score over trials, and score over each hyperparameter, as one PNG."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib; pip install 'pnpcm[tune]'") from error
    done = [t for t in study.trials if t.value is not None]
    figure = Figure(figsize=(12, 9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, 3).flatten()
    scores = [t.value for t in done]
    best = [max(scores[: i + 1]) for i in range(len(scores))]
    axes[0].plot([t.number for t in done], scores, ".", [t.number for t in done], best, "-")
    axes[0].set(title="score", xlabel="trial")
    floor = sorted(scores)[len(scores) // 4]
    for axis, (name, (_, _, log)) in zip(axes[1:], SPACE.items(), strict=True):
        axis.plot([t.params[name] for t in done], scores, ".")
        axis.axvline(study.best_params[name], color="0.7")
        axis.set(title=name, ylim=(floor - 0.1, max(scores) + 0.1))
        axis.set_xscale("log" if log else "linear")
    write_atomically(path, lambda p: figure.savefig(p, dpi=100))
