"""Judging a prior: how it denoises images it has not seen, and what it draws from noise."""

from pnpcm.evaluation.images import Images, fit
from pnpcm.evaluation.report import PUBLISHED, Published, comparison, markdown, rows
from pnpcm.evaluation.samples import Drawn, draw, sheet
from pnpcm.evaluation.scores import Evaluation, Score, evaluate, next_level

__all__ = [
    "PUBLISHED",
    "Evaluation",
    "Images",
    "Published",
    "Drawn",
    "Score",
    "comparison",
    "draw",
    "evaluate",
    "fit",
    "markdown",
    "next_level",
    "rows",
    "sheet",
]
