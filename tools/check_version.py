"""Check that one version is stated everywhere.

    python tools/check_version.py            # pyproject, __init__, CITATION.cff, CHANGELOG.md
    python tools/check_version.py v0.1.0     # also the tag, and that the changelog has its date

Exit code 1: they differ.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {
    "src/pnpcm/__init__.py": r'^__version__ = "([^"]+)"$',
    "CITATION.cff": r"^version: (\S+)$",
    "CHANGELOG.md": r"^## \[(\d[^]]*)\]",
}


def versions() -> dict[str, str]:
    """The version by file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {"pyproject.toml": str(project["version"])}
    for name, pattern in PLACES.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match[1] if match else "none"
    return found


def problems(tag: str | None = None) -> list[str]:
    """Sentences, one per difference."""
    found = versions()
    wanted = found["pyproject.toml"]
    wrong = [f"{name} has {own}, not {wanted}" for name, own in found.items() if own != wanted]
    if tag is not None:
        wrong += [] if tag == f"v{wanted}" else [f"the tag is {tag}, not v{wanted}"]
        changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        dated = rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d\d-\d\d$"
        if not re.search(dated, changes, re.MULTILINE):
            wrong.append(f"CHANGELOG.md has no heading ## [{wanted}] - YYYY-MM-DD")
    return wrong


if __name__ == "__main__":
    lines = problems(*sys.argv[1:2])
    print("\n".join(lines) or f"version {versions()['pyproject.toml']} everywhere")
    sys.exit(1 if lines else 0)
