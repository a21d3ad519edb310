"""Every method on one prior, one operator, one measurement, one seed: numbers and fair tuning."""

from pnpcm.contest.method import Method, Setting
from pnpcm.contest.methods import METHODS
from pnpcm.contest.presets import BASELINES, Baseline
from pnpcm.contest.tuning import Fair, fair_tune

__all__ = ["BASELINES", "METHODS", "Baseline", "Fair", "Method", "Setting", "fair_tune"]
