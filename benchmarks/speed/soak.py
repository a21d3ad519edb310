"""Soak test: good and bad inputs for some minutes; are all results there, does memory stay flat?

    python benchmarks/speed/soak.py --minutes 3

Half of the time in one process through the Python interface (``pnpcm.restore`` of tensors and
``process`` of files), then the command line on the same folder again and again, each time with new
and old inputs. Bad inputs are a text with the name of an image, a file cut in half, an empty file
and an image of one pixel; each must fail in every round, and each good one must have a complete
result. Prints figures; exit code 1 if a result was lost or the memory has grown by more than 10 %
between the first third and the last third of the rounds in one process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pnpcm import restore
from pnpcm.errors import PnPCMError
from pnpcm.problems import Denoise, SuperRes, TaskChoice
from pnpcm.recon import Options
from pnpcm.recon.photo import PhotoJob
from pnpcm.recon.plan import Priors
from pnpcm.recon.record import process

GROWTH = 1.1
"""Largest ratio of resident memory, last third to first third of the rounds."""
SIZES = ((32, 32), (48, 40), (64, 64))


def picture(number: int) -> Image.Image:
    """A noisy picture, a different one for every number."""
    random = np.random.default_rng(number)
    height, width = SIZES[number % len(SIZES)]
    ramp = np.linspace(40, 210, width)[None, :, None] + np.zeros((height, 1, 3))
    noisy = np.clip(ramp + random.normal(0, 15, ramp.shape), 0, 255)
    return Image.fromarray(noisy.astype(np.uint8))


def write_inputs(folder: Path, number: int) -> tuple[list[Path], list[Path]]:
    """Two good inputs and four bad ones of a round."""
    good = [folder / f"{number}-{k}.png" for k in range(2)]
    for k, path in enumerate(good):
        picture(2 * number + k).save(path)
    bad = [folder / f"{number}-{word}.png" for word in ("text", "cut", "empty", "pixel")]
    bad[0].write_text("not a picture")
    bad[1].write_bytes(good[0].read_bytes()[:200])
    bad[2].write_bytes(b"")
    Image.new("RGB", (1, 1)).save(bad[3])
    return good, bad


def resident() -> float:
    """Resident memory of this process in MB."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux: the largest so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 1e6


class Soak:
    """Counts of all rounds; ``lost``: sentences about results that are not as they should be."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.out = folder / "in", folder / "out"
        self.inputs.mkdir()
        self.done = self.failed = self.kept = self.rounds = 0
        self.lost: list[str] = []
        self.memory: list[float] = []
        options = Options(sigma_y="auto")
        self.job = PhotoJob(TaskChoice("denoise", None, {}), options, Priors("natural"))

    def in_process(self, number: int) -> None:
        """One round through Python: files through ``process``, a tensor and a bad one."""
        good, bad = write_inputs(self.inputs, number)
        paths = [*good, *bad]
        targets = [self.out / f"{path.stem}.denoise.png" for path in paths]
        for outcome in process(paths, targets, self.job):
            self._count(outcome.input, outcome.status, good)
        y = torch.rand((1, 3, 24, 24), generator=torch.Generator().manual_seed(number)) * 2 - 1
        if not bool(restore(y, SuperRes(2), sigma_y=0.02).x.isfinite().all()):
            self.lost.append(f"round {number}: the tensor gave NaN")
        try:
            restore(y * 255, Denoise(), sigma_y=0.02)
            self.lost.append(f"round {number}: a tensor in [-255, 255] was restored")
        except PnPCMError:
            pass
        for path in paths:
            path.unlink()
        self.rounds += 1
        self.memory.append(resident())

    def by_command(self, number: int) -> None:
        """One round of ``pnpcm restore`` on a folder with the inputs of this and older rounds."""
        good, _ = write_inputs(self.inputs, number)
        words = ["restore", str(self.inputs), "--task", "denoise", "--json", "--out", str(self.out)]
        code = subprocess.run([sys.executable, "-m", "pnpcm", *words], capture_output=True)
        if code.returncode != 1 or b"Traceback" in code.stderr:
            self.lost.append(f"round {number}: exit code {code.returncode}, {code.stderr[-300:]!r}")
        for line in code.stdout.decode().splitlines():
            row = json.loads(line)
            path = Path(row["input"])
            self._count(path, row["status"], [path] if path.stem[-1].isdigit() else [])
        for path in good:
            self._check(path)
        self.rounds += 1

    def _count(self, path: Path, status: str, good: list[Path]) -> None:
        self.done += status == "done"
        self.kept += status == "kept"
        self.failed += status == "failed"
        expected = ("done", "kept") if path in good else ("failed",)
        if path.stem.endswith("pixel"):
            expected = ("done", "kept", "failed")
        if status not in expected:
            self.lost.append(f"{path.name} is {status}")
        if path in good:
            self._check(path)

    def _check(self, path: Path) -> None:
        """The result of a good input has its image and its record."""
        record = self.out / f"{path.stem}.denoise.result.json"
        if not record.exists() or not (self.out / f"{path.stem}.denoise.png").exists():
            self.lost.append(f"{path.name} has no complete result")

    @property
    def growth(self) -> float:
        """Median memory of the last third of the rounds relative to the first third."""
        third = max(1, len(self.memory) // 3)
        return float(np.median(self.memory[-third:]) / np.median(self.memory[:third]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=3.0, help="duration; default: 3")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder))
        start, number = time.monotonic(), 0
        while time.monotonic() - start < 30 * minutes:
            soak.in_process(number)
            number += 1
        python = (soak.rounds, soak.done, soak.failed)
        print(f"python: {python[0]} rounds, {python[1]} done, {python[2]} failed as they should")
        print(
            f"memory: {soak.memory[0]:.0f} MB after the first round, {soak.memory[-1]:.0f} MB "
            f"after the last, {soak.growth:.3f} × from the first third to the last"
        )
        while time.monotonic() - start < 60 * minutes:
            soak.by_command(number)
            number += 1
        print(
            f"command: {soak.rounds - python[0]} rounds, {soak.done - python[1]} done, "
            f"{soak.kept} kept, {soak.failed - python[2]} failed as they should"
        )
        left = [p.name for p in soak.out.iterdir() if p.name.startswith(".")]
        soak.lost += [f"left over: {name}" for name in left]
    for sentence in soak.lost:
        print(f"lost: {sentence}")
    print(f"{len(soak.lost)} lost")
    return 1 if soak.lost or soak.growth > GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
