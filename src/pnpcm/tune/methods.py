"""METHODS: what a fair tuning searches for each solver, and how the numbers found become a run.

Every method has the same budget, and its first trial is what its authors published.
"""

from pnpcm.tables import Table
from pnpcm.tune.consistency_methods import ON_CONSISTENCY
from pnpcm.tune.diffusion_methods import ON_DIFFUSION
from pnpcm.tune.method import Method

METHODS: Table[Method] = Table("method", ON_CONSISTENCY | ON_DIFFUSION)
