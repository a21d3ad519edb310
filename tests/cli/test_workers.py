"""``pnpcm restore`` and ``pnpcm mri`` on dask workers: the files of one process, bit for bit."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pnpcm.cli import app
from pnpcm.cluster import connect
from pnpcm.errors import ArgumentError
from pnpcm.problems import TaskChoice
from pnpcm.recon import Options, record
from pnpcm.recon.inputs import find_inputs, photo_targets
from pnpcm.recon.photo import PhotoJob
from pnpcm.recon.plan import Priors
from pnpcm.recon.record import Outcome, Request, process

pytest.importorskip("distributed")
COUNT = 3


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with connect(workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy pictures of 24×24 pixels, and a file that is not one."""
    folder = tmp_path_factory.mktemp("in")
    for i in range(COUNT):
        pixels = np.random.default_rng(i).integers(90, 160, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    (folder / "text.png").write_text("no picture")
    return folder


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the workers have: sums of several threads are rounded in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def call(*words: object) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and printed objects of a command with --json."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, without the seconds of records."""
    found = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if path.suffix == ".json":
            data = re.sub(rb'"seconds": \{[^}]*\}', b"", data)
        found[path.name] = data
    return found


def outcomes(folder: Path, out: Path, client: Any) -> Iterator[Outcome]:
    found, _ = find_inputs([folder], (".png",))
    job = PhotoJob(TaskChoice("denoise"), Options(sigma_y=0.1), Priors("natural"))
    targets = photo_targets(found, ["denoise"] * len(found), out)
    return process([one.path for one in found], targets, job, client)


def test_pictures_are_those_of_one_process_and_are_kept(
    client: Any, folder: Path, tmp_path: Path
) -> None:
    words = ("restore", folder, "--task", "denoise", "--samples", 2, "--method", "pnp-cm")
    words += ("--steps", 2, "--sigma-y", 0.1)
    joined = ("--scheduler", client.cluster.scheduler_address)
    code, rows = call(*words, "--out", tmp_path / "alone")
    assert (code, len(rows)) == (1, COUNT + 1)
    code, rows = call(*words, "--out", tmp_path / "workers", *joined)
    assert code == 1
    assert sorted(row["status"] for row in rows) == ["done"] * COUNT + ["failed"]
    (failed,) = (row for row in rows if row["status"] == "failed")
    assert failed["input"] == str(folder / "text.png")
    assert contents(tmp_path / "workers") == contents(tmp_path / "alone")
    assert len(contents(tmp_path / "alone")) == 5 * COUNT
    (tmp_path / "workers" / "2.denoise.png").unlink()
    _, rows = call(*words, "--out", tmp_path / "workers", *joined)
    status = {Path(row["input"]).name: row["status"] for row in rows}
    assert status["2.png"] == "done"
    assert list(status.values()).count("kept") == COUNT - 1
    assert contents(tmp_path / "workers") == contents(tmp_path / "alone")


def test_a_worker_loads_a_prior_once(client: Any, folder: Path, tmp_path: Path) -> None:
    assert len(list(outcomes(folder, tmp_path, client))) == COUNT + 1

    def loaded() -> tuple[int, int]:
        from pnpcm.recon.plan import shared_priors

        found = shared_priors.cache_info()
        return found.misses, found.currsize

    assert set(client.run(loaded).values()) == {(1, 1)}


def test_inputs_of_a_killed_worker_run_again_elsewhere(
    client: Any, folder: Path, tmp_path: Path
) -> None:
    processes, found, killed = client.run(os.getpid), [], False
    for one in outcomes(folder, tmp_path / "workers", client):
        found.append(one)
        busy = [address for address, keys in client.processing().items() if keys]
        if not killed and busy:
            killed = True
            os.kill(processes[busy[0]], signal.SIGKILL)
    assert killed
    statuses = [one.status for one in found]
    assert statuses.count("failed") == 1  # the text
    assert len(statuses) == COUNT + 1
    list(outcomes(folder, tmp_path / "alone", None))
    assert contents(tmp_path / "workers") == contents(tmp_path / "alone")


def test_an_input_whose_workers_die_again_and_again_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deaths themselves: tests/bench/test_cluster.py."""

    def computed(client: Any, function: Any, items: Any) -> Iterator[Any]:
        for i, item in enumerate(items):
            yield (item, None, "4 workers died") if i == 1 else (item, function(item), None)

    monkeypatch.setattr(record, "computed", computed)
    found = list(outcomes(folder, tmp_path, None))
    assert [one.status for one in found] == ["done", "failed", "done", "failed"]
    assert found[1].message == f"{folder}/1.png: 4 workers died"


def test_scans_are_those_of_one_process(client: Any, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    for seed in (0, 1):
        words = ("simulate-mri", tmp_path / f"in/{seed}.h5", "--slices", 1, "--size", "32,40")
        (tmp_path / "in").mkdir(exist_ok=True)
        done = CliRunner().invoke(app, [*map(str, words), "--seed", str(seed), "--coils", "3"])
        assert done.exit_code == 0, done.output
    (tmp_path / "in" / "text.h5").write_text("no scan")
    words = ("mri", tmp_path / "in", "--mask", "gaussian1d", "--acceleration", 2, "--acs", 12)
    words += ("--steps", 2, "--format", "npy,png")
    assert call(*words, "--out", tmp_path / "alone")[0] == 1
    joined = ("--scheduler", client.cluster.scheduler_address)
    code, rows = call(*words, "--out", tmp_path / "workers", *joined)
    assert code == 1
    assert sorted(row["status"] for row in rows) == ["done", "done", "failed"]
    assert contents(tmp_path / "workers") == contents(tmp_path / "alone")
    assert len(contents(tmp_path / "alone")) == 6


class Elsewhere(PhotoJob):
    """A job on a machine with other disks."""

    def unwatched(self) -> "Elsewhere":
        return self

    def __call__(self, path: Path, target: Path, request: Request) -> tuple[dict[str, Any], str]:
        return {"files": [target.name]}, ""


def test_results_on_disks_of_another_machine_are_failures(folder: Path, tmp_path: Path) -> None:
    job = Elsewhere(TaskChoice("denoise"), Options(), Priors("natural"))
    (one,) = process([folder / "0.png"], [tmp_path / "0.denoise.png"], job)
    assert one.status == "failed"
    assert "which is not here; workers need the same folders" in one.message


def test_workers_with_several_threads_and_priors_that_are_objects_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    class Threads:
        def nthreads(self) -> dict[str, int]:
            return {"tcp://a:1": 4}

    with pytest.raises(ArgumentError, match="tcp://a:1 with 4 threads, expected 1"):
        list(outcomes(folder, tmp_path, Threads()))
    priors = Priors(Priors("gaussian")(("edm",)))
    with pytest.raises(ArgumentError, match="is an object; workers need a name or a file"):
        priors.__reduce__()
