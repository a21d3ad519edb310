"""Problems: tasks, measurement files, and the problem that a solver is given."""

from pnpcm.problems.choice import TASKS, TaskChoice, build
from pnpcm.problems.linear import Deblur, Denoise, Inpaint, SuperRes
from pnpcm.problems.nonlinear import Jpeg, NonlinearDeblur, PhaseRetrievalTask, resolve_signs
from pnpcm.problems.task import Custom, Problem, Task, samples_image

__all__ = [
    "TASKS",
    "Custom",
    "Deblur",
    "Denoise",
    "Inpaint",
    "Jpeg",
    "NonlinearDeblur",
    "PhaseRetrievalTask",
    "Problem",
    "SuperRes",
    "Task",
    "TaskChoice",
    "build",
    "resolve_signs",
    "samples_image",
]
