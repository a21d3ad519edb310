"""Damaged files for every reader: each must be read or refused with an error of pnpcm.

``make fuzz`` prints a table; inputs that crash, take longer or raise anything else are saved in
``corpus/``, which ``tests/fuzz/test_fuzz.py`` reads again. Readers run in a worker process with
limits of memory and time, so that a crash is a finding. An input may take ``SECONDS`` of processor
time in that process, and is refused after as much in the child process that reads the structure of
HDF5 and twix files; the time of imports and that of waiting on a busy machine do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MEMORY = 2**30
"""Bytes that a reader may use beyond those of the libraries."""
SECONDS = 2.0
"""Processor time per input, here and in ``make test``."""
START = 30.0
"""Processor time of the valid file, which is read first and imports libraries."""
FINDINGS = ("other", "slow", "crash")


@dataclass
class Count:
    """Outcomes of the inputs of one reader; ``peak``: bytes beyond those of the libraries."""

    ours: int = 0
    accepted: int = 0
    other: int = 0
    slow: int = 0
    crash: int = 0
    slowest: float = 0.0
    peak: int = 0
    findings: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.ours + self.accepted + self.other + self.slow + self.crash

    def add(self, number: int, kind: str, words: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if kind in FINDINGS:
            self.findings.append((number, kind, words))


# inputs ------------------------------------------------------------------------------------------
def damaged(reader: str, number: int, whole: bytes) -> bytes:
    """Input ``number`` of a reader: a function of these alone. Input 0 is the valid file."""
    import numpy as np

    from fuzz.mutations import mutated
    from fuzz.targets import TARGETS

    if number == 0:
        return TARGETS[reader].pack(whole)
    random = np.random.default_rng([number, zlib.crc32(reader.encode())])
    return TARGETS[reader].pack(mutated(whole, random))


# worker ------------------------------------------------------------------------------------------
def work(jobs: Sequence[tuple[str, int, int]]) -> None:
    """Read inputs (reader, first, stop) and print one line before and one after each."""
    _limit_memory()
    with tempfile.TemporaryDirectory() as folder:
        for reader, first, stop in jobs:
            place = Path(folder) / str(len(os.listdir(folder)))
            place.mkdir()
            path, whole = _begun(reader, place)
            for number in range(first, stop):
                _say(reader, number, "start", "")
                before = time.process_time()
                kind, words = _outcome(reader, path, damaged(reader, number, whole), SECONDS)
                _say(reader, number, kind, words, time.process_time() - before, _peak())


def replay(path: Path, reader: str) -> None:
    """Read one saved input, in this process."""
    _limit_memory()
    with tempfile.TemporaryDirectory() as folder:
        copy, _ = _begun(reader, Path(folder))
        kind, words = _outcome(reader, copy, path.read_bytes(), SECONDS)
        _say(reader, 0, kind, words)


def _begun(reader: str, folder: Path) -> tuple[Path, bytes]:
    """The path of the file to read, and the valid file, which has been read once for the imports.

    Files beside it stay, e.g. the data of a header.
    """
    from fuzz.targets import TARGETS
    from pnpcm.io import hdf5
    from pnpcm.mri.readers import twix

    target = TARGETS[reader]
    path = folder / target.name
    target.make(path)
    whole = path.read_bytes()
    hdf5.SECONDS = twix.SECONDS = START
    _outcome(reader, path, target.pack(whole), START)
    hdf5.SECONDS = twix.SECONDS = SECONDS
    return path, whole


def _outcome(reader: str, path: Path, content: bytes, seconds: float) -> tuple[str, str]:
    import warnings

    from fuzz.targets import TARGETS
    from pnpcm.errors import PnPCMError

    path.write_bytes(content)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # then SIGPROF, which ends the process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TARGETS[reader].read(path)
    except PnPCMError as error:
        return "ours", str(error)
    except Exception as error:
        return "other", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "accepted", ""


def _say(reader: str, number: int, kind: str, words: str, *numbers: float) -> None:
    print(json.dumps([reader, number, kind, words[:200], *numbers]), flush=True)


def _limit_memory() -> None:
    importlib.import_module("fuzz.targets")  # the libraries that it imports do not count
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# master ------------------------------------------------------------------------------------------
def fuzz(inputs: dict[str, int], first: int = 0) -> dict[str, Count]:
    """The outcomes of that many inputs per reader; a worker that dies is started again."""
    counts = {reader: Count() for reader in inputs}
    rest = dict.fromkeys(inputs, first)
    stops = {reader: first + n for reader, n in inputs.items()}
    while jobs := [(r, at, stops[r]) for r, at in rest.items() if at < stops[r]]:
        now: tuple[str, int] | None = None
        base: dict[str, int] = {}
        for line in _lines(jobs):
            if isinstance(line, int):  # the worker has ended with this code
                if now is None:
                    raise RuntimeError(f"the worker ends with code {line} before its first input")
                reader, number = now
                counts[reader].add(number, *_end_of(line))
                rest[reader] = number + 1
                break
            reader, number, kind, words, *numbers = line
            if kind == "start":
                now = reader, number
                continue
            now, rest[reader] = None, number + 1
            counts[reader].add(number, kind, words)
            if number + 1 == stops[reader]:
                _progress(reader, counts[reader])
            counts[reader].slowest = max(counts[reader].slowest, numbers[0])
            base.setdefault(reader, int(numbers[1]))
            counts[reader].peak = max(counts[reader].peak, int(numbers[1]) - base[reader])
    return counts


def _progress(reader: str, count: Count) -> None:
    found = f", {len(count.findings)} findings" if count.findings else ""
    print(f"{time.strftime('%H:%M:%S')} {reader}: {count.inputs} inputs{found}", file=sys.stderr)


def _lines(jobs: Sequence[tuple[str, int, int]]) -> Iterator[Any]:
    """The lines of a worker, and its exit code unless that is 0."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--worker", json.dumps(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    assert process.stdout is not None
    with process.stdout:
        yield from map(json.loads, process.stdout)
    if code := process.wait():
        yield code


def replayed(path: Path) -> tuple[str, str]:
    """The outcome of a saved input, in a process of its own."""
    reader = _reader_of(path)
    done = subprocess.run(
        [sys.executable, __file__, "--replay", str(path), "--only", reader],
        capture_output=True,
        text=True,
        env=environment(),
    )
    if done.returncode:
        return _end_of(done.returncode)
    _, _, kind, words = json.loads(done.stdout.splitlines()[-1])
    return kind, words


def _end_of(code: int) -> tuple[str, str]:
    """The outcome of an input on which the process that reads it ends with this code."""
    if code == -signal.SIGPROF:
        return "slow", f"it takes longer than {SECONDS:g} s of processor time"
    return "crash", f"exit code {code}"


def environment() -> dict[str, str]:
    paths = [str(HERE.parent), *(p for p in sys.path if p)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def _reader_of(path: Path) -> str:
    from fuzz.targets import TARGETS

    name = path.stem.rpartition("-")[0]
    return next(reader for reader in TARGETS if _file_name(reader) == name)


def _file_name(reader: str) -> str:
    return reader.replace(", ", "_").replace(" ", "")


def save(counts: dict[str, Count]) -> list[Path]:
    """Write every finding to the corpus."""
    from fuzz.targets import TARGETS

    saved = []
    with tempfile.TemporaryDirectory() as folder:
        for reader, count in counts.items():
            if not count.findings:
                continue
            path = Path(folder) / _file_name(reader) / TARGETS[reader].name
            path.parent.mkdir()
            TARGETS[reader].make(path)
            whole = path.read_bytes()
            for number, _, _ in count.findings:
                content = damaged(reader, number, whole)
                digest = hashlib.sha256(content).hexdigest()[:8]
                saved.append(CORPUS / f"{_file_name(reader)}-{digest}.bin")
                saved[-1].write_bytes(content)
    return saved


def table(counts: dict[str, Count]) -> str:
    """The outcomes as a Markdown table."""
    head = "| reader | inputs | ours | accepted | other errors | too slow | crashes | slowest, s | "
    lines = [head + "peak, MB |", "|---" * 9 + "|"]
    for reader, c in counts.items():
        cells = (c.inputs, c.ours, c.accepted, c.other, c.slow, c.crash)
        lines.append(
            f"| {reader} | {' | '.join(map(str, cells))} | {c.slowest:.2f} | {c.peak / 1e6:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="per reader; ×10 for some")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", nargs="*", help="names of readers")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return work(json.loads(given.worker))
    from fuzz.targets import TARGETS

    if given.replay:
        return replay(given.replay, given.only[0])
    rows = {name: TARGETS[name] for name in given.only or TARGETS}
    inputs = {name: given.inputs * (10 if row.many else 1) for name, row in rows.items()}
    counts = fuzz(inputs, given.first)
    print(table(counts))
    for reader, count in counts.items():
        for number, kind, words in count.findings:
            print(f"{reader}, input {number}: {kind}, {words}")
    for path in save(counts):
        print(f"saved: {path}")
    sys.exit(1 if any(count.findings for count in counts.values()) else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))  # of the package fuzz
    main()
