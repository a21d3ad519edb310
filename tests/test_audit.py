"""tools/audit.py: what it reports, and that it does not call unknown packages safe."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "audit.py"
    spec = importlib.util.spec_from_file_location("audit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAFE = {"name": "rich", "version": "15.0.0", "vulns": []}
BAD = {"name": "pillow", "version": "9.0", "vulns": [{"id": "CVE-2022-22817"}]}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("broken", "packages", "code", "words"),
    [
        ([], [SAFE], 0, ["0 conflicts; 1 of 1 packages compared"]),
        ([], [SAFE, BAD], 1, ["vulnerable: pillow 9.0: CVE-2022-22817", "1 vulnerable"]),
        (["a 1 requires b"], [SAFE], 1, ["conflict: a 1 requires b", "1 conflicts"]),
        ([], [SAFE, UNKNOWN], 0, ["1 of 2 packages compared", "unknown to this package index"]),
        ([], [], 0, ["0 of 0 packages compared", "unknown to this package index"]),
    ],
)
def test_the_report_says_how_many_packages_were_compared(
    broken: list[str],
    packages: list[dict[str, Any]],
    code: int,
    words: list[str],
    audit: ModuleType,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert audit.report(broken, packages) == code
    out = capsys.readouterr().out
    assert all(each in out for each in words)
    assert ("unknown" in out) == any("unknown" in each for each in words)
