"""Evaluation of a prior: denoising scores on test images, and samples."""

from pnpcm.evaluation.images import Images, fit
from pnpcm.evaluation.samples import Drawn, draw, sheet
from pnpcm.evaluation.scores import (
    PUBLISHED,
    Evaluation,
    Published,
    Score,
    comparison,
    evaluate,
    markdown,
    next_level,
    rows,
)

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
