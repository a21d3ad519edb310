"""TASKS: the tasks by name; ``build`` makes a task from options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pnpcm.errors import ArgumentError
from pnpcm.problems.linear import Deblur, Denoise, Inpaint, SuperRes
from pnpcm.problems.nonlinear import Jpeg, NonlinearDeblur, PhaseRetrievalTask
from pnpcm.problems.task import Task
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


def build(row: type[Task], options: Mapping[str, Any]) -> Task:
    """The task with the given options; an unknown option is an error."""
    known = [f.name for f in fields(row)]
    for key in options:
        if key not in known:
            takes = ", ".join(known) or "no options"
            raise ArgumentError(f"task {row.name} does not take {key}; it takes: {takes}")
    return row(**options)
