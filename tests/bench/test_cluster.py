"""Rows on dask workers: those of one process, also when a worker is killed."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pnpcm import cluster
from pnpcm.bench import Store, bench, read_spec, run
from pnpcm.bench.run import Progress
from pnpcm.bench.spec import Spec
from pnpcm.bench.store import LOST
from pnpcm.cluster import connect
from pnpcm.errors import ArgumentError, MissingExtraError

Same = Callable[[Any], list[Any]]
pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with connect(workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory, write_spec: Callable[..., Path]) -> Spec:
    return read_spec(write_spec(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def alone(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The rows of one process without dask."""
    return bench(spec, tmp_path_factory.mktemp("alone"))


def killing(client: Any, killed: list[int]) -> Callable[[Progress], None]:
    """A ``watch`` that kills a worker that computes, once, with kill -9."""
    client.wait_for_workers(2, timeout=60)
    processes = client.run(os.getpid)

    def watch(progress: Progress) -> None:
        if killed or not progress.done:
            return
        busy = [address for address, keys in client.processing().items() if keys]
        if busy and busy[0] in processes:
            killed.append(processes[busy[0]])
            os.kill(killed[0], signal.SIGKILL)

    return watch


def test_two_workers_give_the_rows_of_one_process(
    client: Any, spec: Spec, alone: Store, tmp_path: Path, same: Same
) -> None:
    store = bench(spec, tmp_path, client=client)
    assert same(store.rows()) == same(alone.rows())
    assert len(store.keys()) == 12
    kept = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert kept == {path.name for path in (alone.folder / "pictures").iterdir()}


def test_the_workers_have_one_thread_and_load_a_prior_once(client: Any, spec: Spec) -> None:
    def state() -> tuple[int, int, str | None, str | None]:
        import os

        from pnpcm.bench.run import priors_of

        found = priors_of.cache_info()
        words = (os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"))
        return (found.misses, found.currsize, *words)

    found = client.run(state)
    assert len(found) == 2
    assert set(found.values()) == {(1, 1, "1", "PASSIVE")}
    assert all(address.startswith("tcp://127.0.0.1:") for address in found)
    assert client.cluster.scheduler_address.startswith("tcp://127.0.0.1:")
    assert client.cluster.scheduler.http_server.address == "127.0.0.1"


def test_few_jobs_are_under_way_at_a_time(
    client: Any, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "AHEAD", 1)
    monkeypatch.setattr(cluster, "LEAST_AHEAD", 1)
    read = 0
    original = run.job_of

    def job_of(*arguments: Any) -> Any:
        nonlocal read
        read += 1
        return original(*arguments)

    monkeypatch.setattr(run, "job_of", job_of)
    ahead = []
    bench(
        spec,
        tmp_path,
        limit=1,
        client=client,
        watch=lambda progress: ahead.append(read - progress.done),
    )
    assert read == 6
    assert max(ahead) <= 2  # two workers with one thread


def test_a_killed_worker_loses_nothing(
    client: Any, spec: Spec, alone: Store, tmp_path: Path, same: Same
) -> None:
    killed: list[int] = []
    store = bench(spec, tmp_path, client=client, watch=killing(client, killed))
    assert len(killed) == 1
    assert same(store.rows()) == same(alone.rows())


def test_rows_whose_workers_die_again_and_again_are_told_and_computed_by_the_next_run(
    client: Any, spec: Spec, alone: Store, tmp_path: Path, same: Same
) -> None:
    scheduler = client.cluster.scheduler
    allowed, scheduler.allowed_failures = scheduler.allowed_failures, 0
    killed: list[int] = []
    try:
        store = bench(spec, tmp_path, client=client, watch=killing(client, killed))
    finally:
        scheduler.allowed_failures = allowed
    assert len(killed) == 1
    rows = list(store.rows())
    assert len(rows) == 12
    lost = [row["failed"] for row in rows if (row["failed"] or "").startswith(LOST)]
    assert lost
    assert set(lost) == {f"{LOST}1 worker died while computing it; is there enough memory?"}
    assert len(store.keys()) == 12 - len(lost)
    bench(spec, tmp_path)
    assert same(store.rows()) == same(alone.rows())


def test_a_running_scheduler_is_joined(
    client: Any, spec: Spec, alone: Store, tmp_path: Path, same: Same
) -> None:
    with connect(scheduler=client.cluster.scheduler_address) as other:
        store = bench(spec, tmp_path, client=other)
    assert same(store.rows()) == same(alone.rows())
    assert client.status == "running"


def test_without_arguments_there_is_no_client() -> None:
    with connect(None, None) as nothing:
        assert nothing is None


def test_bad_arguments_get_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnpcm.cluster.TIMEOUT", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        silent = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        for arguments, message in (
            ((0, None), "workers is 0, expected 1 or more"),
            ((1, silent), "give one of them"),
            ((None, silent), f"scheduler is '{silent}', which does not answer within 1 s"),
            ((None, "nonsense://a"), "expected tcp://host:port"),
            ((None, ""), "expected tcp://host:port"),
        ):
            with pytest.raises(ArgumentError, match=message), connect(*arguments):
                pass


def test_without_dask_the_error_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'pnpcm\[cluster\]'"),
        connect(workers=1),
    ):
        pass
