"""Calls in a child process, for libraries that can crash, hang or exhaust memory on a bad file.

The child is started once per process (about 0.3 s) and answers calls in milliseconds. It has its
own limit of memory, each call a limit of processor time. If it dies, the next call starts another.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
from functools import cache
from threading import Lock
from typing import Any

MEMORY = 4 * 2**30
"""Largest address space of the child in bytes."""


def in_child(function: str, *arguments: Any, seconds: float) -> Any:
    """The value of ``function`` ("module:name") in the child; arguments and value are JSON.

    Raises RuntimeError with the reason if the function raises, crashes or takes longer than
    ``seconds`` of processor time.
    """
    return _child(os.getpid()).call(function, arguments, seconds)


@cache
def _child(process: int) -> _Child:  # of this process: a forked one must not use its parent's
    child = _Child()
    atexit.register(child.stop)
    return child


class _Child:
    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: str, arguments: Any, seconds: float) -> Any:
        request = json.dumps([function, arguments, seconds]).encode() + b"\n"
        with self._lock:
            if self._process is None:
                self._process = _start()
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(request)
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = b""
            except BaseException:  # Ctrl-C: its answer must not be taken for that of the next call
                process.kill()
                self._end()
                raise
            if not answer:
                raise RuntimeError(_death(self._end(), seconds))
        value, problem = json.loads(answer)
        if problem is not None:
            raise RuntimeError(problem)
        return value

    def stop(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            try:
                if pipe is not None:
                    pipe.close()  # the child ends at the end of its input
            except BrokenPipeError:
                pass
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _death(code: int, seconds: float) -> str:
    if code == -signal.SIGPROF:
        return f"it takes longer than {seconds:.3g} s"
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"its library crashes on it, {name}"


def _start() -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _serve() -> None:
    """Answer calls from standard input until its end."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin.buffer:
        function, arguments, seconds = json.loads(line)
        module, _, name = function.partition(":")
        value, problem = None, None
        signal.setitimer(signal.ITIMER_PROF, seconds)  # then SIGPROF, which ends the process
        try:
            value = getattr(importlib.import_module(module), name)(*arguments)
        except Exception as error:  # told to the caller
            problem = f"{type(error).__name__}: {error}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps([value, problem]) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
