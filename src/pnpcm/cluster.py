"""connect: a client of dask.distributed; computed: results of its workers, or of this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from pnpcm import __version__
from pnpcm.errors import ArgumentError, MissingExtraError
from pnpcm.names import count_of

TIMEOUT = 10
"""Seconds in which a scheduler must answer."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Of the workers on this machine, which have one thread each."""
IGNORE_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""Run by every worker: Ctrl-C reaches all processes of a terminal, and this one ends the others."""
AHEAD = 3
"""Jobs per worker thread that are submitted at a time: a worker never waits for its next one."""
LEAST_AHEAD = 16
"""Jobs that are submitted at least, so that a cluster that adapts to its load starts workers."""
SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GiB",  # a job contains its image
    "distributed.comm.timeouts.connect": f"{TIMEOUT}s",
}
Job = TypeVar("Job")
Found = TypeVar("Found")


@contextmanager
def connect(workers: int | None = None, scheduler: str | None = None) -> Iterator[Any]:
    """A dask client while the context lasts, or None if neither argument is given.

    ``workers``: processes with one thread each on this machine, which listen on 127.0.0.1 only and
    end with the context. ``scheduler``: address "tcp://host:port" of a running scheduler, which
    continues to run.
    """
    if workers is None and scheduler is None:
        yield None
        return
    if workers is not None and scheduler is not None:
        raise ArgumentError(
            f"workers is {workers} and scheduler is {scheduler!r}; give one of them: the workers "
            "of a scheduler are started where it runs"
        )
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers is {workers}, expected 1 or more processes")
    try:
        import dask
        import distributed
    except ImportError as error:
        raise MissingExtraError(
            "workers and schedulers need dask; pip install 'pnpcm[cluster]'"
        ) from error
    with dask.config.set(SETTINGS):
        if scheduler is not None:
            with _joined(distributed, scheduler) as client:
                yield client
            return
        local = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # any free port, of the scheduler's HTTP routes
            scheduler_kwargs={"dashboard": False},
            memory_limit=None,  # a share per worker would end jobs that fit
            env=ENVIRONMENT,
            preload=IGNORE_INTERRUPTS,
            silence_logs=logging.CRITICAL,
        )
        with local, distributed.Client(local) as client:
            yield client


@contextmanager
def _joined(distributed: Any, scheduler: str) -> Iterator[Any]:
    try:
        client = distributed.Client(scheduler, timeout=TIMEOUT)
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(
            f"scheduler is {scheduler!r}, which does not answer within {TIMEOUT} s; expected "
            "tcp://host:port of a running one, as `dask scheduler` prints it"
        ) from error
    with client:
        _check_versions(client, scheduler)
        yield client


def _check_versions(client: Any, scheduler: str) -> None:
    """Refuse workers without this version of pnpcm, whose results would be other ones."""
    remedy = f"install pnpcm {__version__} in the environment of the workers"
    try:
        found = client.run(version)
    except Exception as error:  # what a worker raises, e.g. ModuleNotFoundError
        raise ArgumentError(
            f"scheduler is {scheduler!r}, whose workers cannot import pnpcm ({error}); {remedy}"
        ) from error
    for worker, other in found.items():
        if other != __version__:
            raise ArgumentError(
                f"scheduler is {scheduler!r}, whose worker {worker} has pnpcm {other}; {remedy}"
            )


def version() -> str:
    """The version of pnpcm, of the process in which this function is called."""
    return __version__


def computed(
    client: Any, function: Callable[[Job], Found], jobs: Iterable[Job]
) -> Iterator[tuple[Job, Found | None, str | None]]:
    """(job, result, None) of every job in the order in which they finish.

    ``client=None``: in this process. A job whose worker dies runs again on another one; after four
    such deaths it is returned as (job, None, reason).
    """
    if client is None:
        for job in jobs:
            yield job, function(job), None
        return
    from dask.distributed import as_completed

    waiting, under_way, futures = iter(jobs), dict[str, Job](), as_completed()

    def fill() -> None:
        """Submit jobs until every worker has some in reserve; the others are not read yet."""
        most = max(LEAST_AHEAD, AHEAD * sum(client.nthreads().values()))
        for job in islice(waiting, max(0, most - len(under_way))):
            future = client.submit(function, job, pure=False)
            under_way[future.key] = job
            futures.add(future)

    fill()
    for future in futures:
        yield under_way.pop(future.key), *_result_of(future)
        future.release()
        fill()


def _result_of(future: Any) -> tuple[Any, str | None]:
    """The result of a dask future, or the reason why there is none: its workers died."""
    from dask.distributed import KilledWorker

    try:
        return future.result(), None
    except KilledWorker as error:
        workers = count_of(error.allowed_failures + 1, "worker")
        return None, f"{workers} died while computing it; is there enough memory?"
    except (asyncio.CancelledError, concurrent.futures.CancelledError, OSError) as error:
        raise ArgumentError(
            "scheduler is lost: the connection was closed; finished results are stored, repeat the "
            "command to continue"
        ) from error
