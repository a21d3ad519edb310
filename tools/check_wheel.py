"""Check a wheel in a clean environment.

    python tools/check_wheel.py [dist/pnpcm-….whl] [--keep FOLDER]

makes a virtual environment in a temporary folder (or in FOLDER, which stays), installs the wheel
with the versions of constraints.txt, and runs there, outside of the repository, ``pnpcm doctor``,
``pnpcm restore`` on one bundled photograph with added noise, and ``pnpcm demo``. Prints the size of
the wheel and the seconds of each step. Exit code 1: a step failed, or the wheel lacks a file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDED = ("pnpcm/py.typed", "pnpcm/data/presets.json", "pnpcm/data/CREDITS.md")
NEEDED += ("pnpcm/bench/report.html.j2", "pnpcm/app/style.css", "licenses/LICENSE")
NEEDED += tuple(
    f"weights/{name}-{kind}.safetensors"
    for name in ("natural", "mri", "faces")
    for kind in ("cm", "edm")
)
NOISY = """
import sys, torch, pnpcm
from pathlib import Path
from pnpcm.io.files import read_image, save_picture, to_picture
home = Path(pnpcm.__file__).parent
assert "site-packages" in home.parts, f"pnpcm is that of {home}, not of the wheel"
x = read_image(home / "data" / "friends_by_Aitzol_Berasategi.png")
g = torch.Generator().manual_seed(0)
save_picture(Path("noisy.png"), to_picture((x + 0.2 * torch.randn(x.shape, generator=g))[0]))
"""


def missing(wheel: Path) -> list[str]:
    """Names of ``NEEDED`` with which no file of the wheel ends."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    return [need for need in NEEDED if not any(name.endswith(need) for name in names)]


def newest() -> Path:
    found = sorted((ROOT / "dist").glob("pnpcm-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        sys.exit("there is no wheel in dist: run make dist")
    return found[-1]


def check(wheel: Path, folder: Path) -> int:
    """Install and run; returns the exit code."""
    lacking = missing(wheel)
    if lacking:
        print(f"the wheel lacks {', '.join(lacking)}")
        return 1
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python, pnpcm = str(programs / "python"), str(programs / "pnpcm")
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    start = time.perf_counter()
    venv.create(folder / "venv", with_pip=True)
    steps = {
        "install": [*pip, "-c", str(ROOT / "constraints.txt"), str(wheel.resolve())],
        "noisy picture": [python, "-c", NOISY],
        "doctor": [pnpcm, "doctor"],
        "restore": [pnpcm, "restore", "noisy.png", "--task", "denoise"],
        "demo": [pnpcm, "demo"],
    }
    for name, words in steps.items():
        done = subprocess.run(words, cwd=folder, env=outside, capture_output=True, text=True)
        seconds, start = time.perf_counter() - start, time.perf_counter()
        print(f"{name}: {seconds:.0f} s, exit code {done.returncode}", flush=True)
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
            return 1
    for result in ("out/restored/noisy.denoise.png", "out/demo/overview.png"):
        if not (folder / result).is_file():
            print(f"{result} was not written")
            return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Check a wheel in a clean environment.")
    parser.add_argument("wheel", type=Path, nargs="?", help="default: the newest of dist")
    parser.add_argument("--keep", type=Path, help="folder of the environment and the results")
    given = parser.parse_args()
    wheel = given.wheel or newest()
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        return check(wheel, given.keep.resolve())
    with tempfile.TemporaryDirectory() as folder:
        return check(wheel, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
