"""Tasks: what a user asks for, in the words of the command line. Adding one: a class and a line."""

from pnpcm.problems.custom import Custom
from pnpcm.problems.linear import Deblur, Denoise, Inpaint, SuperRes
from pnpcm.problems.nonlinear import Jpeg, NonlinearDeblur, PhaseRetrievalTask
from pnpcm.problems.task import Problem, Task, build
from pnpcm.tables import Table

TASKS: Table[type[Task]] = Table(
    "task",
    {
        row.name: row
        for row in (
            Denoise,
            Inpaint,
            SuperRes,
            Deblur,
            Jpeg,
            NonlinearDeblur,
            PhaseRetrievalTask,
        )
    },
)

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
    "build",
]
