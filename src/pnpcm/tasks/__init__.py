"""Tasks: what a user asks for, in the words of the command line. Adding one: a class and a line."""

from pnpcm.tables import Table
from pnpcm.tasks.base import Problem, Task, build
from pnpcm.tasks.custom import Custom
from pnpcm.tasks.linear import Deblur, Denoise, Inpaint, SuperRes
from pnpcm.tasks.nonlinear import Jpeg, NonlinearDeblur, PhaseRetrievalTask

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
