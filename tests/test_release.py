"""Files of a release: one version, workflows and environments that name what exists."""

from __future__ import annotations

import importlib.util
import re
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_version_is_stated_everywhere() -> None:
    assert tool("check_version").problems() == []


def test_a_tag_needs_that_version_and_a_date() -> None:
    found = tool("check_version").problems("v9.9.9")
    assert any(line.startswith("the tag is v9.9.9") for line in found)


def test_the_changelog_has_the_usual_sections() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    usual = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    found = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert found
    assert set(found) <= usual
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"\[[\d.]+\] - (Unreleased|\d{4}-\d\d-\d\d)", head) for head in heads)


def test_workflows_and_templates_are_valid_and_run_what_exists() -> None:
    yaml = pytest.importorskip("yaml")
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        commands += [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert "make dist" in commands
    for command in commands:
        first, *rest = command.split()
        if first == "make":
            assert rest[0] in targets
        elif first == "python":
            assert (ROOT / rest[0]).is_file()
        else:
            assert first == "gh" or (ROOT / first).is_file()
    for name in ("bug", "feature"):
        path = ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml"
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)


def test_environment_files_lead_to_the_constraints() -> None:
    yaml = pytest.importorskip("yaml")
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert conda["dependencies"][-1] == {"pip": ["-r requirements.txt"]}
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["-c constraints.txt", "-e ."]


def test_a_wheel_without_weights_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "pnpcm-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("pnpcm/py.typed", "")
    assert tool("check_wheel").check(wheel, tmp_path) == 1
    assert "weights/natural-cm.safetensors" in capsys.readouterr().out
