"""Commands of pnpcm in processes of bounded memory: how they end, and what they print.

Nothing of pnpcm is imported here but its name, so that ``tests/faults/test_hostile_*.py`` run on
older commits too, where they must fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pnpcm

SOURCE = Path(pnpcm.__file__).parents[1]
MEMORY = 4 * 2**30
"""Bytes of address space of a process."""
HANG = 25
"""Seconds after which a command hangs; it needs less than one."""

LIMITS = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""
MODULE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
runpy.run_module("pnpcm", run_name="__main__", alter_sys=True)
"""
DRIVER = """
import contextlib, io, json, signal, sys

class Hangs(BaseException):
    pass

def hangs(number, frame):
    raise Hangs

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

signal.signal(signal.SIGALRM, hangs)
real = sys.stdout
for words in json.loads(sys.argv[1]):
    sys.argv = ["pnpcm", *words]
    code, out, err = 0, io.StringIO(), io.StringIO()
    forget_peak()
    signal.alarm(HANG)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            CALL
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException as error:
        code = f"{type(error).__name__}: {error}"
    signal.alarm(0)
    print(json.dumps([code, out.getvalue(), err.getvalue(), peak()]), file=real, flush=True)
"""
MAIN = "from pnpcm.cli import main; main()"


@dataclass(frozen=True)
class Ended:
    """The end of a command.

    ``code``: exit code, the number of a signal as −number, or an error that nothing caught.
    ``peak``: the most bytes of memory that its process had meanwhile; 0: unknown.
    """

    code: int | str
    out: str
    err: str
    peak: int = 0

    def rows(self) -> dict[str, dict[str, Any]]:
        """The lines of ``--json`` by the name of the input."""
        found = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]
        return {Path(row["input"]).name: row for row in found}

    def refused(self) -> str:
        """The one sentence of a command that refused its input; anything else is a failure."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert self.code in (1, 2), self
        assert len(lines) == 1, self
        assert lines[0].startswith("pnpcm: "), self
        return lines[0]


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that imports this pnpcm."""
    paths = [more.pop("first", ""), str(SOURCE), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | more


def limited(code: str, *, memory: int = MEMORY, file: int = -1) -> list[str]:
    """The command that runs Python code within limits; ``file``: most bytes of a file, −1: any."""
    limits = LIMITS.replace("MEMORY", str(memory)).replace("FILE", str(file))
    return [sys.executable, "-c", limits + code]


def pnpcm_in(folder: Path, *words: str, memory: int = MEMORY, file: int = -1, **more: str) -> Ended:
    """``python -m pnpcm`` in ``folder``; ``more``: variables of the environment."""
    done = subprocess.run(
        [*limited(MODULE, memory=memory, file=file), *words],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def each_in(
    folder: Path,
    commands: Sequence[Sequence[str]],
    *,
    call: str = MAIN,
    memory: int = MEMORY,
    **more: str,
) -> list[Ended]:
    """The ends of commands that run in one process, in a new one after one that ended it.

    ``call``: Python code that is run in the place of the command line, with the words in sys.argv.
    """
    code = DRIVER.replace("HANG", str(HANG)).replace("CALL", call.replace("\n", "\n" + " " * 12))
    found: list[Ended] = []
    while len(found) < len(commands):
        process = subprocess.Popen(
            [*limited(code, memory=memory), json.dumps(commands[len(found) :])],
            cwd=folder,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            out, err = process.communicate(timeout=(HANG + 5) * (len(commands) - len(found)))
            code_of_it: int | str = process.returncode
        except subprocess.TimeoutExpired:  # a library hangs, where no signal arrives
            process.kill()
            out, err = process.communicate()
            code_of_it = "Hangs"
        found += [Ended(*json.loads(line)) for line in out.splitlines()]
        if len(found) < len(commands):
            found.append(Ended(code_of_it, "", err))
    return found
